"""DDSH, deep discrete supervised hashing (Jiang, Cui and Li, TIP 2018)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import Objective, TrainBatch, signs, similar_weight_setting, similarity_of
from dmuh.methods.discrete import dissimilarity, sampled_columns


@dataclass(frozen=True)
class DDSHOptions:
    """Options of DDSH."""

    sampled: int = setting(100, "training images whose codes are solved for before an epoch, the paper's |Ω|", low=2)
    similar_weight: float = similar_weight_setting()


class DDSH(Objective):
    """Codes of sampled images Ω solved for discretely, and a network that fits the similarity to them (Eq. 3-6).

    Before an epoch Ω is drawn, and B_Ω found by column sampling's discrete step with the signs of all other outputs
    fixed. The network then minimises ‖n_bits·S - tanh(U)·B_Ωᵀ‖² over the images that are not in Ω, here the mean over
    the pairs divided by n_bits; `similar_weight`, which is ours, weighs them. S is 1 for similar pairs, and for others
    -r, the number of similar pairs over that of dissimilar ones in the columns Ω, as in the authors' code: -1 would ask
    for opposite codes of every two classes, which more than two cannot have. It is 0 for multi-label data, where
    sharing no label says less. The authors keep an Ω for three epochs, 50 times; here each epoch has its own. Their
    steps are without momentum.
    """

    Options = DDSHOptions
    title = "discrete codes of sampled images, which the network's outputs are fitted to"
    paper = "Jiang, Cui and Li, Deep Discrete Supervised Hashing"
    year = 2018
    presets = {"paper": {"sampled": 100, "epochs": 150, "batch_size": 128, "optimizer": "sgd",
                         "sgd_momentum": 0.0, "lr": 1e-2, "lr_final": 1e-4, "schedule": "log", "weight_decay": 5e-4,
                         "clip": 0.0, "validation": 0.0, "standardize": True}}  # fmt: skip
    advice = "lower lr"
    train_labels: Tensor
    chosen: Tensor
    chosen_codes: Tensor
    apart: Tensor

    def __init__(self, options: object, n_bits: int, train_labels: Tensor) -> None:
        super().__init__(options, n_bits, train_labels)
        n = min(self.options.sampled, max(len(train_labels) // 2, 1))
        self.register_buffer("train_labels", train_labels, persistent=False)
        self.register_buffer("chosen", torch.zeros(n, dtype=torch.int64))
        self.register_buffer("chosen_codes", torch.zeros(n, n_bits))
        self.register_buffer("apart", torch.zeros(()))
        self.several_labels = bool((train_labels.sum(dim=1) > 1).any())

    def begin_epoch(self, outputs: Callable[[], Tensor], generator: torch.Generator) -> None:
        """Draw Ω and solve for its codes."""
        codes = signs(outputs())
        self.chosen.copy_(torch.randperm(self.n_train, generator=generator)[: len(self.chosen)])
        if not self.several_labels:
            self.apart.copy_(-dissimilarity(similarity_of(self.train_labels, self.train_labels[self.chosen])))
        self.chosen_codes.copy_(sampled_columns(codes, self.similarity(self.train_labels), self.chosen))

    def similarity(self, labels: Tensor) -> Tensor:
        """Return S (n, |Ω|) of images with these labels (n, classes) and Ω."""
        shared = similarity_of(labels, self.train_labels[self.chosen])
        return torch.where(shared > 0, 1.0, self.apart)

    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the term `similarity`."""
        similarity = self.similarity(batch.labels)  # (B, |Ω|)
        others = (~torch.isin(batch.index, self.chosen)).to(outputs.dtype)[:, None]
        weights = others * torch.where(similarity > 0, self.options.similar_weight, 1.0)
        gap = self.n_bits * similarity - torch.tanh(outputs) @ self.chosen_codes.T
        return {"similarity": (weights * gap**2).sum() / weights.sum().clamp_min(1e-6) / self.n_bits}
