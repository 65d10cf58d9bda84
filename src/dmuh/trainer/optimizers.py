"""SGD and AdamW on the CPU: what torch.optim computes there, to the last bit, without what it loads.

An optimiser of torch imports torch's compiler when it is made, which takes longer than torch itself.
"""

import abc
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor


class Optimizer(abc.ABC):
    """What changes weights by their gradients, with the interface of torch's own.

    `param_groups` are dicts with "params", "lr" and what else the caller gave; "lr" may change between steps. Moments
    are kept by weight, under the names that torch has for them.
    """

    def __init__(self, groups: Iterable[Mapping[str, Any]], *, lr: float, weight_decay: float = 0.0) -> None:
        self.param_groups: list[dict[str, Any]] = [{"lr": lr, **group} for group in groups]
        self.weight_decay = weight_decay
        self._state: dict[Tensor, dict[str, Tensor]] = {}

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for weight in self._weights():
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Change every weight that has a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._change(weight, weight.grad, group["lr"])

    def state_dict(self) -> dict[str, Any]:
        """Return the moments by the number of their weight, and the groups with numbers for weights."""
        numbers = {weight: number for number, weight in enumerate(self._weights())}
        groups = [{**group, "params": [numbers[weight] for weight in group["params"]]} for group in self.param_groups]
        return {"state": {numbers[weight]: dict(own) for weight, own in self._state.items()}, "param_groups": groups}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the moments and the groups' settings from what `state_dict` returned."""
        weights = self._weights()
        self._state = {weights[number]: dict(own) for number, own in state["state"].items()}
        for group, given in zip(self.param_groups, state["param_groups"], strict=True):
            group.update({key: value for key, value in given.items() if key != "params"})

    def _weights(self) -> list[Tensor]:
        """Return all weights in their order."""
        return [weight for group in self.param_groups for weight in group["params"]]

    @abc.abstractmethod
    def _change(self, weight: Tensor, gradient: Tensor, lr: float) -> None:
        """Change one weight in place."""


class SGD(Optimizer):
    """Steps down the gradient, or down its running sum where there is momentum."""

    def __init__(
        self, groups: Iterable[Mapping[str, Any]], *, lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        super().__init__(groups, lr=lr, weight_decay=weight_decay)
        self.momentum = momentum

    def _change(self, weight: Tensor, gradient: Tensor, lr: float) -> None:
        if self.weight_decay:
            gradient = gradient.add(weight, alpha=self.weight_decay)
        if self.momentum:
            own = self._state.setdefault(weight, {})
            if "momentum_buffer" in own:
                own["momentum_buffer"].mul_(self.momentum).add_(gradient)
            else:
                own["momentum_buffer"] = gradient.clone()
            gradient = own["momentum_buffer"]
        weight.add_(gradient, alpha=-lr)


class AdamW(Optimizer):
    """Steps by the mean gradient over the root of the mean square, both over the past; weights decay on their own."""

    betas = (0.9, 0.999)
    eps = 1e-8

    def _change(self, weight: Tensor, gradient: Tensor, lr: float) -> None:
        own = self._state.get(weight)
        if own is None:
            zeros = {key: torch.zeros_like(weight) for key in ("exp_avg", "exp_avg_sq")}
            own = self._state[weight] = {"step": torch.tensor(0.0), **zeros}
        own["step"] += 1
        steps, mean, square = own["step"].item(), own["exp_avg"], own["exp_avg_sq"]
        if self.weight_decay:
            weight.mul_(1 - lr * self.weight_decay)
        first, second = self.betas
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        root = (square.sqrt() / (1 - second**steps) ** 0.5).add_(self.eps)
        weight.addcdiv_(mean, root, value=-lr / (1 - first**steps))
