"""SDH, supervised discrete hashing (Shen et al., CVPR 2015)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.discrete import cyclic_descent
from dmuh.methods.shallow import ShallowMethod, random_signs
from dmuh.network.heads import KernelHead


@dataclass(frozen=True)
class SDHOptions:
    """Options of SDH."""

    anchors: int = setting(1000, "training images that features are compared with", low=1)
    classifier: float = setting(1.0, "weight of the classifier's size, the paper's λ", above=0)
    penalty: float = setting(1e-5, "weight of the distance between codes and outputs, the paper's ν", above=0)
    rounds: int = setting(5, "alternations of classifier, codes and hash function", low=1)
    sweeps: int = setting(10, "passes over the bits per round, at most", low=1)


class SDH(ShallowMethod):
    """Codes that a linear classifier can read, found bit by bit, and a kernel map to them (Eq. 4).

    min ‖Y - B·W‖² + λ·‖W‖² + ν·‖B - φ(X)·P‖² over W, P and B = ±1 by turns; φ are the similarities exp(-‖x - a‖²/σ) to
    random anchors, of features of length 1, σ the anchors' mean squared distance (the paper has one for its features).
    """

    Options = SDHOptions
    title = "discrete codes that a linear classifier can read, by a kernel map"
    paper = "Shen, Shen, Liu and Shen, Supervised Discrete Hashing"
    year = 2015

    def __init__(
        self,
        n_bits: int = 32,
        anchors: int = 1000,
        classifier: float = 1.0,
        penalty: float = 1e-5,
        rounds: int = 5,
        sweeps: int = 10,
        seed: int = 0,
    ) -> None:
        self.n_bits = n_bits
        self.anchors = anchors
        self.classifier = classifier
        self.penalty = penalty
        self.rounds = rounds
        self.sweeps = sweeps
        self.seed = seed

    def _fit(self, features: Tensor, labels: Tensor | None) -> None:
        assert labels is not None
        n = len(features)
        head = KernelHead(features.shape[1], self.n_bits, min(self.anchors, n))
        head.place_anchors(features[torch.randperm(n)[: len(head.anchors)]])
        parts = [head.similarities(features[i : i + 4096]) for i in range(0, n, 4096)]
        kernel = torch.cat(parts).double()  # (N, anchors)
        gram = kernel.T @ kernel + 1e-5 * n * torch.eye(kernel.shape[1], dtype=torch.float64) / kernel.shape[1]
        factor = torch.linalg.cholesky(gram)
        targets = labels.double()
        codes = random_signs(n, self.n_bits).double()
        projection = torch.cholesky_solve(kernel.T @ codes, factor)
        for _ in range(self.rounds):
            weight = torch.linalg.solve(
                codes.T @ codes + self.classifier * torch.eye(self.n_bits, dtype=torch.float64), codes.T @ targets
            )
            self.losses_.append(self._loss(codes, targets, weight, kernel @ projection))
            target = targets @ weight.T + self.penalty * (kernel @ projection)
            codes = cyclic_descent(codes, target, weight, self.sweeps)
            self.losses_.append(self._loss(codes, targets, weight, kernel @ projection))
            projection = torch.cholesky_solve(kernel.T @ codes, factor)
        head.weight = projection.float()
        self.head_ = head

    def _loss(self, codes: Tensor, targets: Tensor, weight: Tensor, outputs: Tensor) -> float:
        """Return the objective for codes (N, n_bits), Y (N, classes), W (n_bits, classes) and φ(X)·P (N, n_bits)."""
        fit = ((targets - codes @ weight) ** 2).sum() + self.classifier * (weight**2).sum()
        return float(fit + self.penalty * ((codes - outputs) ** 2).sum())
