import numpy as np
import pytest
import torch

from dmuh.backbones import BACKBONES, create_backbone
from dmuh.errors import ConfigError
from dmuh.network import HashNetwork, MomentumCopy, TorchNetwork, calibrate, choose_device
from tiny import noise, tiny


def pixels(n: int = 6, side: int = 32) -> torch.Tensor:
    return torch.from_numpy(noise(n, side))


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
    network = tiny(4)
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
    network = tiny(16)
    copy = MomentumCopy(network, 0.7)
    network.train()
    copy.train()
    images = pixels(16, 8)
    h = network(images)
    copied = copy.upper(network.lower(images))
    assert h.requires_grad
    assert not copied.requires_grad
    assert torch.equal(h, copied)
    assert torch.equal(h, network(images))  # neither dropout nor batch statistics


def test_a_code_does_not_depend_on_its_batch_statistics():
    network = tiny(16).train()
    images = pixels(8, 8)
    assert torch.allclose(network(images)[:1], network(images[:1]), atol=1e-6)


def whole(network, images):
    """The outputs, by the backbone as a whole."""
    features = network.backbone(network.backbone.normalise(images))
    return network.hash_layer((features - network.feature_mean) * network.feature_scale)


CUTS = {"cnnf": ["none", "conv2", "full6"]}  # few, as it is large


@pytest.mark.parametrize("name", BACKBONES)
def test_lower_and_upper_make_the_whole_wherever_it_is_cut(name):
    torch.manual_seed(0)
    backbone = create_backbone(name, None if name == "cnnf" else 32)
    backbone.load_pretrained()
    parts = backbone.parts()
    images = pixels(2, backbone.preprocess.size)
    with torch.inference_mode():
        for cut in CUTS.get(name, ["none", *parts, "all"]):
            network = HashNetwork(backbone, 8, cut)
            network.feature_mean.normal_()
            network.feature_scale.uniform_(0.5, 2)
            expected = backbone.normalise(images)
            for part in list(parts)[: 0 if cut == "none" else [*parts, "all"].index(cut) + 1]:
                expected = parts[part](expected)
            activations = network.lower(images)
            assert torch.equal(activations, expected), cut
            outputs = network(images)
            assert torch.equal(outputs, network.upper(activations)), cut
            assert torch.allclose(outputs, whole(network, images), atol=1e-5), cut
            assert outputs.std() > 0.01, cut


@pytest.mark.parametrize("cut", ["none", "conv1", "conv3", "hidden", "all"])
def test_what_is_frozen_gets_no_gradient_and_the_rest_does(cut):
    network = HashNetwork(create_backbone("smallconv", 16), 8, cut)
    names = ["conv1", "conv2", "conv3", "hidden"]
    n_frozen = {"none": 0, "conv1": 1, "conv3": 3}.get(cut, 4)
    network(pixels(2, 16)).sum().backward()
    for n, name in enumerate(names):
        for parameter in network.backbone.parts()[name].parameters():
            assert (parameter.grad is None) == (not parameter.requires_grad) == (n < n_frozen)
    assert all(parameter.grad is not None for parameter in network.hash_layer.parameters())
    frozen = [t for name in names[:n_frozen] for t in network.backbone.parts()[name].parameters()]
    assert [t.data_ptr() for t in network.frozen()] == [t.data_ptr() for t in frozen]


def test_the_momentum_copy_shares_what_is_frozen_and_follows_the_rest():
    network = tiny(freeze="conv")
    copy = MomentumCopy(network, 0.7)
    theirs, ours = network.state_dict(), copy.network.state_dict()
    shared = {key for key in theirs if theirs[key].data_ptr() == ours[key].data_ptr()}
    conv = {"conv.weight", "conv.bias"}
    norm = {f"norm.{key}" for key in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")}
    assert shared == {f"backbone.{key}" for key in conv | norm}
    assert set(copy.network.trained_state()) == set(network.trained_state()) == set(theirs) - shared
    before = {key: value.clone() for key, value in theirs.items()}
    with torch.no_grad():
        network.hash_layer.weight.add_(1)
        network.feature_mean.add_(1)
    copy.update(network)
    assert all(torch.equal(ours[key], before[key]) for key in shared)
    assert torch.allclose(ours["hash_layer.weight"], before["hash_layer.weight"] + 0.3)
    assert torch.equal(ours["feature_mean"], before["feature_mean"] + 1)


def test_the_trained_state_is_enough_beside_what_is_frozen():
    one, other = tiny(freeze="conv"), tiny(freeze="conv")
    with torch.no_grad():
        for tensor in one.trained_state().values():
            tensor.add_(0.5)
    images = pixels(4, 8)
    assert not torch.allclose(one(images), other(images))
    other.load_trained_state({key: value.detach() for key, value in one.trained_state().items()})
    assert torch.equal(one(images), other(images))


@pytest.mark.parametrize(("name", "freeze", "words"), [
    ("smallconv", "conv4", "unknown part to freeze 'conv4': did you mean conv3 or conv2 or conv1"),
    ("smallconv", "stage1", "known are all, conv1, conv2, conv3, hidden, none"),
    ("efficientnet-lite0", "stage8", "did you mean stage7"),
    ("efficientnet-lite0", "All", "unknown part to freeze 'All': did you mean all"),
    ("features:5", "conv1", "unknown part to freeze 'conv1': known are all, none"),
])  # fmt: skip
def test_an_unknown_part_names_the_near_misses(name, freeze, words):
    with pytest.raises(ConfigError, match=words):
        HashNetwork(create_backbone(name, 32), 8, freeze)


@pytest.mark.parametrize("freeze", ["none", "conv2"])
def test_calibrated_outputs_are_centred_and_of_the_first_deviation(freeze):
    torch.manual_seed(0)
    network = HashNetwork(create_backbone("smallconv"), 24, freeze)
    images = pixels(64)
    frozen = [tensor.clone() for tensor in network.frozen()]
    calibrate(network, network.lower(images))
    outputs = network(images)
    assert outputs.mean(dim=0).abs().max() < 1e-4
    assert torch.allclose(outputs.std(dim=0, correction=0), torch.full((24,), 0.2), rtol=0.01)
    assert all(torch.equal(before, after) for before, after in zip(frozen, network.frozen(), strict=True))
    assert (network.feature_mean == 0).all()
    assert (network.feature_scale == 1).all()


@pytest.mark.parametrize("freeze", ["none", "conv", "all"])
def test_calibration_standardises_the_features_of_a_learned_backbone_and_leaves_it_alone(freeze):
    network = tiny(16, freeze)
    network.backbone.from_scratch = False
    with torch.no_grad():
        network.backbone.full.weight.mul_(torch.logspace(-2, 2, 8)[:, None])  # features a thousandfold apart
        network.backbone.full.weight[0] = 0  # and one that never varies
    before = {key: value.clone() for key, value in network.backbone.state_dict().items()}
    images = pixels(64, 8)
    calibrate(network, network.lower(images))
    features = network.backbone(network.backbone.normalise(images))
    standard = (features - network.feature_mean) * network.feature_scale
    assert standard.mean(dim=0).abs().max() < 1e-4
    before_it, after_it = (values.std(dim=0, correction=0) for values in (features, standard))
    assert after_it[0] < 1e-3
    assert torch.equal(after_it[1:].argsort(), before_it[1:].argsort())  # what varies more still counts for more
    assert 0.5 < after_it.max() <= 1
    assert after_it[1:].max() / after_it[1:].min() < before_it[1:].max() / before_it[1:].min() / 10
    assert torch.allclose(network(images).std(dim=0, correction=0), torch.full((16,), 0.2), rtol=0.01)
    after = network.backbone.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())


@pytest.mark.parametrize("n", [1, 3, 70])
def test_what_a_gpu_runs_is_what_the_networks_give_however_many_the_rows(n):
    """Run on the CPU here: batches are filled up to one size."""
    network = tiny()
    copy = MomentumCopy(network, 0.7)
    with torch.no_grad():
        copy.network.hash_layer.weight.add_(0.1)
    runner = TorchNetwork(network, copy)
    images = noise(70)
    with torch.inference_mode():
        h, m = network(torch.from_numpy(images)), copy.network(torch.from_numpy(images))
    result = runner.run(images[:n])
    assert runner.shape == (8, 8, 3)
    assert list(result) == runner.outputs == ["outputs", "uncertainty"]
    assert np.allclose(result["outputs"], h[:n], atol=1e-5)
    assert np.allclose(result["uncertainty"], (h - m).abs()[:n], atol=1e-5)
    assert TorchNetwork(network, None).run(images[:n]).keys() == {"outputs"}


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "mps", "cpu,cpu"])
def test_unknown_devices_are_refused(name):
    with pytest.raises(ConfigError, match="device"):
        choose_device(name)


def test_unknown_backbone_names_the_near_miss():
    with pytest.raises(ConfigError, match="did you mean smallconv"):
        create_backbone("smalconv")
