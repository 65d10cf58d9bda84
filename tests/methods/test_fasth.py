"""FastH: the pairs, the bits inferred from them, and the trees that predict these."""

import itertools
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
import torch
from clusters import clusters, random_signs
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.tree import DecisionTreeRegressor

from dmuh.methods import fasth
from dmuh.methods.fasth import FastH, complete_tree, lower_pairs, pair_loss, sample_pairs, symmetric_pairs
from dmuh.network.heads import TreesHead

seeds = st.integers(0, 2**16)


def drawn_labels(n: int, seed: int) -> np.ndarray:
    """None, one or several labels an image."""
    return (np.random.default_rng(seed).random((n, 4)) < 0.3).astype(np.float32)


@settings(deadline=None, max_examples=40)
@given(n=st.integers(2, 30), n_pairs=st.integers(2, 12), seed=seeds)
def test_pairs_are_flagged_by_their_labels_and_half_of_them_are_similar(n, n_pairs, seed):
    labels = drawn_labels(n, seed)
    partner, similar = sample_pairs(labels, n_pairs, np.random.default_rng(seed))
    assert partner.shape == similar.shape == (n, n_pairs)
    assert ((partner >= 0) & (partner < n)).all()
    for i, own in enumerate(partner):
        assert similar[i].tolist() == [bool((labels[i] * labels[j]).any()) for j in own]
        if labels[i].any():
            assert similar[i, : n_pairs // 2].all()


def test_partners_are_drawn_from_all_images_of_a_class_and_from_all():
    labels = np.eye(2, dtype=np.float32)[np.arange(40) % 2]
    partner, _ = sample_pairs(labels, 600, np.random.default_rng(0))
    assert set(partner[0, :300].tolist()) == set(range(0, 40, 2))
    assert set(partner[0, 300:].tolist()) == set(range(40))


def test_the_pairs_of_many_images_take_no_square_of_their_number():
    n, n_pairs = 6000, 10
    labels = np.eye(3, dtype=np.float32)[np.arange(n) % 3]
    tracemalloc.start()
    partner, similar = sample_pairs(labels, n_pairs, np.random.default_rng(0))
    pairs = symmetric_pairs(partner, pair_loss(np.zeros(partner.shape, np.float32), similar, 0.5))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pairs.nnz <= 2 * n * n_pairs + n
    assert peak < n * n / 2  # bytes: half of what a bool for each pair of images takes


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 15), n_pairs=st.integers(1, 8), seed=seeds)
def test_the_matrix_of_pairs_adds_both_orders_and_repetitions(n, n_pairs, seed):
    rng = np.random.default_rng(seed)
    partner, weight = rng.integers(0, n, (n, n_pairs)), rng.normal(size=(n, n_pairs))
    expected = np.zeros((n, n))
    for i, k in itertools.product(range(n), range(n_pairs)):
        expected[i, partner[i, k]] += weight[i, k]
        expected[partner[i, k], i] += weight[i, k]
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(symmetric_pairs(partner, weight).toarray(), expected, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 12), seed=seeds, whole=st.booleans())
def test_lower_pairs_is_a_dense_loop_and_never_raises_the_sum(n, seed, whole):
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.6) * 2
    dense = (dense.round() if whole else dense) + 0.0  # whole numbers have ties
    dense = dense + dense.T
    np.fill_diagonal(dense, 0)
    sparse = scipy.sparse.csr_matrix(dense)
    bit = random_signs(rng, n).astype(np.float32)
    expected = bit.copy()
    for _ in range(3):
        before = bit @ dense @ bit
        lower_pairs(bit, sparse.indptr, sparse.indices, sparse.data)
        for i in range(n):
            field = sum(dense[i, j] * expected[j] for j in range(n))
            expected[i] = expected[i] if abs(field) < 1e-12 else -np.sign(field)
        np.testing.assert_array_equal(bit, expected)
        assert bit @ dense @ bit <= before + 1e-9


def test_the_weights_of_pairs_tell_what_a_bit_costs():
    """Σ a_ij·z_i·z_j and twice the sum of the losses, with z as next bit, differ by a constant."""
    rng = np.random.default_rng(0)
    n, margin = 5, 1.5
    distance = rng.integers(0, 3, (n, n)).astype(float)
    similar = rng.random((n, n)) < 0.4
    weight = pair_loss(distance, similar, margin) - pair_loss(distance + 1, similar, margin)
    gaps = []
    for z in itertools.product((-1.0, 1.0), repeat=n):
        bit = np.array(z)
        differs = bit[:, None] != bit[None, :]
        gaps.append(2 * pair_loss(distance + differs, similar, margin).sum() - bit @ weight @ bit)
    np.testing.assert_allclose(gaps, gaps[0])


def test_the_loss_of_a_pair_is_the_papers_hinge():
    for d, similar, margin in itertools.product((0, 1, 4), (True, False), (0.5, 2.5)):
        expected = d**2 if similar else max(margin - d, 0) ** 2
        assert pair_loss(np.array([d]), np.array([similar]), margin).item() == expected


def walk(feature: np.ndarray, threshold: np.ndarray, leaf: np.ndarray, row: np.ndarray) -> float:
    """Down a complete tree, one float32 at a time."""
    place = 0
    while place < len(feature):
        place = 2 * place + (1 if row[feature[place]] <= threshold[place] else 2)
    return leaf[place - len(feature)]


@settings(deadline=None, max_examples=40)
@given(n=st.integers(2, 60), depth=st.integers(1, 5), decimals=st.sampled_from([0, 1, 8]), seed=seeds)
def test_a_complete_tree_predicts_what_scikit_learns_does(n, depth, decimals, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)).round(decimals).astype(np.float32)
    model = DecisionTreeRegressor(max_depth=depth, random_state=0).fit(x, rng.normal(size=n))
    feature, threshold, leaf = complete_tree(model.tree_, depth)
    assert (feature.shape, threshold.shape, leaf.shape) == ((2**depth - 1,), (2**depth - 1,), (2**depth,))
    assert (feature.dtype, threshold.dtype) == (np.int64, np.float32)
    own = model.tree_.threshold[model.tree_.feature >= 0].astype(np.float32)
    at = np.concatenate([own, np.nextafter(own, np.float32(np.inf)), np.nextafter(own, np.float32(-np.inf)), [0]])
    points = np.concatenate([x, rng.choice(at.astype(np.float32), (40, 3))])  # also where a float is a threshold
    np.testing.assert_array_equal([walk(feature, threshold, leaf, row) for row in points], model.predict(points))


def test_thresholds_between_neighbouring_floats_are_told_apart():
    """The double between two floats next to each other rounds to one of them: to the lower, always."""
    for low in (np.float32(1), np.float32(0.1), np.float32(-3.7), np.float32(1e-30), np.float32(16777216)):
        high = np.nextafter(low, np.float32(np.inf))
        x = np.array([[low], [high]], np.float32)
        model = DecisionTreeRegressor(max_depth=1).fit(x, [0.0, 1.0])
        tree = complete_tree(model.tree_, 1)
        assert [walk(*tree, row) for row in x] == model.predict(x).tolist()


@pytest.mark.parametrize("depth", [1, 4])
def test_the_trees_of_a_bit_are_scikit_learns_boosting(depth):
    x, y = clusters(80)
    rng = np.random.default_rng(0)
    method, head = FastH(n_bits=2, trees=7, depth=depth, seed=5), TreesHead(2, 7, depth)
    for k in (0, 1):
        bit = np.where((y == k) ^ (rng.random(80) < 0.1), 1.0, -1.0).astype(np.float32)
        predicted = method._fit_trees(head, k, x, bit)
        model = GradientBoostingClassifier(
            n_estimators=7, max_depth=depth, learning_rate=fasth._LEARNING_RATE, subsample=fasth._SUBSAMPLE,
            max_features="sqrt", random_state=5 + k,
        ).fit(x, bit)  # fmt: skip
        wanted = model.decision_function(x)
        found = head(torch.from_numpy(x))[:, k].numpy()
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        sure = np.abs(wanted) > 1e-5
        assert sure.sum() > 60
        np.testing.assert_array_equal((found >= 0)[sure], (wanted >= 0)[sure])
        np.testing.assert_array_equal(predicted, np.where(wanted >= 0, 1, -1))


@pytest.mark.parametrize("value", [-1.0, 1.0])
def test_a_bit_that_is_the_same_for_all_needs_no_trees(value):
    x, _ = clusters(10)
    head = TreesHead(1, 3, 2)
    bit = np.full(10, value, np.float32)
    np.testing.assert_array_equal(FastH(1, trees=3, depth=2)._fit_trees(head, 0, x, bit), bit)
    np.testing.assert_array_equal(head(torch.from_numpy(x))[:, 0].sign().numpy(), bit)


def test_losses_are_those_of_the_bits_that_the_trees_predict():
    x, y = clusters(60)
    method = FastH(6, trees=4, depth=2, pairs=10, seed=3).fit(x, y)
    partner, similar = sample_pairs(np.eye(3, dtype=np.float32)[y], 10, np.random.default_rng(3))
    codes = method.project(x) >= 0
    for r in range(1, 7):
        distance = (codes[:, None, :r] != codes[partner][..., :r]).sum(axis=2)
        assert method.losses_[r - 1] == pytest.approx(pair_loss(distance, similar, r / 2).mean(), rel=1e-5)


def test_images_of_a_class_share_a_code():
    x, y = clusters(90)
    codes = FastH(8, trees=10, depth=3, pairs=20).fit(x, y).project(x) >= 0
    agreement = (codes[:, None] == codes[None, :]).mean(axis=2)
    same = y[:, None] == y[None, :]
    assert agreement[same].mean() > 0.9
    assert agreement[~same].mean() < 0.7
