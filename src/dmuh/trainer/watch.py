"""The watch over a training: a loss that runs away, and codes that all become alike."""

import math
from typing import Any

import numpy as np
from torch import Tensor

from dmuh.config import TrainingSettings
from dmuh.errors import CollapseError, DivergenceError
from dmuh.methods import Objective

_RUNAWAY = 10.0  # times its first value that the loss may reach
_WINDOW = 10  # steps over which the loss is averaged to tell
_COLLAPSED_EPOCHS = 5  # epochs in a row with one code for all images before the training stops


class Watch:
    """Notices a loss that runs away and codes that all become alike, and stops the training with what to change."""

    def __init__(self, objective: Objective, settings: TrainingSettings) -> None:
        self.advice = objective.advice
        self.settings = settings
        self.options = objective.options
        self.first: list[float] = []  # the loss of the first steps
        self.recent: list[float] = []  # and of the last ones
        self.codes: set[bytes] = set()  # different codes of this epoch, two at most
        self.alike = 0  # epochs in a row with one code only

    def step(self, epoch: int, loss: float, outputs: Tensor) -> None:
        """Look at one step."""
        if not math.isfinite(loss):
            raise DivergenceError(f"the loss is {loss} in epoch {epoch + 1}: lower lr (now {self.settings.lr:g})")
        if len(self.first) < _WINDOW:
            self.first.append(loss)
        self.recent = [*self.recent[-_WINDOW + 1 :], loss]
        start, now = sum(self.first) / len(self.first), sum(self.recent) / len(self.recent)
        if len(self.recent) == _WINDOW and now > _RUNAWAY * max(start, 1e-6):
            raise DivergenceError(
                f"the loss ran away from {start:.3g} to {now:.3g} in epoch {epoch + 1}: "
                f"lower lr (now {self.settings.lr:g}) or raise warmup_epochs (now {self.settings.warmup_epochs:g})"
            )
        if len(self.codes) < 2:
            bits = (outputs.detach() >= 0).cpu().numpy()
            self.codes.update(row.tobytes() for row in np.unique(bits, axis=0)[:2])

    def epoch(self, epoch: int, epochs: int) -> None:
        """Look at one epoch."""
        self.alike = self.alike + 1 if len(self.codes) == 1 else 0
        self.codes.clear()
        if self.alike >= _COLLAPSED_EPOCHS or (self.alike and epoch + 1 == epochs):
            values = {**vars(self.settings), **vars(self.options)}
            now = ", ".join(f"{name} {values[name]:g}" for name in self.advice.split() if name in values)
            raise CollapseError(
                f"all training images have had the same code for {self.alike} epochs (epoch {epoch + 1}): "
                f"{self.advice} (now {now})"
            )

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds of it."""
        return {"first": self.first, "recent": self.recent, "alike": self.alike}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` gave."""
        self.first, self.recent, self.alike = state["first"], state["recent"], state["alike"]
