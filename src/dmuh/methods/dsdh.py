"""DSDH, deep supervised discrete hashing (Li et al., NIPS 2017)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import TrainBatch, similar_weight_setting
from dmuh.methods.discrete import cyclic_descent
from dmuh.methods.dpsh import Buffered

_SWEEPS = 10
_TRAINING: dict[str, Any] = {
    "optimizer": "sgd", "sgd_momentum": 0.0, "lr": 0.05, "lr_final": 5e-4, "schedule": "log", "epochs": 150,
    "batch_size": 128, "weight_decay": 5e-4, "clip": 0.0, "validation": 0.0, "standardize": True,
}  # fmt: skip


@dataclass(frozen=True)
class DSDHOptions:
    """Options of DSDH."""

    mu: float = setting(0.01, "weight of the classification of codes", above=0)
    nu: float = setting(1.0, "weight of the classifier's size", above=0)
    eta: float = setting(0.01, "weight of the distance between codes and outputs", low=0)
    similar_weight: float = similar_weight_setting()


class DSDH(Buffered):
    """Pairwise likelihood, and codes B of all training images that a linear classifier can read (Eq. 6, 8, 12).

    L = Σ_ij (softplus Θ_ij - S_ij·Θ_ij) + μ·‖Y - B·W‖² + ν·‖W‖² + η·‖B - U‖². Before each epoch W is solved for and B
    is found by discrete cyclic coordinate descent; the network then sees the likelihood and η·‖B - U‖². B starts as
    random signs. The terms of the network are divided by N·B as by DPSH's authors.

    The preset `paper` has the weights that the paper prints, `released` those that the authors' code runs with. Weight
    decay is that code's; the rate and the epochs are those of DPSH, on which it builds.
    """

    Options = DSDHOptions
    title = "pairwise likelihood, with discrete codes that a linear classifier can read"
    paper = "Li, Sun, He and Tan, Deep Supervised Discrete Hashing"
    year = 2017
    presets = {
        "paper": {**_TRAINING, "mu": 0.01, "nu": 1.0, "eta": 0.01, "similar_weight": 1.0},
        "released": {**_TRAINING, "mu": 1.0, "nu": 0.1, "eta": 55.0, "similar_weight": 1.0},
    }
    advice = "lower eta or lr"
    codes: Tensor

    def __init__(self, options: object, n_bits: int, train_labels: Tensor) -> None:
        super().__init__(options, n_bits, train_labels)
        self.register_buffer("codes", torch.zeros(len(train_labels), n_bits))

    def begin_epoch(self, outputs: Callable[[], Tensor], generator: torch.Generator) -> None:
        """Solve for the classifier, then for the codes; the outputs are those of the buffer."""
        del outputs
        if not self.codes.any():
            self.codes.copy_(torch.randint(0, 2, self.codes.shape, generator=generator) * 2 - 1)
        weight = self.classifier()
        target = self.train_labels @ weight.T + (self.options.eta / self.options.mu) * self.buffer
        self.codes.copy_(cyclic_descent(self.codes, target, weight, _SWEEPS))

    def classifier(self) -> Tensor:
        """Return W = (BᵀB + (ν/μ)·I)⁻¹·BᵀY (n_bits, classes)."""
        gram = self.codes.T @ self.codes + (self.options.nu / self.options.mu) * torch.eye(
            self.n_bits, device=self.codes.device
        )
        weight: Tensor = torch.linalg.solve(gram, self.codes.T @ self.train_labels)
        return weight

    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the terms `similarity` and `quantization`."""
        error = ((outputs - self.codes[batch.index]) ** 2).sum() / (self.n_train * len(outputs))
        return {"similarity": self.likelihood(outputs, batch), "quantization": self.options.eta * error}
