"""A frozen network trains as its head alone: on its features, or on similarities to training images."""

import numpy as np
import pytest
import torch
from torch import nn

from dmuh import Codes, Dataset, Hasher, one_hot
from dmuh.backbones import create_backbone
from dmuh.encoder.calibration import Calibration
from dmuh.errors import ConfigError
from dmuh.methods import configure
from dmuh.network import HashNetwork, Margin, MomentumCopy, TorchNetwork, load_networks
from dmuh.network.heads import KernelHead
from dmuh.trainer import train
from dmuh.trainer.head import Anchored, anchor
from dmuh.trainer.inputs import CachedInputs
from dmuh.trainer.measuring import compute_outputs
from dmuh.trainer.similarities import Similarities


@pytest.fixture
def vectors():
    """A data set of 240 vectors in 4 classes, each class on two opposite sides: no linear map tells them apart."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 4
    side = rng.choice([-1.0, 1.0], 240)
    x = rng.normal(size=(240, 12)) * 0.2
    x[np.arange(240), y] += side
    return Dataset("features", x.astype(np.float32), one_hot(y), tuple("abcd"))


SETTINGS = {"dataset": "features", "data": "x", "bits": 12, "epochs": 30, "train": 0.6, "evaluate_every": 30}


def codes_of(run, data):
    return Hasher.load(run.path, "cpu").encode(data.images)


@pytest.mark.parametrize("kernel", [0, 20])
def test_the_start_is_standardised_only_where_the_settings_say_so(vectors, tmp_path, kernel):
    """A rate near zero leaves the network as it starts: its outputs have no mean and a small deviation, or not."""
    still = SETTINGS | {"kernel": kernel, "epochs": 1, "lr": 1e-12, "lr_final": 1e-12, "weight_decay": 0.0}
    moved = Dataset("features", 30 * vectors.images + 100, vectors.labels, vectors.classes)
    deviations = []
    for standardize in (True, False):
        run = train(configure(still, {"standardize": standardize}), tmp_path / str(standardize), dataset=moved)
        outputs = TorchNetwork(*load_networks(run.load_model())).run(moved.images)["outputs"]
        deviations.append(outputs.std(axis=0))
        assert (np.abs(outputs.mean(axis=0)).max() < 0.1) == standardize
    assert np.abs(deviations[0] - 0.2).max() < 0.05
    assert np.abs(deviations[1] - 0.2).max() > 0.1


def test_folding_gives_the_same_outputs():
    torch.manual_seed(0)
    features, layer = torch.randn(50, 6), nn.Linear(20, 8)
    anchored = Anchored.fit(features, 20)
    seen = torch.randn(30, 6)
    with torch.no_grad():
        torch.testing.assert_close(anchored.folded(layer)(seen), layer(anchored(seen)), atol=1e-4, rtol=1e-4)


def test_the_vectors_have_no_mean_and_no_direction_stands_out():
    torch.manual_seed(0)
    features = torch.randn(400, 6) * torch.tensor([5.0, 3.0, 1.0, 1.0, 0.5, 0.1])
    anchored = Anchored.fit(features, 30)
    vectors = anchored(features)
    assert vectors.mean(dim=0).abs().max() < 1e-4
    assert vectors.std().item() == pytest.approx(1, rel=1e-2)

    def steepness(rows):
        variances = torch.linalg.eigvalsh(torch.cov(rows.T))
        return (variances.max() / variances.mean()).item()

    assert steepness(vectors) < steepness(anchored.kernel.similarities(features)) / 2


def test_there_are_no_more_anchors_than_training_images():
    assert Anchored.fit(torch.randn(7, 3), 100).matrix.shape == (7, 7)


@pytest.mark.parametrize(("kernel", "warning"), [
    (20_000, ["kernel 20,000 is more than there are training images: it became 128"]),
    (128, []),
])  # fmt: skip
def test_a_kernel_larger_than_the_training_set_says_what_it_became(vectors, tmp_path, caplog, kernel, warning):
    run = train(configure(SETTINGS, {"kernel": kernel, "epochs": 1}), tmp_path / "run", dataset=vectors)
    assert [text for text in caplog.messages if "kernel" in text] == warning
    assert len(run.load_model().arrays["network.hash_layer.anchors"]) == 128


@pytest.mark.parametrize("method", ["dmuh", "regu", "csq"])
def test_similarities_tell_apart_what_no_linear_map_does(vectors, tmp_path, method):
    maps = {}
    for kernel in (0, 100):
        config = configure(SETTINGS, {"method": method, "kernel": kernel})
        run = train(config, tmp_path / str(kernel), dataset=vectors)
        maps[kernel] = run.metrics()[-1]["validation_map"]
    assert maps[100] > maps[0] + 0.05


def test_a_run_with_similarities_is_saved_loaded_and_exported(vectors, tmp_path):
    run = train(configure(SETTINGS, {"kernel": 50, "uncertainty": "copy"}), tmp_path / "run", dataset=vectors)
    network, momentum = load_networks(run.load_model())
    assert isinstance(network.hash_layer, KernelHead)
    assert isinstance(momentum.network.hash_layer, KernelHead)
    with torch.no_grad():
        outputs = network(torch.from_numpy(vectors.images))
        copied = momentum.upper(network.lower(torch.from_numpy(vectors.images)))
    codes = codes_of(run, vectors)
    sure = outputs.abs().numpy() > 1e-4
    np.testing.assert_array_equal(codes.unpack()[sure], (outputs.numpy() >= 0)[sure])
    calibration = Calibration.of_card(run.load_model().metadata)
    expected = calibration.uncertainty({"outputs": outputs.numpy(), "uncertainty": (outputs - copied).abs().numpy()})
    np.testing.assert_allclose(codes.uncertainty, expected, atol=0.01)


def test_a_run_with_similarities_resumes_to_the_same_codes(vectors, tmp_path):
    class KilledError(Exception):
        pass

    def kill(step):
        if step.epoch == 3:
            raise KilledError

    config = configure(SETTINGS, {"kernel": 50, "epochs": 5})
    whole = train(config, tmp_path / "whole", dataset=vectors)
    with pytest.raises(KilledError):
        train(config, tmp_path / "broken", dataset=vectors, progress=kill)
    resumed = train(config, tmp_path / "broken", dataset=vectors, resume=True)
    ours, theirs = codes_of(resumed, vectors), codes_of(whole, vectors)
    np.testing.assert_array_equal(ours.bits, theirs.bits)
    np.testing.assert_array_equal(ours.uncertainty, theirs.uncertainty)


@pytest.mark.parametrize("settings", [
    {"method": "sdh", "dataset": "features", "data": "x"},
    {"freeze": "none", "backbone": "efficientnet-lite0"},
    {"freeze": "all", "backbone": "efficientnet-lite0", "augment": "crop"},
])  # fmt: skip
def test_similarities_need_a_frozen_network_and_a_deep_method(settings):
    with pytest.raises(ConfigError, match="kernel is for deep methods on a frozen backbone"):
        configure(settings, {"kernel": 100})


def test_inputs_are_changed_once_and_only_those_asked_for():
    rows = np.arange(20, dtype=np.float32).reshape(10, 2)
    inputs = CachedInputs(rows, rows + 100, torch.device("cpu"), np.array([3]))
    seen = []

    def double(batch):
        seen.append(len(batch))
        return 2 * batch

    mapped = inputs.mapped(double, np.array([1, 3, 4, 8]))
    assert seen == [3, 3]
    (batch,) = mapped.batches([np.array([8, 3, 1])])
    assert batch.positions.tolist() == [8, 1]
    np.testing.assert_array_equal(batch.activations.numpy(), 2 * rows[[8, 1]])
    flipped = [b.activations.numpy() for b in mapped.batches([np.array([4])] * 20, augment="flip", seed=(0,))]
    assert {float(value[0, 0]) for value in flipped} == {2 * rows[4, 0], 2 * (rows[4, 0] + 100)}
    assert seen == [3, 3]


def test_codes_of_a_linear_head_are_those_of_its_network(vectors, tmp_path):
    run = train(configure(SETTINGS, {"epochs": 3}), tmp_path / "run", dataset=vectors)
    network, _ = load_networks(run.load_model())
    assert isinstance(network.hash_layer, nn.Linear)
    with torch.no_grad():
        expected = Codes.from_outputs(network(torch.from_numpy(vectors.images)).numpy())
    np.testing.assert_array_equal(codes_of(run, vectors).bits, expected.bits)


def test_a_fit_is_taken_again_for_the_same_features_and_no_others():
    rows = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    cpu, none, train = torch.device("cpu"), np.empty(0, np.int64), np.arange(0, 40, 2)
    first, vectors = anchor(CachedInputs(rows, None, cpu, none), train, 8)
    (batch,) = vectors.batches([np.arange(40)])
    torch.testing.assert_close(batch.activations, first(torch.from_numpy(rows)), atol=1e-5, rtol=1e-5)
    again, kept = anchor(CachedInputs(rows.copy(), None, cpu, none.copy()), train.copy(), 8)
    assert again is first
    assert kept is vectors
    for other, rest, some, n in (
        (rows + 1e-3, None, train, 8),
        (rows, None, train, 7),
        (rows, None, train[1:], 8),
        (rows, rows + 1, train, 8),
    ):
        again, kept = anchor(CachedInputs(other, rest, cpu, none), some, n)
        assert kept is not vectors
        assert torch.equal(again.matrix, Anchored.fit(torch.from_numpy(other[some]), n).matrix)
        anchor(CachedInputs(rows, None, cpu, none), train, 8)


def kernel_network(rows, n_bits=4, seed=0):
    """A network with a kernel head on vectors, its first rows the anchors, its last layer by the seed."""
    network = HashNetwork(create_backbone(f"features:{rows.shape[1]}"), n_bits, "all")
    head = KernelHead(rows.shape[1], n_bits, 6)
    head.place_anchors(torch.from_numpy(rows[:6]))
    generator = torch.Generator().manual_seed(seed)
    head.weight.copy_(torch.randn(6, n_bits, generator=generator))
    head.bias.copy_(torch.randn(n_bits, generator=generator))
    network.hash_layer = head
    return network


def test_similarities_are_computed_once_for_networks_with_the_same_anchors():
    rows = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    inputs = CachedInputs(rows, None, torch.device("cpu"), np.empty(0, np.int64), name="rows")
    positions, similarities, below = np.arange(3, 30), Similarities(), []
    for network in (kernel_network(rows), kernel_network(rows, 7, seed=1), kernel_network(rows[::-1].copy())):
        last, kept = similarities.below(network, Margin(), inputs, positions)
        below.append(kept)
        found = compute_outputs(last, Margin(), kept, positions[2:])
        whole = compute_outputs(network, Margin(), inputs, positions[2:])
        np.testing.assert_array_equal(found.positions, whole.positions)
        np.testing.assert_allclose(found.outputs, whole.outputs, atol=1e-5)
        np.testing.assert_allclose(found.uncertainty, whole.uncertainty, atol=1e-5)
    assert below[0] is below[1]
    assert below[1] is not below[2]


def test_similarities_of_other_images_are_computed_anew_and_other_heads_left_alone():
    rows = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    cpu, none, similarities = torch.device("cpu"), np.empty(0, np.int64), Similarities()
    network, positions = kernel_network(rows), np.arange(30)
    for name in ("rows", "others"):
        shifted = rows + (name == "others")
        _, kept = similarities.below(network, Margin(), CachedInputs(shifted, None, cpu, none, name=name), positions)
        (batch,) = kept.batches([positions])
        torch.testing.assert_close(batch.activations, network.hash_layer.similarities(torch.from_numpy(shifted)))
    inputs = CachedInputs(rows, None, cpu, none, name="rows")
    linear = HashNetwork(create_backbone("features:5"), 4, "all")
    for other, source in ((linear, Margin()), (network, MomentumCopy(network, 0.5))):
        assert similarities.below(other, source, inputs, positions) == (other, inputs)
