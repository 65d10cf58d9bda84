"""COSDISH: codes that fit the similarity, and the map to them. Its discrete step is tested in test_discrete."""

import numpy as np
import pytest
import torch
from clusters import clusters

from dmuh.methods.cosdish import COSDISH
from dmuh.methods.discrete import sampled_columns


@pytest.mark.parametrize("n_bits", [1, 2, 5, 12])
def test_images_of_a_class_share_a_code_and_of_others_do_not(n_bits):
    x, y = clusters(120, n_classes=2)
    codes = COSDISH(n_bits).fit(x, y).project(x) >= 0
    agreement = (codes[:, None] == codes[None, :]).mean(axis=2)
    same = y[:, None] == y[None, :]
    assert agreement[same].mean() > 0.97
    assert agreement[~same].mean() < 0.6


def test_the_loss_falls_to_that_of_codes_for_the_classes():
    x, y = clusters(120, n_classes=2)
    losses = COSDISH(8).fit(x, y).losses_
    assert len(losses) == 10
    assert losses[-1] < 0.2 * 8**2  # random codes: 8² and more


def test_sampled_and_other_codes_by_turns_fit_all_columns_of_two_classes():
    """What a round does, from random codes, with every image sampled."""
    torch.manual_seed(0)
    classes = torch.arange(20) % 2
    similarity = torch.where(classes[:, None] == classes[None, :], 1.0, -1.0)
    codes = torch.randint(0, 2, (20, 6)).float() * 2 - 1
    losses = []
    for _ in range(4):
        codes = sampled_columns(codes, similarity, torch.arange(20))
        losses.append(((6 * similarity - codes @ codes.T) ** 2).sum().item())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] == 0


@pytest.mark.parametrize("seed", range(3))
def test_few_bits_tell_more_classes_apart_than_are_sampled(seed):
    """Twelve bits sample twelve images, in which some of the ten classes are missing: these must keep what they had.

    Where a bit is not balanced over the sample, all of these are given the same one, and their codes become alike.
    """
    x, y = clusters(1000, width=40, n_classes=10)
    codes = COSDISH(12, seed=seed).fit(x, y).project(x) >= 0
    common = np.stack([codes[y == k].mean(axis=0) >= 0.5 for k in range(10)])
    apart = (common[:, None] != common[None, :]).sum(axis=2)[np.triu_indices(10, 1)]
    assert apart.min() >= 2


def test_one_class_and_more_bits_than_images_are_fine():
    x, _ = clusters(6)
    assert np.isfinite(COSDISH(12, rounds=2).fit(x, np.zeros(6, int)).project(x)).all()
    assert np.isfinite(COSDISH(12, rounds=2).fit(x, np.arange(6)).project(x)).all()
