"""DHN, deep hashing network (Zhu et al., AAAI 2016)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import Objective, TrainBatch

_LARGEST = 15.0  # of a product Θ, beyond which the authors clip


@dataclass(frozen=True)
class DHNOptions:
    """Options of DHN."""

    quantization: float = setting(0.1, "weight of the quantisation term, the paper's λ", low=0)
    balance: bool = setting(False, "similar pairs weigh #all/#similar, as in the authors' code but not in the paper")


class DHN(Objective):
    """Pairwise cross-entropy and a smooth quantisation loss (Eq. 7).

    L = mean over pairs i ≠ j of (softplus Θ - S·Θ) + λ·mean of log cosh(|u| - 1), Θ clipped to ±15 as by the authors.
    The paper gives sums; each is divided by its number of elements here, so that λ does not depend on batch or bits. It
    finds the rate, up to 0.01, and λ by cross-validation; those of the preset, and its epochs, are ours.
    """

    Options = DHNOptions
    title = "pairwise cross-entropy with a smooth quantisation loss"
    paper = "Zhu, Long, Wang and Cao, Deep Hashing Network for Efficient Similarity Retrieval"
    year = 2016
    presets = {"paper": {"quantization": 0.1, "balance": False, "optimizer": "sgd", "sgd_momentum": 0.9, "lr": 1e-2,
                         "lr_final": 1e-4, "schedule": "log", "backbone_lr": 0.1, "epochs": 150, "batch_size": 64,
                         "weight_decay": 5e-4, "clip": 0.0, "validation": 0.0, "standardize": True}}  # fmt: skip
    advice = "lower quantization or lr"

    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the terms `similarity` and `quantization`."""
        similarity = batch.similarity
        theta = (0.5 * outputs @ outputs.T).clamp(-_LARGEST, _LARGEST)
        pairs = torch.nn.functional.softplus(theta) - similarity * theta
        others = 1 - torch.eye(len(outputs), device=outputs.device)
        weight = others
        if self.options.balance:
            n_similar = (similarity * others).sum().clamp_min(1)
            weight = others * torch.where(similarity > 0, others.sum() / n_similar, 1.0)
        gap = outputs.abs() - 1
        # log cosh x = |x| + softplus(-2|x|) - log 2, which does not overflow
        smooth = gap.abs() + torch.nn.functional.softplus(-2 * gap.abs()) - torch.log(torch.tensor(2.0))
        return {
            "similarity": (weight * pairs).sum() / others.sum(),
            "quantization": self.options.quantization * smooth.mean(),
        }
