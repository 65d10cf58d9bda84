"""DSH, deep supervised hashing (Liu et al., CVPR 2016)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import Objective, TrainBatch, pair_weights, similar_weight_setting


@dataclass(frozen=True)
class DSHOptions:
    """Options of DSH."""

    margin: float = setting(2.0, "squared distance, in times the number of bits, beyond which pairs are apart", above=0)
    regularization: float = setting(0.01, "weight of the pull of outputs to ±1, the paper's α", low=0)
    similar_weight: float = similar_weight_setting()


class DSH(Objective):
    """Contrastive loss on squared distances, with outputs pulled to ±1 (Eq. 4).

    The mean over the pairs i < j of the batch of ½·S·d² + ½·(1-S)·max(m - d², 0) + α·(‖|u_i| - 1‖₁ + ‖|u_j| - 1‖₁),
    with d² = ‖u_i - u_j‖² and m = 2·n_bits; `similar_weight`, which is ours, weighs the pairs. The authors take 150,000
    steps on all of CIFAR-10, in which the rate falls to 0.6 of it seven times; the preset spreads that over 150 epochs.
    """

    Options = DSHOptions
    title = "contrastive loss with outputs pulled to ±1"
    paper = "Liu, Wang, Shan and Chen, Deep Supervised Hashing for Fast Image Retrieval"
    year = 2016
    presets = {"paper": {"margin": 2.0, "regularization": 0.01, "optimizer": "sgd", "sgd_momentum": 0.9, "lr": 1e-3,
                         "lr_final": 2.8e-5, "schedule": "log", "epochs": 150, "batch_size": 200, "weight_decay": 0.004,
                         "clip": 0.0, "validation": 0.0, "standardize": True}}  # fmt: skip
    advice = "lower lr"

    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the terms `similarity` and `quantization`."""
        n = len(outputs)
        first, second = torch.triu_indices(n, n, offset=1, device=outputs.device)
        # not cdist, whose gradient is not a number where two outputs are equal
        squares = (outputs**2).sum(dim=1)
        distance = (squares[:, None] + squares[None, :] - 2 * outputs @ outputs.T)[first, second].clamp_min(0)
        similarity = batch.similarity[first, second]
        apart = (self.options.margin * self.n_bits - distance).clamp_min(0)
        pairs = 0.5 * similarity * distance + 0.5 * (1 - similarity) * apart
        pairs = pairs * pair_weights(similarity, self.options.similar_weight)
        pull = (outputs.abs() - 1).abs().sum(dim=1)
        # each image is in n - 1 of the n·(n-1)/2 pairs, so the mean over pairs of both pulls is twice the mean of one
        return {"similarity": pairs.mean(), "quantization": self.options.regularization * 2 * pull.mean()}
