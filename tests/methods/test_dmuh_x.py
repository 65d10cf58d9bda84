"""Methods for images and texts against plain loops: DMUH-x, Regu-x, DMUH-plus-x and DCMH."""

import math
from dataclasses import replace

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

WEIGHTS = {"beta": 0.5, "similar_weight": 2.0, "within": 0.3}


def drawn(size: int, n_bits: int, seed: int = 0) -> tuple[Tensor, TrainBatch, Tensor]:
    """Outputs of pairs (B, 2·n_bits), a batch with outputs of the copies, and the labels of all training pairs."""
    labels = drawn_labels(seed)
    outputs, batch = draw(size, 2 * n_bits, labels, seed)
    copied = outputs + 0.3 * torch.randn(outputs.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return outputs, replace(batch, momentum_outputs=copied), labels


def looped(outputs: Tensor, batch: TrainBatch, u: Tensor | None, gamma: float) -> dict[str, float]:
    """The formula of DMUHX's docstring, one pair and one element at a time; without u that of ReguX."""
    size, n_bits = len(outputs), outputs.shape[1] // 2
    sides = [(row[:n_bits], row[n_bits:]) for row in outputs.tolist()]  # image and text of each pair
    unsure = [(row[:n_bits], row[n_bits:]) for row in (torch.zeros_like(outputs) if u is None else u).tolist()]
    labels = batch.labels.tolist()
    likelihood = total = error = uncertainty = 0.0
    for a in (0, 1):
        for i in range(size):
            mean_i = sum(unsure[i][a]) / n_bits
            for b in (0, 1):
                for j in range(size):
                    theta, s = 0.5 * dot(sides[i][a], sides[j][b]), shared(labels[i], labels[j])
                    weight = (WEIGHTS["similar_weight"] if s else 1.0) * (WEIGHTS["within"] if a == b else 1.0)
                    pair = math.exp(mean_i + sum(unsure[j][b]) / n_bits)
                    likelihood += weight * pair * (math.log1p(math.exp(-abs(theta))) + max(theta, 0) - s * theta)
                    total += weight
            for k, (h, doubt) in enumerate(zip(sides[i][a], unsure[i][a], strict=True)):
                code = 1 if sides[i][0][k] + sides[i][1][k] >= 0 else -1
                error += math.exp(doubt) * (h - code) ** 2
                uncertainty += doubt
    elements = 2 * size * n_bits
    terms = {"similarity": likelihood / total, "quantization": WEIGHTS["beta"] * error / elements}
    return terms if u is None else terms | {"uncertainty": gamma * uncertainty / elements}


@settings(deadline=None, max_examples=30)
@given(size=sizes, n_bits=lengths, seed=seeds)
def test_dmuh_x_is_its_formula(size, n_bits, seed):
    outputs, batch, labels = drawn(size, n_bits, seed)
    objective = make("dmuh-x", n_bits, labels, **WEIGHTS, gamma=0.2)
    u = (outputs - batch.momentum_outputs).abs()
    assert values(objective(outputs, batch)) == pytest.approx(looped(outputs, batch, u, 0.2), rel=1e-6)


@settings(deadline=None, max_examples=30)
@given(size=sizes, n_bits=lengths, seed=seeds)
def test_regu_x_is_dmuh_x_without_uncertainty(size, n_bits, seed):
    outputs, batch, labels = drawn(size, n_bits, seed)
    expected = looped(outputs, batch, None, 0.0)
    assert values(make("regu-x", n_bits, labels, **WEIGHTS)(outputs, batch)) == pytest.approx(expected, rel=1e-6)
    alike = replace(batch, momentum_outputs=outputs)
    found = values(make("dmuh-x", n_bits, labels, **WEIGHTS, gamma=0.2)(outputs, alike))
    assert found == pytest.approx(expected | {"uncertainty": 0.0}, rel=1e-6)


def test_the_gradient_of_dmuh_x_is_that_of_its_formula_with_constant_weights():
    outputs, batch, labels = drawn(4, 5)
    u = (outputs - batch.momentum_outputs).abs()
    objective = make("dmuh-x", 5, labels, **WEIGHTS, gamma=0.0)
    expected = differences(lambda h: sum(looped(h, batch, u, 0.0).values()), outputs)
    torch.testing.assert_close(gradient(objective, outputs, batch), expected, rtol=1e-5, atol=1e-8)


def test_a_text_is_as_unsure_as_its_own_copy_says():
    outputs, batch, labels = drawn(4, 6)
    objective = make("dmuh-x", 6, labels)
    copied = outputs.clone()
    copied[:, 6:] += 1.0  # the copies of images agree with them, those of texts do not
    found = objective(outputs, replace(batch, momentum_outputs=copied))
    assert found["uncertainty"].item() == pytest.approx(objective.options.gamma * 0.5)


def test_the_decoder_of_dmuh_plus_x_reads_images_and_texts_by_one_map():
    outputs, batch, labels = drawn(4, 6)
    both, images = make("dmuh-plus-x", 6, labels), make("dmuh-plus", 6, torch.cat([labels, labels]))
    side_by_side = torch.randn(N_TRAIN, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    stacked = torch.cat([side_by_side[:, :6], side_by_side[:, 6:]])
    generator = torch.Generator()
    both.begin_epoch(lambda: side_by_side, generator)
    images.begin_epoch(lambda: stacked, generator)
    torch.testing.assert_close(both.weight, images.weight)
    copied = batch.momentum_outputs
    as_images = TrainBatch(
        torch.cat([batch.labels] * 2), torch.cat([batch.index] * 2), torch.cat([copied[:, :6], copied[:, 6:]])
    )
    expected = values(images(torch.cat([outputs[:, :6], outputs[:, 6:]]), as_images))
    assert values(both(outputs, batch)) == pytest.approx(expected)
    assert "decoder" in expected
    assert both.notes(outputs, batch)["mean_bit_weight"] > 1


def dcmh_loop(
    outputs: Tensor, batch: TrainBatch, labels: Tensor, kept: tuple[Tensor, Tensor], similar_weight: float
) -> dict[str, float]:
    """The formula of DCMH's docstring; `kept` are the last outputs of all images and texts, the batch's included."""
    n_bits = outputs.shape[1] // 2
    sides = [outputs[:, :n_bits].tolist(), outputs[:, n_bits:].tolist()]
    buffers = [side.tolist() for side in kept]
    own, others = batch.labels.tolist(), labels.tolist()
    similarity = error = balance = 0.0
    for a in (0, 1):
        total = part = 0.0
        for i in range(len(outputs)):
            for j in range(len(labels)):
                theta, s = 0.5 * dot(sides[a][i], buffers[1 - a][j]), shared(own[i], others[j])
                weight = similar_weight if s else 1.0
                part += weight * (math.log1p(math.exp(-abs(theta))) + max(theta, 0) - s * theta)
                total += weight
            at = int(batch.index[i])
            for k in range(n_bits):
                code = 1 if buffers[0][at][k] + buffers[1][at][k] >= 0 else -1
                error += (code - sides[a][i][k]) ** 2
        similarity += part / total
        in_batch = {int(at): row for at, row in zip(batch.index, sides[a], strict=True)}
        for k in range(n_bits):
            balance += sum(in_batch.get(n, buffers[a][n])[k] for n in range(len(labels))) ** 2
    over = len(labels) * len(outputs)
    return {"similarity": similarity, "quantization": 0.7 * error / over, "balance": 0.3 * balance / over}


@settings(deadline=None, max_examples=30)
@given(size=sizes, n_bits=lengths, seed=seeds, similar_weight=st.sampled_from([1.0, 3.0]))
def test_dcmh_is_its_formula(size, n_bits, seed, similar_weight):
    outputs, batch, labels = drawn(size, n_bits, seed)
    objective, kept = dcmh_with_a_past(outputs, batch, labels, n_bits, similar_weight)
    expected = dcmh_loop(outputs, batch, labels, kept, similar_weight)
    assert values(objective(outputs, batch)) == pytest.approx(expected, rel=1e-6)


def test_the_gradient_of_dcmh_flows_through_the_batch_alone():
    outputs, batch, labels = drawn(4, 3)
    objective, kept = dcmh_with_a_past(outputs, batch, labels, 3, 2.0)
    expected = differences(lambda h: sum(dcmh_loop(h, batch, labels, kept, 2.0).values()), outputs)
    torch.testing.assert_close(gradient(objective, outputs, batch), expected, rtol=1e-5, atol=1e-8)


def dcmh_with_a_past(outputs: Tensor, batch: TrainBatch, labels: Tensor, n_bits: int, similar_weight: float):
    """DCMH that has seen all pairs before, and the outputs that it keeps of them once it has seen this batch."""
    objective = make("dcmh", n_bits, labels, quantization=0.7, balance=0.3, similar_weight=similar_weight)
    generator = torch.Generator().manual_seed(5)
    kept = []
    for number, buffer in enumerate((objective.images, objective.texts)):
        buffer.copy_(torch.randn(N_TRAIN, n_bits, dtype=torch.float64, generator=generator))
        after = buffer.clone()
        after[batch.index] = outputs[:, number * n_bits : (number + 1) * n_bits]
        kept.append(after)
    return objective, tuple(kept)
