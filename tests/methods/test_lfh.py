"""LFH: the Newton step and the likelihood that it raises."""

import math

import numpy as np
import pytest
import torch
from clusters import clusters
from hypothesis import given, settings
from hypothesis import strategies as st

from dmuh.methods.lfh import LFH, newton_step, row_losses


def problem(n: int, m: int, n_bits: int, scale: float, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows, fixed = (scale * torch.randn(k, n_bits, generator=generator) for k in (n, m))
    return rows, fixed, (torch.rand(n, m, generator=generator) < 0.3).float()


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 8),
    m=st.integers(1, 12),
    n_bits=st.sampled_from([1, 2, 5, 12]),
    scale=st.sampled_from([0.01, 1.0, 5.0]),
    prior=st.sampled_from([0.1, 1.0, 30.0]),
    seed=st.integers(0, 2**16),
)
def test_a_newton_step_never_lowers_the_likelihood_of_a_row(n, m, n_bits, scale, prior, seed):
    rows, fixed, similarity = problem(n, m, n_bits, scale, seed)
    losses = [row_losses(rows, fixed, similarity, prior)]
    for _ in range(3):
        rows = newton_step(rows, fixed, similarity, prior)
        losses.append(row_losses(rows, fixed, similarity, prior))
        assert (losses[-1] <= losses[-2] + 1e-4 * (1 + losses[-2].abs())).all()


@settings(deadline=None, max_examples=25)
@given(n_bits=st.sampled_from([1, 2, 5]), seed=st.integers(0, 2**16))
def test_the_loss_of_a_row_is_that_of_a_plain_loop(n_bits, seed):
    rows, fixed, similarity = (tensor.double() for tensor in problem(3, 4, n_bits, 1.0, seed))
    for i, found in enumerate(row_losses(rows, fixed, similarity, 5.0).tolist()):
        expected = sum(u * u for u in rows[i].tolist()) / (2 * 5.0)
        for j in range(4):
            theta = 0.5 * sum(a * b for a, b in zip(rows[i].tolist(), fixed[j].tolist(), strict=True))
            expected -= 2 * (similarity[i, j].item() * theta - math.log(1 + math.exp(theta)))
        assert found == pytest.approx(expected)


def test_steps_lead_to_where_the_gradient_is_zero():
    rows, fixed, similarity = problem(4, 6, 3, 1.0, 0)
    for _ in range(500):
        rows = newton_step(rows, fixed, similarity, 30.0)
    rows = rows.double().requires_grad_()
    loss = row_losses(rows, fixed.double(), similarity.double(), 30.0).sum()
    assert torch.autograd.grad(loss, rows)[0].abs().max() < 1e-3


def test_the_loss_falls_and_images_of_a_class_share_a_code():
    x, y = clusters(120)
    method = LFH(8).fit(x, y)
    assert len(method.losses_) == 50
    assert np.mean(method.losses_[-5:]) < 0.5 * method.losses_[0]
    codes = method.project(x) >= 0
    agreement = (codes[:, None] == codes[None, :]).mean(axis=2)
    same = y[:, None] == y[None, :]
    assert agreement[same].mean() > 0.95
    assert agreement[~same].mean() < 0.75


def test_more_bits_than_images_are_fine():
    x, y = clusters(6)
    assert LFH(12, iterations=3).fit(x, y).project(x).shape == (6, 12)
