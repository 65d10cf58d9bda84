"""SCM, semantic correlation maximization (Zhang and Li, AAAI 2014), bit by bit."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import signs
from dmuh.methods.images_and_texts import ShallowCrossModal, Standardised


@dataclass(frozen=True)
class SCMOptions:
    """Options of SCM."""

    ridge: float = setting(0.1, "what is added to the variance of each standardised feature", above=0)


class SCM(ShallowCrossModal):
    """Codes whose products come near the similarity of labels, solved for one bit after the other (SCM-seq).

    With S = 2·L·Lᵀ - 1, L the labels of each pair brought to length 1, and R = n_bits·S less the products of the bits
    before, bit k is sign(X·w) for images and sign(Y·v) for texts, where w and v maximise wᵀXᵀR·Y·v at unit variance of
    both: the first generalised eigenvector. XᵀR·Y is updated without ever making R, which is (N, N).
    """

    Options = SCMOptions
    title = "bits of images and texts whose products come near the similarity of labels"
    paper = "Zhang and Li, Large-Scale Supervised Multimodal Hashing with Semantic Correlation Maximization"
    year = 2014

    def _fit(self, images: Tensor, texts: Tensor, labels: Tensor | None) -> None:
        assert labels is not None, "it needs labels, which the trainer checks"
        x, y = Standardised.of(images), Standardised.of(texts)
        unit = torch.nn.functional.normalize(labels.double(), dim=1)
        ones = torch.ones(len(unit), 1, dtype=torch.float64)
        residual = self.n_bits * (
            2 * (x.rows.T @ unit) @ (y.rows.T @ unit).T - (x.rows.T @ ones) @ (y.rows.T @ ones).T
        )  # XᵀR·Y
        roots = [torch.linalg.cholesky(view.covariance(self.options.ridge)) for view in (x, y)]
        weights: list[tuple[Tensor, Tensor]] = []
        for _ in range(self.n_bits):
            half = torch.linalg.solve_triangular(roots[0], residual, upper=False)
            whitened = torch.linalg.solve_triangular(roots[1], half.T, upper=False).T
            left, _, right = torch.svd_lowrank(whitened, q=min(8, *whitened.shape), niter=8)
            to_x, to_y = (
                torch.linalg.solve_triangular(root.T, first[:, :1], upper=True)
                for root, first in zip(roots, (left, right), strict=True)
            )
            residual = residual - (x.rows.T @ signs(x.rows @ to_x)) @ (y.rows.T @ signs(y.rows @ to_y)).T
            weights.append((to_x, to_y))
        self.image_head_ = x.head(torch.cat([to_x for to_x, _ in weights], dim=1))
        self.text_head_ = y.head(torch.cat([to_y for _, to_y in weights], dim=1))
