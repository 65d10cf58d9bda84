"""Wrong labels: what others say of an image, how sure that is, and which images are suspect."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dmuh.errors import InputError
from dmuh.wrong_labels import find_suspects
from dmuh.wrong_labels.kernel import KernelFeatures
from dmuh.wrong_labels.logistic import LAST_PENALTIES, LAST_STEPS, PENALTIES, ROUNDS, Folds
from dmuh.wrong_labels.noise import OneLabel, SeveralLabels


def clusters(n, n_classes, seed=0, width=8, spread=0.5):
    """Vectors in as many clusters as classes, of sizes that differ, and the class of each."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, n_classes + 1)
    classes = np.concatenate([np.arange(n_classes), rng.choice(n_classes, n - n_classes, p=share / share.sum())])
    centres = rng.standard_normal((n_classes, width))
    return (centres[classes] + spread * rng.standard_normal((n, width))).astype(np.float32), classes


def one_hot(classes, n_classes):
    return np.eye(n_classes, dtype=np.uint8)[classes]


# -- vectors as features of a kernel ---------------------------------------------------------------------------------


def test_with_a_landmark_for_each_image_the_kernel_is_exact():
    vectors, _ = clusters(50, 3)
    kernel = KernelFeatures(vectors)
    features = kernel.of(np.arange(50))
    distances = np.square(vectors[:, None] - vectors[None]).sum(axis=2)
    expected = np.exp(-distances / distances.mean())
    expected = expected - expected.mean(axis=0) - expected.mean(axis=1)[:, None] + expected.mean()
    np.testing.assert_allclose(features[:, :-1] @ features[:, :-1].T, expected, atol=4e-3)
    assert features.shape == (50, kernel.width)
    assert (features[:, -1] == 1).all()
    assert kernel.spread == pytest.approx(np.trace(expected) / 50, abs=0.02)


def test_images_become_features_in_parts(monkeypatch):
    kernel = KernelFeatures(clusters(60, 3)[0], landmarks=20)
    rows = np.random.default_rng(0).permutation(60)
    whole = kernel.of(rows)
    monkeypatch.setattr("dmuh.wrong_labels.kernel._ROWS", 7)
    np.testing.assert_allclose(kernel.of(rows), whole, atol=1e-4)
    np.testing.assert_allclose(kernel.of(rows[5:6]), whole[5:6], atol=1e-4)


def test_other_landmarks_are_drawn_by_another_seed():
    vectors, _ = clusters(60, 3)
    first, again, other = (KernelFeatures(vectors, seed, landmarks=20).of(np.arange(60)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


# -- how often labels are wrong --------------------------------------------------------------------------------------


def some_noise(kind, n_classes, rng):
    if kind is OneLabel:
        given = rng.random((n_classes, n_classes)) + 3 * np.eye(n_classes)
        return OneLabel(given / given.sum(axis=1, keepdims=True), np.full(n_classes, 1 / n_classes))
    return SeveralLabels(0.2, 0.1, np.ones(n_classes), np.zeros(n_classes))


def some_labels(kind, n, n_classes, rng):
    if kind is OneLabel:
        return one_hot(rng.integers(0, n_classes, n), n_classes)
    return rng.integers(0, 2, (n, n_classes), np.uint8)


@pytest.mark.parametrize("kind", [OneLabel, SeveralLabels])
@given(st.integers(2, 5), st.integers(0, 20))
@settings(max_examples=20, deadline=None)
def test_the_gradient_is_that_of_the_likelihood(kind, n_classes, seed):
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(1, n_classes)), some_labels(kind, 1, n_classes, rng)
    noise, step = some_noise(kind, n_classes, rng), 1e-5
    expected = [
        (noise.likelihood(logits - move, labels) - noise.likelihood(logits + move, labels)) / (2 * step)
        for move in step * np.eye(n_classes)
    ]
    np.testing.assert_allclose(noise.gradient(logits, labels)[0], expected, atol=1e-6)


@pytest.mark.parametrize("kind", [OneLabel, SeveralLabels])
def test_where_no_label_is_wrong_the_gradient_is_that_of_a_plain_logistic_regression(kind):
    rng = np.random.default_rng(0)
    logits, labels = 5 * rng.normal(size=(30, 4)), some_labels(kind, 30, 4, rng)
    raised = np.exp(logits)
    predicted = raised / raised.sum(axis=1, keepdims=True) if kind is OneLabel else raised / (1 + raised)
    np.testing.assert_allclose(kind.none(labels).gradient(logits, labels), predicted - labels, atol=1e-9)


@given(st.integers(2, 5), st.integers(0, 20))
@settings(max_examples=20, deadline=None)
def test_the_probability_of_a_wrong_label_is_by_bayes(n_classes, seed):
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(6, n_classes)), some_labels(OneLabel, 6, n_classes, rng)
    noise = replace(some_noise(OneLabel, n_classes, rng), slope=1.5)
    suggested, probability = noise.judged(logits, labels)
    for row in range(6):
        own, chances = labels[row].argmax(), np.exp(1.5 * logits[row])
        joint = [chances[right] * noise.given[right, own] for right in range(n_classes)]
        assert probability[row] == pytest.approx(1 - joint[own] / sum(joint))
        joint[own] = 0
        assert suggested[row].tolist() == np.eye(n_classes)[np.argmax(joint)].tolist()


@given(st.integers(1, 4), st.integers(0, 20))
@settings(max_examples=20, deadline=None)
def test_with_several_labels_each_is_judged_by_bayes(n_classes, seed):
    rng = np.random.default_rng(seed)
    logits, labels = 2 * rng.normal(size=(8, n_classes)), some_labels(SeveralLabels, 8, n_classes, rng)
    noise = replace(some_noise(SeveralLabels, n_classes, rng), bare=0.3)
    suggested, probability = noise.judged(logits, labels)
    for row in range(8):
        p = 1 / (1 + np.exp(-logits[row]))
        there, not_there = 0.1 * (1 - p) / (0.1 * (1 - p) + 0.8 * p), 0.2 * p / (0.2 * p + 0.9 * (1 - p))
        wrong = np.where(labels[row] == 1, there, not_there)
        expected = 1 - np.prod(1 - wrong)
        if not labels[row].any():  # fewer images than that are really without any
            really = np.prod(0.9 * (1 - p))
            taken = np.prod(0.9 * (1 - p) + 0.2 * p) - really
            expected = taken / (taken + 0.3 * really)
        assert probability[row] == pytest.approx(expected)
        changed = wrong > 0.5
        changed[wrong.argmax()] = True
        assert (suggested[row] != labels[row]).tolist() == changed.tolist()


def mistaken(share, moved, n_classes=4, n=6000):
    """Logits of a fit that is not as sure as it might be, labels of which a share is wrong, and which."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(n, n_classes))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    right = (rng.random((n, 1)) < chances.cumsum(axis=1)).argmax(axis=1)
    is_wrong = rng.random(n) < share
    others = (right + rng.integers(1, 1 + moved, n)) % n_classes
    return 0.5 * logits, one_hot(np.where(is_wrong, others, right), n_classes), is_wrong


def test_classes_that_are_given_for_another_are_found():
    logits, labels, _ = mistaken(0.3, moved=1)
    given = OneLabel.none(labels).fitted(logits, labels).given
    np.testing.assert_allclose(given.sum(axis=1), 1)
    np.fill_diagonal(given, 0)
    np.testing.assert_array_equal(given.argmax(axis=1), [1, 2, 3, 0])


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3])
def test_the_share_of_wrong_labels_is_found(share):
    shrunk, labels, is_wrong = mistaken(share, moved=3)
    noise = OneLabel.none(labels).fitted(shrunk, labels)
    assert noise.slope == pytest.approx(2, rel=0.15)
    _, probability = noise.judged(shrunk, labels)
    assert probability.mean() == pytest.approx(share, abs=0.02)
    for low, high in ((0, 0.3), (0.3, 0.7), (0.7, 1.1)):
        inside = (probability >= low) & (probability < high)
        if inside.sum() > 100:
            assert probability[inside].mean() == pytest.approx(is_wrong[inside].mean(), abs=0.1)


def test_the_shares_of_missing_and_added_labels_are_found():
    rng = np.random.default_rng(0)
    logits = 5 * rng.normal(size=(4000, 3)) - 2
    right = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.uint8)
    labels = np.where(right == 1, rng.random(right.shape) >= 0.1, rng.random(right.shape) < 0.03).astype(np.uint8)
    noise = SeveralLabels.none(labels).fitted(0.5 * logits + 0.3, labels)
    assert noise.missing == pytest.approx(0.1, abs=0.02)
    assert noise.added == pytest.approx(0.03, abs=0.01)
    np.testing.assert_allclose(noise.slope, 2, rtol=0.2)
    assert noise.bare == pytest.approx(1, abs=0.1)
    some = labels.any(axis=1)
    assert SeveralLabels.none(labels).fitted(0.5 * logits[some], labels[some]).bare == 0


# -- what others say of an image -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OneLabel, SeveralLabels])
def test_each_fold_is_judged_by_the_best_fit_to_the_others(kind):
    rng = np.random.default_rng(0)
    vectors, labels = rng.normal(size=(40, 3)).astype(np.float32), some_labels(kind, 40, 3, rng)
    kernel = KernelFeatures(vectors, landmarks=6)
    folds = Folds(kernel, labels)
    fit = folds.fit(kind.none(labels), 0.5, (300,))
    features = kernel.of(folds.order).astype(float)
    assert sorted(folds.order) == list(range(40))
    penalties = np.r_[np.full(6, 0.5 * kernel.spread), 1e-3][:, None]
    for part in folds.parts:
        others = np.delete(np.arange(40), part)
        x, y = features[others], labels[folds.order[others]]

        def loss(flat, x=x, y=y):
            weights = flat.reshape(7, 3)
            return -len(x) * kind.none(labels).likelihood(x @ weights, y) + 0.5 * (penalties * weights**2).sum()

        best = minimize(loss, np.zeros(21), tol=1e-9).x.reshape(7, 3)
        chances, expected = features[part] @ best, fit.logits[part]
        if kind is OneLabel:  # only differences count
            chances, expected = (z - z.mean(axis=1, keepdims=True) for z in (chances, expected))
        np.testing.assert_allclose(chances, expected, atol=0.02)


@pytest.mark.parametrize("kind", [OneLabel, SeveralLabels])
def test_an_image_is_judged_without_its_own_label(kind):
    rng = np.random.default_rng(0)
    vectors, labels = rng.normal(size=(50, 3)).astype(np.float32), some_labels(kind, 50, 3, rng)
    noise = some_noise(kind, 3, rng)
    folds = Folds(KernelFeatures(vectors), labels)
    before = folds.fit(noise, 0.5, (5,)).logits
    first = folds.parts[0]
    folds._labels[first] = np.roll(folds._labels[first], 1, axis=1)
    after = folds.fit(noise, 0.5, (5,)).logits
    np.testing.assert_array_equal(before[first], after[first])
    assert not np.allclose(before[first.stop :], after[first.stop :])


def test_classes_are_dealt_out_to_all_folds():
    vectors, classes = clusters(53, 3)
    folds = Folds(KernelFeatures(vectors), one_hot(classes, 3))
    counts = np.array([np.bincount(classes[folds.order[part]], minlength=3) for part in folds.parts])
    assert counts.shape == (5, 3)
    assert (np.ptp(counts, axis=0) <= 1).all()


def test_the_penalty_is_that_under_which_held_out_labels_are_most_likely(monkeypatch):
    vectors, classes = clusters(100, 3, spread=2.0)
    labels = one_hot(classes, 3)
    folds, noise = Folds(KernelFeatures(vectors), labels), OneLabel.none(labels)

    def expected(by):
        tried = {penalty: folds.fit(noise, penalty, ROUNDS[:2], by).likelihood for penalty in PENALTIES}
        penalty = max(tried, key=tried.__getitem__)
        first = folds.fit(noise, penalty)
        trusted = first.noise.trusted(first.logits, labels[folds.order])
        last = {
            factor * penalty: folds.fit(noise, factor * penalty, LAST_STEPS, by, trusted=trusted).likelihood
            for factor in LAST_PENALTIES
        }
        return folds.fit(noise, max(last, key=last.__getitem__), LAST_STEPS, trusted=trusted).logits

    np.testing.assert_array_equal(folds.best(noise).logits, expected(None))
    monkeypatch.setattr("dmuh.wrong_labels.logistic._ONE_FOLD", 10)
    np.testing.assert_array_equal(folds.best(noise).logits, expected([0]))


@pytest.mark.parametrize("kind", [OneLabel, SeveralLabels])
def test_a_fit_to_trusted_labels_is_not_changed_by_others(kind):
    rng = np.random.default_rng(0)
    vectors, labels = rng.normal(size=(50, 3)).astype(np.float32), some_labels(kind, 50, 3, rng)
    folds, noise = Folds(KernelFeatures(vectors), labels), kind.none(labels)
    trusted = rng.random((50, 1 if kind is OneLabel else 3)) < 0.7
    before = folds.fit(noise, 0.5, (5,), trusted=trusted).logits
    other = np.roll(folds._labels, 1, axis=1) if kind is OneLabel else 1 - folds._labels
    whole = folds.fit(noise, 0.5, (5,)).logits
    folds._labels = np.where(trusted, folds._labels, other)
    np.testing.assert_array_equal(folds.fit(noise, 0.5, (5,), trusted=trusted).logits, before)
    assert not np.allclose(whole, before)


def test_an_image_is_trusted_whose_label_is_probably_right_and_of_several_labels_each_by_itself():
    rng = np.random.default_rng(0)
    logits, labels = 3 * rng.normal(size=(40, 3)), some_labels(OneLabel, 40, 3, rng)
    noise = some_noise(OneLabel, 3, rng)
    expected = noise.judged(logits, labels)[1] < 0.5
    assert 5 < expected.sum() < 35
    np.testing.assert_array_equal(noise.trusted(logits, labels), expected[:, None])
    labels, noise = some_labels(SeveralLabels, 40, 3, rng), some_noise(SeveralLabels, 3, rng)
    p = 1 / (1 + np.exp(-logits))
    there, not_there = 0.1 * (1 - p) / (0.1 * (1 - p) + 0.8 * p), 0.2 * p / (0.2 * p + 0.9 * (1 - p))
    expected = np.where(labels == 1, there, not_there) < 0.5
    assert 10 < expected.sum() < 110
    np.testing.assert_array_equal(noise.trusted(logits, labels), expected)


def test_the_fit_to_trusted_labels_tells_wrong_ones_better():
    vectors, classes = clusters(1500, 6, width=40, spread=1.8)
    rng = np.random.default_rng(1)
    wrong = rng.random(1500) < 0.3
    given_classes = np.where(wrong, (classes + rng.integers(1, 6, 1500)) % 6, classes)
    labels = one_hot(given_classes, 6)
    folds, noise = Folds(KernelFeatures(vectors), labels), OneLabel.none(labels)

    def error(fit):
        _, probability = fit.noise.judged(fit.logits, labels[folds.order])
        chance = np.where(wrong[folds.order], probability, 1 - probability)
        return -np.log(np.maximum(chance, 0.01)).mean()

    assert error(folds.best(noise)) < min(error(folds.fit(noise, penalty)) for penalty in PENALTIES) - 0.01


def test_images_are_gone_through_in_parts(monkeypatch):
    vectors, classes = clusters(60, 3)
    labels = one_hot(classes, 3)
    folds = Folds(KernelFeatures(vectors), labels)
    whole = folds.fit(OneLabel.none(labels), 0.5, (3,)).logits
    monkeypatch.setattr("dmuh.wrong_labels.logistic._ROWS", 7)
    np.testing.assert_allclose(folds.fit(OneLabel.none(labels), 0.5, (3,)).logits, whole, atol=1e-3)


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


def test_vectors_without_negative_numbers_are_compared_by_their_roots():
    vectors, classes = clusters(200, 3)
    labels = one_hot(classes, 3)
    ours = find_suspects(np.abs(vectors), labels)
    roots = np.sqrt(np.abs(vectors))
    roots *= np.linalg.norm(vectors, axis=1, keepdims=True) / np.linalg.norm(roots, axis=1, keepdims=True)
    roots = np.hstack([roots, np.full((200, 1), -1, np.float32)])  # as far apart as before, and taken as they are
    np.testing.assert_allclose(find_suspects(roots, labels).probability, ours.probability, atol=1e-3)
    nothing = find_suspects(np.zeros_like(vectors), labels).probability
    assert np.isfinite(nothing).all()


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


def test_beyond_a_number_of_images_a_sample_is_fitted_to(monkeypatch):
    vectors, classes = clusters(400, 4, spread=0.3)
    given_classes = classes.copy()
    wrong = np.random.default_rng(1).permutation(400)[:40]
    given_classes[wrong] = (classes[wrong] + 1) % 4
    whole = find_suspects(vectors, one_hot(given_classes, 4))
    monkeypatch.setattr("dmuh.wrong_labels.logistic.IMAGES", 200)
    monkeypatch.setattr("dmuh.wrong_labels.suspects._ROWS", 30)
    found = find_suspects(vectors, one_hot(given_classes, 4))
    assert sorted(found.positions) == list(range(400))
    assert set(found.positions[:40]) == set(wrong)
    assert not np.array_equal(found.probability, whole.probability)


def test_of_a_label_that_no_other_image_has_nothing_is_known():
    vectors, classes = clusters(200, 3, spread=0.3)
    wrong = np.flatnonzero(classes == 0)[1:11]
    alone = np.flatnonzero(classes == 0)[11]
    classes[wrong], classes[alone] = 1, 3
    labels = np.insert(one_hot(classes, 4), 2, 0, axis=1)  # and a class that no image has
    found = find_suspects(vectors, labels)
    assert set(found.positions[:10]) == set(wrong)
    of_alone = found.probability[found.positions == alone]
    assert of_alone == pytest.approx(found.probability[found.positions != alone].mean(), rel=0.2)
    assert not found.suggested[:, 2].any()


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
