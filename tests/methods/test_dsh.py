"""DSH against a plain loop, and its gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives import differences, draw, drawn_labels, gradient, lengths, make, seeds, shared, sizes, values
from torch import Tensor

from dmuh.methods import TrainBatch


def looped(
    outputs: Tensor, batch: TrainBatch, margin: float, weight: float, similar_weight: float = 1.0
) -> dict[str, float]:
    """The mean over pairs of ½·S·d² + ½·(1-S)·max(m - d², 0) + α·(‖|u_i| - 1‖₁ + ‖|u_j| - 1‖₁).

    Of the first two it is the weighted mean.
    """
    h, labels = outputs.tolist(), batch.labels.tolist()
    similarity = quantization = total = 0.0
    n_pairs = 0
    for i in range(len(h)):
        for j in range(i + 1, len(h)):
            square = sum((a - b) ** 2 for a, b in zip(h[i], h[j], strict=True))
            s = shared(labels[i], labels[j])
            own = similar_weight if s else 1.0
            similarity += own * (0.5 * s * square + 0.5 * (1 - s) * max(margin - square, 0))
            total += own
            quantization += weight * sum(abs(abs(u) - 1) for u in (*h[i], *h[j]))
            n_pairs += 1
    return {"similarity": similarity / total, "quantization": quantization / n_pairs}


@settings(deadline=None, max_examples=40)
@given(size=sizes, n_bits=lengths, seed=seeds, similar_weight=st.sampled_from([1.0, 0.25, 7.0]))
def test_terms_are_those_of_a_plain_loop_with_a_margin_of_twice_the_bits(size, n_bits, seed, similar_weight):
    labels = drawn_labels(seed)
    outputs, batch = draw(size, n_bits, labels, seed)
    terms = values(make("dsh", n_bits, labels, similar_weight=similar_weight)(outputs, batch))
    # S, and with it the weights, has single precision
    assert terms == pytest.approx(looped(outputs, batch, 2 * n_bits, 0.01, similar_weight), rel=1e-6)


@pytest.mark.parametrize("similar_weight", [1.0, 4.0])
@pytest.mark.parametrize("n_bits", [1, 5])
def test_gradient_is_that_of_the_plain_loop(n_bits, similar_weight):
    labels = drawn_labels()
    outputs, batch = draw(5, n_bits, labels, scale=0.8)
    objective = make("dsh", n_bits, labels, margin=3.0, regularization=0.2, similar_weight=similar_weight)
    expected = differences(lambda h: sum(looped(h, batch, 3.0 * n_bits, 0.2, similar_weight).values()), outputs)
    torch.testing.assert_close(gradient(objective, outputs, batch), expected, rtol=1e-6, atol=1e-8)
    assert torch.autograd.gradcheck(lambda h: sum(objective(h, batch).values()), (outputs.requires_grad_(),))


@pytest.mark.parametrize("labels", [torch.ones(4, 1), torch.eye(4)], ids=["similar", "dissimilar"])
@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_equal_outputs_have_a_finite_gradient(labels, value):
    outputs = torch.full((4, 6), value, dtype=torch.float64)
    objective = make("dsh", 6, labels.double())
    assert torch.isfinite(gradient(objective, outputs, TrainBatch(labels.double(), torch.arange(4)))).all()


def test_dissimilar_images_beyond_the_margin_cost_nothing():
    batch = TrainBatch(torch.eye(2).double(), torch.arange(2))
    opposite = torch.tensor([[1.0] * 4, [-1.0] * 4], dtype=torch.float64)  # d² = 4·n_bits > 2·n_bits
    assert values(make("dsh", 4, batch.labels)(opposite, batch)) == {"similarity": 0, "quantization": 0}
    half = torch.tensor([[1.0] * 4, [1.0, 1.0, 1.0, -1.0]], dtype=torch.float64)  # d² = 4 < 8
    assert make("dsh", 4, batch.labels)(half, batch)["similarity"].item() == 0.5 * (8 - 4)
