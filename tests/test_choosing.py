"""The head that suits the data is chosen by images that are held out, where the settings leave it open."""

import logging
from contextlib import contextmanager

import numpy as np
import pytest

from commands import dmuh
from dmuh import Dataset, one_hot
from dmuh.config import read_toml
from dmuh.methods import configure
from dmuh.network import load_networks
from dmuh.network.heads import KernelHead
from dmuh.runs import Run
from dmuh.trainer import train
from processes import main
from together import finish, start

SETTINGS = {"dataset": "features", "data": "x", "bits": 12, "epochs": 12, "train": 0.6, "evaluate_every": 12}
AUTO = SETTINGS | {"method": "dmuh-plus", "head": "auto", "wrong_labels": "keep", "validation": 0.2}


def two_sided(n=480, seed=0):
    """Vectors in 4 classes, each class on two opposite sides: no linear map tells them apart."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    x = rng.normal(size=(n, 12)) * 0.2
    x[np.arange(n), y] += rng.choice([-1.0, 1.0], n)
    return Dataset("features", x.astype(np.float32), one_hot(y), tuple("abcd"))


def head_of(run):
    return load_networks(run.load_model())[0].hash_layer


@pytest.fixture(scope="module")
def whole(shared_folder):
    """A run whose head was chosen, and what was said of it."""

    def make(folder):
        said = []
        listener = logging.Handler()
        listener.emit = lambda record: said.append(record.getMessage())
        logger = logging.getLogger("dmuh.trainer.choosing")
        level = logger.level
        logger.addHandler(listener)
        logger.setLevel("INFO")
        try:
            train(configure(AUTO), folder / "run", dataset=two_sided())
        finally:
            logger.removeHandler(listener)
            logger.setLevel(level)
        (folder / "said.txt").write_text("\n".join(said))

    folder = shared_folder("chosen", make)
    return Run(folder / "run"), (folder / "said.txt").read_text().splitlines()


def test_a_kernel_is_chosen_where_no_linear_head_will_do_and_the_run_says_so(whole):
    run, said = whole
    (line,) = [text for text in said if text.startswith("head: ")]
    settings = run.settings()
    assert settings["kernel"] == len(run.load_split(two_sided()).train)  # as there are fewer than 3,000
    assert f"similarities to {settings['kernel']} training images (kernel) and weight decay" in line
    assert "which of 8 has the best MAP of held-out images" in line
    assert isinstance(head_of(run), KernelHead)


@pytest.mark.parametrize(("given", "left"), [
    ({"kernel": 0}, {"weight_decay"}),
    ({"weight_decay": 0.02}, {"kernel"}),
    ({"kernel": 30, "weight_decay": 0.02}, set()),
    ({"hidden": 8}, {"weight_decay"}),
])  # fmt: skip
def test_what_is_given_is_never_changed(tmp_path, caplog, given, left):
    with caplog.at_level("INFO"):
        run = train(configure(AUTO, given), tmp_path / "run", dataset=two_sided())
    settings = run.settings()
    assert {key: settings[key] for key in given} == given
    said = [text for text in caplog.messages if text.startswith("head: ")]
    assert len(said) == bool(left)
    if "hidden" in given:
        assert settings["kernel"] == 0


def test_the_runs_own_settings_give_the_same_network_without_choosing_again(whole, tmp_path, caplog):
    first, _ = whole
    with caplog.at_level("INFO"):
        again = train(configure(read_toml(first.config_file)), tmp_path / "again", dataset=two_sided())
    assert not [text for text in caplog.messages if text.startswith("head: ")]
    for name, array in first.load_model().arrays.items():
        np.testing.assert_array_equal(array, again.load_model().arrays[name])


@pytest.mark.long
def test_a_run_that_goes_on_keeps_what_was_chosen_for_it(whole, tmp_path, monkeypatch):

    def stop(step):
        if step.epoch == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(configure(AUTO), tmp_path / "half", dataset=two_sided(), progress=stop)
    monkeypatch.setattr("dmuh.trainer.training.choose_head", None)
    half = train(configure(AUTO), tmp_path / "half", dataset=two_sided(), resume=True)
    for name, array in whole[0].load_model().arrays.items():
        np.testing.assert_array_equal(array, half.load_model().arrays[name])


@pytest.mark.long
def test_nothing_is_chosen_by_fewer_than_sixteen_images_and_without_validation_a_tenth_of_the_others_chooses(
    tmp_path, caplog
):
    with caplog.at_level("INFO"):
        few = train(configure(AUTO), tmp_path / "few", dataset=two_sided(80))
        none = train(configure(AUTO, {"validation": 0.0}), tmp_path / "none", dataset=two_sided(600))
    said = [text for text in caplog.messages if text.startswith("head: ")]
    assert said[0] == (
        "head: a linear one (kernel 0) and weight decay 0.03, as too few images are held out to choose by"
    )
    assert few.settings()["kernel"] == 0
    assert "has the best MAP" in said[1]
    assert len(none.load_split(two_sided(600)).validation) == 0


@pytest.mark.parametrize("layer", [
    {"head": "given"},
    {"method": "itq"},
    {"dataset": "mnist5k", "data": ""},
])  # fmt: skip
def test_other_trainings_leave_nothing_open(layer):
    config = configure(AUTO, layer)
    assert config.network.kernel == 0
    assert config.training.weight_decay is not None


@pytest.fixture
def data(tmp_path):
    """The folder of two-sided vectors."""
    folder, vectors = tmp_path / "vectors", two_sided()
    folder.mkdir()
    np.save(folder / "features.npy", vectors.images)
    np.save(folder / "labels.npy", vectors.labels.argmax(axis=1))
    return folder


@pytest.mark.long
def test_two_processes_choose_as_one_does(data, tmp_path):
    common = ["train", "--dataset", "features", "--data", str(data), "--bits", "12", "--epochs", "3", "--no-evaluate"]
    for code, _, errors in finish(start(2, main, *common, "--out", str(tmp_path / "two"))):
        assert code == 0, errors
    dmuh(*common, "--out", tmp_path / "one")
    one, two = Run(tmp_path / "one"), Run(tmp_path / "two")
    assert one.settings() == two.settings()
    assert one.settings()["kernel"] > 0


def test_the_command_chooses_by_itself_and_a_file_or_a_preset_is_taken_as_it_is(data, tmp_path):
    common = ["--data", data, "--bits", "12", "--epochs", "2", "--no-evaluate"]
    result = dmuh("train", "--dataset", "features", *common, "--out", tmp_path / "run")
    assert "dmuh: head: similarities to" in result.stderr
    settings = Run(tmp_path / "run").settings()
    assert (settings["method"], settings["head"]) == ("dmuh-plus", "auto")
    file = tmp_path / "own.toml"
    file.write_text('[data]\ndataset = "features"\n')
    result = dmuh("train", "--config", file, *common, "--out", tmp_path / "by-file")
    assert "head: " not in result.stderr
    assert Run(tmp_path / "by-file").settings()["method"] == "dmuh"
    dmuh("train", "--dataset", "features", "--method", "dmuh", *common, "--out", tmp_path / "by-name")
    settings = Run(tmp_path / "by-name").settings()
    assert (settings["method"], settings["head"]) == ("dmuh", "auto")


@pytest.mark.long
def test_how_far_it_is_is_told(tmp_path):
    told = []

    @contextmanager
    def count(what, total):
        told.append((what, total))
        yield lambda n: told.append(n)

    train(configure(AUTO, {"kernel": 0}), tmp_path / "run", dataset=two_sided(), progress=False, count=count)
    assert told == [("choosing the head", 4), 1, 1, 1, 1]
