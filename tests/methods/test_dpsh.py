"""DPSH against a plain loop, and what it keeps of the training set."""

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

from dmuh.methods import TrainBatch
from dmuh.methods.dpsh import DPSH


def looped(
    outputs: Tensor, batch: TrainBatch, labels: Tensor, kept: Tensor, eta: float, similar_weight: float = 1.0
) -> dict[str, float]:
    """(Σ_ij (softplus Θ - S·Θ) + η·Σ_i ‖b_i - u_i‖²) / (N·B), j over the kept outputs of all training images.

    Of the pairs it is the weighted mean.
    """
    h, all_outputs, own, others = outputs.tolist(), kept.tolist(), batch.labels.tolist(), labels.tolist()
    similarity = quantization = total = 0.0
    for i in range(len(h)):
        for j in range(len(all_outputs)):
            theta, s = 0.5 * dot(h[i], all_outputs[j]), shared(own[i], others[j])
            weight = similar_weight if s else 1.0
            similarity += weight * (math.log(1 + math.exp(theta)) - s * theta)
            total += weight
        quantization += sum((u - (1 if u >= 0 else -1)) ** 2 for u in h[i])
    over = len(h) * len(all_outputs)
    return {"similarity": similarity / total, "quantization": eta * quantization / over}


def with_a_past(n_bits: int, labels: Tensor, seed: int, **options: object) -> tuple[DPSH, Tensor]:
    """An objective that has seen all images before, and what it kept of them."""
    objective = make("dpsh", n_bits, labels, **options)
    kept = torch.randn(N_TRAIN, n_bits, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    objective.buffer.copy_(kept)
    return objective, kept


@settings(deadline=None, max_examples=40)
@given(size=sizes, n_bits=lengths, seed=seeds, similar_weight=st.sampled_from([1.0, 0.25, 7.0]))
def test_terms_are_those_of_a_plain_loop(size, n_bits, seed, similar_weight):
    labels = drawn_labels(seed)
    objective, kept = with_a_past(n_bits, labels, seed, eta=3.0, similar_weight=similar_weight)
    outputs, batch = draw(size, n_bits, labels, seed)
    kept[batch.index] = outputs
    expected = looped(outputs, batch, labels, kept, 3.0, similar_weight)
    assert values(objective(outputs, batch)) == pytest.approx(expected, rel=1e-6)  # S has single precision


@pytest.mark.parametrize("similar_weight", [1.0, 4.0])
@pytest.mark.parametrize("n_bits", [1, 5])
def test_gradient_flows_through_the_side_of_the_batch_alone(n_bits, similar_weight):
    labels = drawn_labels()
    objective, kept = with_a_past(n_bits, labels, 0, similar_weight=similar_weight)
    outputs, batch = draw(4, n_bits, labels)
    kept[batch.index] = outputs  # stays as it is when the outputs move
    expected = differences(lambda h: sum(looped(h, batch, labels, kept, 10.0, similar_weight).values()), outputs)
    torch.testing.assert_close(gradient(objective, outputs, batch), expected, rtol=1e-6, atol=1e-8)

    def through_both_sides(h: Tensor) -> float:
        moved = kept.clone()
        moved[batch.index] = h
        return sum(looped(h, batch, labels, moved, 10.0, similar_weight).values())

    assert not torch.allclose(expected, differences(through_both_sides, outputs), rtol=1e-3)


def test_the_last_outputs_of_each_image_are_kept_at_its_place():
    labels = drawn_labels()
    objective, expected = with_a_past(5, labels, 0)
    for seed in range(3):
        outputs, batch = draw(4, 5, labels, seed)
        objective(outputs.requires_grad_(), batch)
        expected[batch.index] = outputs.detach()
        assert torch.equal(objective.buffer, expected)
        assert not objective.buffer.requires_grad


def test_images_that_were_never_seen_say_nothing():
    """Their outputs are zero, so that Θ is, and log 2 is what such a pair costs."""
    labels = drawn_labels()
    objective = make("dpsh", 3, labels)
    outputs = torch.zeros(2, 3, dtype=torch.float64)
    batch = TrainBatch(labels[:2], torch.arange(2))
    assert objective(outputs, batch)["similarity"].item() == pytest.approx(math.log(2))


def test_a_checkpoint_keeps_the_outputs_and_not_the_labels():
    objective, kept = with_a_past(5, drawn_labels(), 0)
    assert {key: value.tolist() for key, value in objective.state_dict().items()} == {"buffer": kept.tolist()}
    other = make("dpsh", 5, drawn_labels())
    other.load_state_dict(objective.state_dict())
    outputs, batch = draw(4, 5, drawn_labels())
    assert values(other(outputs, batch)) == values(objective(outputs, batch))


def test_large_products_do_not_overflow():
    objective = DPSH(DPSH.Options(), 64, torch.eye(2))
    outputs = torch.tensor([[1e3], [-1e3]]).expand(2, 64).clone().requires_grad_()
    sum(objective(outputs, TrainBatch(torch.eye(2), torch.arange(2))).values()).backward()
    assert torch.isfinite(outputs.grad).all()
