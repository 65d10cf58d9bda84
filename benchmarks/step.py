"""One training step of DMUH against one of Regu, end to end, on CNN-F.

    python benchmarks/step.py [BATCH_SIZE]

DMUH runs its momentum copy forward too: four passes where Regu has three, a ratio of 4/3, and moves the copy's weights.
The steps of both alternate, so that what else the machine does falls on both; the median counts.
"""

import statistics
import sys
import time

import torch
from measuring import report, table

from dmuh.backbones import create_backbone
from dmuh.methods import METHODS, TrainBatch, configure
from dmuh.network import HashNetwork, MomentumCopy, calibrate
from dmuh.trainer.optimisation import make_optimizer

N_STEPS = 5


class Steps:
    """The steps of one method, as the loop makes them."""

    def __init__(self, method: str, pixels: torch.Tensor, labels: torch.Tensor) -> None:
        torch.manual_seed(0)
        config = configure({"method": method, "backbone": "cnnf", "bits": 32, "lr": 0.001})
        self.settings = config.training
        self.pixels, self.labels = pixels, labels
        self.network = HashNetwork(create_backbone("cnnf"), 32)
        calibrate(self.network, self.network.lower(pixels))
        self.objective = METHODS[method](config.options, 32, labels)
        alpha = self.objective.alpha
        self.momentum = None if alpha is None else MomentumCopy(self.network, alpha)
        self.optimizer = make_optimizer(self.network, self.settings)

    def step(self) -> float:
        """Make one and return its seconds."""
        began = time.perf_counter()
        activations = self.network.lower(self.pixels)
        outputs = self.network.upper(activations)
        copied = None if self.momentum is None else self.momentum.upper(activations)
        terms = self.objective(outputs, TrainBatch(self.labels, torch.arange(len(outputs)), copied))
        self.optimizer.zero_grad(set_to_none=True)
        sum(terms.values()).backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip)
        self.optimizer.step()
        if self.momentum is not None:
            self.momentum.update(self.network)
        return time.perf_counter() - began


def main(batch_size: int = 128) -> None:
    """Measure and print the table."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (batch_size, 224, 224, 3), dtype=torch.uint8, generator=generator)
    labels = torch.nn.functional.one_hot(torch.randint(0, 10, (batch_size,), generator=generator), 10).float()
    methods = {name: Steps(name, pixels, labels) for name in ("regu", "dmuh")}
    taken: dict[str, list[float]] = {name: [] for name in methods}
    for number in range(N_STEPS + 1):
        for name, steps in methods.items():
            spent = steps.step()
            if number:  # the first one warms up
                taken[name].append(spent)
    regu, dmuh = (statistics.median(taken[name]) for name in ("regu", "dmuh"))
    row = {"one step on CNN-F": f"batch of {batch_size}", "regu": f"{regu:.2f} s", "dmuh": f"{dmuh:.2f} s"}
    report("step", table([{**row, "ratio": f"{dmuh / regu:.2f}×"}]))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
