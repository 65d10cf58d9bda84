"""Dropout: masks of their own for a network and its copy, the same after a resume, off wherever codes are made."""

import numpy as np
import pytest
import torch

from dmuh import Dataset, Hasher, Hashing
from dmuh.backbones import Dropout, Masks, create_backbone
from dmuh.encoder import export_run
from dmuh.errors import ConfigError
from dmuh.methods import METHODS, configure
from dmuh.network import HashNetwork, MomentumCopy, calibrate, load_networks
from dmuh.network.heads import HiddenHead
from dmuh.runs import Run
from dmuh.trainer import train
from dmuh.trainer.evaluation import evaluate_run
from tiny import noise

SMALL = {"epochs": 3, "batch_size": 24, "bits": 12, "query": 5, "train": 16, "image_size": 16, "uncertainty": "copy"}
HIDDEN = {"hidden": 20, "dropout": 0.5}
LITE = {"backbone": "efficientnet-lite0", "image_size": 32, "epochs": 2, "dropout": 0.2}
PLACES = {
    "hidden layer": HIDDEN,
    "hidden layer on kept features": {**HIDDEN, "freeze": "all", "augment": "flip"},
    "kept features": {**LITE, "freeze": "all"},
    "features of stages that train": {**LITE, "freeze": "stage6", "lr": 0.01},
}


def arrays(run: Run) -> dict[str, np.ndarray]:
    return run.load_model().arrays


def network_of(backbone: str = "features:6", n_bits: int = 5, **settings) -> HashNetwork:
    torch.manual_seed(0)
    return HashNetwork(create_backbone(backbone), n_bits, **settings)


# Masks ----------------------------------------------------------------------------------------------------------------


def test_a_share_is_set_to_zero_and_the_rest_made_larger():
    x = torch.rand(200, 300) + 1
    for rate in (0.2, 0.5):
        dropped = Masks((1, 2), 200).applied(x, rate)
        ratio = dropped / x
        assert (ratio == 0).float().mean().item() == pytest.approx(rate, abs=0.01)
        assert torch.allclose(ratio[ratio > 0], torch.tensor(1 / (1 - rate)))
        assert dropped.mean().item() == pytest.approx(x.mean().item(), rel=0.02)


def test_masks_are_those_of_their_seed_and_of_their_place_in_the_batch():
    x = torch.ones(10, 50)
    whole = Masks((0, 4, 1, 2, 0), 10)
    layers = [whole.applied(x, 0.5), whole.applied(x, 0.3)]
    assert not torch.equal(layers[0] > 0, layers[1] > 0)  # each layer has its own
    parts = [(Masks((0, 4, 1, 2, 0), 10, begin), x[begin:end]) for begin, end in ((0, 3), (3, 3), (3, 10))]
    for expected, rate in zip(layers, (0.5, 0.3), strict=True):
        assert torch.equal(torch.cat([masks.applied(rows, rate) for masks, rows in parts]), expected)
    for n in range(5):  # every number of the seed counts
        seed = [0, 4, 1, 2, 0]
        seed[n] += 1
        assert not torch.equal(Masks(tuple(seed), 10).applied(x, 0.5), layers[0])


def test_without_masks_nothing_is_dropped_whatever_the_mode():
    layer, x = Dropout(0.5).train(), torch.rand(4, 6)
    assert layer(x) is x
    network = network_of(hidden=8, dropout=0.5).train()
    assert torch.equal(network(x), network(x))
    with network.dropping(Masks((0,), 4)):
        assert not torch.equal(network(x), network(x))
    with pytest.raises(RuntimeError), network.dropping(Masks((0,), 4)):
        raise RuntimeError
    assert all(layer.masks is None for layer in network.modules() if isinstance(layer, Dropout))


def test_a_hidden_head_with_masks_is_a_plain_loop_and_has_its_gradient():
    network = network_of(hidden=7, dropout=0.25).double()
    head = network.hash_layer
    assert isinstance(head, HiddenHead)
    x = torch.randn(4, 6, dtype=torch.float64)
    keep = Masks((3,), 4).applied(torch.ones(4, 7), 0.25).tolist()
    with network.dropping(Masks((3,), 4)):
        outputs = network(x)
    for i in range(4):
        hidden = []
        for j in range(7):
            total = head.hidden.bias[j].item() + sum(head.hidden.weight[j, k].item() * x[i, k].item() for k in range(6))
            hidden.append(max(total, 0) * keep[i][j])
        for k in range(5):
            expected = head.last.bias[k].item() + sum(head.last.weight[k, j].item() * hidden[j] for j in range(7))
            assert outputs[i, k].item() == pytest.approx(expected)

    def dropped(*weights: torch.Tensor) -> torch.Tensor:
        state = dict(zip(dict(head.named_parameters()), weights, strict=True))
        with network.dropping(Masks((3,), 4)):
            return torch.func.functional_call(head, state, (x,))

    assert torch.autograd.gradcheck(dropped, tuple(p.detach().requires_grad_() for p in head.parameters()))


def ratios(network: HashNetwork, images: torch.Tensor) -> dict[str, torch.Tensor]:
    """What each place of dropout multiplied its input by, where that was not 0."""
    found = {}

    def note(name: str):
        return lambda _, inputs, output: found.update({name: (output / inputs[0])[inputs[0] != 0]})

    hooks = [m.register_forward_hook(note(name)) for name, m in network.named_modules() if isinstance(m, Dropout)]
    with torch.no_grad(), network.dropping(Masks((0,), len(images))):
        network.upper(network.lower(images))
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize(("backbone", "settings", "places"), [
    ("cnnf", {}, ["backbone.drop6", "drop"]),
    ("cnnf", {"freeze": "all"}, ["drop"]),
    ("efficientnet-lite0", {}, ["drop"]),
    ("efficientnet-lite0", {"freeze": "all", "hidden": 64}, ["hash_layer.drop"]),
    ("smallconv", {"hidden": 64}, ["hash_layer.drop"]),
], ids=str)  # fmt: skip
def test_units_are_dropped_where_the_network_has_its_place_and_nowhere_else(backbone, settings, places):
    network = network_of(backbone, dropout=0.4, **settings)
    found = ratios(network, torch.from_numpy(noise(2, network.backbone.preprocess.size)))
    dropping = {name for name, ratio in found.items() if (ratio == 0).any()}
    assert sorted(dropping) == places
    for name in dropping:
        assert (found[name] == 0).float().mean().item() == pytest.approx(0.4, abs=0.15)
        assert torch.allclose(found[name][found[name] > 0], torch.tensor(1 / 0.6))


def test_a_fresh_head_with_a_hidden_layer_is_scaled():
    network = network_of("smallconv", 16, hidden=30, dropout=0.5)
    images = torch.from_numpy(noise(64, 32))
    calibrate(network, network.lower(images))
    with torch.no_grad():
        hidden = network.hash_layer.hidden(network.head_inputs(network.lower(images)))
        outputs = network(images)
    assert torch.allclose(hidden.std(dim=0, correction=0), torch.full((30,), 0.2), rtol=0.01)
    assert torch.allclose(outputs.std(dim=0, correction=0), torch.full((16,), 0.2), rtol=0.01)
    assert max(hidden.mean(dim=0).abs().max(), outputs.mean(dim=0).abs().max()) < 1e-4


# Training -------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
def test_only_masks_of_their_own_part_a_network_from_its_exact_copy(place, digits, tmp_path):
    """With alpha = 0 the copy has the network's weights after each step."""
    found = {}
    for shared in (False, True):
        config = configure(SMALL, PLACES[place], {"alpha": 0.0, "shared_mask": shared})
        run = train(config, tmp_path / str(shared), dataset=digits)
        found[shared] = [line["mean_uncertainty"] for line in run.metrics()]
        for line in run.trace():  # which is measured as codes are made
            assert not np.any(line["uncertainty"])
    assert min(found[False]) > 0.02
    assert max(found[True]) == 0


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
def test_codes_are_made_without_it(place, digits, tmp_path):
    run = train(configure(SMALL, PLACES[place]), tmp_path / "run", dataset=digits)
    plain = train(configure(SMALL, PLACES[place], {"dropout": 0.0}), tmp_path / "plain", dataset=digits)
    assert any(not np.array_equal(value, arrays(plain)[name]) for name, value in arrays(run).items())
    network, copy = load_networks(run.load_model())
    assert isinstance(copy, MomentumCopy)
    assert isinstance(network.hash_layer, HiddenHead) == isinstance(copy.network.hash_layer, HiddenHead)
    assert isinstance(network.hash_layer, HiddenHead) == ("hidden" in place)
    assert not network.dropout
    export_run(run.path, tmp_path / "export")
    hashers = [Hasher.load(folder) for folder in (run.path, run.path, tmp_path / "export")]
    first, *others = (hasher.encode(digits.images[:40]) for hasher in hashers)
    for codes in others:
        np.testing.assert_array_equal(codes.bits, first.bits)
        np.testing.assert_array_equal(codes.uncertainty, first.uncertainty)
    measured = evaluate_run(run, digits)
    again = Hasher.load(run.path).encode(digits.take(measured.query.ids), ids=measured.query.ids)
    np.testing.assert_array_equal(again.bits, measured.query.bits)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("settings", [
    *PLACES.values(), {**HIDDEN, "shared_mask": True}, {**HIDDEN, "copy_update": "epoch"},
    {**HIDDEN, "method": "dpsh", "uncertainty": "margin"},
    {**HIDDEN, "optimizer": "adamw", "lr": 0.001, "encoder": "copy"},
], ids=str)  # fmt: skip
@pytest.mark.long
def test_resumed_it_comes_to_the_same_weights(settings, digits, tmp_path):
    config = configure(SMALL, settings)
    whole = train(config, tmp_path / "whole", dataset=digits)

    def stop(progress) -> None:
        torch.rand(7)  # what else draws random numbers does not matter
        if progress.epoch == 2:
            raise Killed

    with pytest.raises(Killed):
        train(config, tmp_path / "broken", dataset=digits, progress=stop)
    resumed = train(config, tmp_path / "broken", dataset=digits, resume=True)
    for name, value in arrays(whole).items():
        np.testing.assert_array_equal(arrays(resumed)[name], value, err_msg=name)
    assert resumed.trace() == whole.trace()


def test_a_copy_that_follows_by_epochs_is_moved_once_in_each(digits, tmp_path, monkeypatch):
    moved = []
    update = MomentumCopy.update
    monkeypatch.setattr(MomentumCopy, "update", lambda copy, network: moved.append(copy.alpha) or update(copy, network))
    steps = 2  # of 58 images, 24 a step, the last ten left over
    for when, count in (("step", 3 * (steps + 1)), ("epoch", 3)):
        moved.clear()
        train(configure(SMALL, {"copy_update": when}), tmp_path / when, dataset=digits)
        assert len(moved) == count
    moved.clear()
    train(configure(SMALL, {"copy_update": "epoch", "uncertainty_alpha": 0.9}), tmp_path / "two", dataset=digits)
    assert (moved.count(0.7), moved.count(0.9)) == (3, 3 * (steps + 1))  # the second copy has its own pace

    # In the first epoch the copy stays where the network began, so that alpha changes nothing but the copy after it.
    ends = {}
    for alpha in (0.0, 0.5, 0.7):
        config = configure(SMALL, {"copy_update": "epoch", "alpha": alpha, "epochs": 1})
        ends[alpha] = arrays(train(config, tmp_path / str(alpha), dataset=digits))
    key = "hash_layer.weight"
    for found in ends.values():
        np.testing.assert_array_equal(found[f"network.{key}"], ends[0.0][f"momentum.{key}"])
    end = ends[0.0][f"network.{key}"]
    begin = 2 * ends[0.5][f"momentum.{key}"] - end
    assert np.abs(end - begin).max() > 1e-3
    np.testing.assert_allclose(ends[0.7][f"momentum.{key}"], 0.7 * begin + 0.3 * end, atol=1e-6)


@pytest.mark.parametrize("settings", [{"freeze": "all"}, {"freeze": "all", "hidden": 20}, {}], ids=str)
def test_the_uncertainty_is_not_rounded_by_mixed_precision(settings, digits, tmp_path, monkeypatch):
    """As bfloat16, most outputs of a network and of a copy that follows it closely would be the same."""
    seen = []
    forward = METHODS["dmuh"].forward

    def watching(self, outputs, batch):
        seen.append((outputs.detach().clone(), batch.momentum_outputs.clone()))
        return forward(self, outputs, batch)

    monkeypatch.setattr(METHODS["dmuh"], "forward", watching)
    config = configure(SMALL, settings, {"precision": "bfloat16", "lr": 0.001, "lr_final": 0.001, "device": "cpu"})
    train(config, tmp_path / "run", dataset=digits)
    later = seen[1:]  # in the first step both are the same network
    for values in zip(*later, strict=True):
        joined = torch.cat(values)
        assert joined.dtype == torch.float32
        assert (joined == joined.bfloat16().float()).float().mean() < 0.05
    u = torch.cat([(outputs - copied).abs() for outputs, copied in later])
    assert (u == 0).float().mean() < 0.05


def test_an_estimator_has_a_hidden_layer_and_dropout(digits):
    x = digits.images.reshape(len(digits), -1).astype(np.float32) / 255
    y = digits.labels.argmax(axis=1)
    hashing = Hashing("dmuh", 12, hidden=32, dropout=0.5, epochs=20, batch_size=40).fit(x[::2], y[::2])
    assert hashing.score(x[1::2], y[1::2]) > 0.8
    np.testing.assert_array_equal(hashing.transform(x), hashing.transform(x))
    plain = Hashing("dmuh", 12, hidden=32, epochs=20, batch_size=40).fit(x[::2], y[::2])
    assert not np.array_equal(hashing.project(x), plain.project(x))


@pytest.mark.long
def test_vectors_with_a_hidden_layer_tell_apart_what_no_linear_map_does(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(240) % 4
    x = rng.normal(size=(240, 12)) * 0.2
    x[np.arange(240), y] += rng.choice([-1.0, 1.0], 240)  # each class on two opposite sides
    data = Dataset("features", x.astype(np.float32), np.eye(4, dtype=np.uint8)[y], tuple("abcd"))
    maps = {}
    for hidden in (0, 64):
        settings = {"dataset": "features", "data": "x", "bits": 12, "train": 0.6, "batch_size": 16, "epochs": 100}
        run = train(configure(settings, {"hidden": hidden}), tmp_path / str(hidden), dataset=data)
        maps[hidden] = run.metrics()[-1]["validation_map"]
    assert maps[64] > maps[0] + 0.05


# Settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "rate"), [
    ({}, 0.0), ({"hidden": 64}, 0.5), ({"backbone": "cnnf"}, 0.5), ({"backbone": "cnnf", "freeze": "all"}, 0.5),
    ({"dataset": "cifar10"}, 0.2), ({"dataset": "cifar10", "freeze": "stage3"}, 0.2),
    ({"dataset": "cifar10", "hidden": 64}, 0.5), ({"dataset": "cifar10", "kernel": 100}, 0.0),
    ({"backbone": "efficientnet-lite2"}, 0.3), ({"dataset": "features", "data": "x"}, 0.0),
    ({"backbone": "cnnf", "dropout": 0.0}, 0.0), ({"backbone": "cnnf", "dropout": 0.3}, 0.3),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("method", ["dmuh", "dmuh-no-u", "dmuh-no-bit", "dmuh-no-image", "regu"])
def test_the_papers_settings_have_the_dropout_of_the_network(method, settings, rate):
    config = configure({"method": method}, settings, preset="paper")
    assert config.network.dropout == rate
    assert configure({"method": method, "dropout": "own"} | settings).network.dropout == rate
    assert configure({"method": method} | settings).network.dropout == settings.get("dropout", 0.0)


@pytest.mark.parametrize(("settings", "words"), [
    ({"dropout": 0.5}, "dropout has no place in this network: .*cnnf, efficientnet-lite0.*, got smallconv$"),
    ({"dropout": 0.5, "dataset": "features", "data": "x"}, "dropout has no place in this network: .* got features$"),
    ({"dropout": 0.5, "dataset": "cifar10", "kernel": 9}, "got efficientnet-lite0 with kernel 9$"),
    ({"dropout": 0.5, "method": "itq", "dataset": "cifar10"}, "dropout is for deep methods: itq is fitted in one go"),
    ({"dropout": 1.0, "hidden": 9}, "^dropout must be a number at least 0 and below 1, got 1.0$"),
    ({"dropout": "owns", "hidden": 9}, "^dropout must be a number at least 0 and below 1, got 'owns'$"),
    ({"hidden": 9, "method": "sdh", "dataset": "cifar10"}, "hidden is for deep methods: sdh fits its own head, got"),
    ({"hidden": 9, "kernel": 8, "dataset": "cifar10"}, "^hidden and kernel exclude each other, got hidden 9 and"),
    ({"hidden": -1}, "^hidden must be a whole number at least 0 and at most 16384, got -1$"),
    ({"shared_mask": True}, "^shared_mask is about the masks of dropout: dropout must be above 0, got 0$"),
    ({"shared_mask": True, "method": "regu", "hidden": 9, "dropout": 0.5}, "unknown setting 'shared_mask'"),
    ({"copy_update": "batch"}, "^copy_update must be step or epoch, got 'batch'$"),
    ({"quantization_weights": "norm", "method": "dmuh-no-bit"}, "unknown setting 'quantization_weights'"),
], ids=str)  # fmt: skip
def test_what_makes_no_sense_together_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        configure(settings)
