"""The network of all-MiniLM-L6-v2 in the ONNX format, written from its weights, without torch.

A BERT encoder (Devlin et al. 2019) of 6 layers, 384 wide, 12 heads, distilled as MiniLM (Wang et al. 2020) and trained
on pairs of sentences (Reimers and Gurevych 2019): tokens int64 (n, length) → features float32 (n, 384), the mean over
the tokens, of length 1. All texts of a batch have the same length, so that there is no padding and no mask.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmuh.errors import MissingExtraError

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

LONGEST = 256  # tokens that a text may have, as the network was trained
N_FEATURES = 384
_LAYERS, _HEADS = 6, 12
_OPSET, _IR = 20, 9  # the first with Gelu, and its format

Weights = Mapping[str, NDArray[Any]]


def onnx_graph(weights: Weights) -> bytes:
    """Return the network with these weights, named as in `model.safetensors`."""
    try:
        from onnx import TensorProto, helper
    except ModuleNotFoundError as error:
        raise MissingExtraError("the first use of sentences by minilm", "text") from error
    graph = _Graph(weights)
    length = graph.add("Shape", "tokens", start=1, end=2)
    x = _embedded(graph, length)
    for layer in range(_LAYERS):
        x = _layer(graph, x, f"encoder.layer.{layer}")
    graph.add("LpNormalization", _mean(graph, x, length), axis=-1, p=2, output="features")
    made = helper.make_graph(
        graph.nodes,
        "all-MiniLM-L6-v2",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["n", "length"])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", N_FEATURES])],
        graph.constants,
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR, producer_name="dmuh"
    )
    content: bytes = model.SerializeToString()
    return content


class _Graph:
    """Nodes and constants so far; every method returns the name of what it added."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def add(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add an operator with one output."""
        return self.add_many(kind, *inputs, outputs=[output or f"{kind}{len(self.nodes)}"], **attributes)[0]

    def add_many(self, kind: str, *inputs: str, outputs: list[str], **attributes: Any) -> list[str]:
        """Add an operator with several outputs."""
        from onnx import helper

        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))
        return outputs

    def constant(self, values: NDArray[Any] | list[int]) -> str:
        """Add a constant; whole numbers are int64, as shapes and axes are."""
        from onnx import numpy_helper

        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def dense(self, x: str, weight: NDArray[Any], bias: NDArray[Any]) -> str:
        """Add a layer with a weight (outputs, inputs)."""
        return self.add("Add", self.add("MatMul", x, self.constant(weight.T)), self.constant(bias))

    def named_dense(self, x: str, name: str) -> str:
        """Add the layer whose weights have this name."""
        return self.dense(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def norm(self, x: str, name: str) -> str:
        """Add the normalisation of each token whose weights have this name."""
        scale, shift = (self.constant(self.weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return self.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-12)


def _embedded(graph: _Graph, length: str) -> str:
    """Add what stands for each token at its place: (n, length, 384)."""
    words, places, types = (
        graph.weights[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")
    )
    known = graph.constant(places[:LONGEST] + types[0])  # all tokens are of the first sentence
    taken = graph.add("Slice", known, graph.constant([0]), length, graph.constant([0]))
    both = graph.add("Add", graph.add("Gather", graph.constant(words), "tokens"), taken)
    return graph.norm(both, "embeddings.LayerNorm")


def _layer(graph: _Graph, x: str, name: str) -> str:
    """Add a layer: attention, then two dense layers at each token, both added to what came in."""
    attended = graph.named_dense(_attention(graph, x, f"{name}.attention.self"), f"{name}.attention.output.dense")
    x = graph.norm(graph.add("Add", attended, x), f"{name}.attention.output.LayerNorm")
    wide = graph.add("Gelu", graph.named_dense(x, f"{name}.intermediate.dense"))
    return graph.norm(graph.add("Add", graph.named_dense(wide, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")


def _attention(graph: _Graph, x: str, name: str) -> str:
    """Add what each token takes from all tokens, by 12 heads: softmax(Q Kᵀ / √32) V."""
    weights, biases = (
        {kind: graph.weights[f"{name}.{kind}.{part}"] for kind in ("query", "key", "value")}
        for part in ("weight", "bias")
    )
    scale = np.float32(1 / np.sqrt(N_FEATURES // _HEADS))
    weight = np.concatenate([weights["query"] * scale, weights["key"], weights["value"]])
    bias = np.concatenate([biases["query"] * scale, biases["key"], biases["value"]])
    parts = [f"{name}.{kind}" for kind in weights]
    graph.add_many("Split", graph.dense(x, weight, bias), outputs=parts, axis=-1, num_outputs=3)
    heads = graph.constant([0, 0, _HEADS, N_FEATURES // _HEADS])
    query, key, value = (graph.add("Reshape", part, heads) for part in parts)
    scores = graph.add(
        "MatMul",
        graph.add("Transpose", query, perm=[0, 2, 1, 3]),  # (n, heads, length, 32)
        graph.add("Transpose", key, perm=[0, 2, 3, 1]),
    )
    taken = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), graph.add("Transpose", value, perm=[0, 2, 1, 3]))
    return graph.add("Reshape", graph.add("Transpose", taken, perm=[0, 2, 1, 3]), graph.constant([0, 0, N_FEATURES]))


def _mean(graph: _Graph, x: str, length: str) -> str:
    """Add the mean over the tokens: (n, 384).

    It is a product of matrices: ReduceMean adds in another order for one text than for several.
    """
    from onnx import TensorProto

    one = graph.constant([1])
    share = graph.add("Reciprocal", graph.add("Cast", length, to=TensorProto.FLOAT))
    shares = graph.add("Expand", share, graph.add("Concat", one, length, axis=0))  # (1, length)
    return graph.add("Squeeze", graph.add("MatMul", shares, x), one)
