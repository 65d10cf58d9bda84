"""The graph of a network in the ONNX format, noted down while torch computes one row.

torch's own exporter takes seconds, even for a network of ten layers; this takes as long as the row. The operators that
it knows are in `onnx_operators`. A network with another one is left to torch's exporter, see `onnx_export.to_onnx`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

_OPSET, _IR_VERSION = 20, 10  # which ONNX Runtime reads since 1.17


class UnknownOperatorError(Exception):
    """An operator, or a use of one, that the recorder does not know."""


@dataclass(frozen=True)
class Node:
    """An operation of the graph, named like what it gives: on named inputs, with attributes."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass
class Graph:
    """What was noted down: operations in the order in which they were computed, and constants by name."""

    nodes: dict[str, Node] = field(default_factory=dict)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    _known: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation, unless the same one is there, and return its name."""
        key = (operator, inputs, repr(attributes))
        if key not in self._known:
            name = f"{operator}_{len(self.nodes)}"
            self.nodes[name] = Node(name, operator, inputs, attributes)
            self._known[key] = name
        return self._known[key]

    def constant(self, value: NDArray[Any], name: str) -> str:
        """Add a constant, under this name or one like it, and return the name."""
        unique, number = name, 1
        while unique in self.constants:
            unique, number = f"{name}:{number}", number + 1
        self.constants[unique] = value
        return unique

    def number(self, value: float | Sequence[int], dtype: Any) -> str:
        """Add a number, or a list of numbers, unless it is there, and return its name."""
        array = np.asarray(value, dtype)
        name = f"{array.dtype} {array.tolist()}"
        self.constants.setdefault(name, array)
        return name

    def needed_for(self, outputs: Sequence[str]) -> list[Node]:
        """Return the operations that these outputs depend on, in their order."""
        needed = set(outputs)
        for node in reversed(self.nodes.values()):
            if node.name in needed:
                needed.update(node.inputs)
        return [node for node in self.nodes.values() if node.name in needed]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes down what is computed from one input; whatever does not depend on that is a constant.

    Operators are those that `operators` has a function for, by name: it takes the recorder, the result of torch and
    torch's arguments, adds to the graph, and returns the name of what the graph has for the result.
    """

    def __init__(self, module: nn.Module, operators: dict[str, Callable[..., str]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = Graph()
        self._operators = operators
        self._recorded: dict[int, str | None] = {}  # by the id of a tensor that depends on the input; None: not in it
        self._constants: dict[tuple[int, torch.dtype | None], str] = {}  # by the id and type of one that does not
        self._origins: dict[int, str] = {}  # by the id of one that does not: the weight that it was computed from
        self._alive: list[Any] = []  # an id says which tensor it is as long as that exists
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            self._origins[id(tensor)] = name

    def start(self, tensor: Tensor, name: str) -> None:
        """Take this tensor for the input of that name."""
        self._recorded[id(tensor)] = name

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: else torch imports its compiler, for a second, to tell it to leave this class alone."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Let torch compute it, and note it down if it depends on the input."""
        result = func(*args, **(kwargs or {}))
        self._alive.append(result)
        inputs, outputs = _tensors([args, list((kwargs or {}).values())]), _tensors(result)
        if not any(map(self.is_recorded, inputs)):
            origin = next((self._origins[id(tensor)] for tensor in inputs if id(tensor) in self._origins), None)
            self._origins.update({id(tensor): origin for tensor in outputs if origin})
            return result
        operator = self._operators.get(func.name().removeprefix("aten::").split(".")[0])
        if operator is None:
            raise UnknownOperatorError(str(func))
        self._recorded.update({id(tensor): None for tensor in outputs[1:]})
        try:
            self._recorded[id(outputs[0])] = operator(self, outputs[0], *args, **(kwargs or {}))
        except TypeError as error:  # arguments that it does not take
            raise UnknownOperatorError(f"{func}: {error}") from error
        return result

    def is_recorded(self, tensor: Tensor) -> bool:
        """Whether it depends on the input."""
        return id(tensor) in self._recorded

    def name(self, value: Tensor | float, dtype: torch.dtype | None = None) -> str:
        """Return the name that the graph has for a tensor or number, as one of this type."""
        if not isinstance(value, Tensor):
            return self.graph.number(value, _numpy_type(dtype or torch.float32))
        if not self.is_recorded(value):
            key = id(value), dtype
            if key not in self._constants:
                self._constants[key] = self.constant(value if dtype is None else value.to(dtype), self.origin(value))
            return self._constants[key]
        name = self._recorded[id(value)]
        if name is None:
            raise UnknownOperatorError("a second result of an operator is used")
        if dtype is None or value.dtype == dtype:
            return name
        return self.graph.add("Cast", name, to=helper.np_dtype_to_tensor_dtype(_numpy_type(dtype)))

    def constant(self, value: Tensor, origin: str) -> str:
        """Add a tensor that does not depend on the input, under the name of what it was computed from."""
        return self.graph.constant(value.detach().cpu().numpy(), origin)

    def origin(self, value: Tensor) -> str:
        """Return the name of the weight that a tensor was computed from."""
        return self._origins.get(id(value), "constant")

    def finish(self, tensor: Tensor, outputs: dict[str, Tensor]) -> bytes:
        """Return the file: from the input to these outputs, by name."""
        found = {name: self.name(output) for name, output in outputs.items()}
        nodes = self.graph.needed_for(list(found.values()))
        results = [helper.make_node("Identity", [made], [name], f"Identity {name}") for name, made in found.items()]
        used = {name for node in nodes for name in node.inputs} | set(found.values())
        weights = [
            numpy_helper.from_array(np.ascontiguousarray(array), name)
            for name, array in self.graph.constants.items() if name in used
        ]  # fmt: skip
        start = self._recorded[id(tensor)]
        assert start is not None
        graph = helper.make_graph(
            [helper.make_node(n.operator, n.inputs, [n.name], n.name, **n.attributes) for n in nodes] + results,
            "network", [_value(start, tensor)], [_value(name, output) for name, output in outputs.items()], weights,
        )  # fmt: skip
        opset = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=_IR_VERSION)
        content: bytes = model.SerializeToString()
        return content


def _tensors(values: Any) -> list[Tensor]:
    """Return the tensors among arguments or results, which may be lists of them."""
    if isinstance(values, Tensor):
        return [values]
    return [tensor for value in values for tensor in _tensors(value)] if isinstance(values, list | tuple) else []


def _numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype


def _value(name: str, tensor: Tensor) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(_numpy_type(tensor.dtype))
    return helper.make_tensor_value_info(name, kind, list(tensor.shape))
