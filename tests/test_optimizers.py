"""The optimisers of the CPU change weights as torch's own do, to the last bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dmuh.trainer import optimizers

SETTINGS = {
    "plain": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "decay": ("SGD", {"momentum": 0.5, "weight_decay": 0.01}),
    "adamw": ("AdamW", {"weight_decay": 0.0}),
    "adamw, decay": ("AdamW", {"weight_decay": 0.05}),
}


def network(seed: int) -> nn.Module:
    """A network with a weight that never gets a gradient."""
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, 3))
    layers.unused = nn.Parameter(torch.ones(2))
    return layers


def optimizer_of(room, name: str, layers: nn.Module):
    """An optimiser of torch or of dmuh, with two groups, of which one may be empty."""
    kind, settings = SETTINGS[name]
    groups = [
        {"params": [*layers[0].parameters(), layers.unused], "scale": 1.0},
        {"params": list(layers[3].parameters()), "scale": 0.1},
        {"params": [], "scale": 2.0},
    ]
    return getattr(room, kind)(groups, lr=0.1, **settings)


def take_steps(optimizer, layers: nn.Module, seed: int, steps: int, begin: int = 0) -> None:
    for step in range(begin, begin + steps):
        x = torch.randn((6, 5), generator=torch.Generator().manual_seed(1000 * seed + step))
        for group in optimizer.param_groups:
            group["lr"] = group["scale"] * 0.1 / (1 + step)
        optimizer.zero_grad()
        layers(x).square().mean().backward()
        optimizer.step()


def all_bits(optimizer, layers: nn.Module) -> dict[str, bytes]:
    """Weights and moments by name."""
    found = {name: weight.detach().numpy().tobytes() for name, weight in layers.named_parameters()}
    for number, moments in optimizer.state_dict()["state"].items():
        tensors = {key: value for key, value in moments.items() if isinstance(value, torch.Tensor)}
        found |= {f"{number}.{key}": value.numpy().tobytes() for key, value in tensors.items()}
    return found


@pytest.mark.parametrize("name", SETTINGS)
@settings(max_examples=20)
@given(seed=st.integers(0, 100), steps=st.integers(0, 12))
def test_as_torch_to_the_last_bit(name, seed, steps):
    bits = []
    for room in (optimizers, torch.optim):
        layers = network(seed)
        optimizer = optimizer_of(room, name, layers)
        take_steps(optimizer, layers, seed, steps)
        bits.append(all_bits(optimizer, layers))
    assert bits[0] == bits[1]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(("before", "after"), [(optimizers, torch.optim), (torch.optim, optimizers)])
def test_each_goes_on_from_the_state_of_the_other(name, before, after):
    layers, straight = network(1), network(1)
    first = optimizer_of(before, name, layers)
    take_steps(first, layers, 1, 3)
    second = optimizer_of(after, name, layers)
    second.load_state_dict({**second.state_dict(), "state": first.state_dict()["state"]})
    take_steps(second, layers, 1, 4, begin=3)
    whole = optimizer_of(before, name, straight)
    take_steps(whole, straight, 1, 7)
    assert all_bits(second, layers) == all_bits(whole, straight)


def test_the_state_names_the_groups():
    layers = network(0)
    optimizer = optimizer_of(optimizers, "momentum", layers)
    groups = optimizer.state_dict()["param_groups"]
    assert [group["params"] for group in groups] == [[0, 1, 2], [3, 4], []]
    groups[1]["lr"] = 7.0
    optimizer.load_state_dict({"state": {}, "param_groups": groups})
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 7.0, 0.1]
