"""What comes after the backbone: each head against a plain loop, read back, and in the ONNX format."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dmuh.backbones import create_backbone
from dmuh.encoder.onnx_export import WholeNetwork, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.network import HashNetwork
from dmuh.network.heads import HiddenHead, KernelHead, TreesHead, head_of
from tiny import noise, tiny

KINDS = ["linear", "hidden", "kernel", "trees"]


def drawn(kind: str, n_features: int = 8, n_bits: int = 5, n: int = 7, depth: int = 3, seed: int = 0) -> nn.Module:
    """A head with random content; `n` are its anchors, or its trees a bit."""
    torch.manual_seed(seed)
    if kind == "linear":
        return nn.Linear(n_features, n_bits)
    if kind == "hidden":
        return HiddenHead(n_features, n, n_bits, 0.5)
    head = KernelHead(n_features, n_bits, n) if kind == "kernel" else TreesHead(n_bits, n, depth)
    for name, buffer in head.named_buffers():
        if name == "feature":
            buffer.copy_(torch.randint(0, n_features, buffer.shape))
        elif name == "width":
            buffer.fill_(0.7)
        elif name == "anchors":
            buffer.copy_(nn.functional.normalize(torch.randn(buffer.shape), dim=1))
        else:
            buffer.copy_(torch.randn(buffer.shape))
    return head


@settings(deadline=None, max_examples=30)
@given(
    n_rows=st.integers(1, 5), n_features=st.integers(1, 6), n_bits=st.integers(1, 4), n=st.integers(1, 6),
    seed=st.integers(0, 2**16),
)  # fmt: skip
def test_a_kernel_head_is_a_plain_loop(n_rows, n_features, n_bits, n, seed):
    head = drawn("kernel", n_features, n_bits, n, seed=seed)
    x = 3 * torch.randn(n_rows, n_features)
    expected = np.tile(head.bias.numpy(), (n_rows, 1)).astype(float)
    for i, row in enumerate(x.tolist()):
        length = math.sqrt(sum(v * v for v in row))
        for a, anchor in enumerate(head.anchors.tolist()):
            square = sum((v / length - w) ** 2 for v, w in zip(row, anchor, strict=True))
            for k in range(n_bits):
                expected[i, k] += math.exp(-square / head.width.item()) * head.weight[a, k].item()
    np.testing.assert_allclose(head(x).numpy(), expected, atol=1e-4)


def test_a_kernel_head_takes_a_vector_of_zeros():
    head = drawn("kernel")
    expected = torch.exp(-torch.ones(7) / head.width) @ head.weight + head.bias  # as far from every anchor
    torch.testing.assert_close(head(torch.zeros(1, 8))[0], expected)


@settings(deadline=None, max_examples=30)
@given(
    n_rows=st.integers(1, 5), n_bits=st.integers(1, 4), n=st.integers(1, 5), depth=st.integers(1, 5),
    seed=st.integers(0, 2**16),
)  # fmt: skip
def test_a_trees_head_is_a_plain_walk_down_each_tree(n_rows, n_bits, n, depth, seed):
    head = drawn("trees", 3, n_bits, n, depth, seed)
    x = torch.randn(n_rows, 3).round(decimals=1)
    head.threshold.copy_(head.threshold.round(decimals=1))  # a feature is often exactly the threshold
    expected = np.tile(head.offset.numpy().astype(float), (n_rows, 1))
    for i in range(n_rows):
        for k in range(n_bits):
            for tree in range(k * n, (k + 1) * n):
                node = 0
                for _ in range(depth):
                    left = x[i, head.feature[tree, node]] <= head.threshold[tree, node]
                    node = 2 * node + (1 if left else 2)
                expected[i, k] += head.leaf[tree, node - (2**depth - 1)].item()
    np.testing.assert_allclose(head(x).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_bits", "n", "depth"), [(1, 1, 1), (5, 7, 3), (12, 2, 8)])
def test_a_head_is_made_again_from_its_state(kind, n_bits, n, depth):
    head = drawn(kind, 8, n_bits, n, depth)
    again = head_of(head.state_dict())
    assert type(again) is type(head)
    again.load_state_dict(head.state_dict())
    x = torch.randn(6, 8)
    assert torch.equal(again(x), head(x))


@pytest.mark.parametrize("kind", KINDS)
def test_no_head_has_a_gradient_to_lose_but_those_that_train(kind):
    assert bool(list(drawn(kind).parameters())) == (kind in ("linear", "hidden"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on", ["features", "pixels"])
def test_onnx_runtime_gives_what_torch_does(kind, on):
    if on == "features":
        network = HashNetwork(create_backbone("features:8", None), 5, "all")
        rows = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    else:
        network, rows = tiny(n_bits=5, freeze="all"), noise(20)
    network.hash_layer = drawn(kind)
    if kind == "trees":  # where a feature is exactly a threshold too
        with torch.inference_mode():
            features = network.features(network.lower(torch.from_numpy(rows)))
        network.hash_layer.threshold.copy_(features.flatten()[torch.randint(0, features.numel(), (35, 7))])
    with torch.inference_mode():
        wanted = network(torch.from_numpy(rows)).numpy()
    exported = OnnxNetwork(to_onnx(WholeNetwork(network, None)))
    assert exported.outputs == ["outputs"]
    found = exported.run(rows)["outputs"]
    if kind == "trees" and on == "pixels":  # convolutions differ in the last digit, so those exactly there may turn
        assert (np.abs(found - wanted) < 1e-5).mean() > 0.5
    else:
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert len(np.unique(wanted.round(4), axis=0)) > 10
