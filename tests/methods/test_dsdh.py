"""DSDH against plain loops: the network's loss, the classifier and the codes."""

import functools
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives import (
    N_TRAIN,
    differences,
    dot,
    draw,
    drawn_labels,
    gradient,
    lengths,
    make,
    seeds,
    shared,
    sizes,
    values,
)
from torch import Tensor

from dmuh.methods import METHODS, TrainBatch
from dmuh.methods.dsdh import DSDH


def unused() -> Tensor:
    raise AssertionError("DSDH takes the outputs from its buffer")


def looped(
    outputs: Tensor,
    batch: TrainBatch,
    labels: Tensor,
    kept: Tensor,
    codes: Tensor,
    eta: float,
    similar_weight: float = 1.0,
) -> dict[str, float]:
    """(Σ_ij (softplus Θ - S·Θ) + η·Σ_i ‖b_i - u_i‖²) / (N·B), b the codes that were solved for.

    Of the pairs it is the weighted mean.
    """
    h, all_outputs, own, others = outputs.tolist(), kept.tolist(), batch.labels.tolist(), labels.tolist()
    similarity = quantization = total = 0.0
    for i, place in enumerate(batch.index.tolist()):
        for j in range(len(all_outputs)):
            theta, s = 0.5 * dot(h[i], all_outputs[j]), shared(own[i], others[j])
            weight = similar_weight if s else 1.0
            similarity += weight * (math.log(1 + math.exp(theta)) - s * theta)
            total += weight
        quantization += sum((b - u) ** 2 for b, u in zip(codes[place].tolist(), h[i], strict=True))
    over = len(h) * len(all_outputs)
    return {"similarity": similarity / total, "quantization": eta * quantization / over}


def with_a_past(n_bits: int, labels: Tensor, seed: int, **options: object) -> tuple[DSDH, Tensor, Tensor]:
    """An objective that has seen all images before, with what it kept: outputs and codes."""
    objective = make("dsdh", n_bits, labels, **options)
    generator = torch.Generator().manual_seed(seed + 1)
    kept = torch.randn(N_TRAIN, n_bits, dtype=torch.float64, generator=generator)
    codes = torch.randint(0, 2, (N_TRAIN, n_bits), generator=generator).double() * 2 - 1
    objective.buffer.copy_(kept)
    objective.codes.copy_(codes)
    return objective, kept, codes


@settings(deadline=None, max_examples=40)
@given(size=sizes, n_bits=lengths, seed=seeds, similar_weight=st.sampled_from([1.0, 0.25, 7.0]))
def test_terms_are_those_of_a_plain_loop(size, n_bits, seed, similar_weight):
    labels = drawn_labels(seed)
    objective, kept, codes = with_a_past(n_bits, labels, seed, eta=0.3, similar_weight=similar_weight)
    outputs, batch = draw(size, n_bits, labels, seed)
    kept[batch.index] = outputs
    expected = looped(outputs, batch, labels, kept, codes, 0.3, similar_weight)
    assert values(objective(outputs, batch)) == pytest.approx(expected, rel=1e-6)  # S has single precision


@pytest.mark.parametrize("similar_weight", [1.0, 4.0])
@pytest.mark.parametrize("n_bits", [1, 5])
def test_gradient_flows_through_the_side_of_the_batch_alone_and_pulls_to_the_codes(n_bits, similar_weight):
    labels = drawn_labels()
    objective, kept, codes = with_a_past(n_bits, labels, 0, eta=2.0, similar_weight=similar_weight)
    outputs, batch = draw(4, n_bits, labels)
    kept[batch.index] = outputs
    loss = functools.partial(looped, batch=batch, labels=labels, kept=kept, codes=codes, eta=2.0)
    expected = differences(lambda h: sum(loss(h, similar_weight=similar_weight).values()), outputs)
    torch.testing.assert_close(gradient(objective, outputs, batch), expected, rtol=1e-6, atol=1e-8)
    assert torch.equal(objective.buffer, kept)


@settings(deadline=None, max_examples=30)
@given(n_bits=lengths, seed=seeds)
def test_the_classifier_is_the_exact_minimiser(n_bits, seed):
    objective, _, codes = with_a_past(n_bits, drawn_labels(seed), seed, mu=0.5, nu=0.25)
    weight = objective.classifier().requires_grad_()
    loss = 0.5 * ((objective.train_labels - codes @ weight) ** 2).sum() + 0.25 * (weight**2).sum()
    slope = torch.autograd.grad(loss, weight)[0]
    assert slope.abs().max().item() < 1e-9


def whole_loss(objective: DSDH) -> float:
    """μ·‖Y - B·W‖² + ν·‖W‖² + η·‖B - U‖² for the best W: what the discrete steps work on, with U fixed."""
    own, weight = objective.options, objective.classifier()
    fit = own.mu * ((objective.train_labels - objective.codes @ weight) ** 2).sum() + own.nu * (weight**2).sum()
    return (fit + own.eta * ((objective.codes - objective.buffer) ** 2).sum()).item()


@settings(deadline=None, max_examples=40)
@given(n_bits=lengths, seed=seeds)
def test_an_epochs_beginning_never_raises_the_whole_objective(n_bits, seed):
    objective, _, _ = with_a_past(n_bits, drawn_labels(seed), seed, mu=1.0, nu=0.125, eta=0.05)
    losses = [whole_loss(objective)]
    for _ in range(3):
        objective.begin_epoch(unused, torch.Generator())
        losses.append(whole_loss(objective))
    assert all(after <= before + 1e-9 * (1 + before) for before, after in itertools.pairwise(losses))


def test_a_beginning_lowers_the_objective_of_random_codes():
    objective, _, _ = with_a_past(12, drawn_labels(), 0, mu=1.0, nu=0.125, eta=0.05)
    before = whole_loss(objective)
    objective.begin_epoch(unused, torch.Generator())
    assert whole_loss(objective) < 0.9 * before


def test_codes_start_as_random_signs_of_the_generator_alone():
    method = METHODS["dsdh"]
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(len(found))  # which must not matter
        objective = method(method.Options(mu=1e-12, eta=0.0), 40, torch.zeros(500, 3))  # no label to explain
        assert not objective.codes.any()
        objective.begin_epoch(unused, torch.Generator().manual_seed(seed))
        found.append(objective.codes.clone())
    assert torch.equal(found[0].abs(), torch.ones(500, 40))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert found[0].mean().abs() < 0.05
    assert found[0].mean(dim=0).abs().max() < 0.3


def test_a_checkpoint_keeps_outputs_and_codes():
    objective, kept, codes = with_a_past(5, drawn_labels(), 0)
    state = objective.state_dict()
    assert {key: value.tolist() for key, value in state.items()} == {"buffer": kept.tolist(), "codes": codes.tolist()}
    other = make("dsdh", 5, drawn_labels())
    other.load_state_dict(state)
    for one in (objective, other):
        one.begin_epoch(unused, torch.Generator().manual_seed(3))
    assert torch.equal(objective.codes, other.codes)


def test_codes_follow_the_outputs_where_these_weigh_most():
    objective, kept, _ = with_a_past(12, drawn_labels(), 0, eta=1e4)
    objective.begin_epoch(unused, torch.Generator())
    assert torch.equal(objective.codes, kept.sign())
