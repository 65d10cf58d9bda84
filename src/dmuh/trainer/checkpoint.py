"""What a training can go on from: everything that the next step depends on."""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from dmuh.files import Array
from dmuh.methods import Objective
from dmuh.network import HashNetwork, MomentumCopy, UncertaintySource, state_by_part
from dmuh.runs import Run
from dmuh.trainer.optimisation import AnyOptimizer
from dmuh.trainer.watch import Watch


def array_of(tensor: Tensor) -> Array:
    """Return a tensor as an array."""
    return cast(Array, tensor.detach().cpu().numpy())


def model_arrays(network: HashNetwork, source: UncertaintySource | None, prefix: str = "") -> dict[str, Array]:
    """Return what the model file keeps, by name: the network, and what its source of uncertainty has beside it."""
    parts = {"network": network.state_dict(), **({} if source is None else source.parts())}
    return {f"{prefix}{part}.{key}": array_of(value) for part, state in parts.items() for key, value in state.items()}


def state_of(
    network: HashNetwork,
    copies: Mapping[str, MomentumCopy],
    objective: Objective,
    optimizer: AnyOptimizer,
) -> dict[str, Array]:
    """Return everything that the next step depends on, by name; frozen weights are not in it."""
    parts = {"network": network.trained_state(), "objective": objective.state_dict()}
    parts |= {name: copy.network.trained_state() for name, copy in copies.items()}
    arrays = {f"{part}.{key}": array_of(value) for part, state in parts.items() for key, value in state.items()}
    for number, moments in optimizer.state_dict()["state"].items():
        for key, value in moments.items():
            if isinstance(value, Tensor):
                arrays[f"optimizer.{number}.{key}"] = array_of(value)
    arrays["rng.cpu"] = array_of(torch.get_rng_state())
    if torch.cuda.is_available():
        arrays["rng.cuda"] = array_of(torch.cuda.get_rng_state())
    return arrays


def restore(
    run: Run,
    network: HashNetwork,
    copies: Mapping[str, MomentumCopy],
    objective: Objective,
    optimizer: AnyOptimizer,
    watch: Watch,
) -> int:
    """Restore the run's last checkpoint, if there is one; return how many epochs are done."""
    checkpoint = run.load_checkpoint()
    if checkpoint is None:
        return 0
    parts = state_by_part(checkpoint.arrays)
    network.load_trained_state(parts["network"])
    objective.load_state_dict(parts.get("objective", {}))
    for name, copy in copies.items():
        copy.network.load_trained_state(parts[name])
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in parts.get("optimizer", {}).items():
        number, _, key = name.partition(".")
        moments.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(parts["rng"]["cpu"])
    if "cuda" in parts["rng"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(parts["rng"]["cuda"])
    watch.restore(checkpoint.metadata["watch"])
    return int(checkpoint.metadata["epoch"])
