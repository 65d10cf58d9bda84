"""Eq. 2 and 8 of the paper against plain loops, and their gradients."""

import math

import pytest
import torch
from torch import Tensor

from dmuh.methods import METHODS, TrainBatch
from dmuh.methods.base import Objective

N_TRAIN = 20
NAMES = ["dmuh", "dmuh-no-u", "dmuh-no-bit", "dmuh-no-image", "regu"]


def make(name: str, n_bits: int = 6, **options: object) -> Objective:
    method = METHODS[name]
    return method(method.Options(**options), n_bits, torch.zeros(N_TRAIN, 3))


def make_batch(size: int, n_bits: int, seed: int = 0, spread: float = 0.5) -> tuple[Tensor, TrainBatch]:
    torch.manual_seed(seed)
    outputs = torch.randn(size, n_bits, dtype=torch.float64)
    labels = (torch.rand(size, 3) < 0.5).float()
    copied = outputs + spread * torch.randn(size, n_bits, dtype=torch.float64)
    return outputs, TrainBatch(labels, torch.arange(size), copied)


def looped(name: str, options: object, outputs: Tensor, batch: TrainBatch) -> dict[str, float]:
    """The formulas, one element at a time."""
    h, m = outputs.tolist(), batch.momentum_outputs.tolist()
    labels = batch.labels.tolist()
    size, n_bits = outputs.shape
    u = [[abs(h[i][k] - m[i][k]) for k in range(n_bits)] for i in range(size)]
    mean_u = [sum(row) / n_bits for row in u]
    similarity = quantization = uncertainty = total = 0.0
    for i in range(size):
        for j in range(size):
            s = 1 if any(a and b for a, b in zip(labels[i], labels[j], strict=True)) else 0
            theta = 0.5 * sum(a * b for a, b in zip(h[i], h[j], strict=True))
            weight = math.exp(mean_u[i] + mean_u[j]) if name in ("dmuh", "dmuh-no-u", "dmuh-no-bit") else 1
            pair = options.similar_weight if s else 1.0
            weight *= options.likelihood_weight if name == "regu" else 1
            similarity -= pair * weight * (s * theta - math.log(1 + math.exp(theta)))
            total += pair
    norm = getattr(options, "quantization_weights", "bits") == "norm"
    for i in range(size):
        for k in range(n_bits):
            b = 1 if h[i][k] >= 0 else -1
            weight = math.exp(u[i][k]) if name in ("dmuh", "dmuh-no-u", "dmuh-no-image") else 1
            weight = sum(map(math.exp, u[i])) / n_bits if norm else weight
            quantization += weight * (h[i][k] - b) ** 2
            uncertainty += u[i][k]
    element = {"mean": size * n_bits, "train": N_TRAIN * size, "pairs": size**2}[options.normalization]
    terms = {"similarity": similarity / total, "quantization": options.beta * quantization / element}
    if name in ("dmuh", "dmuh-no-bit", "dmuh-no-image"):
        terms["uncertainty"] = options.gamma * uncertainty / element
    return terms


@pytest.mark.parametrize("similar_weight", [1.0, 4.0])
@pytest.mark.parametrize("normalization", ["mean", "train", "pairs"])
@pytest.mark.parametrize("name", NAMES)
def test_terms_are_those_of_a_plain_loop(name, normalization, similar_weight):
    own = {} if name in ("regu", "dmuh-no-u") else {"gamma": 0.2}
    objective = make(name, normalization=normalization, beta=0.7, similar_weight=similar_weight, **own)
    outputs, batch = make_batch(7, 6)
    terms = objective(outputs, batch)
    expected = looped(name, objective.options, outputs, batch)
    assert {k: v.item() for k, v in terms.items()} == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("name", "options"), [
    *[(name, {"quantization_weights": "norm"}) for name in ("dmuh", "dmuh-no-u", "dmuh-no-image")],
    ("regu", {"likelihood_weight": 1.7}),
])  # fmt: skip
@pytest.mark.parametrize("detach", [True, False])
def test_other_readings_are_those_of_a_plain_loop(name, options, detach):
    objective = make(name, beta=0.7, **options, **({} if name == "regu" else {"detach": detach}))
    outputs, batch = make_batch(7, 6)
    terms = {k: v.item() for k, v in objective(outputs, batch).items()}
    assert terms == pytest.approx(looped(name, objective.options, outputs, batch), rel=1e-6)
    assert terms != pytest.approx(looped(name, make(name, beta=0.7).options, outputs, batch), rel=1e-6)
    if not detach:
        assert torch.autograd.gradcheck(lambda h: sum(objective(h, batch).values()), (outputs.requires_grad_(),))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "regu"])
def test_the_means_of_the_weights_are_noted(name):
    outputs, batch = make_batch(5, 6)
    u = (outputs - batch.momentum_outputs).abs().tolist()
    means = [sum(row) / 6 for row in u]
    pairs = [math.exp(a + b) for a in means for b in means]
    bits = [math.exp(value) for row in u for value in row]
    expected = {"mean_pair_weight": sum(pairs) / 25, "mean_bit_weight": sum(bits) / 30}
    assert make(name).notes(outputs, batch) == pytest.approx(expected, rel=1e-9)
    assert make("regu").notes(outputs, batch) == {}


@pytest.mark.parametrize("name", ["dmuh", "dmuh-no-u"])
def test_constants_at_the_means_of_equal_weights_are_dmuh(name):
    """Where all bits are as unsure, Regu with these weights as constants is DMUH without its third term."""
    outputs, batch = make_batch(5, 6)
    batch = TrainBatch(batch.labels, batch.index, outputs + 0.3)
    notes, dmuh = make(name).notes(outputs, batch), make(name)(outputs, batch)
    constants = {"likelihood_weight": notes["mean_pair_weight"], "beta": 0.3 * notes["mean_bit_weight"]}
    regu = make("regu", **constants)(outputs, batch)
    assert {k: v.item() for k, v in regu.items()} == pytest.approx({k: dmuh[k].item() for k in regu}, rel=1e-6)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "regu"])
def test_gradient_with_constant_weights(name):
    """With `detach` the weights e^u are constants, while the third term keeps its gradient."""
    objective = make(name, detach=True, beta=0.7)
    outputs, batch = make_batch(5, 6)
    weight = (outputs - batch.momentum_outputs).abs()

    def loss(h: Tensor) -> Tensor:
        return sum(objective.terms(h, batch.similarity, (h - batch.momentum_outputs).abs(), weight).values())

    h = outputs.clone().requires_grad_()
    assert torch.autograd.gradcheck(loss, (h,))
    ours = torch.autograd.grad(sum(objective(h, batch).values()), h)[0]
    assert torch.equal(ours, torch.autograd.grad(loss(h), h)[0])


@pytest.mark.parametrize("name", NAMES)
def test_gradient_through_everything(name):
    objective = make(name, **({} if name == "regu" else {"detach": False}))
    outputs, batch = make_batch(5, 6)
    assert torch.autograd.gradcheck(lambda h: sum(objective(h, batch).values()), (outputs.requires_grad_(),))


def test_detach_changes_the_gradient_and_not_the_loss():
    outputs, batch = make_batch(5, 6)
    h = outputs.requires_grad_()
    losses = [sum(make("dmuh", detach=detach)(h, batch).values()) for detach in (True, False)]
    gradients = [torch.autograd.grad(loss, h)[0] for loss in losses]
    assert losses[0].item() == losses[1].item()
    assert not torch.allclose(*gradients)


def test_no_uncertainty_is_regu():
    outputs, batch = make_batch(6, 8, spread=0.0)
    ours, regu = make("dmuh", 8)(outputs, batch), make("regu", 8)(outputs, batch)
    assert ours.pop("uncertainty").item() == 0
    assert {k: v.item() for k, v in ours.items()} == {k: v.item() for k, v in regu.items()}


def test_momentum_copy_gets_no_gradient_from_the_loss():
    outputs, batch = make_batch(4, 3)
    copied = batch.momentum_outputs.requires_grad_(False)
    terms = make("dmuh", 3)(outputs.requires_grad_(), TrainBatch(batch.labels, batch.index, copied))
    sum(terms.values()).backward()
    assert outputs.grad is not None
    assert copied.grad is None


def test_a_large_product_does_not_overflow():
    outputs = torch.full((2, 64), 1e3)
    batch = TrainBatch(torch.eye(2), torch.arange(2), outputs)
    assert all(torch.isfinite(term) for term in make("dmuh", 64)(outputs, batch).values())


def test_a_zero_output_counts_as_a_one():
    outputs = torch.zeros(1, 4)
    batch = TrainBatch(torch.ones(1, 1), torch.arange(1), outputs)
    assert make("regu", 4, beta=1.0)(outputs, batch)["quantization"].item() == 1.0


@pytest.mark.parametrize(("name", "option", "value"), [
    ("dmuh", "gamma", 3.0), ("dmuh", "beta", 3.0), ("dmuh", "normalization", "train"), ("regu", "beta", 3.0),
    ("regu", "normalization", "pairs"), ("dmuh-no-u", "beta", 3.0), ("dmuh-no-bit", "gamma", 3.0),
    ("dmuh-no-image", "normalization", "pairs"),
])  # fmt: skip
def test_every_option_changes_the_loss(name, option, value):
    outputs, batch = make_batch(5, 6)
    assert sum(make(name)(outputs, batch).values()) != sum(make(name, **{option: value})(outputs, batch).values())
