"""What holds for every method in the registry: a new one is tested without writing a test."""

import dataclasses

import numpy as np
import pytest

from dmuh.datasets import Dataset
from dmuh.encoder import Hasher
from dmuh.evaluation import evaluate_run
from dmuh.methods import METHODS, configure
from dmuh.trainer import train

SETTINGS = {"epochs": 12, "batch_size": 40, "query": 10, "train": 30, "validation": 0.0, "evaluate_every": 100}


@pytest.mark.parametrize("name", METHODS)
def test_learns_well_above_chance(name, digits, tmp_path):
    run = train(configure(SETTINGS, {"method": name, "bits": 16}), tmp_path / "run", dataset=digits)
    assert evaluate_run(run, digits).metrics.map > 0.6  # four classes: chance is a quarter


@pytest.mark.parametrize("n_bits", [12, 48])
@pytest.mark.parametrize("name", METHODS)
def test_takes_several_labels_an_image_and_any_length(name, n_bits, digits, tmp_path):
    several = digits.labels.copy()
    several[:, 0] |= several[:, 1]  # every 1 is a 0 too
    data = Dataset("mnist5k", digits.images, several, digits.classes)
    settings = {"method": name, "bits": n_bits, "epochs": 1, "image_size": 16, "query": 5}
    run = train(configure(SETTINGS, settings), tmp_path / "run", dataset=data)
    codes = Hasher.load(run.path).encode(digits.images[:5])
    assert codes.n_bits == n_bits
    assert (codes.uncertainty is None) == (getattr(configure(settings).options, "alpha", None) is None)


@pytest.mark.parametrize("name", METHODS)
def test_same_seed_same_codes_also_after_an_interruption(name, digits, tmp_path):
    config = configure(SETTINGS, {"method": name, "epochs": 2, "image_size": 16, "bits": 12})
    first = train(config, tmp_path / "first", dataset=digits)

    def stop(progress) -> None:
        if progress.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "second", dataset=digits, progress=stop)
    second = train(config, tmp_path / "second", dataset=digits, resume=True)
    codes = [Hasher.load(run.path).encode(digits.images).bits for run in (first, second)]
    assert np.array_equal(*codes)


@pytest.mark.parametrize("name", METHODS)
def test_is_described(name):
    method = METHODS[name]
    assert method.title
    assert method.paper
    assert method.__doc__
    assert dataclasses.is_dataclass(method.Options)
    for preset in method.presets:
        configure({"method": name}, preset=preset)
