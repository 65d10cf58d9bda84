"""CNN-F layer by layer, and its loader on files of the structure that MatConvNet's model has."""

import numpy as np
import pytest
import torch
from scipy.io import savemat

from dmuh.backbones import create_backbone
from dmuh.backbones.cnnf import CNNF
from dmuh.errors import FormatError
from dmuh.network import HashNetwork

SHAPES = {"conv1": (11, 11, 3, 64), "conv2": (5, 5, 64, 256), "conv3": (3, 3, 256, 256), "conv4": (3, 3, 256, 256),
          "conv5": (3, 3, 256, 256), "fc6": (6, 6, 256, 4096), "fc7": (1, 1, 4096, 4096),
          "fc8": (1, 1, 4096, 10)}  # fmt: skip


def cell(values) -> np.ndarray:
    array = np.empty(len(values), object)
    for n, value in enumerate(values):
        array[n] = value
    return array


def model(newer: bool = True, without: str = "", **changed) -> dict:
    """A model as MatConvNet keeps it: layers with names, filters in H×W×C×N order, and the mean image."""
    rng = np.random.default_rng(0)
    layers = []
    for name, shape in {**SHAPES, **changed}.items():
        if name == without:
            continue
        filters = rng.standard_normal(shape, np.float32) * 0.01
        biases = rng.standard_normal((1, shape[-1])).astype(np.float32)
        weights = {"weights": cell([filters, biases])} if newer else {"filters": filters, "biases": biases}
        layers += [{"type": "conv", "name": name, **weights}, {"type": "relu", "name": f"relu_{name}"}]
    image = rng.uniform(100, 130, (224, 224, 3)).astype(np.float32)
    normalization = {"averageImage": image, "imageSize": [224, 224, 3]}
    about = {"meta": {"normalization": normalization}} if newer else {"normalization": normalization}
    return {"layers": cell(layers), **about}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("cnnf") / "imagenet-vgg-f.mat"
    savemat(path, model())
    return path


def test_output_sizes_are_the_papers():
    backbone = create_backbone("cnnf").eval()
    sizes: dict[str, list[tuple[int, ...]]] = {}
    for name, layer in backbone.named_children():
        layer.register_forward_hook(
            lambda *seen, name=name: sizes.setdefault(name, []).append(tuple(seen[2].shape[1:]))
        )
    assert backbone(torch.zeros(1, 3, 224, 224)).shape == (1, 4096)
    assert sizes["pool"] == [(64, 27, 27), (256, 13, 13), (256, 6, 6)]
    assert sizes["conv3"] == sizes["conv4"] == [(256, 13, 13)]
    assert sizes["fc6"] == sizes["fc7"] == [(4096,)]


def test_the_sizes_after_each_part_are_the_papers():
    x, sizes = torch.zeros(1, 3, 224, 224), {}
    with torch.inference_mode():
        for name, part in create_backbone("cnnf").parts().items():
            x = part(x)
            sizes[name] = tuple(x.shape[1:])
    assert sizes == {
        "conv1": (64, 27, 27), "conv2": (256, 13, 13), "conv3": (256, 13, 13), "conv4": (256, 13, 13),
        "conv5": (256, 6, 6), "full6": (4096,), "full7": (4096,),
    }  # fmt: skip


def test_the_mean_image_belongs_to_the_first_part():
    network = HashNetwork(create_backbone("cnnf"), 8, "conv1")
    assert len(network.frozen()) == 3  # filters, biases, mean image
    assert "backbone.centre.mean_image" not in network.trained_state()


def test_normalisation_is_matconvnets():
    """y = x / (κ + α Σ x²)^β over a window of five channels, α not divided by the window."""
    x = torch.randn(1, 9, 1, 1)
    y = CNNF().local_norm(x)
    values = x.flatten().tolist()
    for c, value in enumerate(values):
        window = sum(v * v for v in values[max(0, c - 2) : c + 3])
        assert y[0, c, 0, 0].item() == pytest.approx(value / (2 + 1e-4 * window) ** 0.75, rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("newer", [True, False])
def test_weights_come_in_torchs_order(tmp_path, file, newer):
    source = model(newer)
    if not newer:
        file = tmp_path / "old.mat"
        savemat(file, source)
    backbone = create_backbone("cnnf")
    backbone.load_pretrained(file)
    assert not backbone.from_scratch
    first, sixth = source["layers"][0], source["layers"][10]
    filters = first["weights"][0] if newer else first["filters"]
    assert torch.equal(backbone.conv1.weight, torch.from_numpy(filters.transpose(3, 2, 0, 1).copy()))
    full = sixth["weights"][0] if newer else sixth["filters"]
    assert sixth["name"] == "fc6"
    x = np.random.default_rng(1).standard_normal((256, 6, 6)).astype(np.float32)
    expected = np.einsum("chw,hwcn->n", x, full) + (sixth["weights"][1] if newer else sixth["biases"])[0]
    ours = backbone.fc6(torch.from_numpy(x).flatten()[None])[0].detach().numpy()
    assert np.allclose(ours, expected, atol=1e-3)
    image = (source["meta"] if newer else source)["normalization"]["averageImage"]
    assert torch.equal(backbone.centre.mean_image, torch.from_numpy(image.transpose(2, 0, 1).copy()))


@pytest.mark.long
def test_other_files_are_refused(tmp_path, file):
    backbone = create_backbone("cnnf")
    bad, small = tmp_path / "bad.mat", {"fc6": (1, 1, 2, 2), "fc7": (1, 1, 2, 2)}  # what is wrong stands before these
    for content, sentence in (
        (model(without="conv4", **small), "lacks conv4"),
        (model(conv2=(3, 3, 64, 256), **small), "conv2 has filters of 3×3×64×256"),
        ({"x": np.zeros(3)}, "no layers or no mean image"),
    ):
        savemat(bad, content)
        with pytest.raises(FormatError, match=sentence):
            backbone.load_pretrained(bad)
    bad.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(FormatError, match=r"bad\.mat is not"):
        backbone.load_pretrained(bad)
    with pytest.raises(FormatError, match=r"nowhere\.mat do not exist"):
        backbone.load_pretrained(tmp_path / "nowhere.mat")
