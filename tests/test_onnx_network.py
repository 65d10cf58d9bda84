"""Networks in the ONNX format, and what ONNX Runtime makes of them."""

import sys

import numpy as np
import onnx
import pytest
import torch

from dmuh.backbones import create_backbone
from dmuh.encoder.onnx_export import FrozenPart, WholeNetwork, by_torch, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import FormatError, InputError, MissingExtraError
from dmuh.network import HashNetwork, MomentumCopy
from tiny import noise, tiny


def with_copy(network: HashNetwork) -> tuple[HashNetwork, MomentumCopy]:
    """A network and a copy that lags behind it."""
    copy = MomentumCopy(network, 0.7)
    with torch.no_grad():
        for key, tensor in copy.network.trained_state().items():
            if "hash_layer" in key:
                tensor.add_(torch.randn_like(tensor) * 0.1)
    return network, copy


NETWORK, COPY = with_copy(tiny(n_bits=10, freeze="conv"))


@pytest.fixture(scope="module")
def content() -> bytes:
    return to_onnx(WholeNetwork(NETWORK, COPY))


@pytest.fixture(scope="module")
def exported(content) -> OnnxNetwork:
    return OnnxNetwork(content)


def test_a_network_says_what_it_takes_and_gives(exported):
    assert exported.shape == (8, 8, 3)
    assert exported.dtype == np.uint8
    assert exported.outputs == ["outputs", "uncertainty"]


def test_outputs_and_uncertainty_are_torchs(exported):
    images = noise(40)
    result = exported.run(images)
    with torch.inference_mode():
        h, m = NETWORK(torch.from_numpy(images)), COPY.network(torch.from_numpy(images))
    np.testing.assert_allclose(result["outputs"], h, atol=1e-5)
    np.testing.assert_allclose(result["uncertainty"], (h - m).abs(), atol=1e-5)
    assert {name: (value.shape, value.dtype) for name, value in result.items()} == {
        "outputs": ((40, 10), np.float32), "uncertainty": ((40, 10), np.float32)
    }  # fmt: skip
    assert result["uncertainty"].max() > 0.01


def test_what_a_row_gives_does_not_depend_on_the_rows_beside_it(exported):
    images = noise(70)
    whole = exported.run(images)
    for rows in (slice(0, 1), slice(69, 70), slice(30, 33), slice(None, None, -1), [5, 5, 9], []):
        found = exported.run(images[rows])
        for name, values in whole.items():
            np.testing.assert_array_equal(found[name], values[rows])


@pytest.mark.parametrize("rows", [
    noise(2).astype(np.float32), noise(2, 9), noise(2)[0], noise(2)[..., :2], np.zeros((0, 7, 8, 3), np.uint8)
], ids=lambda rows: f"{rows.dtype}{rows.shape}")  # fmt: skip
def test_rows_that_do_not_fit_are_refused(exported, rows):
    with pytest.raises(InputError, match=r"rows must be uint8 \(n, \(8, 8, 3\)\), got"):
        exported.run(rows)


def test_a_file_is_as_good_as_its_content(exported, content, tmp_path):
    (tmp_path / "model.onnx").write_bytes(content)
    read = OnnxNetwork(tmp_path / "model.onnx").run(noise())
    np.testing.assert_array_equal(read["outputs"], exported.run(noise())["outputs"])
    assert onnx.load_from_string(content).graph.initializer  # the weights are in it, and not in a file beside it
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("damage", [lambda _: b"", lambda _: b"no network", lambda c: c[: len(c) // 2],
                                    lambda c: c[:200] + bytes(200) + c[400:]],
                         ids=["empty", "text", "cut", "zeros"])  # fmt: skip
def test_a_broken_file_is_refused_by_name(content, tmp_path, damage):
    file = tmp_path / "model.onnx"
    file.write_bytes(damage(content))
    with pytest.raises(FormatError, match=r"model\.onnx is not a network in the ONNX format"):
        OnnxNetwork(file)
    with pytest.raises(FormatError, match=r"^this is not a network in the ONNX format"):
        OnnxNetwork(damage(content))


def test_the_frozen_part_alone_gives_activations_and_exporting_says_nothing(capfd):
    runner = OnnxNetwork(to_onnx(FrozenPart(NETWORK)))
    assert capfd.readouterr() == ("", "")
    assert runner.outputs == ["activations"]
    with torch.inference_mode():
        expected = NETWORK.lower(torch.from_numpy(noise()))
    np.testing.assert_allclose(runner.run(noise())["activations"], expected, atol=1e-5)


def test_a_network_of_feature_vectors_without_a_copy():
    network = HashNetwork(create_backbone("features:5"), 6, "all")
    network.feature_mean.fill_(0.5)
    network.feature_scale.fill_(3.0)
    runner = OnnxNetwork(to_onnx(WholeNetwork(network, None)))
    assert (runner.shape, runner.dtype, runner.outputs) == ((5,), np.float32, ["outputs"])
    vectors = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    with torch.inference_mode():
        expected = network.hash_layer((torch.from_numpy(vectors) - 0.5) * 3)
    np.testing.assert_allclose(runner.run(vectors)["outputs"], expected, atol=1e-5)


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_an_exporter_the_sentence_says_what_to_install(monkeypatch, package):
    for module in ("dmuh.encoder.onnx_operators", "dmuh.encoder.onnx_recorder"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"exporting a network .*pip install 'dmuh\[train\]'"):
        to_onnx(FrozenPart(NETWORK)) if package == "onnx" else by_torch(FrozenPart(NETWORK), torch.zeros(1), "pixels")
