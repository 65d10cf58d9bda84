"""CCA-ITQ: canonical correlation and iterative quantization of images and texts (Gong and Lazebnik, CVPR 2011)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import signs
from dmuh.methods.images_and_texts import ShallowCrossModal, Standardised


@dataclass(frozen=True)
class CCAITQOptions:
    """Options of CCA-ITQ."""

    iterations: int = setting(50, "alternations of codes and rotation", low=1)
    ridge: float = setting(0.1, "what is added to the variance of each standardised feature", above=0)


class CCAITQ(ShallowCrossModal):
    """The directions in which images and texts correlate most, rotated so that codes distort them least; no labels.

    With C_xx, C_yy and C_xy the covariances of standardised features, C_xx^(-1/2)·C_xy·C_yy^(-1/2) = U·Σ·Vᵀ gives the
    projections C_xx^(-1/2)·U and C_yy^(-1/2)·V, of which the first n_bits are kept, each scaled by its correlation σ as
    the authors do. Then B = sign(Z·R) and R from the singular value decomposition of BᵀZ by turns, as in ITQ, Z the
    projections of images and texts one below the other.
    """

    Options = CCAITQOptions
    title = "rotated canonical correlations of images and texts, without labels"
    paper = "Gong and Lazebnik, Iterative Quantization: A Procrustean Approach to Learning Binary Codes"
    year = 2011
    needs_labels = False

    def _fit(self, images: Tensor, texts: Tensor, labels: Tensor | None) -> None:
        del labels
        x, y = Standardised.of(images), Standardised.of(texts)
        whiten_x, whiten_y = (_inverse_root(view.covariance(self.options.ridge)) for view in (x, y))
        left, correlations, right = torch.linalg.svd(whiten_x @ (x.rows.T @ y.rows / len(x.rows)) @ whiten_y)
        scale = correlations[: self.n_bits]
        to_x = whiten_x @ left[:, : self.n_bits] * scale
        to_y = whiten_y @ right.T[:, : self.n_bits] * scale
        projected = torch.cat([x.rows @ to_x, y.rows @ to_y])  # (2·N, n_bits)
        rotation = torch.linalg.qr(torch.randn(self.n_bits, self.n_bits, dtype=torch.float64)).Q
        for _ in range(self.options.iterations):
            codes = signs(projected @ rotation)
            left, _, right = torch.linalg.svd(codes.T @ projected)
            rotation = right.T @ left.T
        self.image_head_, self.text_head_ = x.head(to_x @ rotation), y.head(to_y @ rotation)


def _inverse_root(matrix: Tensor) -> Tensor:
    """Return the inverse of the square root of a positive definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    root: Tensor = vectors / values.sqrt() @ vectors.T
    return root
