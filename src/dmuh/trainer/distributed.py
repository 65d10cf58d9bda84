"""Training on many processes: each computes its part of a batch, and all get the outputs of the whole batch.

The processes are started by torchrun, or anything else that sets its variables. Pairs are formed over the global batch:
every process gathers the outputs of all and computes the same loss, so that N of them take the step that one with the
whole batch takes. What a step changes is therefore the same everywhere, momentum copies and buffers over the training
set too, and a checkpoint knows nothing of how many processes wrote it.

The network never leaves evaluation mode, in training too (see `HashNetwork`): batch normalisation uses its running
statistics, which are the same in all processes and have nothing to exchange.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dmuh.config import Config
from dmuh.datasets import DATASETS, Dataset
from dmuh.errors import ConfigError, DmuhError, PeerError, RunError
from dmuh.machine import place_in_group
from dmuh.methods import METHODS
from dmuh.network import choose_device
from dmuh.protocols import Split
from dmuh.protocols.checks import summarise
from dmuh.runs import Run

log = logging.getLogger(__name__)

_PATIENCE = timedelta(days=1)  # one process may compute features for hours; who started them ends them all if one fails


@dataclass(frozen=True)
class Group:
    """The processes that train together: this one is number `rank` of `size` and computes on `device`."""

    rank: int
    size: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.rank == 0

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows (n, …) of all processes, one after the other: (Σn, …).

        Gradient flows back to the rows of each process, summed over the processes.
        """
        if self.size == 1:
            return rows
        counts = [torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(self.size)]
        dist.all_gather(counts, torch.tensor([len(rows)], device=self.device))
        gathered: Tensor = _Gathered.apply(rows, [int(n) for n in counts], self.rank)  # type: ignore[no-untyped-call]
        return gathered

    def start_alike(self, run: Run, done: int, modules: Sequence[torch.nn.Module]) -> None:
        """Give all processes the modules of the first; `done` epochs of the run must be done in each of them."""
        found = self.gather(torch.tensor([done], device=self.device)).tolist()
        if len(set(found)) > 1:
            raise RunError(f"the processes of this training differ in the epochs they found done: {found}")
        if self.size > 1:
            for tensor in (value for module in modules for value in module.state_dict().values()):
                dist.broadcast(tensor.detach(), 0)
        if self.first:
            run.cut_logs(done)

    def average_gradients(self, weights: Sequence[Tensor]) -> None:
        """Replace the gradient of each weight by its mean over the processes, in one exchange."""
        if self.size == 1:
            return
        gradients = [weight.grad if weight.grad is not None else torch.zeros_like(weight) for weight in weights]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        means = torch.split(flat / self.size, [gradient.numel() for gradient in gradients])
        for weight, mean in zip(weights, means, strict=True):
            weight.grad = mean.view_as(weight)

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Go on behind the block in all processes or in none: what one raises ends the others too."""
        failure: DmuhError | OSError | None = None
        try:
            yield
        except (DmuhError, OSError) as error:
            failure = error
        failed = torch.tensor([int(failure is not None)], device=self.device)
        if self.size > 1:
            dist.all_reduce(failed)
        if failure is not None:
            raise failure
        if failed.item():
            raise PeerError("another process of this training stopped, and says why")


@contextmanager
def joined(device_name: str) -> Iterator[Group]:
    """Join the processes that were started together for the time of the block; alone, be a group of one."""
    device = choose_device(device_name)
    rank, size = place_in_group()
    if size == 1:
        yield Group(rank, size, device)
        return
    if device.type == "cuda" and device_name in ("auto", "cuda"):
        device = choose_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
        torch.cuda.set_device(device)
    if dist.is_initialized():  # by the caller, whose it stays
        yield Group(rank, size, device)
        return
    _meet("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Group(rank, size, device)
    finally:
        dist.destroy_process_group()


def _meet(backend: str) -> None:
    """Wait until all processes are there."""
    try:
        dist.init_process_group(backend, timeout=_PATIENCE)
    except dist.DistError as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        said = str(error).partition("\n")[0]
        raise RunError(
            f"the processes cannot meet at {where}, which MASTER_ADDR and MASTER_PORT name: {said}"
        ) from error


def refuse_many(group: Group, config: Config) -> None:
    """Raise where a training cannot be shared by the processes of this group."""
    if group.size == 1:
        return
    if METHODS[config.method].kind == "shallow":
        raise ConfigError(f"{config.method} is fitted by one process, got {group.size}: start it without torchrun")
    if config.training.batch_size < 2 * group.size:
        raise ConfigError(
            f"batch_size counts the images of all processes together: {group.size} of them need "
            f"{2 * group.size} at least, got {config.training.batch_size}"
        )


@contextmanager
def begun(run: Run, config: Config, data: Dataset, split: Split, resume: bool) -> Iterator[None]:
    """Begin the run, or go on with it where `resume` says so, and keep other trainings out of its folder meanwhile."""
    if not (resume and run.started):
        run.refuse_if_taken()
    summary = summarise(data, split, config.protocol.protocol or DATASETS[config.data.dataset].protocol or "none")
    log.info(summary.lines()[0])
    for problem in summary.problems:
        log.warning(problem)
    with run.locked():
        if not (resume and run.started):
            run.begin(config, split, data)
        elif not run.same_images(data, split):
            raise RunError(f"{run.path} was begun with other image files of these names: begin anew in another folder")
        run.save_data_summary(summary.to_dict())
        yield


def check_split(run: Run, data: Dataset, split: Split) -> None:
    """Raise unless the run folder is there and was begun with this split of these data."""
    if not run.split_file.is_file():
        raise RunError(f"{run.path} cannot be read by all processes: put it where all of them can")
    if run.load_split(data).digest() != split.digest():
        raise RunError(f"{run.path} was begun with another split: the data or the settings changed")


class _Gathered(torch.autograd.Function):
    """The rows of all processes; backward, the gradients of all processes for this one's rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int], rank: int) -> Tensor:
        ctx.begin, ctx.end = sum(counts[:rank]), sum(counts[: rank + 1])
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[ctx.begin : ctx.end], None, None
