"""Images whose labels are probably wrong are left out of the training, where the settings ask for it."""

import numpy as np
import pytest

from dmuh import Dataset, one_hot
from dmuh.errors import ConfigError
from dmuh.files import save_arrays
from dmuh.methods import configure
from dmuh.protocols import noisy_labels
from dmuh.runs import Run
from dmuh.trainer import leaving_out, train
from dmuh.trainer.bar import Progress
from dmuh.trainer.evaluation import evaluate_run
from dmuh.trainer.leaving_out import absent
from dmuh.trainer.optimisation import batches_of

SETTINGS = {"dataset": "features", "data": "x", "method": "dmuh-plus", "bits": 12, "epochs": 10, "train": 0.6,
            "validation": 0.2, "evaluate_every": 10, "label_noise": 0.3, "kernel": 200}  # fmt: skip
LEAVE_OUT = SETTINGS | {"wrong_labels": "leave-out"}


def clouds(n=600, seed=0):
    """Vectors in 4 classes that lie apart."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    x = rng.normal(size=(n, 12)) * 0.25
    x[np.arange(n), y] += 1
    return Dataset("features", x.astype(np.float32), one_hot(y), tuple("abcd"))


def stopped_after_two_epochs(folder):
    """A run of the settings that was interrupted."""

    def stop(progress: Progress) -> None:
        if progress.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(configure(LEAVE_OUT), folder, dataset=clouds(), progress=stop)


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory):
    return train(configure(LEAVE_OUT), tmp_path_factory.mktemp("cleaned") / "run", dataset=clouds())


def test_images_with_wrong_labels_are_left_out_and_others_are_not(cleaned):
    data = clouds()
    split = cleaned.load_split(data)
    given = noisy_labels(data.labels, split.train, 0.3, 0)
    wrong = split.train[(given[split.train] != data.labels[split.train]).any(axis=1)]
    left_out, absence = cleaned.load_left_out()
    assert len(wrong) > 50
    right = np.setdiff1d(split.train, wrong)
    assert absence[wrong].mean() > 0.9 > 0.1 > absence[right].mean()
    assert not absence[np.concatenate([split.query, split.database])].any()
    assert len(np.intersect1d(left_out, wrong)) > 0.9 * len(wrong)
    assert len(np.setdiff1d(left_out, wrong)) < 0.05 * len(split.train)
    assert np.isin(left_out, np.concatenate([split.train, split.validation])).all()


def test_codes_that_did_not_learn_from_wrong_labels_find_more(cleaned, tmp_path):
    data = clouds()
    kept = train(configure(SETTINGS), tmp_path / "kept", dataset=data)
    assert kept.load_left_out() is None
    assert evaluate_run(cleaned, data).metrics.map > evaluate_run(kept, data).metrics.map + 0.05


def test_a_run_that_goes_on_leaves_out_the_same_images(cleaned, tmp_path, monkeypatch):
    stopped_after_two_epochs(tmp_path / "run")
    monkeypatch.setattr(leaving_out, "find_suspects", None)  # nothing is judged again
    resumed = train(configure(LEAVE_OUT), tmp_path / "run", dataset=clouds(), resume=True)
    ours, theirs = resumed.load_model().arrays, cleaned.load_model().arrays
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_run_of_a_dmuh_that_left_none_out_goes_on_with_all(tmp_path, monkeypatch):
    stopped_after_two_epochs(tmp_path / "run")
    (tmp_path / "run" / "left_out.safetensors").unlink()
    monkeypatch.setattr(leaving_out, "find_suspects", None)
    assert train(configure(LEAVE_OUT), tmp_path / "run", dataset=clouds(), resume=True).finished


def test_a_run_of_a_dmuh_that_knew_of_no_doubt_goes_on_without_it(tmp_path, monkeypatch):
    stopped_after_two_epochs(tmp_path / "run")
    run = Run(tmp_path / "run")
    left_out, _ = run.load_left_out()
    save_arrays(run.path / "left_out.safetensors", "dmuh left out", 1, {"positions": left_out}, {"run": run.identity})
    monkeypatch.setattr(leaving_out, "find_suspects", None)
    assert train(configure(LEAVE_OUT), run.path, dataset=clouds(), resume=True).finished


def test_a_run_of_a_dmuh_that_knew_of_doubt_alone_goes_on_by_it(tmp_path, monkeypatch):
    run = train(configure(LEAVE_OUT, {"epochs": 1}), tmp_path / "run", dataset=clouds())
    left_out, doubt = run.load_left_out()
    arrays = {"positions": left_out, "doubt": doubt}
    save_arrays(run.path / "left_out.safetensors", "dmuh left out", 2, arrays, {"run": run.identity})
    np.testing.assert_array_equal(run.load_left_out()[1], doubt)


@pytest.mark.parametrize("wrong", [0.0, 0.02, 0.3])
def test_images_of_frequent_classes_take_part_less_often_the_more_labels_are_wrong(wrong):
    rng = np.random.default_rng(0)
    classes = rng.permutation(np.repeat([0, 1, 2], [200, 40, 10]))
    labels, doubt = one_hot(classes, 5), rng.random(250).astype(np.float32)  # and two classes that no image has
    labels[7] = 0
    images = [sum(1 - doubt[i] for i in range(250) if labels[i, c]) for c in range(3)]
    expected = []
    for i in range(250):
        often = 1 if i == 7 else min(1, sorted(images)[1] / images[classes[i]]) ** wrong
        expected.append(1 - often * (1 - doubt[i]))
    np.testing.assert_allclose(absent(doubt, labels, wrong), expected, atol=1e-6)


def test_with_several_labels_per_image_all_classes_take_part_alike():
    labels, doubt = np.array([[1, 0], [1, 0], [1, 1]], np.uint8), np.array([0.1, 0.2, 0.3], np.float32)
    np.testing.assert_array_equal(absent(doubt, labels, 0.3), doubt)
    np.testing.assert_array_equal(absent(doubt[:0], labels[:0], 0.3), doubt[:0])


def test_an_image_takes_part_as_often_as_its_label_is_right():
    absence = np.repeat([0.0, 0.25, 0.69], 200).astype(np.float32)
    settings = configure({"batch_size": 64}).training
    counts = np.zeros(600, np.int64)
    for epoch in range(200):
        taken = np.concatenate(list(batches_of(600, settings, epoch, absence)))
        assert len(np.unique(taken)) == len(taken)
        counts[taken] += 1
        everyone = np.concatenate(list(batches_of(600, settings, epoch)))
        np.testing.assert_array_equal(taken, everyone[np.isin(everyone, taken)])  # in the order that all have
    shares = (counts / 200).reshape(3, 200)
    assert (shares[0] > 0.97).all()  # a single image at the end is left out
    np.testing.assert_allclose(shares.mean(axis=1), [1, 0.75, 0.31], atol=0.01)


def test_how_many_are_left_out_is_said(tmp_path, caplog):
    with caplog.at_level("INFO"):
        run = train(configure(LEAVE_OUT, {"epochs": 1}), tmp_path / "run", dataset=clouds())
    left_out, _ = run.load_left_out()
    assert f"labels: {len(left_out)} of 360 training images are left out" in caplog.text


def test_few_images_say_too_little_of_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(leaving_out, "find_suspects", None)
    run = train(configure(LEAVE_OUT, {"epochs": 1}), tmp_path / "run", dataset=clouds(120))
    left_out, absence = run.load_left_out()
    assert len(left_out) == 0
    assert not absence.any()


def test_it_is_the_default_where_the_head_is_chosen_and_only_above_fixed_features():
    fixed = {"dataset": "features", "data": "x", "method": "dmuh-plus"}
    assert configure(fixed, {"head": "auto"}).training.wrong_labels == "leave-out"
    assert configure(fixed).training.wrong_labels == "keep"
    assert configure({"dataset": "mnist5k", "head": "auto", "freeze": "none"}).training.wrong_labels == "keep"
    cropped = {"backbone": "efficientnet-lite0", "augment": "crop+flip", "head": "auto"}
    assert configure(cropped).training.wrong_labels == "keep"
    with pytest.raises(ConfigError, match="features of a frozen backbone: freeze must be all, augment none or"):
        configure({"dataset": "mnist5k", "freeze": "none", "wrong_labels": "leave-out"})
