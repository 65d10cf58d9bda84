"""CSQ: its centres, and its terms against a plain loop."""

import logging
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives import differences, draw, drawn_labels, gradient, lengths, make, seeds, sizes, values
from torch import Tensor

from dmuh.methods import TrainBatch
from dmuh.methods.csq import hadamard, hash_centres

ORDERS = [1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 44, 48, 64, 128, 256]


def distances(centres: np.ndarray) -> np.ndarray:
    """The Hamming distances of all pairs."""
    whole = centres.astype(np.int32)
    return ((centres.shape[1] - whole @ whole.T) // 2)[np.triu_indices(len(centres), 1)]


@pytest.mark.parametrize("order", ORDERS)
def test_rows_of_a_hadamard_matrix_are_orthogonal(order):
    matrix = hadamard(order)
    assert matrix is not None
    assert set(np.unique(matrix)) <= {-1, 1}
    np.testing.assert_array_equal(matrix.astype(int) @ matrix.T.astype(int), order * np.eye(order, dtype=int))


@pytest.mark.parametrize("order", [3, 5, 6, 7, 10, 18, 47, 50])
def test_there_is_no_hadamard_matrix_of_other_orders(order):
    assert hadamard(order) is None


@pytest.mark.parametrize("n_bits", [12, 16, 24, 32, 48, 64])
def test_centres_are_rows_of_a_hadamard_matrix_then_of_its_negative(n_bits):
    matrix = hadamard(n_bits)
    rows = np.concatenate([matrix, -matrix])
    for n_classes in (1, 2, 10, n_bits, 2 * n_bits):
        centres = hash_centres(n_classes, n_bits)
        np.testing.assert_array_equal(centres, rows[:n_classes])
        if n_classes > 1:
            assert distances(centres).min() == n_bits // 2


@pytest.mark.parametrize(("n_classes", "n_bits"), [(10, 13), (21, 25), (30, 47), (100, 48), (70, 33), (80, 30)])
def test_other_centres_are_balanced_and_more_than_a_quarter_of_the_bits_apart(n_classes, n_bits):
    centres = hash_centres(n_classes, n_bits)
    assert set(np.unique(centres)) == {-1, 1}
    assert set(centres.sum(axis=1).tolist()) == {n_bits % 2}
    assert distances(centres).min() > n_bits / 4


@pytest.mark.parametrize(("n_classes", "n_bits"), [(80, 12), (80, 32), (500, 12), (5, 1), (9, 2), (9, 3), (40, 7)])
def test_there_are_centres_for_more_classes_than_rows(n_classes, n_bits, caplog):
    """Where a quarter of the bits cannot be had the bound is relaxed, and said; at worst classes share a centre."""
    with caplog.at_level(logging.INFO, logger="dmuh.methods.csq"):
        centres = hash_centres(n_classes, n_bits)
    assert centres.shape == (n_classes, n_bits)
    assert set(np.unique(centres)) <= {-1, 1}
    closest = distances(centres).min()
    if closest <= n_bits / 4:
        (message,) = caplog.messages
        bound = int(message.split(" are at least ")[1].split()[0])
        assert bound <= closest
    else:
        assert not caplog.messages


def test_eighty_classes_have_different_centres_of_twelve_bits():
    assert distances(hash_centres(80, 12)).min() >= 2


def test_many_classes_have_centres_of_48_bits():
    centres = hash_centres(2000, 48)
    assert distances(centres).min() > 8


@pytest.mark.parametrize(("n_classes", "n_bits"), [(25, 12), (80, 12), (70, 32), (500, 12), (5, 1)])
def test_with_rows_first_only_classes_beyond_them_have_random_centres(n_classes, n_bits):
    matrix = hadamard(n_bits)
    rows = np.concatenate([matrix, -matrix])
    centres = hash_centres(n_classes, n_bits, rows_first=True)
    assert centres.shape == (n_classes, n_bits)
    assert centres.dtype == np.int8
    np.testing.assert_array_equal(centres[: len(rows)], rows)
    assert set(np.unique(centres)) <= {-1, 1}
    assert set(centres[len(rows) :].sum(axis=1).tolist()) == {n_bits % 2}
    if n_classes < 100:  # a random code is as far from the rows as from another one
        assert distances(centres).min() >= min(distances(hash_centres(n_classes, n_bits)).min(), n_bits // 4 + 1)


@pytest.mark.parametrize(("n_classes", "n_bits"), [(24, 12), (25, 13)])
def test_rows_first_changes_nothing_where_there_are_rows_enough_or_none(n_classes, n_bits):
    np.testing.assert_array_equal(hash_centres(n_classes, n_bits, rows_first=True), hash_centres(n_classes, n_bits))


def test_centres_are_rows_first_where_csq_is_told_so_and_in_dmuh_plus():
    labels = torch.eye(25, dtype=torch.float64)
    told = make("csq", 12, labels, many_classes="rows-first").hash_centres.centres
    ours = make("dmuh-plus", 12, labels).hash_centres.centres
    np.testing.assert_array_equal(told.numpy(), hash_centres(25, 12, rows_first=True))
    torch.testing.assert_close(ours, told)
    np.testing.assert_array_equal(make("csq", 12, labels).hash_centres.centres.numpy(), hash_centres(25, 12))


def test_centres_are_always_the_same():
    for n_classes, n_bits in ((10, 16), (80, 12), (10, 13)):
        first = hash_centres(n_classes, n_bits)
        torch.manual_seed(1)
        np.testing.assert_array_equal(hash_centres(n_classes, n_bits), first)


def looped(outputs: Tensor, batch: TrainBatch, centres: list, tie: list, weight: float) -> dict[str, float]:
    """The means of the cross-entropy of ½·(tanh u + 1) against ½·(c + 1), and of λ·(|tanh u| - 1)²."""
    entropy = error = 0.0
    n, n_bits = outputs.shape
    for row, labels in zip(outputs.tolist(), batch.labels.tolist(), strict=True):
        for k, u in enumerate(row):
            total = sum(label * centre[k] for label, centre in zip(labels, centres, strict=True))
            wanted = (1 if total > 0 else -1) if total else tie[k]
            p, t = 0.5 * (math.tanh(u) + 1), 0.5 * (wanted + 1)
            entropy -= t * math.log(p) + (1 - t) * math.log(1 - p)
            error += (abs(math.tanh(u)) - 1) ** 2
    return {"similarity": entropy / (n * n_bits), "quantization": weight * error / (n * n_bits)}


@settings(deadline=None, max_examples=40)
@given(size=sizes, n_bits=lengths, seed=seeds)
def test_terms_are_those_of_a_plain_loop(size, n_bits, seed):
    labels = drawn_labels(seed)
    objective = make("csq", n_bits, labels, quantization=0.4)
    outputs, batch = draw(size, n_bits, labels, seed, scale=1.0)
    expected = looped(outputs, batch, objective.hash_centres.centres.tolist(), objective.hash_centres.tie.tolist(), 0.4)
    assert values(objective(outputs, batch)) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("n_bits", [1, 5])
def test_gradient_is_that_of_the_plain_loop(n_bits):
    labels = drawn_labels()
    objective = make("csq", n_bits, labels, quantization=0.4)
    outputs, batch = draw(5, n_bits, labels)
    centres, tie = objective.hash_centres.centres.tolist(), objective.hash_centres.tie.tolist()
    expected = differences(lambda h: sum(looped(h, batch, centres, tie, 0.4).values()), outputs)
    torch.testing.assert_close(gradient(objective, outputs, batch), expected, rtol=1e-6, atol=1e-8)
    assert torch.autograd.gradcheck(lambda h: sum(objective(h, batch).values()), (outputs.requires_grad_(),))


@settings(deadline=None, max_examples=30)
@given(n_bits=st.sampled_from([4, 12, 16]), own=st.lists(st.booleans(), min_size=6, max_size=6))
def test_an_image_with_several_labels_is_drawn_to_the_sign_of_their_centres_sum(n_bits, own):
    """Ties, and images without labels, go to one fixed vector, whatever the run."""
    labels = torch.tensor([own], dtype=torch.float64)
    objective = make("csq", n_bits, labels)
    total = hash_centres(6, n_bits)[np.array(own)].sum(axis=0, dtype=int)
    wanted = np.where(total == 0, make("csq", n_bits, torch.zeros(9, 2)).hash_centres.tie.numpy(), np.sign(total))
    assert set(wanted.tolist()) <= {-1, 1}
    batch = TrainBatch(labels, torch.arange(1))
    outputs = torch.zeros(1, n_bits, dtype=torch.float64)
    np.testing.assert_array_equal(-np.sign(gradient(objective, outputs, batch)[0].numpy()), wanted)


def test_large_outputs_do_not_overflow():
    labels = torch.eye(2)
    outputs = torch.tensor([[1e3], [-1e3]]).expand(2, 16).clone().requires_grad_()
    loss = sum(make("csq", 16, labels).float()(outputs, TrainBatch(labels, torch.arange(2))).values())
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(outputs.grad).all()
