"""Codes made from features in the cache: the same as those of images, bit by bit."""

import logging

import numpy as np
import pytest

from commands import dmuh
from dmuh import Hasher, configure, train
from dmuh.cli import encode
from dmuh.collection import Collection
from dmuh.datasets import load_images
from dmuh.datasets.folder import load_folder
from dmuh.images import Reading
from dmuh.runs import Run
from dmuh.trainer.cached_codes import encode_by_cache
from dmuh.trainer.evaluation import evaluate_run

FROZEN = {"dataset": "folder", "backbone": "smallconv", "freeze": "all", "epochs": 2, "bits": 12, "image_size": 16}
HEADS = {"linear": {}, "kernel": {"kernel": 6}, "hidden": {"hidden": 6}, "margin": {"uncertainty": "margin"},
         "shallow": {"method": "itq"}, "trees": {"method": "fasth", "trees": 3, "pairs": 6}}  # fmt: skip


@pytest.fixture(scope="module", params=HEADS)
def run(request, photos, tmp_path_factory) -> Run:
    """A run above a frozen backbone; all its images were measured, so their features are in the cache."""
    config = configure({**FROZEN, "data": str(photos), **HEADS[request.param]})
    done = train(config, tmp_path_factory.mktemp("frozen") / request.param, progress=False)
    evaluate_run(done, load_folder(photos))
    return done


class NoReading(Reading):
    """Fails where images are read."""

    def __getattribute__(self, name):
        if name == "progress":
            raise AssertionError("images are read")
        return super().__getattribute__(name)


def same(codes, others) -> bool:
    pairs = [(codes.bits, others.bits), (codes.ids, others.ids)]
    if codes.uncertainty is not None:
        pairs.append((codes.uncertainty, others.uncertainty))
    return all(np.array_equal(one, other) for one, other in pairs)


@pytest.mark.long
def test_all_from_the_cache(run, photos):
    hasher, data = Hasher.load(run.path), load_images([photos])
    codes = encode_by_cache(run, hasher, data, NoReading(), 20)
    assert same(codes, hasher.encode(data.images))
    assert encode_by_cache(run, hasher, data, NoReading(), 21) is None


@pytest.fixture(scope="module")
def trained(photos, tmp_path_factory, cache) -> Run:
    """A run that was not measured: the features of its test images are not in the cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DMUH_CACHE", str(tmp_path_factory.mktemp("own")))
        yield train(
            configure({**FROZEN, "data": str(photos)}), tmp_path_factory.mktemp("trained") / "run", progress=False
        )


def test_some_from_the_cache_and_the_others_from_their_files(trained, photos):
    hasher, data = Hasher.load(trained.path), load_images([photos])
    codes = encode_by_cache(trained, hasher, data, Reading(), 5)
    assert same(codes, hasher.encode(data.images))
    with pytest.raises(AssertionError, match="images are read"):
        encode_by_cache(trained, hasher, data, NoReading(), 5)


def test_other_images_are_not_in_the_cache(trained, photos):
    hasher = Hasher.load(trained.path)
    assert encode_by_cache(trained, hasher, load_images([photos / "ones"]), NoReading(), 1) is None


def test_a_backbone_that_trained_has_no_features_to_keep(digit_run, photos):
    assert encode_by_cache(digit_run, Hasher.load(digit_run.path), load_images([photos]), NoReading(), 1) is None


def test_features_of_another_machine_are_not_used(trained, photos, monkeypatch, caplog):
    from dmuh.trainer import cached_codes

    real = cached_codes.ActivationCache.complete_rows
    monkeypatch.setattr(
        cached_codes.ActivationCache, "complete_rows", lambda self: (real(self)[0] * np.float32(1.00001), real(self)[1])
    )
    with caplog.at_level(logging.INFO, "dmuh"):
        found = encode_by_cache(trained, Hasher.load(trained.path), load_images([photos]), NoReading(), 5)
    assert found is None
    assert "of another machine" in caplog.text


@pytest.mark.long
@pytest.mark.parametrize("least", [5, 1000])
def test_the_index_command_takes_them_where_that_pays(trained, photos, tmp_path, monkeypatch, least):
    monkeypatch.setattr(encode, "_MANY", least)
    result = dmuh("index", trained.path, photos, "--out", tmp_path / "index")
    assert ("images are in the cache" in result.stderr) == (least == 5)
    codes = Collection(tmp_path / "index").load_codes()
    assert codes == Hasher.load(trained.path).encode(load_images([photos]).images).stored()
    surer = ["index", trained.path, photos, "--sure", 2, "--replace", "--out", tmp_path / "index"]
    assert ("images are in the cache" in dmuh(*surer).stderr) == (least == 5)
    codes = Collection(tmp_path / "index").load_codes()
    assert codes == Hasher.load(trained.path).encode(load_images([photos]).images, sure=2).stored()
