"""DMUH-plus: DMUH, and two terms by which the labels can be read from a code. Ours, not the paper's."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import TrainBatch, beta_setting, signs, similar_weight_setting
from dmuh.methods.csq import HashCentres
from dmuh.methods.dmuh import DMUH, DMUHOptions, uncertainty_of

_RIDGE = 1.0


@dataclass(frozen=True)
class DMUHPlusOptions(DMUHOptions):
    """Options of dmuh-plus; the defaults are what held-out training images of CIFAR-10, coco18 and apparel chose."""

    beta: float = beta_setting(0.1)
    similar_weight: float = similar_weight_setting(2.0)
    decoder: float = setting(3.0, "weight of reading the labels from the code by a linear map", low=0)
    centres: float = setting(10.0, "weight of the cross-entropy against the hash centres of classes", low=0)


class DMUHPlus(DMUH):
    """DMUH's objective (Eq. 8), and two terms by which the labels can be read from a single code.

        L = Eq. 8 + decoder · mean_i e^(ū_i)·‖y_i - Wᵀ·[tanh h_i, 1]‖² + centres · mean_i e^(ū_i)·BCE(h_i, c_i)

    W is the ridge regression of the labels on the signs of all training images' outputs, solved anew before each epoch;
    c_i is the hash centre of the image's labels, as CSQ has it, its cross-entropy the mean over bits. Pairs say which
    images belong together, these terms say where they belong.
    """

    Options = DMUHPlusOptions
    title = "dmuh, and terms by which the labels can be read from a code"
    paper = "ours, after Fu et al., Shen et al. (SDH) and Yuan et al. (CSQ)"
    year = 2026
    presets = {}
    train_labels: Tensor
    weight: Tensor

    def __init__(self, options: object, n_bits: int, train_labels: Tensor) -> None:
        super().__init__(options, n_bits, train_labels)
        n_classes = train_labels.shape[1]
        self.register_buffer("train_labels", train_labels, persistent=False)
        self.register_buffer("weight", torch.zeros(n_bits + 1, n_classes))
        self.hash_centres = HashCentres(n_classes, n_bits)

    def begin_epoch(self, outputs: Callable[[], Tensor], generator: torch.Generator) -> None:
        """Solve for the map W that reads the labels from the codes."""
        del generator
        if self.options.decoder:
            codes = with_one(signs(outputs()))
            gram = codes.T @ codes + _RIDGE * torch.eye(codes.shape[1], device=codes.device)
            self.weight.copy_(torch.linalg.solve(gram, codes.T @ self.train_labels))

    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the terms of DMUH, and `decoder` and `centres` where they have a weight."""
        terms = super().forward(outputs, batch)
        u = uncertainty_of(outputs, batch).mean(dim=1)  # (B,)
        image = torch.exp(u.detach() if self.options.detach else u)
        if self.options.decoder:
            gap = batch.labels - with_one(torch.tanh(outputs)) @ self.weight  # (B, classes)
            terms["decoder"] = self.options.decoder * (image * (gap**2).sum(dim=1)).mean()
        if self.options.centres:
            entropy = self.hash_centres.entropy(outputs, batch.labels).mean(dim=1)
            terms["centres"] = self.options.centres * (image * entropy).mean()
        return terms


def with_one(rows: Tensor) -> Tensor:
    """Return rows (n, m) with a one after each: (n, m + 1)."""
    return torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
