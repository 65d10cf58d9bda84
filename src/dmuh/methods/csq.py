"""CSQ, central similarity quantization (Yuan et al., CVPR 2020)."""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dmuh.config import setting
from dmuh.methods.base import Objective, TrainBatch

log = logging.getLogger(__name__)

_TRIES = 200  # random codes that are tried for a centre before the bound on their distance is relaxed
_SEED = 0  # centres belong to the method, not to the run: every seed trains towards the same ones

Signs = NDArray[np.int8]


@dataclass(frozen=True)
class CSQOptions:
    """Options of CSQ."""

    quantization: float = setting(1e-4, "weight of the quantisation term, the paper's λ", low=0)
    many_classes: str = setting(
        "random",
        "hash centres of more classes than 2·bits: random codes for all, as the authors have them, or rows of the "
        "Hadamard matrix for as many classes as it has rows, and random codes for the rest alone",
        choices=("random", "rows-first"),
    )


class CSQ(Objective):
    """Cross-entropy of each bit against the hash centre of the image's class, with quantisation (Eq. 6, 7).

    L = mean of BCE(½·(tanh u + 1), ½·(c + 1)) + λ·mean of (|tanh u| - 1)². A class's centre is a row of a Hadamard
    matrix or its negative; see `hash_centres`. An image with several labels has the sign of the sum of their centres,
    where that is zero the sign of one fixed random vector. The preset's epochs are those of DMUH's.
    """

    Options = CSQOptions
    title = "cross-entropy of bits against the hash centres of classes"
    paper = "Yuan et al., Central Similarity Quantization for Efficient Image and Video Retrieval"
    year = 2020
    presets = {"paper": {"quantization": 1e-4, "optimizer": "adamw", "lr": 1e-3, "lr_final": 1e-5, "schedule": "log",
                         "backbone_lr": 0.01, "epochs": 150, "batch_size": 64, "weight_decay": 0.0, "clip": 0.0,
                         "validation": 0.0, "standardize": True}}  # fmt: skip
    advice = "lower lr"

    def __init__(self, options: CSQOptions, n_bits: int, train_labels: Tensor) -> None:
        super().__init__(options, n_bits, train_labels)
        self.hash_centres = HashCentres(train_labels.shape[1], n_bits, rows_first=options.many_classes == "rows-first")

    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the terms `similarity` and `quantization`."""
        entropy = self.hash_centres.entropy(outputs, batch.labels).mean()
        error = (torch.tanh(outputs).abs() - 1) ** 2
        return {"similarity": entropy, "quantization": self.options.quantization * error.mean()}


class HashCentres(nn.Module):
    """The codes that images of each class are to have, and how far outputs are from them."""

    centres: Tensor
    tie: Tensor

    def __init__(self, n_classes: int, n_bits: int, *, rows_first: bool = False) -> None:
        super().__init__()
        tie = np.random.default_rng((_SEED, n_bits, 1)).integers(0, 2, n_bits) * 2 - 1
        self.register_buffer(
            "centres", torch.from_numpy(hash_centres(n_classes, n_bits, rows_first=rows_first)).float()
        )
        self.register_buffer("tie", torch.from_numpy(tie).float())

    def wanted(self, labels: Tensor) -> Tensor:
        """Return the code ±1 (B, n_bits) for images with these labels (B, classes)."""
        total = labels @ self.centres
        return torch.where(total == 0, self.tie, total.sign())

    def entropy(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return BCE(½·(tanh u + 1), ½·(c + 1)) of each bit (B, n_bits)."""
        # that is the cross-entropy of the logit 2u, which does not overflow
        wanted = (self.wanted(labels) + 1) / 2
        return nn.functional.binary_cross_entropy_with_logits(2 * outputs, wanted, reduction="none")


def hash_centres(n_classes: int, n_bits: int, *, rows_first: bool = False) -> Signs:
    """Return the hash centres ±1 (n_classes, n_bits).

    Rows of a Hadamard matrix and of its negative, half of whose bits differ from one another or all, where a matrix of
    that order is known here and has rows enough. Else random codes with as many ones as minus ones and a quarter of the
    bits apart, or fewer where that cannot be had; with `rows_first` these come after the rows that there are.
    """
    matrix = hadamard(n_bits)
    rows = np.empty((0, n_bits), np.int8) if matrix is None else np.concatenate([matrix, -matrix])
    if n_classes <= len(rows):
        return rows[:n_classes]
    return _with_random_centres(rows if rows_first else rows[:0], n_classes)


def hadamard(order: int) -> Signs | None:
    """Return a Hadamard matrix ±1 (order, order): Sylvester's doubling of Paley's first construction, or None.

    Paley: of order q + 1 for a prime q with q mod 4 = 3, from which of 1 … q - 1 are squares mod q.
    """
    if order in (1, 2):
        return np.array([[1, 1], [1, -1]], np.int8)[:order, :order]
    if order % 4:
        return None
    q = order - 1
    if q % 4 == 3 and _is_prime(q):
        squares = {n * n % q for n in range(1, q)}
        character = np.array([0] + [1 if n in squares else -1 for n in range(1, q)], np.int8)
        skew = np.zeros((order, order), np.int8)
        skew[0, 1:], skew[1:, 0] = 1, -1
        skew[1:, 1:] = character[(np.arange(q)[None, :] - np.arange(q)[:, None]) % q]
        return skew + np.eye(order, dtype=np.int8)
    half = hadamard(order // 2)
    return None if half is None else np.block([[half, half], [half, -half]])


def _with_random_centres(rows: Signs, n_classes: int) -> Signs:
    """Return centres (n_classes, n_bits): the rows, and random codes."""
    n_bits = rows.shape[1]
    rng = np.random.default_rng((_SEED, n_bits, n_classes))
    balanced = np.ones(n_bits, np.float32)
    balanced[: n_bits // 2] = -1
    centres = np.empty((n_classes, n_bits), np.float32)  # whose products are quick, and exact
    apart = n_bits // 4 + 1  # more than a quarter of the bits
    centres[: len(rows)] = rows
    n, tries = len(rows), 0
    while n < n_classes:
        codes = rng.permuted(np.tile(balanced, (_TRIES, 1)), axis=1)
        found = n  # what the codes are compared with at once; those taken since are compared one by one
        nearest = (n_bits - (centres[:n] @ codes.T).max(axis=0, initial=-n_bits)) / 2
        for code, distance in zip(codes, nearest, strict=True):
            nearest_new = (n_bits - (centres[found:n] @ code).max(initial=-n_bits)) / 2
            if min(distance, nearest_new) >= apart:
                centres[n] = code
                n, tries = n + 1, 0
                if n == n_classes:
                    break
            else:
                tries += 1
                if tries == _TRIES:
                    apart, tries = apart - 1, 0
    if apart <= n_bits // 4:
        log.info("%d hash centres of %d bits are at least %d bits apart, not a quarter", n_classes, n_bits, apart)
    return centres.astype(np.int8)


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))
