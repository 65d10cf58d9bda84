"""DDSH against a plain loop: the network's loss, and the images whose codes are solved for."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives import N_TRAIN, differences, dot, draw, drawn_labels, gradient, lengths, make, seeds, shared, sizes
from torch import Tensor

from dmuh.methods import TrainBatch
from dmuh.methods.ddsh import DDSH
from dmuh.methods.discrete import sampled_columns

ONE_EACH = torch.eye(3)[torch.arange(N_TRAIN) % 3].double()


def begun(n_bits: int, labels: Tensor, seed: int = 0, sampled: int = 4, **options: object) -> DDSH:
    """An objective at the beginning of an epoch, in double precision."""
    objective = make("ddsh", n_bits, labels, sampled=sampled, **options).float()
    outputs = torch.randn(len(labels), n_bits, generator=torch.Generator().manual_seed(seed))
    objective.begin_epoch(lambda: outputs, torch.Generator().manual_seed(seed))
    return objective.double()


def ratio(objective: DDSH) -> float:
    """S of a dissimilar pair where images have one label each: minus #similar / #dissimilar of the columns Ω."""
    rows = objective.train_labels.tolist()
    pairs = [shared(row, rows[j]) for row in rows for j in objective.chosen.tolist()]
    return -sum(pairs) / (len(pairs) - sum(pairs))


def looped(outputs: Tensor, batch: TrainBatch, objective: DDSH, apart: float) -> float:
    """The weighted mean over images not in Ω and those in it of (n_bits·S - tanh(u)·b)² / n_bits."""
    h, labels, n_bits = outputs.tolist(), batch.labels.tolist(), outputs.shape[1]
    chosen, codes = objective.chosen.tolist(), objective.chosen_codes.tolist()
    total = weights = 0.0
    for i, place in enumerate(batch.index.tolist()):
        if place in chosen:
            continue
        for j, other in enumerate(chosen):
            similar = shared(labels[i], objective.train_labels[other].tolist())
            s, weight = (1, objective.options.similar_weight) if similar else (apart, 1.0)
            total += weight * (n_bits * s - dot([math.tanh(u) for u in h[i]], codes[j])) ** 2 / n_bits
            weights += weight
    return total / (weights or 1)


@settings(deadline=None, max_examples=40)
@given(size=sizes, n_bits=lengths, seed=seeds)
def test_the_term_is_that_of_a_plain_loop(size, n_bits, seed):
    for labels, several in ((ONE_EACH, False), (drawn_labels(0), True)):
        objective = begun(n_bits, labels, seed)
        apart = 0.0 if several else ratio(objective)
        outputs, batch = draw(size, n_bits, labels, seed)
        terms = objective(outputs, batch)
        assert list(terms) == ["similarity"]
        assert terms["similarity"].item() == pytest.approx(looped(outputs, batch, objective, apart), rel=1e-6)


@settings(deadline=None, max_examples=30)
@given(size=sizes, n_bits=lengths, seed=seeds, similar_weight=st.sampled_from([0.25, 7.0]))
def test_similar_pairs_weigh_more_as_in_the_plain_loop(size, n_bits, seed, similar_weight):
    for labels, several in ((ONE_EACH, False), (drawn_labels(0), True)):
        objective = begun(n_bits, labels, seed, similar_weight=similar_weight)
        apart = 0.0 if several else ratio(objective)
        index = torch.tensor([n for n in range(N_TRAIN) if n not in objective.chosen])[:size]
        outputs, _ = draw(len(index), n_bits, labels, seed)
        batch = TrainBatch(labels[index], index)
        found = objective(outputs, batch)["similarity"].item()
        # S, and with it the weights, has single precision
        assert found == pytest.approx(looped(outputs, batch, objective, apart), rel=1e-6)


def test_the_weights_are_those_of_the_pairs_that_count():
    objective = begun(5, ONE_EACH, similar_weight=7.0)
    index = torch.cat([objective.chosen, torch.tensor([n for n in range(9) if n not in objective.chosen])])
    outputs, _ = draw(len(index), 5, ONE_EACH)
    batch = TrainBatch(ONE_EACH[index], index)
    expected = looped(outputs, batch, objective, ratio(objective))
    assert objective(outputs, batch)["similarity"].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("n_bits", [1, 5])
def test_the_gradient_of_weighted_pairs_is_that_of_the_plain_loop(n_bits):
    objective = begun(n_bits, ONE_EACH, similar_weight=4.0)
    index = torch.tensor([n for n in range(9) if n not in objective.chosen])[:5]
    outputs, _ = draw(len(index), n_bits, ONE_EACH)
    batch = TrainBatch(ONE_EACH[index], index)
    expected = differences(lambda h: looped(h, batch, objective, ratio(objective)), outputs)
    torch.testing.assert_close(gradient(objective, outputs, batch), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n_bits", [1, 5])
def test_gradient_is_that_of_the_plain_loop_and_none_for_the_sampled_images(n_bits):
    objective = begun(n_bits, ONE_EACH)
    outputs, _ = draw(9, n_bits, ONE_EACH)
    index = torch.cat([objective.chosen[:2], torch.tensor([n for n in range(9) if n not in objective.chosen])[:5]])
    outputs, batch = outputs[: len(index)], TrainBatch(ONE_EACH[index], index)
    found = gradient(objective, outputs, batch)
    expected = differences(lambda h: looped(h, batch, objective, ratio(objective)), outputs)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    assert not found[:2].any()
    assert found[2:].any()
    assert torch.autograd.gradcheck(lambda h: objective(h, batch)["similarity"], (outputs.requires_grad_(),))


def test_a_batch_of_sampled_images_alone_costs_nothing():
    objective = begun(5, ONE_EACH)
    outputs, _ = draw(4, 5, ONE_EACH)
    batch = TrainBatch(ONE_EACH[objective.chosen], objective.chosen.clone())
    assert objective(outputs, batch)["similarity"].item() == 0
    assert not gradient(objective, outputs, batch).any()


def test_dissimilar_pairs_weigh_together_as_much_as_similar_ones_but_where_images_have_several_labels():
    """Three classes cannot all be opposite to one another: S is -r for them, not -1."""
    objective = begun(5, ONE_EACH)
    rows, chosen = ONE_EACH.tolist(), objective.chosen.tolist()
    r = -ratio(objective)
    assert 0.3 < r < 0.7
    expected = [[1.0 if shared(a, rows[j]) else -r for j in chosen] for a in rows]
    assert objective.similarity(ONE_EACH).tolist() == [pytest.approx(row) for row in expected]
    assert objective.similarity(ONE_EACH).sum().item() == pytest.approx(0, abs=1e-5)
    several = ONE_EACH.clone()
    several[0, :2] = 1
    assert begun(5, several).similarity(several).unique().tolist() == [0.0, 1.0]


def test_the_ratio_is_that_of_each_sample():
    """A class with three images in four: how many of it were drawn decides."""
    labels = torch.eye(2)[(torch.arange(40) % 4 == 0).long()]
    objective = DDSH(DDSH.Options(sampled=5), 4, labels)
    found = set()
    for seed in range(5):
        objective.begin_epoch(lambda: torch.ones(40, 4), torch.Generator().manual_seed(seed))
        assert objective.apart.item() == pytest.approx(ratio(objective))
        found.add(objective.apart.item())
    assert len(found) > 1


@pytest.mark.parametrize(("n", "sampled", "expected"), [(300, 100, 100), (300, 7, 7), (30, 100, 15), (2, 100, 1)])
def test_as_many_different_images_are_sampled_as_asked_for_or_half_of_them(n, sampled, expected):
    labels = torch.eye(2)[torch.arange(n) % 2]
    objective = DDSH(DDSH.Options(sampled=sampled), 6, labels)
    seen = []
    for seed in (0, 1):
        objective.begin_epoch(lambda: torch.randn(n, 6), torch.Generator().manual_seed(seed))
        assert len(set(objective.chosen.tolist())) == len(objective.chosen) == expected
        assert torch.equal(objective.chosen_codes.abs(), torch.ones(expected, 6))
        seen.append(objective.chosen.tolist())
    assert seen[0] != seen[1] or n == 2


@settings(deadline=None, max_examples=20)
@given(n_bits=lengths, seed=seeds)
def test_the_codes_are_those_of_column_sampling_with_the_signs_of_all_other_outputs(n_bits, seed):
    labels = ONE_EACH.float()
    objective = DDSH(DDSH.Options(sampled=6), n_bits, labels)
    outputs = torch.randn(N_TRAIN, n_bits, generator=torch.Generator().manual_seed(seed))
    kept = outputs.clone()
    objective.begin_epoch(lambda: outputs, torch.Generator().manual_seed(seed))
    assert torch.equal(outputs, kept)
    signs = torch.where(outputs >= 0, 1.0, -1.0)
    expected = sampled_columns(signs, objective.similarity(labels), objective.chosen)
    assert torch.equal(objective.chosen_codes, expected)
    assert not expected.sum(dim=0).any()  # every bit is shared by one half


def test_chance_is_the_generators_alone_and_a_checkpoint_keeps_the_sample():
    first, second = begun(5, ONE_EACH, 3), None
    torch.manual_seed(99)
    second = begun(5, ONE_EACH, 3)
    assert torch.equal(first.chosen, second.chosen)
    assert torch.equal(first.chosen_codes, second.chosen_codes)
    assert sorted(first.state_dict()) == ["apart", "chosen", "chosen_codes"]
    other = make("ddsh", 5, ONE_EACH, sampled=4)  # as a run that goes on makes it
    other.load_state_dict(first.state_dict())
    outputs, batch = draw(6, 5, ONE_EACH)
    assert other(outputs, batch)["similarity"].item() == first(outputs, batch)["similarity"].item()
