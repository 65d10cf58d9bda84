"""DPSH, deep pairwise-supervised hashing (Li, Wang and Kang, IJCAI 2016)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import (
    Objective,
    TrainBatch,
    negative_log_likelihood,
    pair_weights,
    signs,
    similar_weight_setting,
    similarity_of,
)


@dataclass(frozen=True)
class DPSHOptions:
    """Options of DPSH."""

    eta: float = setting(10.0, "weight of the quantisation term", low=0)
    similar_weight: float = similar_weight_setting()


class Buffered(Objective):
    """A method that pairs its batch with the last outputs U (N, n_bits) of all training images, zero at first."""

    buffer: Tensor
    train_labels: Tensor

    def __init__(self, options: object, n_bits: int, train_labels: Tensor) -> None:
        super().__init__(options, n_bits, train_labels)
        self.register_buffer("train_labels", train_labels, persistent=False)
        self.register_buffer("buffer", torch.zeros(len(train_labels), n_bits))

    def likelihood(self, outputs: Tensor, batch: TrainBatch) -> Tensor:
        """Return Σ(softplus Θ - S·Θ) of the batch against all training images, over N·B.

        `similar_weight`, which is ours, weighs the pairs. The batch's outputs replace theirs in U first. Gradient flows
        through the batch's side of a pair alone, as in the authors' update of one row at a time.
        """
        self.buffer[batch.index] = outputs.detach()
        similarity = similarity_of(batch.labels, self.train_labels)  # (B, N)
        weights = pair_weights(similarity, self.options.similar_weight)
        return (weights * negative_log_likelihood(outputs, similarity, self.buffer)).mean()


class DPSH(Buffered):
    """Pairwise likelihood against all training images, with quantisation (Eq. 6).

    L = (Σ_ij (softplus Θ_ij - S_ij·Θ_ij) + η·Σ_i ‖b_i - u_i‖²) / (N·B), i in the batch, j in the training set; the
    paper has no divisor, its authors' code has this one, and takes plain steps without momentum.
    """

    Options = DPSHOptions
    title = "pairwise likelihood of the batch against all training images"
    paper = "Li, Wang and Kang, Feature Learning Based Deep Supervised Hashing with Pairwise Labels"
    year = 2016
    presets = {"paper": {"eta": 10.0, "optimizer": "sgd", "sgd_momentum": 0.0, "lr": 0.05, "lr_final": 5e-4,
                         "schedule": "step", "epochs": 150, "batch_size": 128, "weight_decay": 1e-5, "clip": 0.0,
                         "validation": 0.0, "standardize": True}}  # fmt: skip
    advice = "lower eta or lr"

    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the terms `similarity` and `quantization`."""
        error = ((outputs - signs(outputs)) ** 2).sum() / (self.n_train * len(outputs))
        return {"similarity": self.likelihood(outputs, batch), "quantization": self.options.eta * error}
