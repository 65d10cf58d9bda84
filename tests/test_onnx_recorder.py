"""Networks in the ONNX format as they are noted down: each operator, and whole networks, against torch."""

import logging

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from dmuh.backbones import create_backbone
from dmuh.encoder import onnx_export
from dmuh.encoder.onnx_export import FrozenPart, TrainedPart, WholeNetwork, by_torch, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.encoder.onnx_operators import OPERATORS
from dmuh.encoder.onnx_recorder import Recorder, UnknownOperatorError
from dmuh.network import Classes, HashNetwork, Margin, MomentumCopy
from test_heads import KINDS, drawn
from tiny import Tiny, noise


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def written(function, shape, dtype=torch.float32) -> bytes:
    """A function of one tensor, noted down while it takes zeros."""
    module = function if isinstance(function, nn.Module) else Applied(function)
    recorder = Recorder(module.eval(), OPERATORS)
    row = torch.zeros(shape, dtype=dtype)
    recorder.start(row, "x")
    with torch.no_grad(), recorder:
        result = module(row)
    return recorder.finish(row, {"y": result})


def agrees(function, *shape, dtype=torch.float32) -> onnx.GraphProto:
    """Hold what was noted down to what torch computes of other numbers; return the graph."""
    content = written(function, shape, dtype)
    torch.manual_seed(1)
    x = torch.randn(shape) if dtype.is_floating_point else torch.randint(0, 200, shape).to(dtype)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    with torch.no_grad():
        expected = function(x)
    (found,) = session.run(None, {"x": x.numpy()})
    assert found.dtype == expected.numpy().dtype
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    return onnx.load_from_string(content).graph


TABLE = torch.arange(20.0) ** 2
PLACES = torch.tensor([[[2, 0, 1, 1], [0, 1, 2, 2], [1, 1, 0, 0]]])

FUNCTIONS = {
    "abs": torch.abs,
    "exp": torch.exp,
    "neg": lambda x: -x,
    "reciprocal": lambda x: 1 / (1 + x.abs()),
    "relu": torch.relu,
    "add": lambda x: x + 3 + x,
    "add whole numbers": lambda x: (x > 0).to(torch.int64) * 2 + 1,
    "add of two types": lambda x: (x > 0).to(torch.int64) + x,
    "sub": lambda x: x - torch.arange(4.0),
    "mul": lambda x: x * torch.arange(4),
    "div": lambda x: x / 255,
    "pow": lambda x: x**2,
    "gt": lambda x: (x > torch.tensor([0.5, -0.5, 0.0, 9.0])) * 1.0,
    "gt of two types": lambda x: ((x * 3).to(torch.int64) > 0.5) * 1.0,
    "mean": lambda x: x.mean(dim=(1, -1)),
    "mean kept": lambda x: x.mean(dim=1, keepdim=True),
    "sum": lambda x: x.sum(dim=-1),
    "sum kept": lambda x: x.sum(dim=(0, 2), keepdim=True),
    "norm": lambda x: functional.normalize(x, dim=1),
    "clone": lambda x: x.permute(1, 0, 2).contiguous().clone(),
    "detach": lambda x: x.detach() + 1,
    "view": lambda x: x.reshape(4, -1).view(2, 6),
    "squeeze": lambda x: x[None].squeeze(0).unsqueeze(-1).squeeze(1),
    "expand": lambda x: x.mean(dim=2, keepdim=True).expand(5, 3, 2),
    "permute": lambda x: x.permute(-1, 0, 1),
    "clamp": lambda x: x.clamp_min(0.2),
    "relu6": lambda x: functional.relu6(9 * x),
    "mm": lambda x: x.squeeze(0) @ torch.arange(8.0).view(4, 2),
    "mm of two": lambda x: x.squeeze(0) @ x.mean(dim=0).permute(1, 0),
    "gather": lambda x: x.gather(2, PLACES + (x > 0).to(torch.int64)),
    "index": lambda x: TABLE[(x.abs() * 5).to(torch.int64)],
    "pad": lambda x: functional.pad(x, [1, 2, 0, 3], value=7.0),
    "no pad": lambda x: functional.pad(x, [0, 0]) + 1,
    "the same twice": lambda x: (x + 1) * (x + 1),
    "itself": lambda x: x,
    "a constant": lambda _: torch.ones(3) + 1,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operator_is_torchs(name):
    agrees(FUNCTIONS[name], 1, 3, 4)


def test_pixels():
    agrees(lambda x: x.permute(0, 3, 1, 2).to(torch.float32) / 255, 1, 4, 4, 3, dtype=torch.uint8)


@given(
    side=st.integers(5, 9), kernel=st.integers(1, 4), stride=st.integers(1, 3), padding=st.integers(0, 2),
    dilation=st.integers(1, 2), groups=st.sampled_from([1, 2, 4]), bias=st.booleans(), norm=st.booleans(),
    around=st.tuples(*[st.integers(0, 2)] * 4), value=st.sampled_from([0.0, 0.0, 1.5]), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=60)
def test_a_convolution_is_torchs(side, kernel, stride, padding, dilation, groups, bias, norm, around, value, seed):
    assume(dilation * (kernel - 1) < side + 2 * padding)
    torch.manual_seed(seed)
    layers = [nn.Conv2d(4, 8, kernel, stride, padding, dilation, groups, bias)]
    if norm:
        layers += [nn.BatchNorm2d(8, eps=1e-3)]
        layers[1].running_mean.normal_()
        layers[1].running_var.uniform_(0.5, 2)
        nn.init.normal_(layers[1].weight)
        nn.init.normal_(layers[1].bias)
    block = nn.Sequential(*layers).eval()
    graph = agrees(lambda x: block(functional.pad(x, list(around), value=value)), 1, 4, side, side)
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("Conv") == 1
    assert "BatchNormalization" not in kinds
    assert ("Pad" in kinds) == (value != 0 and any(around))  # zeros are the convolution's own padding


def test_normalisation_that_no_convolution_can_take():
    norm = nn.BatchNorm2d(3).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    agrees(norm, 1, 3, 4, 4)
    conv = nn.Conv2d(3, 3, 1)
    agrees(lambda x: norm(conv(x)) + conv(x), 1, 3, 4, 4)  # where the convolution itself is used as well
    agrees(lambda x: functional.conv2d(functional.pad(x, [0, 0, 0, 0, 1, 1]), torch.ones(2, 5, 1, 1)), 1, 3, 4, 4)


@given(side=st.integers(4, 13), kernel=st.integers(1, 4), stride=st.integers(1, 4), padding=st.integers(0, 2),
       ceil_mode=st.booleans())  # fmt: skip
@example(side=27, kernel=3, stride=2, padding=0, ceil_mode=True)
@settings(max_examples=60)
def test_pooling_is_torchs_or_not_known(side, kernel, stride, padding, ceil_mode):
    assume(padding <= kernel // 2)
    for pool in (
        nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil_mode),
        nn.AvgPool2d(kernel, stride, padding, ceil_mode),
    ):
        try:
            agrees(pool, 1, 2, side, side + 1)
        except UnknownOperatorError:
            mean = isinstance(pool, nn.AvgPool2d)
            assert (padding and mean) or (ceil_mode and (mean or padding or stride > kernel))


@pytest.mark.parametrize("side", range(1, 13))
def test_pooling_to_a_size_is_torchs(side):
    agrees(nn.AdaptiveAvgPool2d((4, 3)), 1, 2, side, side + 2)
    agrees(nn.AdaptiveAvgPool2d(1), 1, 2, side, side)


def test_what_the_network_here_normalises_by_its_neighbours():
    agrees(nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0), 1, 9, 4, 4)


UNKNOWN = {
    "an operator": torch.erf,
    "one in place": lambda x: (x + 1).relu_(),
    "one that writes into a constant": lambda x: torch.zeros(1, 2, 4, 4).copy_(x),
    "a second result": lambda x: functional.max_pool2d(x, 2, return_indices=True)[1] + 1,
    "other arguments": lambda x: torch.div(x, 2, rounding_mode="floor"),
    "a factor": lambda x: torch.add(x, x, alpha=2),
    "another norm": lambda x: torch.linalg.vector_norm(x, 1, dim=1),
    "a norm of everything": lambda x: torch.linalg.vector_norm(x),
    "a mean of everything": lambda x: x.mean(),
    "a sum in another type": lambda x: x.sum(dim=1, dtype=torch.float64),
    "bounds that are tensors": lambda x: torch.clamp_min(x, torch.ones(4)),
    "padding that cuts": lambda x: functional.pad(x, [-1, 0]),
    "a transposed convolution": nn.ConvTranspose2d(2, 2, 2),
    "pooling with holes": nn.MaxPool2d(2, dilation=2),
    "an index of two": lambda x: x[torch.tensor([0]), torch.tensor([1])],
    "an index of truth values": lambda x: x[torch.tensor([True])],
    "a product of two inputs": lambda x: torch.addmm(*[x.mean(dim=(0, 1))] * 3),
    "normalisation by the batch": lambda x: functional.batch_norm(x, None, None, training=True),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_it_does_not_know_it_does_not_write(name):
    with pytest.raises(UnknownOperatorError):
        written(UNKNOWN[name], (1, 2, 4, 4))


def moved(network: HashNetwork) -> MomentumCopy:
    """A copy that lags behind its network."""
    copy = MomentumCopy(network, 0.7)
    with torch.no_grad():
        for tensor in copy.network.trained_state().values():
            if tensor.is_floating_point():
                tensor.mul_(1 + 0.1 * torch.rand_like(tensor))
    return copy


def knowing(network: HashNetwork) -> Classes:
    """Classes that were told apart beside a network."""
    source = Classes(network.backbone.n_features, 3, network.n_bits)
    source.codes.copy_(torch.randint(0, 2, source.codes.shape) * 2 - 1)
    return source


def network_of(backbone: str, size: int | None = None, freeze: str = "none", kind: str = "linear") -> HashNetwork:
    torch.manual_seed(0)
    network = HashNetwork(create_backbone(backbone, size), 5, freeze)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(std=0.1)
            layer.running_var.uniform_(0.5, 2)
    if kind != "linear":
        network.hash_layer = drawn(kind)
    return network


def rows_for(module: FrozenPart | TrainedPart, n: int = 4) -> np.ndarray:
    """Rows that a module takes."""
    row = module.network.backbone.example()
    if not isinstance(module, FrozenPart | WholeNetwork):
        row = module.network.lower(row)
    rng = np.random.default_rng(0)
    shape = (n, *row.shape[1:])
    return rng.integers(0, 256, shape, np.uint8) if row.dtype == torch.uint8 else rng.normal(size=shape).astype("f4")


def parts_of(network: HashNetwork) -> list[FrozenPart | TrainedPart]:
    copy = moved(network)
    sources = (copy, Margin(), knowing(network), None)
    return [FrozenPart(network), TrainedPart(network, copy), *(WholeNetwork(network, source) for source in sources)]


NETWORKS = {
    **{f"smallconv {size}": lambda size=size: network_of("smallconv", size) for size in (16, 28, 32, 64)},
    "frozen to conv2": lambda: network_of("smallconv", 16, "conv2"),
    "efficientnet-lite0": lambda: network_of("efficientnet-lite0", 64, "stage6"),
    "cnnf": lambda: network_of("cnnf", None, "full6"),
    **{kind: lambda kind=kind: network_of("features:8", None, "all", kind) for kind in KINDS},
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name == "cnnf")) for name in NETWORKS],  # which is large
)
def test_every_part_of_every_network_is_noted_down_and_gives_what_torch_does(name, monkeypatch):
    monkeypatch.delattr(onnx_export, "by_torch")
    network = NETWORKS[name]()
    for module in [WholeNetwork(network, None)] if name == "cnnf" else parts_of(network):
        rows = rows_for(module)
        found = OnnxNetwork(to_onnx(module)).run(rows)
        with torch.inference_mode():
            expected = module(torch.from_numpy(rows))
        for values, wanted in zip(found.values(), expected if isinstance(expected, tuple) else [expected], strict=True):
            np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-5)


def test_weights_keep_their_names_and_the_frozen_ones_are_there_once():
    network = network_of("smallconv", 16, "conv2")
    proto = onnx.load_from_string(to_onnx(WholeNetwork(network, moved(network))))
    names = [tensor.name for tensor in proto.graph.initializer]
    assert {"network.hash_layer.weight", "source.network.hash_layer.weight"} <= set(names)
    assert sum("stages.0.0.weight" in name for name in names) == 1
    assert sum("stages.2.0.weight" in name for name in names) == 2
    assert len(names) == len(set(names))


@pytest.mark.long
@pytest.mark.parametrize("name", ["efficientnet-lite0", "smallconv 28", "trees", "kernel"])
def test_torchs_exporter_gives_the_same(name):
    frozen, _, whole, *_ = parts_of(NETWORKS[name]())
    module = frozen if name == "efficientnet-lite0" else whole
    rows = rows_for(module)
    ours, theirs = OnnxNetwork(to_onnx(module)), OnnxNetwork(by_torch(module, torch.from_numpy(rows[:1]), "pixels"))
    for about in ("input", "shape", "dtype", "outputs"):
        assert getattr(ours, about) == getattr(theirs, about)
    found, expected = ours.run(rows), theirs.run(rows)
    for output in ours.outputs:
        if name in ("efficientnet-lite0", "trees"):  # features that an earlier version kept are as good as new ones
            np.testing.assert_array_equal(found[output], expected[output])
        else:  # constants are computed by torch in the one, by ONNX Runtime in the other
            np.testing.assert_allclose(found[output], expected[output], rtol=1e-4, atol=1e-5)


class Tanh(Tiny):
    """A backbone with an operator that is not in the table."""

    def parts(self):
        return {**super().parts(), "last": nn.Tanh()}


@pytest.mark.long
def test_a_network_with_another_operator_is_left_to_torchs_exporter(caplog, capfd):
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    network = HashNetwork(Tanh(), 5, "all")
    with caplog.at_level(logging.INFO, "dmuh"):
        runner = OnnxNetwork(to_onnx(WholeNetwork(network, None)))
    assert caplog.messages == ["torch's exporter writes the network, which takes seconds: aten.tanh.default"]
    assert capfd.readouterr() == ("", "")
    assert [logger.level for logger in loggers] == before
    with torch.inference_mode():
        expected = network(torch.from_numpy(noise()))
    np.testing.assert_allclose(runner.run(noise())["outputs"], expected, atol=1e-5)
