"""Wrong labels: what others say of an image, how sure that is, and which images are suspect."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmuh.errors import InputError
from dmuh.review import find_suspects
from dmuh.review.probability import logistic, probabilities
from dmuh.review.ridge import LeaveOneOut


def clusters(n, n_classes, seed=0, width=8, spread=0.5):
    """Vectors in as many clusters as classes, of sizes that differ, and the class of each."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, n_classes + 1)
    classes = np.concatenate([np.arange(n_classes), rng.choice(n_classes, n - n_classes, p=share / share.sum())])
    centres = rng.standard_normal((n_classes, width))
    return (centres[classes] + spread * rng.standard_normal((n, width))).astype(np.float32), classes


def one_hot(classes, n_classes):
    return np.eye(n_classes, dtype=np.uint8)[classes]


def all_predictions(fit, *targets):
    parts = [predicted for _, predicted in fit.predictions(targets)]
    return [np.concatenate(own) for own in zip(*parts, strict=True)]


# -- what others say of an image -------------------------------------------------------------------------------------


@given(st.integers(4, 30), st.integers(1, 3), st.integers(2, 30), st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_each_image_is_judged_by_a_fit_to_all_others(n, n_targets, landmarks, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, 3)).astype(np.float32)
    targets = rng.integers(0, 2, (n, n_targets), np.uint8)
    fit = LeaveOneOut(vectors, seed, landmarks=landmarks)
    (predicted,) = all_predictions(fit, targets)
    features = np.concatenate([features for _, features, _ in fit._chunks([targets])]).astype(float)
    for left_out in range(n):
        others = np.arange(n) != left_out
        x, y = features[others], targets[others].astype(float)
        middle = x.mean(axis=0)
        gram = (x - middle).T @ (x - middle) + fit._penalty * np.eye(x.shape[1])
        weights = np.linalg.solve(gram, (x - middle).T @ (y - y.mean(axis=0)))
        expected = (features[left_out] - middle) @ weights + y.mean(axis=0)
        np.testing.assert_allclose(predicted[left_out], expected, atol=2e-3)


def test_with_a_landmark_for_each_image_the_kernel_is_exact():
    vectors, _ = clusters(50, 3)
    fit = LeaveOneOut(vectors)
    ((_, features, _),) = fit._chunks([np.zeros((50, 1), np.uint8)])
    distances = np.square(vectors[:, None] - vectors[None]).sum(axis=2)
    np.testing.assert_allclose(features @ features.T, np.exp(-distances / distances.mean()), atol=2e-3)


def test_images_are_gone_through_in_parts(monkeypatch):
    vectors, classes = clusters(60, 3)
    targets = one_hot(classes, 3)
    whole = all_predictions(LeaveOneOut(vectors), targets, 1 - targets)
    monkeypatch.setattr("dmuh.review.ridge._ROWS", 7)
    parts = all_predictions(LeaveOneOut(vectors), targets, 1 - targets)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


def test_other_landmarks_are_drawn_by_another_seed():
    vectors, classes = clusters(60, 3)
    first, again, other = (
        all_predictions(LeaveOneOut(vectors, seed, landmarks=20), one_hot(classes, 3))[0] for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


# -- how sure that is ------------------------------------------------------------------------------------------------


@given(st.integers(0, 20), st.floats(-2, 2), st.floats(-3, 3))
@settings(max_examples=20, deadline=None)
def test_a_logistic_regression_is_where_its_likelihood_is_largest(seed, slope, shift):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(50)
    y, weights = (rng.random(50) < 1 / (1 + np.exp(-slope * x - shift))).astype(float), rng.random(50) + 0.5

    def loss(a, b):
        margin = (2 * y - 1) * (a * x + b)
        return (weights * np.logaddexp(0, -margin)).sum() + 0.005 * (a * a + 1e-3 * b * b)

    best = logistic(x, y, weights)
    around = [loss(best[0] + da, best[1] + db) for da, db in ((0.01, 0), (-0.01, 0), (0, 0.01), (0, -0.01))]
    assert loss(*best) <= min(around) + 1e-9
    assert logistic(x, y) != best


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_probabilities_are_how_often_labels_are_wrong(share):
    rng = np.random.default_rng(0)
    n = 20_000
    is_wrong = rng.random(n) < share
    scores = rng.standard_normal(n) - 2 + 3 * is_wrong
    replaced = rng.standard_normal(1000) + 1
    found = probabilities(scores, replaced)
    assert found.sum() == pytest.approx(is_wrong.sum(), rel=0.2)
    for low, high in ((0, 0.3), (0.3, 0.7), (0.7, 1)):
        inside = (found >= low) & (found < high)
        assert found[inside].mean() == pytest.approx(is_wrong[inside].mean(), abs=0.12)
    assert (np.diff(found[np.argsort(scores)]) >= 0).all()


def test_no_scores_no_probabilities():
    assert probabilities(np.empty(0), np.ones(3)).shape == (0,)
    assert probabilities(np.ones(2), np.empty(0)).tolist() == [0, 0]


# -- suspects --------------------------------------------------------------------------------------------------------


def test_wrong_labels_come_first_with_the_right_ones_suggested():
    vectors, classes = clusters(400, 4, spread=0.3)
    given_classes = classes.copy()
    wrong = np.random.default_rng(1).permutation(400)[:40]
    given_classes[wrong] = (classes[wrong] + 1) % 4
    found = find_suspects(vectors, one_hot(given_classes, 4))
    assert len(found) == 400
    assert set(found.positions[:40]) == set(wrong)
    np.testing.assert_array_equal(found.suggested[:40].argmax(axis=1), classes[found.positions[:40]])
    assert (found.suggested.sum(axis=1) == 1).all()
    assert (np.diff(found.probability) <= 0).all()
    sure = found.at_least(0.5)
    assert 30 <= len(sure) <= 40
    np.testing.assert_array_equal(sure.positions, found.positions[: len(sure)])
    assert found.probability.sum() == pytest.approx(40, rel=0.3)


def test_the_same_seed_finds_the_same():
    vectors, classes = clusters(300, 4, spread=1.0)
    first, again, other = (find_suspects(vectors, one_hot(classes, 4), seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.positions, again.positions)
    np.testing.assert_array_equal(first.probability, again.probability)
    assert not np.array_equal(first.probability, other.probability)  # other labels are replaced


def test_images_without_a_label_take_no_part_where_each_has_one():
    vectors, classes = clusters(100, 3)
    labels = one_hot(classes, 3)
    labels[10:20] = 0
    found = find_suspects(vectors, labels)
    assert sorted(found.positions) == [*range(10), *range(20, 100)]
    alone = find_suspects(np.delete(vectors, range(10, 20), axis=0), np.delete(labels, range(10, 20), axis=0))
    np.testing.assert_array_equal(found.probability, alone.probability)
    assert len(find_suspects(vectors, labels, several=True)) == 100


def test_a_frequent_class_is_not_suggested_for_being_frequent(monkeypatch):
    rng = np.random.default_rng(0)
    classes = np.repeat([0, 1], [380, 20])
    vectors = (rng.standard_normal((400, 6)) + 1.2 * classes[:, None]).astype(np.float32)
    with_handicap = find_suspects(vectors, one_hot(classes, 2))
    monkeypatch.setattr("dmuh.review.suspects._HANDICAP", 0)
    without = find_suspects(vectors, one_hot(classes, 2))

    def rare_among_first(found):
        return (classes[found.positions[:20]] == 1).sum()

    assert rare_among_first(with_handicap) < rare_among_first(without)


def several(n=600, seed=0):
    """Vectors, and three labels each of which can be read from them; an image may have any of them."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, 3)) < [0.5, 0.3, 0.2]).astype(np.uint8)
    vectors = np.hstack([labels + 0.15 * rng.standard_normal((n, 3)), 0.1 * rng.standard_normal((n, 3))])
    return vectors.astype(np.float32), labels


def test_labels_that_are_missing_or_too_much_are_found():
    vectors, labels = several()
    given_labels, rng = labels.copy(), np.random.default_rng(1)
    wrong = rng.permutation(600)[:40]
    given_labels[wrong, rng.integers(0, 3, 40)] ^= 1
    assert (given_labels.sum(axis=1) > 1).any()
    found = find_suspects(vectors, given_labels)
    assert len(set(found.positions[:40]) & set(wrong)) >= 36
    right = (found.suggested[:40] == labels[found.positions[:40]]).all(axis=1)
    assert right.sum() >= 36
    changed = given_labels[found.positions] != found.suggested
    assert (changed.sum(axis=1) >= 1).all()


@pytest.mark.parametrize(("vectors", "labels", "said"), [
    (np.zeros((4, 2), np.float32), np.ones((3, 2), np.uint8), "must be matrices of n rows"),
    (np.zeros(4, np.float32), np.ones((4, 2), np.uint8), "must be matrices of n rows"),
    (np.zeros((4, 2), np.float32), np.ones((4, 1), np.uint8), "two classes or more"),
    (np.zeros((2, 2), np.float32), np.eye(2, dtype=np.uint8), "from three labelled images on, got 2"),
])  # fmt: skip
def test_what_cannot_be_judged_is_said(vectors, labels, said):
    with pytest.raises(InputError, match=said):
        find_suspects(vectors, labels)


@pytest.mark.parametrize("n", [3, 4, 7, 20])
def test_a_few_images_are_judged_too(n):
    vectors, classes = clusters(n, 2)
    found = find_suspects(vectors, one_hot(classes, 2))
    assert sorted(found.positions) == list(range(n))
    assert np.isfinite(found.probability).all()
    same = find_suspects(np.ones((n, 2), np.float32), one_hot(classes, 2))
    assert np.isfinite(same.probability).all()
