"""torch's operators in the ONNX format, for `onnx_recorder`: those of the networks here.

Each function takes the recorder, the result that torch computed, and torch's arguments; it adds to the graph and
returns the name of what the graph has for the result. Shapes are those of the one row that is computed.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dmuh.encoder.onnx_recorder import Recorder, UnknownOperatorError

Number = Tensor | float


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise UnknownOperatorError(what)


def _alone(operator: str) -> Callable[..., str]:
    """Return the function for an operator of one tensor, which is the same in both."""
    return lambda recorder, _, x: recorder.graph.add(operator, recorder.name(x))


def _both(operator: str) -> Callable[..., str]:
    """Return the function for an operator of two tensors or numbers, brought to one type."""

    def write(recorder: Recorder, result: Tensor, a: Number, b: Number, *, alpha: float = 1) -> str:
        _require(alpha == 1, "a factor on an operand")
        common = torch.result_type(a, b) if result.dtype == torch.bool else result.dtype
        return recorder.graph.add(operator, recorder.name(a, common), recorder.name(b, common))

    return write


def _over(operator: str) -> Callable[..., str]:
    """Return the function for a mean or sum over dimensions."""

    def write(
        recorder: Recorder, result: Tensor, x: Tensor, dim: Sequence[int], keepdim: bool = False, *, dtype: Any = None
    ) -> str:
        _require(bool(dim) and dtype in (None, x.dtype) and result.dtype == x.dtype, "a sum in another type")
        axes = recorder.graph.number(dim, np.int64)
        return recorder.graph.add(operator, recorder.name(x), axes, keepdims=int(keepdim))

    return write


def _same(recorder: Recorder, result: Tensor, x: Tensor, *_: Any, **__: Any) -> str:
    return recorder.name(x, result.dtype)


def _reshape(recorder: Recorder, result: Tensor, x: Tensor, *_: Any) -> str:
    return recorder.graph.add("Reshape", recorder.name(x), recorder.graph.number(result.shape, np.int64))


def _expand(recorder: Recorder, result: Tensor, x: Tensor, *_: Any, **__: Any) -> str:
    return recorder.graph.add("Expand", recorder.name(x), recorder.graph.number(result.shape, np.int64))


def _permute(recorder: Recorder, _: Tensor, x: Tensor, dims: Sequence[int]) -> str:
    return recorder.graph.add("Transpose", recorder.name(x), perm=[d % x.ndim for d in dims])


def _clip(recorder: Recorder, result: Tensor, x: Tensor, low: Number, high: Number = math.inf) -> str:
    _require(not isinstance(low, Tensor) and not isinstance(high, Tensor), "bounds that are tensors")
    bounds = [recorder.name(low, result.dtype)] + ([recorder.name(high, result.dtype)] if math.isfinite(high) else [])
    return recorder.graph.add("Clip", recorder.name(x), *bounds)


def _softmax(recorder: Recorder, _: Tensor, x: Tensor, dim: int, half_to_float: bool) -> str:
    _require(not half_to_float, "a softmax in another type")
    return recorder.graph.add("Softmax", recorder.name(x), axis=dim)


def _norm(
    recorder: Recorder, _: Tensor, x: Tensor, order: float = 2, dim: Any = None, keepdim: bool = False, **other: Any
) -> str:
    _require(order == 2 and dim is not None and not other, "another norm than the square root of squares")
    return recorder.graph.add("ReduceL2", recorder.name(x), recorder.graph.number(dim, np.int64), keepdims=int(keepdim))


def _product(recorder: Recorder, _: Tensor, x: Tensor, y: Tensor) -> str:
    return recorder.graph.add("MatMul", recorder.name(x), recorder.name(y))


def _linear(recorder: Recorder, _: Tensor, bias: Tensor, x: Tensor, weight: Tensor, **factors: Any) -> str:
    _require(not factors and not recorder.is_recorded(weight), "a product with factors or of two inputs")
    rows = recorder.constant(weight.t(), recorder.origin(weight))  # as a linear layer has them
    return recorder.graph.add("Gemm", recorder.name(x), rows, recorder.name(bias), transB=1)


def _gather(recorder: Recorder, _: Tensor, x: Tensor, dim: int, index: Tensor, **__: Any) -> str:
    return recorder.graph.add("GatherElements", recorder.name(x), recorder.name(index), axis=dim)


def _index(recorder: Recorder, _: Tensor, x: Tensor, indices: Sequence[Tensor | None]) -> str:
    _require(len(indices) == 1 and indices[0] is not None and indices[0].dtype == torch.int64, "an index of many parts")
    assert indices[0] is not None
    return recorder.graph.add("Gather", recorder.name(x), recorder.name(indices[0]), axis=0)


def _pad(recorder: Recorder, result: Tensor, x: Tensor, pad: Sequence[int], value: float = 0) -> str:
    _require(min(pad) >= 0, "padding that cuts")
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + [(pad[n], pad[n + 1]) for n in range(len(pad) - 2, -1, -2)]
    pads = [before for before, _ in pairs] + [after for _, after in pairs]
    if not any(pads):
        return recorder.name(x)
    amounts = recorder.graph.number(pads, np.int64)
    return recorder.graph.add("Pad", recorder.name(x), amounts, recorder.name(value, result.dtype))


def _convolution(
    recorder: Recorder, _: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> str:  # fmt: skip
    """Add a convolution; zeros around its input become its padding."""
    _require(not transposed and not any(output_padding), "a transposed convolution")
    name, pads = recorder.name(x), [*padding, *padding]
    before = recorder.graph.nodes.get(name)
    if before is not None and before.operator == "Pad":
        amounts, value = (recorder.graph.constants[constant] for constant in before.inputs[1:])
        sides = len(padding)
        around = amounts.reshape(2, -1)
        if not value and not around[:, :-sides].any():
            name, pads = before.inputs[0], (around[:, -sides:].ravel() + pads).tolist()
    constants = [recorder.name(weight)] + ([] if bias is None else [recorder.name(bias)])
    return recorder.graph.add(
        "Conv", name, *constants, strides=list(stride), pads=pads, dilations=list(dilation), group=groups,
        kernel_shape=list(weight.shape[2:]),
    )  # fmt: skip


def _batch_norm(
    recorder: Recorder, _: Tensor, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
    training: bool, momentum: float, eps: float,
) -> str:  # fmt: skip
    """Add batch normalisation by running statistics, to the weights of the convolution below it if there is one."""
    del momentum
    _require(not training, "batch normalisation by the statistics of a batch")
    names = [recorder.name(x), *map(recorder.name, (weight, bias, mean, variance))]
    gamma, beta, centre, spread = (recorder.graph.constants.get(name) for name in names[1:])
    below = recorder.graph.nodes.get(names[0])
    filters = None if below is None or below.operator != "Conv" else recorder.graph.constants.get(below.inputs[1])
    if below is None or filters is None or gamma is None or beta is None or centre is None or spread is None:
        return recorder.graph.add("BatchNormalization", *names, epsilon=eps)
    offset = recorder.graph.constants[below.inputs[2]] if len(below.inputs) > 2 else np.zeros_like(centre)
    scale = gamma / np.sqrt(spread + np.float32(eps))
    scaled = filters * scale.reshape(-1, *[1] * (filters.ndim - 1))
    constants = [
        recorder.graph.constant(scaled, below.inputs[1]),
        recorder.graph.constant((offset - centre) * scale + beta, f"{below.inputs[1]} bias"),
    ]
    return recorder.graph.add("Conv", below.inputs[0], *constants, **below.attributes)


def _max_pool(
    recorder: Recorder, _: Tensor, x: Tensor, kernel: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> str:  # fmt: skip
    """Add maxima of windows. In ONNX one that may end outside may begin there too, which torch leaves out."""
    strides = list(stride or kernel)
    _require(set(dilation) == {1}, "pooling with holes")
    _require(not ceil_mode or (not any(padding) and max(strides) <= min(kernel)), "pooling beyond the edge")
    pads = list(padding) * (len(kernel) // len(padding)) * 2
    return recorder.graph.add(
        "MaxPool", recorder.name(x), kernel_shape=list(kernel), strides=strides, pads=pads, ceil_mode=int(ceil_mode)
    )


def _mean_pool(
    recorder: Recorder, _: Tensor, x: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), *other: Any
) -> str:
    """Add means of windows; torch's other arguments are padding, whether windows may end outside, and two more."""
    _require(not any(np.any(value) for value in other[:2]) and len(other) < 4, "pooling beyond the edge")
    return recorder.graph.add(
        "AveragePool", recorder.name(x), kernel_shape=list(kernel), strides=list(stride or kernel)
    )


def _pool_to(recorder: Recorder, _: Tensor, x: Tensor, sizes: Sequence[int]) -> str:
    """Add means of a map's parts, as many as `sizes` says, which overlap where these do not divide the map's sides."""
    sides = x.shape[2:]
    if tuple(sides) == tuple(sizes):
        return recorder.name(x)
    if not any(side % size for side, size in zip(sides, sizes, strict=True)):
        kernel = [side // size for side, size in zip(sides, sizes, strict=True)]
        return recorder.graph.add("AveragePool", recorder.name(x), kernel_shape=kernel, strides=kernel)
    shares = [_shares(side, size) for side, size in zip(sides, sizes, strict=True)]
    rows, columns = (recorder.graph.constant(share, "shares") for share in shares)
    return recorder.graph.add("Einsum", rows, recorder.name(x), columns, equation="rh,bchw,sw->bcrs")


def _shares(side: int, size: int) -> Any:
    """Return the part (size, side) that each position of a map's side has in each mean."""
    shares = np.zeros((size, side), np.float32)
    for n in range(size):
        first, last = n * side // size, -(-(n + 1) * side // size)
        shares[n, first:last] = 1 / (last - first)
    return shares


OPERATORS: dict[str, Callable[..., str]] = {
    "abs": _alone("Abs"), "exp": _alone("Exp"), "log": _alone("Log"), "neg": _alone("Neg"),
    "reciprocal": _alone("Reciprocal"), "relu": _alone("Relu"), "sigmoid": _alone("Sigmoid"),
    "add": _both("Add"), "sub": _both("Sub"), "mul": _both("Mul"), "div": _both("Div"), "pow": _both("Pow"),
    "gt": _both("Greater"), "ge": _both("GreaterOrEqual"), "_softmax": _softmax,
    "mean": _over("ReduceMean"), "sum": _over("ReduceSum"), "linalg_vector_norm": _norm,
    "clone": _same, "_to_copy": _same, "detach": _same, "alias": _same,
    "view": _reshape, "_unsafe_view": _reshape, "squeeze": _reshape, "unsqueeze": _reshape,
    "expand": _expand, "permute": _permute,
    "clamp_min": _clip, "hardtanh": _clip,
    "mm": _product, "addmm": _linear, "gather": _gather, "index": _index,
    "constant_pad_nd": _pad, "convolution": _convolution, "native_batch_norm": _batch_norm,
    "max_pool2d_with_indices": _max_pool, "avg_pool2d": _mean_pool, "avg_pool3d": _mean_pool,
    "_adaptive_avg_pool2d": _pool_to,
}  # fmt: skip
