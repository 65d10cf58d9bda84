"""ITQ, iterative quantization (Gong and Lazebnik, CVPR 2011)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.errors import InputError
from dmuh.methods.base import signs
from dmuh.methods.shallow import ShallowMethod, linear_head


@dataclass(frozen=True)
class ITQOptions:
    """Options of ITQ."""

    iterations: int = setting(50, "alternations of codes and rotation", low=1)


class ITQ(ShallowMethod):
    """The rotation of the principal components that codes distort least, without labels (Eq. 2).

    min ‖B - V·R‖² over codes B = ±1 and rotations R, V the centred features on their first n_bits principal axes, by
    turns: B = sign(V·R); R = W·Uᵀ from the singular value decomposition BᵀV = U·Σ·Wᵀ.
    """

    Options = ITQOptions
    title = "rotated principal components, without labels"
    paper = "Gong and Lazebnik, Iterative Quantization: A Procrustean Approach to Learning Binary Codes"
    year = 2011
    needs_labels = False

    def __init__(self, n_bits: int = 32, iterations: int = 50, seed: int = 0) -> None:
        self.n_bits = n_bits
        self.iterations = iterations
        self.seed = seed

    def _fit(self, features: Tensor, labels: Tensor | None) -> None:
        del labels
        if self.n_bits > features.shape[1]:
            raise InputError(
                f"ITQ gives at most as many bits as there are features ({features.shape[1]}), got n_bits={self.n_bits}"
            )
        mean = features.mean(dim=0)
        centred = (features - mean).double()
        axes = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -self.n_bits :]  # (n_features, n_bits)
        projected = centred @ axes
        rotation = torch.linalg.qr(torch.randn(self.n_bits, self.n_bits, dtype=torch.float64)).Q
        for _ in range(self.iterations):
            codes = signs(projected @ rotation)
            left, _, right = torch.linalg.svd(codes.T @ projected)
            rotation = right.T @ left.T
            self.losses_.append(float(((codes - projected @ rotation) ** 2).sum()))
        weight = (axes @ rotation).float()
        self.head_ = linear_head(weight, -mean @ weight)
