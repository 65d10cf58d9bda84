import numpy as np
import pytest
import torch
from torch import nn

from dmuh.backbones import BACKBONES, create_backbone
from dmuh.backbones.base import Backbone
from dmuh.errors import ConfigError, ImageError
from dmuh.images import BadImages, Preprocess
from dmuh.network import HashNetwork, MomentumCopy, calibrate, choose_device, compute_outputs


class WithModes(Backbone):
    """A backbone whose layers behave differently in training, unless something keeps them from it."""

    about = "test"
    n_features = 8
    preprocess = Preprocess(8, 8)

    def __init__(self, image_size=None):
        super().__init__(image_size)
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)

    def forward(self, images):
        return self.drop(self.norm(self.conv(images))).mean(dim=(2, 3))


def pixels(n: int = 6, side: int = 32, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (n, side, side, 3), np.uint8))


@pytest.mark.parametrize("size", [28, 32, 64, None])
@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_gives_its_features(name, size):
    if name == "cnnf" and size:
        with pytest.raises(ConfigError, match="224 pixels"):
            create_backbone(name, size)
        return
    backbone = create_backbone(name, size)
    size = size or backbone.preprocess.size
    assert backbone.preprocess.size == size
    assert HashNetwork(backbone, 12)(pixels(3, size)).shape == (3, 12)


def test_momentum_update_is_equation_3():
    torch.manual_seed(0)
    network = HashNetwork(WithModes(), 4)
    copy = MomentumCopy(network, alpha=0.7)
    before = [p.clone() for p in copy.network.parameters()]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter))
        network.backbone.norm.running_mean.fill_(3.0)
    copy.update(network)
    for old, new, ours in zip(before, network.parameters(), copy.network.parameters(), strict=True):
        assert torch.allclose(ours, 0.7 * old + 0.3 * new, atol=1e-6)
        assert not ours.requires_grad
    assert torch.equal(copy.network.backbone.norm.running_mean, network.backbone.norm.running_mean)


def test_identical_weights_have_no_uncertainty_in_training():
    network = HashNetwork(WithModes(), 16)
    copy = MomentumCopy(network, 0.7)
    network.train()
    copy.train()
    images = pixels(16, 8)
    h = network(images)
    assert h.requires_grad
    assert torch.equal(h, copy(images))
    assert torch.equal(h, network(images))  # neither dropout nor batch statistics


def test_a_code_does_not_depend_on_its_batch_statistics():
    network = HashNetwork(WithModes(), 16).train()
    images = pixels(8, 8)
    assert torch.allclose(network(images)[:1], network(images[:1]), atol=1e-6)


def test_calibrated_outputs_are_centred_and_of_the_first_deviation():
    torch.manual_seed(0)
    network = HashNetwork(create_backbone("smallconv"), 24)
    images = pixels(64)
    calibrate(network, images)
    outputs = network(images)
    assert outputs.mean(dim=0).abs().max() < 1e-4
    assert torch.allclose(outputs.std(dim=0, correction=0), torch.full((24,), 0.2), rtol=0.01)


def test_calibration_leaves_a_learned_backbone_alone():
    backbone = WithModes()
    backbone.from_scratch = False
    network = HashNetwork(backbone, 4)
    before = backbone.conv.weight.clone()
    calibrate(network, pixels(16, 8))
    assert torch.equal(before, backbone.conv.weight)


def test_outputs_come_in_order_with_bad_images_left_out(tmp_path):
    network = HashNetwork(create_backbone("smallconv"), 8)
    copy = MomentumCopy(network, 0.5)
    (tmp_path / "no.jpg").write_text("not an image")
    good = list(pixels(3).numpy())
    images = [good[0], tmp_path / "no.jpg", good[1], good[2]]
    bad, told = BadImages(), []
    result = compute_outputs(
        network, copy, images, np.array([3, 1, 0]), batch_size=2, on_bad_image="skip", bad=bad, progress=told.append
    )
    assert result.positions.tolist() == [3, 0]
    assert len(bad) == 1
    assert told == [2, 1]
    alone = compute_outputs(network, None, images, np.array([0]))
    assert np.allclose(result.outputs[1], alone.outputs[0], atol=1e-5)
    assert alone.uncertainty is None
    assert result.uncertainty.max() == 0
    with pytest.raises(ImageError, match=r"no\.jpg: not an image"):
        compute_outputs(network, None, images, np.array([1]))


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "mps", "cpu,cpu"])
def test_unknown_devices_are_refused(name):
    with pytest.raises(ConfigError, match="device"):
        choose_device(name)


def test_unknown_backbone_names_the_near_miss():
    with pytest.raises(ConfigError, match="did you mean smallconv"):
        create_backbone("smalconv")
