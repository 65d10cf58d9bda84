"""DCMH, deep cross-modal hashing (Jiang and Li, CVPR 2017)."""

from dataclasses import dataclass
from typing import Any, ClassVar

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
from dmuh.methods.images_and_texts import views


@dataclass(frozen=True)
class DCMHOptions:
    """Options of DCMH."""

    quantization: float = setting(1.0, "weight of the quantisation term, the paper's γ", low=0)
    balance: float = setting(1.0, "weight of the balance of each bit over the training set, the paper's η", low=0)
    similar_weight: float = similar_weight_setting()


class DCMH(Objective):
    """The likelihood of image–text pairs, with one code for an image and its text (Eq. 1).

        L = (Σ_ij (softplus Θ_ij - S_ij·Θ_ij) + γ·(‖B - F‖² + ‖B - G‖²) + η·(‖Fᵀ1‖² + ‖Gᵀ1‖²)) / (N·B)

    Θ_ij = ½·f_iᵀg_j, F and G the outputs of images and texts, B = sign(F + G). Images of the batch are paired with the
    last outputs of all N texts, texts with those of all N images; gradient flows through the batch alone. The authors
    train the two networks by turns with plain steps, and take B anew after each turn; here a step changes both, and B
    is of the last outputs. The divisor is that of the authors' gradients; `similar_weight` is ours.
    """

    takes_texts: ClassVar[bool] = True
    Options = DCMHOptions
    title = "likelihood of pairs of an image and a text, with one code for both"
    paper = "Jiang and Li, Deep Cross-Modal Hashing"
    year = 2017
    presets = {"paper": {"quantization": 1.0, "balance": 1.0, "similar_weight": 1.0, "optimizer": "sgd",
                         "sgd_momentum": 0.0, "lr": 0.0316, "lr_final": 1e-6, "schedule": "log", "epochs": 500,
                         "batch_size": 128, "weight_decay": 0.0, "clip": 0.0, "warmup_epochs": 0.0, "validation": 0.0,
                         "standardize": True}}  # fmt: skip
    advice = "lower quantization or lr"
    images: Tensor
    texts: Tensor
    train_labels: Tensor

    def __init__(self, options: Any, n_bits: int, train_labels: Tensor) -> None:
        super().__init__(options, n_bits, train_labels)
        self.register_buffer("train_labels", train_labels, persistent=False)
        self.register_buffer("images", torch.zeros(len(train_labels), n_bits))
        self.register_buffer("texts", torch.zeros(len(train_labels), n_bits))

    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the terms `similarity`, `quantization` and `balance` for outputs (B, 2·n_bits)."""
        both = views(outputs)
        for buffer, own in zip((self.images, self.texts), both, strict=True):
            buffer[batch.index] = own.detach()
        similarity = similarity_of(batch.labels, self.train_labels)  # (B, N)
        weights = pair_weights(similarity, self.options.similar_weight)
        likelihood = sum(
            (weights * negative_log_likelihood(own, similarity, others)).mean()
            for own, others in zip(both, (self.texts, self.images), strict=True)
        )
        codes = signs(self.images[batch.index] + self.texts[batch.index])
        divisor = self.n_train * len(outputs)
        error = sum(((codes - own) ** 2).sum() for own in both) / divisor
        sums = [
            buffer.sum(dim=0) + (own - own.detach()).sum(dim=0)  # of all images or texts, with the batch's gradient
            for buffer, own in zip((self.images, self.texts), both, strict=True)
        ]
        balance = sum((total**2).sum() for total in sums) / divisor
        return {
            "similarity": torch.as_tensor(likelihood),
            "quantization": self.options.quantization * error,
            "balance": self.options.balance * balance,
        }
