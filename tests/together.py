"""Trainings that write down every step, to be compared between one process and several."""

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from dmuh.config import Config
from dmuh.datasets import Dataset
from dmuh.datasets.mnist5k import load_mnist5k
from dmuh.methods import METHODS, Objective, configure, methods_for
from dmuh.trainer import loop, train
from dmuh.trainer.checkpoint import restore, state_of
from processes import Started

# One epoch of two steps: rounding crosses a kink sooner or later, of max pooling or of a margin, and gradients jump.
SMALL = {"epochs": 1, "batch_size": 19, "bits": 12, "query": 5, "train": 13, "image_size": 16, "workers": 0}
CASES = {name: {"method": name} for name in methods_for(texts=False) if issubclass(METHODS[name], Objective)}
CASES |= {name: {"method": name} for name in ("dmuh-x", "dcmh")}  # two networks, of images and of texts
CASES |= {f"{name}, two epochs": {"method": name, "epochs": 2} for name in ("dsdh", "ddsh")}  # discrete steps between
CASES["kept activations"] = {"freeze": "all", "augment": "flip", "uncertainty": "copy", "uncertainty_alpha": 0.9}
CASES["anchors"] = {"freeze": "all", "kernel": 20}
CASES["dmuh, dropout"] = {"hidden": 16, "dropout": 0.5, "epochs": 2}
CASES["dmuh, dropout on kept activations"] = {"hidden": 16, "dropout": 0.5, "freeze": "all", "augment": "flip"}
CASES["dmuh, one mask"] = {"hidden": 16, "dropout": 0.5, "shared_mask": True, "copy_update": "epoch"}
CASES["images"] = {"augment": "crop+flip"}


@functools.cache
def few_digits() -> Dataset:
    """Twenty of each of three digits; thirteen train, of which one is held out."""
    mnist = load_mnist5k()
    positions = np.concatenate([np.flatnonzero(mnist.labels[:, k])[:20] for k in (0, 1, 4)])
    labels = mnist.labels[positions][:, [0, 1, 4]]
    texts = np.random.default_rng(0).normal(size=(len(positions), 5)).astype(np.float32) + labels @ np.eye(3, 5)
    return Dataset("mnist5k", mnist.images[positions], labels, ("0", "1", "4"), texts=texts.astype(np.float32))


def config_of_case(case: str) -> Config:
    return configure(SMALL, CASES[case])


def watched_training(case: str, folder: Path) -> dict[str, np.ndarray]:
    """Train; return the loss terms and gradients of each step, and all that the last step left."""
    seen: dict[str, list[np.ndarray]] = {}
    steps, trained = [], []

    def watching(network, settings):
        optimizer = make(network, settings)
        step = optimizer.step

        def noting() -> None:
            note_gradients(optimizer)
            step()

        optimizer.step = noting
        return optimizer

    def note_gradients(optimizer) -> None:
        for number, weight in enumerate(p for rates in optimizer.param_groups for p in rates["params"]):
            seen.setdefault(f"gradient.{number}", []).append(weight.grad.detach().clone().numpy())

    def keeping(run, network, copies, objective, optimizer, watch):
        trained.extend((network, copies, objective, optimizer))
        return restore(run, network, copies, objective, optimizer, watch)

    make, loop.make_optimizer, loop.restore = loop.make_optimizer, watching, keeping
    try:
        train(config_of_case(case), folder, dataset=few_digits(), progress=steps.append)
    finally:
        loop.make_optimizer, loop.restore = make, restore
    found = {name: np.stack(values) for name, values in seen.items()}
    for term in steps[0].terms:
        found[f"term.{term}"] = np.array([step.terms[term] for step in steps])
    return found | {name: value for name, value in state_of(*trained).items() if not name.startswith("rng")}


def start(n: int, function: Callable[..., None], *arguments: object) -> list[Started]:
    """Start a function in n processes, as torchrun would."""
    # As torchrun does, this process listens where they meet: a port that another is told of may be taken by then.
    meeting = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = {"WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(meeting.port)}
    group |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    started = [Started(function, *arguments, RANK=str(rank), LOCAL_RANK=str(rank), **group) for rank in range(n)]
    for process in started:
        process.keep(meeting)
    return started


def finish(processes: list[Started]) -> list[tuple[int, str, str]]:
    """Wait for processes; return the exit code, output and errors of each. If one fails, the others have a minute."""
    while any(process.running for process in processes) and not any(process.failed for process in processes):
        time.sleep(0.02)
    return [process.finish(60) for process in processes]


def train_cases(root: Path, *names: str) -> None:
    """Be one of several processes that train each of the named cases."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")  # once: a port is not free again at once
    for name in names:
        found = watched_training(name, root / name / "run")
        np.savez(root / name / f"{os.environ['RANK']}.npz", **found)
    torch.distributed.destroy_process_group()
