"""Labels that are probably wrong are corrected before the training, where the settings ask for it."""

import numpy as np
import pytest

from dmuh import Dataset, one_hot
from dmuh.errors import ConfigError
from dmuh.methods import configure
from dmuh.protocols import noisy_labels
from dmuh.trainer import correcting, train
from dmuh.trainer.bar import Progress
from dmuh.trainer.evaluation import evaluate_run

SETTINGS = {"dataset": "features", "data": "x", "method": "dmuh-plus", "bits": 12, "epochs": 4, "train": 0.6,
            "validation": 0.2, "evaluate_every": 4, "label_noise": 0.3}  # fmt: skip
CORRECT = SETTINGS | {"wrong_labels": "correct"}


def clouds(n=600, seed=0):
    """Vectors in 4 classes that lie apart."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    x = rng.normal(size=(n, 12)) * 0.25
    x[np.arange(n), y] += 1
    return Dataset("features", x.astype(np.float32), one_hot(y), tuple("abcd"))


@pytest.fixture(scope="module")
def corrected_run(tmp_path_factory):
    return train(configure(CORRECT), tmp_path_factory.mktemp("corrected") / "run", dataset=clouds())


def test_wrong_labels_become_right_and_others_stay(corrected_run):
    data = clouds()
    split = corrected_run.load_split(data)
    given = noisy_labels(data.labels, split.train, 0.3, 0)
    wrong = split.train[(given[split.train] != data.labels[split.train]).any(axis=1)]
    positions, labels = corrected_run.load_corrections()
    assert len(wrong) > 50
    assert len(np.intersect1d(positions, wrong)) > 0.9 * len(wrong)
    assert len(np.setdiff1d(positions, wrong)) < 0.05 * len(split.train)
    right = np.isin(positions, wrong)
    assert (labels[right] == data.labels[positions[right]]).all(axis=1).mean() > 0.95
    assert not np.isin(positions, np.concatenate([split.query, split.database])).any()


def test_codes_that_learned_from_corrected_labels_find_more(corrected_run, tmp_path):
    data = clouds()
    kept = train(configure(SETTINGS), tmp_path / "kept", dataset=data)
    assert kept.load_corrections() is None
    assert evaluate_run(corrected_run, data).metrics.map > evaluate_run(kept, data).metrics.map + 0.02


def test_a_run_that_goes_on_has_the_labels_it_began_with(corrected_run, tmp_path, monkeypatch):
    def stop(progress: Progress) -> None:
        if progress.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(configure(CORRECT), tmp_path / "run", dataset=clouds(), progress=stop)
    monkeypatch.setattr(correcting, "find_suspects", None)  # nothing is judged again
    resumed = train(configure(CORRECT), tmp_path / "run", dataset=clouds(), resume=True)
    ours, theirs = resumed.load_model().arrays, corrected_run.load_model().arrays
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_run_of_a_dmuh_that_corrected_nothing_goes_on_with_the_labels_as_they_are(tmp_path, monkeypatch):
    def stop(progress: Progress) -> None:
        if progress.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(configure(CORRECT), tmp_path / "run", dataset=clouds(), progress=stop)
    (tmp_path / "run" / "corrections.safetensors").unlink()
    monkeypatch.setattr(correcting, "find_suspects", None)
    assert train(configure(CORRECT), tmp_path / "run", dataset=clouds(), resume=True).finished


def test_what_is_corrected_is_said(tmp_path, caplog):
    with caplog.at_level("INFO"):
        run = train(configure(CORRECT, {"epochs": 1}), tmp_path / "run", dataset=clouds())
    n = len(run.load_corrections()[0])
    assert f"labels: {n} of 360 training images have labels that are probably wrong" in caplog.text


def test_few_images_say_too_little_of_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(correcting, "find_suspects", None)
    run = train(configure(CORRECT, {"epochs": 1}), tmp_path / "run", dataset=clouds(120))
    assert len(run.load_corrections()[0]) == 0


def test_labels_are_corrected_by_default_where_the_head_is_chosen_and_only_above_frozen_features():
    frozen = {"dataset": "features", "data": "x", "method": "dmuh-plus"}
    assert configure(frozen, {"head": "auto"}).training.wrong_labels == "correct"
    assert configure(frozen).training.wrong_labels == "keep"
    assert configure({"dataset": "mnist5k", "head": "auto", "freeze": "none"}).training.wrong_labels == "keep"
    with pytest.raises(ConfigError, match="features of a frozen backbone: freeze must be all, augment none or"):
        configure({"dataset": "mnist5k", "freeze": "none", "wrong_labels": "correct"})
    cropped = {"backbone": "efficientnet-lite0", "augment": "crop+flip", "head": "auto"}
    assert configure(cropped).training.wrong_labels == "keep"
