"""What holds for every method in the registry: a new one is tested without writing a test."""

import dataclasses

import numpy as np
import pytest

from dmuh.config import Config
from dmuh.datasets import Dataset
from dmuh.encoder import Hasher, export_run
from dmuh.images import ImageReader, Preprocess, Reading
from dmuh.methods import METHODS, Objective, ShallowMethod, configure, methods_for
from dmuh.network import TorchNetwork, load_networks
from dmuh.protocols import Split
from dmuh.runs import Run
from dmuh.trainer import train
from dmuh.trainer.evaluation import evaluate_run

SETTINGS = {"batch_size": 40, "query": 10, "train": 30, "validation": 0.0, "evaluate_every": 100, "image_size": 16}
SMALL = {"query": 5, "train": 12}  # for a third of the images, where what is learned does not matter
OF_IMAGES = methods_for(texts=False)  # those for texts too: test_texts_training.py
DEEP = [name for name in OF_IMAGES if issubclass(METHODS[name], Objective)]
SHALLOW = [name for name in OF_IMAGES if issubclass(METHODS[name], ShallowMethod)]
FEW_TREES = {"fasth": {"trees": 5, "depth": 3, "pairs": 20}}
# Four classes: chance is a quarter. Without labels, only what the pixels themselves tell is learned.
LEARNED = {"itq": 0.6}
COMMON = 0.75


@pytest.fixture(scope="module")
def pixels(digits) -> Dataset:
    """The digits as feature vectors, for methods that learn from these."""
    vectors = digits.images.reshape(len(digits), -1).astype(np.float32) / 255
    return Dataset("features", vectors, digits.labels, digits.classes)


def config_of(name: str, **settings: object) -> Config:
    own = SETTINGS | FEW_TREES.get(name, {})
    if name in SHALLOW:
        own = own | {"dataset": "features", "image_size": None}
        settings.pop("epochs", None)
    return configure(own, {"method": name, **settings})


@pytest.fixture(scope="module")
def data(name, digits, pixels) -> Dataset:
    return pixels if name in SHALLOW else digits


@pytest.fixture(scope="module")
def few(digits) -> Dataset:
    return third(digits)


@pytest.fixture(scope="module")
def few_pixels(pixels) -> Dataset:
    return third(pixels)


def third(data: Dataset) -> Dataset:
    return Dataset(data.name, data.images[::3], data.labels[::3], data.classes)


@pytest.fixture(scope="module", params=OF_IMAGES)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def run(name, data, tmp_path_factory) -> Run:
    """A run of some seconds, for the tests that look at what was learned."""
    folder = tmp_path_factory.mktemp(name) / "run"
    return train(config_of(name, bits=16, epochs=8), folder, dataset=data)


def test_learns_well_above_chance(name, run, data):
    assert evaluate_run(run, data).metrics.map > LEARNED.get(name, COMMON)


def test_encodes_as_the_network_that_was_trained_does(name, run, data):
    outputs = TorchNetwork(*load_networks(run.load_model())).run(pixels_of(run, data))["outputs"]
    codes = Hasher.load(run.path).encode(data.images)
    sure = np.abs(outputs) > 1e-4
    assert sure.mean() > 0.95
    np.testing.assert_array_equal(codes.unpack()[sure], (outputs >= 0)[sure])


def test_exported_it_gives_the_same_codes(name, run, data, tmp_path):
    assert export_run(run.path, tmp_path / "export") is None
    ours, theirs = Hasher.load(tmp_path / "export").encode(data.images), Hasher.load(run.path).encode(data.images)
    np.testing.assert_array_equal(ours.bits, theirs.bits)
    assert (ours.uncertainty is None) == (theirs.uncertainty is None)
    if ours.uncertainty is not None:
        np.testing.assert_array_equal(ours.uncertainty, theirs.uncertainty)


def pixels_of(run: Run, data: Dataset) -> np.ndarray:
    """What the network takes: vectors, or images of its size in colour."""
    if data.vectors is not None:
        return data.vectors
    with ImageReader(data.images, Preprocess(**run.load_model().metadata["preprocess"]), Reading(0)) as reader:
        return np.concatenate([batch.pixels for batch in reader.batches([np.arange(len(data))])])


def test_two_lengths_and_several_labels_an_image(name, data, tmp_path):
    data = third(data)
    several = data.labels.copy()
    several[:, 0] |= several[:, 1]  # every 1 is a 0 too
    several[5] = 0
    for n_bits in (12, 48):
        config = config_of(name, bits=n_bits, epochs=1, **SMALL)
        run = train(config, tmp_path / f"{n_bits}", dataset=Dataset(data.name, data.images, several, data.classes))
        found = TorchNetwork(*load_networks(run.load_model())).run(pixels_of(run, data))
        assert found["outputs"].shape == (len(data), n_bits)
        assert np.isfinite(found["outputs"]).all()
        assert np.ptp(found["uncertainty"]) > 0
        assert run.load_model().metadata["calibration"]["images"] > 0
        assert len(np.unique(found["outputs"] >= 0, axis=0)) > 1


@pytest.mark.parametrize("deep", DEEP)
def test_same_seed_same_codes_also_after_an_interruption(deep, few, tmp_path):
    config = config_of(deep, bits=12, epochs=2, **SMALL)
    first = train(config, tmp_path / "first", dataset=few)

    def stop(progress) -> None:
        if progress.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "second", dataset=few, progress=stop)
    second = train(config, tmp_path / "second", dataset=few, resume=True)
    same_run(first, second)
    assert [line["epoch"] for line in second.metrics()] == [1, 2]


@pytest.mark.parametrize("moment", ["before the fit", "after it"])
@pytest.mark.parametrize("shallow", SHALLOW)
def test_a_fit_that_was_interrupted_starts_again_and_ends_the_same(shallow, moment, few_pixels, tmp_path, monkeypatch):
    config = config_of(shallow, bits=12, **SMALL)
    first = train(config, tmp_path / "first", dataset=few_pixels)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    owner, step = (METHODS[shallow], "_fit") if moment == "before the fit" else (Run, "save_model")
    monkeypatch.setattr(owner, step, stop)  # as by Ctrl-C at that moment
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "second", dataset=few_pixels)
    monkeypatch.undo()
    assert not Run(tmp_path / "second").finished
    second = train(config, tmp_path / "second", dataset=few_pixels, resume=True)
    same_run(first, second)
    assert [line["epoch"] for line in second.metrics()] == [1]
    assert len(second.trace()) == 1


def same_run(first: Run, second: Run) -> None:
    """That two runs found the same network, to the last digit."""
    ours, theirs = (run.load_model().arrays for run in (first, second))
    assert ours.keys() == theirs.keys()
    for key, array in ours.items():
        np.testing.assert_array_equal(theirs[key], array, err_msg=key)


@pytest.mark.parametrize("shallow", SHALLOW)
def test_a_shallow_run_gives_the_codes_of_the_method_itself(shallow, pixels, tmp_path):
    config = config_of(shallow, bits=12)
    run = train(config, tmp_path / "run", dataset=pixels)
    split = Split.load(run.split_file, pixels.fingerprint())
    method = METHODS[shallow].of(config.options, 12, config.training.seed)
    method.fit(pixels.vectors[split.train], pixels.labels[split.train])
    outputs = method.project(pixels.vectors)
    sure = np.abs(outputs) > 1e-4
    network = TorchNetwork(*load_networks(run.load_model()))
    np.testing.assert_array_equal((network.run(pixels.vectors)["outputs"] >= 0)[sure], (outputs >= 0)[sure])
    assert run.metrics()[0]["loss"] == pytest.approx(method.losses_[-1])


@pytest.mark.parametrize("shallow", SHALLOW)
def test_another_seed_gives_other_codes(shallow, pixels):
    fitted = [
        METHODS[shallow].of(config_of(shallow, bits=12).options, 12, seed).fit(pixels.vectors, pixels.labels)
        for seed in (0, 0, 1)
    ]
    first, same, other = (method.project(pixels.vectors) for method in fitted)
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)


def test_is_described(name):
    method = METHODS[name]
    assert method.title
    assert method.paper
    assert 2000 < method.year < 2100
    assert method.kind == ("shallow" if name in SHALLOW else "deep")
    assert method.__doc__
    assert dataclasses.is_dataclass(method.Options)
    for preset in method.presets:
        configure({"method": name}, preset=preset)
