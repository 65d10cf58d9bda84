"""What the tests of deep objectives share: small random batches in double precision, and gradients by differences."""

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor

from dmuh.methods import METHODS, TrainBatch
from dmuh.methods.base import Objective

N_TRAIN = 17
N_CLASSES = 3

sizes = st.integers(2, 6)
lengths = st.sampled_from([1, 2, 5, 12])
seeds = st.integers(0, 2**16)


def drawn_labels(seed: int = 0, n: int = N_TRAIN) -> Tensor:
    """Labels of the training images: none, one or several each."""
    return (torch.rand(n, N_CLASSES, generator=torch.Generator().manual_seed(seed)) < 0.4).double()


def make(name: str, n_bits: int, labels: Tensor, **options: object) -> Objective:
    """The objective in double precision, for training images with these labels."""
    method = METHODS[name]
    return method(method.Options(**options), n_bits, labels).double()


def draw(size: int, n_bits: int, labels: Tensor, seed: int = 0, scale: float = 1.5) -> tuple[Tensor, TrainBatch]:
    """Outputs for a batch of different training images, and the batch."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.randperm(len(labels), generator=generator)[:size]
    outputs = scale * torch.randn(size, n_bits, dtype=torch.float64, generator=generator)
    return outputs, TrainBatch(labels[index], index)


def shared(first: list[float], second: list[float]) -> int:
    """S of two images."""
    return int(any(a and b for a, b in zip(first, second, strict=True)))


def dot(first: list[float], second: list[float]) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))


def values(terms: dict[str, Tensor]) -> dict[str, float]:
    return {name: term.item() for name, term in terms.items()}


def gradient(objective: Objective, outputs: Tensor, batch: TrainBatch) -> Tensor:
    """What the loop would step by."""
    h = outputs.clone().requires_grad_()
    return torch.autograd.grad(sum(objective(h, batch).values()), h)[0]


def differences(loss: Callable[[Tensor], float], at: Tensor, step: float = 1e-5) -> Tensor:
    """The gradient of a plain function, one element at a time."""
    result = torch.zeros_like(at)
    for place in range(at.numel()):
        ends = []
        for sign in (1, -1):
            moved = at.clone()
            moved.view(-1)[place] += sign * step
            ends.append(loss(moved))
        result.view(-1)[place] = (ends[0] - ends[1]) / (2 * step)
    return result
