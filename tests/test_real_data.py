"""Real photographs, below the folder that DMUH_DATA names."""

import os
from pathlib import Path

import numpy as np
import pytest

from dmuh.config import DataSettings, ProtocolSettings
from dmuh.datasets import Dataset, load_dataset
from dmuh.encoder import Hasher, export_run
from dmuh.methods import configure
from dmuh.protocols import protocol_of
from dmuh.protocols.checks import summarise
from dmuh.trainer import train
from dmuh.trainer.evaluation import evaluate_run
from test_encoder import by_torch

pytestmark = pytest.mark.slow


def real(name: str, settings: dict[str, str], place: str) -> Dataset:
    folder = Path(os.environ.get("DMUH_DATA", "")) / name
    if not os.environ.get("DMUH_DATA") or not folder.exists():
        pytest.skip(f"DMUH_DATA names no folder with {name}")
    return load_dataset(DataSettings(data=str(folder / place), **settings))


@pytest.fixture(scope="module")
def coco18() -> Dataset:
    return real("coco18", {"dataset": "csv", "path_format": "images/{image_id}.jpg"}, "labels.csv")


@pytest.fixture(scope="module")
def apparel() -> Dataset:
    return real("apparel", {"dataset": "folder"}, "")


def test_photographs_with_several_labels_are_read_and_summarised(coco18):
    split = protocol_of(ProtocolSettings(), "csv").split(coco18.labels, 0)
    summary = summarise(coco18, split, "stratified")
    assert (summary.images, summary.classes) == (15_925, 18)
    assert 2.0 < summary.labels_per_image < 2.1
    assert summary.missing == summary.unlabelled == summary.without_relevant == 0


def test_copies_of_catalogue_photographs_are_found(apparel):
    split = protocol_of(ProtocolSettings(), "folder").split(apparel.labels, 0)
    summary = summarise(apparel, split, "stratified")
    assert (summary.images, summary.classes) == (20_686, 25)
    assert summary.identical > 500
    assert 0 < summary.leaked_to_database < summary.parts["query"]


@pytest.mark.parametrize("name", ["coco18", "apparel"])
def test_a_frozen_network_trains_on_photographs(name, request, tmp_path):
    data = request.getfixturevalue(name)
    few = np.linspace(0, len(data) - 1, 800).astype(np.int64)
    labels = data.labels[few]
    kept = labels.sum(axis=0) >= 8
    images = [data.images[i] for i in few]
    part = Dataset("folder", images, labels[:, kept], tuple(np.array(data.classes)[kept].tolist()))
    chance = float((part.labels @ part.labels.T > 0).mean())
    config = configure({"dataset": "folder", "image_size": 128, "epochs": 20, "bits": 32, "beta": 0.1})
    run = train(config, tmp_path / "run", dataset=part)
    assert evaluate_run(run, part).metrics.map > chance + 0.15
    export_run(run.path, tmp_path / "model")
    codes = Hasher.load(tmp_path / "model").encode(images)
    outputs, _ = by_torch(run, images)
    sure = np.abs(outputs) > 1e-4
    assert sure.mean() > 0.99
    np.testing.assert_array_equal((codes.unpack() == 1)[sure], (outputs > 0)[sure])
    changes = export_run(run.path, tmp_path / "int8", images)
    assert changes.flip_rate < 0.15
