"""DMUH-plus against plain loops: the two terms that read the labels from a code, and the map that reads them."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from objectives import differences, draw, drawn_labels, gradient, lengths, make, seeds, sizes, values
from torch import Tensor

from dmuh.methods import TrainBatch

OPTIONS = {"decoder": 0.7, "centres": 0.3, "beta": 0.5, "gamma": 0.2, "similar_weight": 2.0}


def drawn(size: int, n_bits: int, seed: int = 0) -> tuple[Tensor, TrainBatch, Tensor]:
    """Outputs, a batch with outputs of a copy, and the labels of all training images."""
    labels = drawn_labels(seed)
    outputs, batch = draw(size, n_bits, labels, seed)
    copied = outputs + 0.3 * torch.randn(outputs.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return outputs, replace(batch, momentum_outputs=copied), labels


def prepared(n_bits: int, labels: Tensor, seed: int = 0, **options: object):
    """The objective as an epoch begins with it."""
    objective = make("dmuh-plus", n_bits, labels, **OPTIONS | options)
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(len(labels), n_bits, dtype=torch.float64, generator=generator)
    objective.begin_epoch(lambda: outputs, generator)
    return objective, outputs


def looped(outputs: Tensor, batch: TrainBatch, weight: list, wanted: list, mean_u: list[float]) -> dict[str, float]:
    """The formulas, one element at a time."""
    decoder = centres = 0.0
    rows, labels = outputs.tolist(), batch.labels.tolist()
    for i, (row, own) in enumerate(zip(rows, labels, strict=True)):
        read = [*(math.tanh(h) for h in row), 1.0]
        gap = sum((y - sum(r * w[c] for r, w in zip(read, weight, strict=True))) ** 2 for c, y in enumerate(own))
        entropy = 0.0
        for h, c in zip(row, wanted[i], strict=True):
            p, t = 0.5 * (math.tanh(h) + 1), 0.5 * (c + 1)
            entropy -= t * math.log(p) + (1 - t) * math.log(1 - p)
        decoder += math.exp(mean_u[i]) * gap / len(rows)
        if sum(own) == 1:  # an image with several labels, or none, has no centre
            centres += math.exp(mean_u[i]) * entropy / len(row) / len(rows)
    return {"decoder": OPTIONS["decoder"] * decoder, "centres": OPTIONS["centres"] * centres}


@settings(deadline=None, max_examples=40)
@given(size=sizes, n_bits=lengths, seed=seeds)
def test_terms_are_those_of_a_plain_loop(size, n_bits, seed):
    outputs, batch, labels = drawn(size, n_bits, seed)
    objective, _ = prepared(n_bits, labels)
    found = values(objective(outputs, batch))
    mean_u = (outputs - batch.momentum_outputs).abs().mean(dim=1).tolist()
    wanted = objective.hash_centres.wanted(batch.labels).tolist()
    expected = looped(outputs, batch, objective.weight.tolist(), wanted, mean_u)
    dmuh = make("dmuh", n_bits, labels, **{name: OPTIONS[name] for name in ("beta", "gamma", "similar_weight")})
    assert found == pytest.approx(values(dmuh(outputs, batch)) | expected, rel=1e-6)


def test_gradient_is_that_of_the_plain_loop_with_constant_weights():
    outputs, batch, labels = drawn(4, 5)
    objective, _ = prepared(5, labels, beta=0.0, gamma=0.0)
    pairs_only, _ = prepared(5, labels, beta=0.0, gamma=0.0, decoder=0.0, centres=0.0)
    mean_u = (outputs - batch.momentum_outputs).abs().mean(dim=1).tolist()
    wanted = objective.hash_centres.wanted(batch.labels).tolist()
    expected = differences(lambda h: sum(looped(h, batch, objective.weight.tolist(), wanted, mean_u).values()), outputs)
    own = gradient(objective, outputs, batch) - gradient(pairs_only, outputs, batch)
    torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-8)


def test_the_map_is_the_ridge_regression_of_labels_on_codes():
    labels = drawn_labels()
    objective, outputs = prepared(6, labels)
    codes = torch.cat([torch.where(outputs >= 0, 1.0, -1.0), torch.ones(len(labels), 1)], dim=1).double()

    def loss(weight: Tensor) -> float:
        return float(((labels - codes @ weight) ** 2).sum() + (weight**2).sum())

    assert differences(loss, objective.weight).abs().max() < 1e-6


def test_a_term_without_weight_is_none():
    outputs, batch, labels = drawn(4, 5)
    objective, _ = prepared(5, labels, decoder=0.0)
    assert set(objective(outputs, batch)) == {"similarity", "quantization", "uncertainty", "centres"}
    assert not objective.weight.any()


def test_weights_that_are_not_given_are_smaller_where_images_have_several_labels():
    one, several = torch.eye(4), torch.ones(4, 4)
    assert make("dmuh-plus", 6, one).options.centres > make("dmuh-plus", 6, several).options.centres > 0
    assert make("dmuh-plus", 6, several, centres=7.0).options.centres == 7.0
    assert make("dmuh-plus", 6, one).options.similar_weight == 2 < make("dmuh-plus", 6, several).options.similar_weight


def test_where_some_centres_are_opposites_images_with_several_labels_are_drawn_to_them_less():
    """With more classes than bits an image with two labels would have to be at both ends of the space."""
    one, several = torch.eye(4), torch.ones(4, 4)
    few, enough = (make("dmuh-plus", n_bits, several).options.centres for n_bits in (3, 4))
    assert few == pytest.approx(0.3 * enough)
    assert make("dmuh-plus", 3, one).options.centres == make("dmuh-plus", 4, one).options.centres
    assert make("dmuh-plus", 3, several, centres=7.0).options.centres == 7.0
