"""Dropout whose masks a training step gives: without them, as in encoding, it changes nothing.

torch's own draws from a generator that all layers and networks share, and only for the images that a process has. Here
the masks of a step depend on nothing but what seeds them: not on what was drawn before, so that a resumed training has
the same ones; not on how many processes share the batch; nor on the device.
"""

import numpy as np
import torch
from torch import Tensor, nn


class Masks:
    """What one network drops in one step, drawn layer by layer in the order in which they ask.

    seed   of the random numbers
    total  images of the whole batch, over all processes
    begin  the first of them that this process has
    """

    def __init__(self, seed: tuple[int, ...], total: int, begin: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._total = total
        self._begin = begin

    def applied(self, x: Tensor, rate: float) -> Tensor:
        """Set a share `rate` of the elements of x (n, …) to 0 and divide the others by 1 - rate."""
        drawn = self._rng.random((self._total, *x.shape[1:]), np.float32)[self._begin : self._begin + len(x)]
        kept = torch.from_numpy(drawn >= np.float32(rate)).to(x.device)
        return x * kept / (1 - rate)


class Dropout(nn.Module):
    """Sets a share `rate` of its input to 0 while it has masks, see `HashNetwork.dropping`; else it is the identity."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.rate = rate
        self.masks: Masks | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to x (n, …)."""
        return x if self.masks is None or not self.rate else self.masks.applied(x, self.rate)
