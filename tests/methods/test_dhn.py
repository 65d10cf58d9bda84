"""DHN against a plain loop, and its gradient."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives import differences, dot, draw, drawn_labels, gradient, lengths, make, seeds, shared, sizes, values
from torch import Tensor

from dmuh.methods import TrainBatch


def looped(outputs: Tensor, batch: TrainBatch, weight: float, balance: bool) -> dict[str, float]:
    """Mean over pairs i ≠ j of softplus Θ - S·Θ, Θ within ±15, and λ times the mean of log cosh(|u| - 1)."""
    h, labels = outputs.tolist(), batch.labels.tolist()
    n, n_bits = outputs.shape
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    n_similar = sum(shared(labels[i], labels[j]) for i, j in pairs)
    similarity = 0.0
    for i, j in pairs:
        s = shared(labels[i], labels[j])
        theta = min(max(0.5 * dot(h[i], h[j]), -15), 15)
        similarity += (len(pairs) / n_similar if balance and s else 1) * (math.log(1 + math.exp(theta)) - s * theta)
    quantization = sum(math.log(math.cosh(abs(u) - 1)) for row in h for u in row)
    return {"similarity": similarity / len(pairs), "quantization": weight * quantization / (n * n_bits)}


@settings(deadline=None, max_examples=40)
@given(size=sizes, n_bits=lengths, seed=seeds, balance=st.booleans())
def test_terms_are_those_of_a_plain_loop(size, n_bits, seed, balance):
    labels = drawn_labels(seed)
    outputs, batch = draw(size, n_bits, labels, seed)
    terms = values(make("dhn", n_bits, labels, quantization=0.7, balance=balance)(outputs, batch))
    # of log cosh, close to zero, only so many digits are left
    assert terms == pytest.approx(looped(outputs, batch, 0.7, balance), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("balance", [False, True])
@pytest.mark.parametrize("n_bits", [1, 5])
def test_gradient_is_that_of_the_plain_loop(n_bits, balance):
    labels = drawn_labels()
    outputs, batch = draw(5, n_bits, labels)
    objective = make("dhn", n_bits, labels, balance=balance)
    expected = differences(lambda h: sum(looped(h, batch, 0.1, balance).values()), outputs)
    torch.testing.assert_close(gradient(objective, outputs, batch), expected, rtol=1e-5, atol=1e-8)
    assert torch.autograd.gradcheck(lambda h: sum(objective(h, batch).values()), (outputs.requires_grad_(),))


def test_balance_weighs_similar_pairs_as_many_times_as_they_are_rare():
    labels = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1], [0, 1]], dtype=torch.float64)  # 8 similar of 20 pairs
    outputs, _ = draw(5, 4, labels)
    batch = TrainBatch(labels, torch.arange(5))
    plain, balanced = (make("dhn", 4, labels, balance=b)(outputs, batch)["similarity"] for b in (False, True))
    theta = 0.5 * outputs @ outputs.T
    similar = batch.similarity.bool() & ~torch.eye(5, dtype=torch.bool)
    of_similar = torch.nn.functional.softplus(-theta)[similar].sum() / 20
    assert (balanced - plain).item() == pytest.approx((20 / 8 - 1) * of_similar.item())


@pytest.mark.parametrize("balance", [False, True])
@pytest.mark.parametrize("size", [1e3, -1e3])
def test_large_outputs_do_not_overflow(size, balance):
    labels = torch.eye(3)
    outputs = torch.full((3, 64), size).requires_grad_()
    objective = make("dhn", 64, labels, balance=balance).float()
    loss = sum(objective(outputs, TrainBatch(labels, torch.arange(3))).values())
    assert loss.item() == pytest.approx(15 + 0.1 * (999 - math.log(2)), rel=1e-5)
    loss.backward()
    assert torch.isfinite(outputs.grad).all()


def test_no_similar_pair_is_no_division_by_zero():
    labels = torch.eye(3).double()
    outputs, _ = draw(3, 4, labels)
    terms = make("dhn", 4, labels, balance=True)(outputs, TrainBatch(labels, torch.arange(3)))
    assert all(torch.isfinite(term) for term in terms.values())
