"""LFH, supervised hashing with latent factor models (Zhang et al., SIGIR 2014)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import negative_log_likelihood, signs, similarity_of
from dmuh.methods.shallow import ShallowMethod, fit_linear_head


@dataclass(frozen=True)
class LFHOptions:
    """Options of LFH."""

    iterations: int = setting(50, "rounds, each against newly sampled images", low=1)
    prior: float = setting(30.0, "variance of the latent factors, the paper's β", above=0)
    ridge: float = setting(1.0, "ridge of the map from features to codes, per training image", above=0)


class LFH(ShallowMethod):
    """Latent factors of the similarities, the signs of which are the codes (Eq. 4, 9).

    Maximises 2·Σ_ij (S_ij·Θ_ij - softplus Θ_ij) - ‖U‖²/(2β) (the pairs are counted in both orders) by sampling n_bits
    images per round. Against these, fixed, each other row makes a Newton step with a Hessian that bounds the true one
    from below, so that its likelihood never falls. A linear map takes features to the codes sign(U).
    """

    Options = LFHOptions
    title = "latent factors of the similarities"
    paper = "Zhang, Zhang, Li and Guo, Supervised Hashing with Latent Factor Models"
    year = 2014

    def __init__(
        self, n_bits: int = 32, iterations: int = 50, prior: float = 30.0, ridge: float = 1.0, seed: int = 0
    ) -> None:
        self.n_bits = n_bits
        self.iterations = iterations
        self.prior = prior
        self.ridge = ridge
        self.seed = seed

    def _fit(self, features: Tensor, labels: Tensor | None) -> None:
        assert labels is not None
        n = len(features)
        factors = torch.randn(n, self.n_bits)
        for _ in range(self.iterations):
            chosen = torch.randperm(n)[: min(self.n_bits, n - 1)]
            others = torch.ones(n, dtype=torch.bool)
            others[chosen] = False
            similarity = similarity_of(labels[others], labels[chosen])  # (n - m, m)
            factors[others] = newton_step(factors[others], factors[chosen], similarity, self.prior)
            self.losses_.append(row_losses(factors[others], factors[chosen], similarity, self.prior).mean().item())
        self.head_ = fit_linear_head(features, signs(factors), self.ridge)


def newton_step(rows: Tensor, fixed: Tensor, similarity: Tensor, prior: float) -> Tensor:
    """Return rows U (n, n_bits) of higher likelihood against fixed ones (m, n_bits), for S (n, m)."""
    gradient = (similarity - torch.sigmoid(0.5 * rows @ fixed.T)) @ fixed - rows / prior
    bound = fixed.T @ fixed / 8 + torch.eye(fixed.shape[1]) / prior  # of minus the Hessian, the same for all rows
    step: Tensor = torch.linalg.solve(bound, gradient.T).T
    return rows + step


def row_losses(rows: Tensor, fixed: Tensor, similarity: Tensor, prior: float) -> Tensor:
    """Return minus the likelihood of each row (n,), its prior included."""
    return 2 * negative_log_likelihood(rows, similarity, fixed).sum(dim=1) + (rows**2).sum(dim=1) / (2 * prior)
