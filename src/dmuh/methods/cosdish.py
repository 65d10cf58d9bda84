"""COSDISH, column sampling based discrete supervised hashing (Kang, Li and Zhou, AAAI 2016)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import similarity_of
from dmuh.methods.discrete import dissimilarity, sampled_columns
from dmuh.methods.shallow import ShallowMethod, fit_linear_head, random_signs


@dataclass(frozen=True)
class COSDISHOptions:
    """Options of COSDISH."""

    rounds: int = setting(10, "times that columns are sampled", low=1)
    inner: int = setting(3, "alternations of sampled and other codes per round", low=1)
    ridge: float = setting(1.0, "ridge of the map from features to codes, per training image", above=0)


class COSDISH(ShallowMethod):
    """Discrete codes that fit sampled columns of the similarity matrix, and a linear map to them (Eq. 4-7).

    min ‖n_bits·S - B·B_Ωᵀ‖² for n_bits sampled images Ω per round, by turns: B_Ω bit by bit, each a clustering of Ω
    into two halves (`sampled_columns`), then the other codes sign(S·B_Ω), which keep their bit where that is zero. S is
    1 for similar pairs, and for others minus the number of similar pairs over that of dissimilar ones, so that both
    weigh alike. The authors' clustering has a proven bound; ours, by exchanges, ends where no exchange helps.
    """

    Options = COSDISHOptions
    title = "discrete codes that fit sampled columns of the similarity matrix"
    paper = "Kang, Li and Zhou, Column Sampling Based Discrete Supervised Hashing"
    year = 2016

    def __init__(self, n_bits: int = 32, rounds: int = 10, inner: int = 3, ridge: float = 1.0, seed: int = 0) -> None:
        self.n_bits = n_bits
        self.rounds = rounds
        self.inner = inner
        self.ridge = ridge
        self.seed = seed

    def _fit(self, features: Tensor, labels: Tensor | None) -> None:
        assert labels is not None
        n = len(features)
        codes = random_signs(n, self.n_bits)
        for _ in range(self.rounds):
            chosen = torch.randperm(n)[: min(max(self.n_bits, 2), n)]
            shared = similarity_of(labels, labels[chosen])  # (N, |Ω|)
            apart = dissimilarity(shared)
            similarity = torch.where(shared > 0, 1.0, -apart)
            others = torch.ones(n, dtype=torch.bool)
            others[chosen] = False
            for _ in range(self.inner):
                codes[chosen] = sampled_columns(codes, similarity, chosen)
                # S·B_Ω from whole numbers, so that votes which are level are exactly zero
                votes = (1 + apart) * (shared[others] @ codes[chosen]) - apart * codes[chosen].sum(dim=0)
                codes[others] = torch.where(votes == 0, codes[others], votes.sign())
            self.losses_.append(float(((self.n_bits * similarity - codes @ codes[chosen].T) ** 2).mean()))
        self.head_ = fit_linear_head(features, codes, self.ridge)
