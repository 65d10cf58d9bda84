import dataclasses
import importlib.util
import math
import re
import shutil
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from commands import dmuh
from dmuh.backbones import create_backbone
from dmuh.codes import Codes
from dmuh.config import TrainingSettings
from dmuh.encoder import Hasher
from dmuh.errors import CollapseError, ConfigError, DataError, DivergenceError, DmuhError, FormatError, RunError
from dmuh.images import read_pixels
from dmuh.methods import METHODS, Objective, configure
from dmuh.metrics import evaluate
from dmuh.network import Margin, load_networks
from dmuh.protocols import Split
from dmuh.runs import Run, open_run
from dmuh.trainer import Progress, learning_rate, setup, train
from dmuh.trainer.evaluation import evaluate_run
from dmuh.trainer.watch import Watch
from processes import start_command

SMALL = {"epochs": 4, "batch_size": 24, "bits": 12, "query": 5, "train": 16, "image_size": 16}
COPY = {"uncertainty": "copy"}  # the model file keeps the averaged copy


class Killed(BaseException):
    pass


def arrays(run: Run) -> dict[str, np.ndarray]:
    return run.load_model().arrays


def same(a: Run, b: Run) -> bool:
    return all(np.array_equal(value, arrays(b)[name]) for name, value in arrays(a).items())


@pytest.fixture(scope="module")
def finished(digits, tmp_path_factory) -> Run:
    return train(configure(SMALL), tmp_path_factory.mktemp("runs") / "run", dataset=digits)


def test_same_seed_same_weights_and_codes_another_seed_others(finished, digits, tmp_path):
    again = train(configure(SMALL), tmp_path / "again", dataset=digits)
    other = train(configure(SMALL, {"seed": 1}), tmp_path / "other", dataset=digits)
    codes = [Hasher.load(run.path).encode(digits.images) for run in (finished, again, other)]
    assert same(finished, again)
    assert np.array_equal(codes[0].bits, codes[1].bits)
    assert np.array_equal(codes[0].uncertainty, codes[1].uncertainty)
    assert not np.array_equal(codes[0].bits, codes[2].bits)


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.1), ("adamw", 0.001)])
def test_interrupted_anywhere_and_resumed_gives_the_same_weights(digits, tmp_path, optimizer, lr):
    config = configure(SMALL, {"optimizer": optimizer, "lr": lr, "lr_final": 0.0001})
    steps = 0

    def count(_: Progress) -> None:
        nonlocal steps
        steps += 1

    def kill_at(step: int):
        def progress(_: Progress) -> None:
            nonlocal steps
            steps += 1
            if steps == step:
                raise Killed

        return progress

    whole = train(config, tmp_path / "whole", dataset=digits, progress=count)
    for step in (1, steps // 2, steps):
        steps = 0
        folder = tmp_path / f"killed-{step}"
        with pytest.raises(Killed):
            train(config, folder, dataset=digits, progress=kill_at(step))
        resumed = train(config, folder, dataset=digits, resume=True)
        assert same(whole, resumed), step
        assert [line["epoch"] for line in resumed.metrics()] == [1, 2, 3, 4]
        for ours, theirs in zip(resumed.metrics(), whole.metrics(), strict=True):
            times = {"seconds": 0, "images_per_second": 0}
            assert ours | times == theirs | times
        assert resumed.trace() == whole.trace()


OPTIONS = ["--epochs", "5", "--bits", "12", "--train", "20", "--query", "5", "--no-evaluate"]
OPTIONS += ["--set", "image_size=16", "--set", "batch_size=16"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    dmuh("train", "--out", folder, *OPTIONS)
    return Run(folder)


@pytest.mark.long
@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_sigkill_and_resume(uninterrupted, tmp_path, epoch):
    """A real process, killed as soon as it has logged an epoch, is taken up by another one."""
    folder = tmp_path / "killed"
    process = start_command("train", "--out", folder, *OPTIONS)
    log = folder / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.running:
        lines = log.read_text().count("\n") if log.exists() else 0
        if (epoch == 0 and (folder / "config.toml").exists()) or (epoch and lines >= epoch):
            break
        time.sleep(0.002)
    assert process.kill() == -signal.SIGKILL
    assert not Run(folder).finished, "the process was too quick to be killed"
    code, _, errors = start_command("train", "--out", folder, "--resume").finish()
    assert code == 0, errors
    assert same(Run(folder), uninterrupted)


def test_a_finished_run_is_left_alone(finished, digits):
    before = (finished.path / "model.safetensors").stat()
    assert train(open_run(finished.path, digits).config, finished.path, dataset=digits, resume=True) == finished
    assert (finished.path / "model.safetensors").stat() == before
    with pytest.raises(RunError, match="holds a run already"):
        train(open_run(finished.path, digits).config, finished.path, dataset=digits)


def test_a_run_that_is_in_use_is_refused(finished, digits, tmp_path):
    run = Run(tmp_path / "busy")
    with run.locked(), pytest.raises(RunError, match="another process"):
        train(configure(SMALL), run.path, dataset=digits)


def test_resume_with_other_data_is_refused(digits, tmp_path):
    def stop(_: Progress) -> None:
        raise Killed

    with pytest.raises(Killed):
        train(configure(SMALL), tmp_path / "run", dataset=digits, progress=stop)
    changed = dataclasses.replace(digits, images=255 - digits.images)
    with pytest.raises(Exception, match="other images or labels"):
        train(configure(SMALL), tmp_path / "run", dataset=changed, resume=True)


def stopped(config, folder: Path, dataset=None, after: int = 2) -> Run:
    """A run that was interrupted behind an epoch."""

    def stop(step: Progress) -> None:
        if step.epoch > after:
            raise Killed

    with pytest.raises(Killed):
        train(config, folder, dataset=dataset, progress=stop)
    return Run(folder)


def photo_folder(root: Path) -> Path:
    rng = np.random.default_rng(0)
    for n in range(48):
        file = root / "photos" / f"class {n % 2}" / f"{n:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(n % 2 * 100, 100 + n % 2 * 100, (16, 16, 3), np.uint8)).save(file)
    return root / "photos"


def test_photographs_that_were_replaced_under_their_names_are_noticed(tmp_path):
    photos = photo_folder(tmp_path)
    config = configure(SMALL, {"dataset": "folder", "data": str(photos), "backbone": "smallconv"})
    run = stopped(config, tmp_path / "run")
    shutil.copytree(run.path, tmp_path / "other")
    moved = shutil.copytree(photos, tmp_path / "moved", copy_function=shutil.copyfile)  # with other times
    same_files = dataclasses.replace(config, data=dataclasses.replace(config.data, data=str(moved)))
    assert train(same_files, run.path, resume=True).finished
    for file in moved.rglob("*.png"):
        Image.effect_noise((16, 16), 50).save(file)
    with pytest.raises(RunError, match="begun with other image files of these names"):
        train(same_files, tmp_path / "other", resume=True)


def test_the_settings_of_a_run_cannot_change_but_for_where_it_lies(digits, tmp_path):
    run = stopped(configure(SMALL), tmp_path / "run", digits)
    text = run.config_file.read_text()
    run.config_file.write_text(text.replace("lr = 0.", "lr = 0.0"))
    with pytest.raises(RunError, match=r"config\.toml was altered since the run began"):
        open_run(run.path, digits)
    run.config_file.write_text(text.replace('device = "auto"', 'device = "cpu"'))
    assert train(open_run(run.path, digits).config, run.path, dataset=digits, resume=True).finished


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "metrics.jsonl", "run.json", "split.safetensors"])
def test_a_file_of_another_run_is_refused_when_it_goes_on(digits, tmp_path, name):
    run, other = (stopped(configure(SMALL, {"seed": n}), tmp_path / str(n), digits) for n in (0, 1))
    shutil.copy(other.path / name, run.path / name)
    with pytest.raises(DmuhError, match=r"another run|not of this run|altered since|another split"):
        train(open_run(run.path, digits).config, run.path, dataset=digits, resume=True)


def test_the_model_and_the_codes_of_another_run_are_not_taken_for_its_own(finished, digits, tmp_path, caplog):
    other = train(configure(SMALL, {"seed": 1}), tmp_path / "other", dataset=digits)
    theirs = evaluate_run(other, digits).metrics.map
    run = Run(shutil.copytree(finished.path, tmp_path / "run"))
    ours = evaluate_run(run, digits).metrics.map
    assert ours != theirs
    for file in (run.query_codes, run.database_codes):
        shutil.copy(other.path / file.name, file)
    assert evaluate_run(run, digits).metrics.map == ours
    assert "holds codes of another model or of other images; the images are encoded again" in caplog.text
    shutil.copy(other.path / "evaluation.json", run.path)
    with pytest.raises(FormatError, match="is of another model than this run's"):
        run.evaluation()
    shutil.copy(other.path / "model.safetensors", run.path)
    with pytest.raises(RunError, match="belongs to another run"):
        run.load_model()


@pytest.mark.parametrize("name", ["model.safetensors", "metrics.jsonl", "evaluation.json", "model.onnx"])
def test_a_folder_with_files_of_others_is_refused(digits, tmp_path, name):
    (tmp_path / name).write_text("years of work")
    with pytest.raises(RunError, match=f"holds no run but has {name}, which it would replace: choose another folder"):
        train(configure(SMALL), tmp_path, dataset=digits)
    assert (tmp_path / name).read_text() == "years of work"
    assert not (tmp_path / "config.toml").exists()


def test_what_a_kill_left_of_a_checkpoint_is_cleared_away(digits, tmp_path):
    run = stopped(configure(SMALL), tmp_path / "run", digits)
    torn = run.path / ".checkpoint.safetensors.dmuh-0a1b2c3d.safetensors"
    torn.write_bytes(b"half")
    train(open_run(run.path, digits).config, run.path, dataset=digits, resume=True)
    assert not torn.exists()


def test_a_run_is_opened_with_the_settings_the_data_and_the_split_it_was_begun_with(finished, digits):
    run, config, dataset, split = open_run(finished.path, digits)
    assert (run, config, dataset) == (finished, configure(SMALL), digits)
    assert split.digest() == finished.load_model().metadata["split"]
    with pytest.raises(FormatError, match="belongs to other images or labels than the data set now has"):
        open_run(finished.path)  # which the settings say is the whole of mnist5k
    with pytest.raises(RunError, match="holds no run"):
        open_run(finished.path / "nowhere", digits)


def test_a_run_is_opened_with_data_that_moved(tmp_path):
    photos = photo_folder(tmp_path)
    config = configure(SMALL, {"dataset": "folder", "data": str(photos), "backbone": "smallconv", "epochs": 1})
    run = train(config, tmp_path / "run")
    moved = photos.rename(tmp_path / "moved")
    with pytest.raises(DataError, match=r"photos, the data of .*run, does not exist"):
        open_run(run.path)
    opened = open_run(run.path, moved)
    assert opened.config == dataclasses.replace(config, data=dataclasses.replace(config.data, data=str(moved)))
    assert opened.dataset.images[0].is_relative_to(moved)


def test_validation_images_are_neither_trained_on_nor_queries(finished, digits):
    assert "validation_map" in finished.metrics()[-1]
    evaluation = evaluate_run(finished, digits)
    assert evaluation.metrics.n_queries == 20
    without = configure(SMALL, {"validation": 0.0})
    assert without.protocol.validation == 0


def test_no_validation_no_validation_map(digits, tmp_path):
    run = train(configure(SMALL, {"validation": 0.0, "epochs": 1}), tmp_path / "run", dataset=digits)
    assert "validation_map" not in run.metrics()[-1]
    assert "train_map" in run.metrics()[-1]


def test_evaluate_every_measures_less_often_and_at_the_end(digits, tmp_path):
    run = train(configure(SMALL, {"evaluate_every": 3}), tmp_path / "run", dataset=digits)
    assert ["train_map" in line for line in run.metrics()] == [False, False, True, True]


def test_collapse_stops_with_the_setting_to_change(digits, tmp_path):
    config = configure(SMALL, {"method": "regu", "beta": 200.0, "lr": 0.5, "epochs": 40})
    with pytest.raises(CollapseError, match=r"same code.*lower beta or lr \(now beta 200, lr 0\.5\)"):
        train(config, tmp_path / "run", dataset=digits)


@pytest.mark.parametrize(("name", "options", "advice"), [
    ("dhn", {"quantization": 7.5}, "lower quantization or lr (now quantization 7.5, lr 0.25)"),
    ("dpsh", {"eta": 3.0}, "lower eta or lr (now eta 3, lr 0.25)"),
    ("csq", {}, "lower lr (now lr 0.25)"),
])  # fmt: skip
def test_the_advice_names_the_methods_own_settings(name, options, advice):
    assert collapse(name, **options).endswith(advice)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if issubclass(method, Objective)])
def test_the_advice_of_every_method_says_what_its_settings_are_now(name):
    named = set(re.findall(r"\w+", METHODS[name].advice)) - {"lower", "raise", "or"}
    now = re.search(r"\(now (.*)\)$", collapse(name)).group(1)
    assert {setting.split()[0] for setting in now.split(", ")} == named


def collapse(name: str, **options: object) -> str:
    """The sentence that ends a training in which all images have had one code."""
    method = METHODS[name]
    watch = Watch(method(method.Options(**options), 4, torch.eye(2)), TrainingSettings(lr=0.25))
    for epoch in range(4):
        watch.step(epoch, 1.0, torch.ones(3, 4))
        watch.epoch(epoch, 40)
    watch.step(4, 1.0, torch.ones(3, 4))
    with pytest.raises(CollapseError) as stopped:
        watch.epoch(4, 40)
    return str(stopped.value)


@pytest.mark.parametrize("settings", [
    {"lr": 3.0, "clip": 0.0, "beta": 0.1},
    {"lr": 30.0, "clip": 50.0},
])  # fmt: skip
def test_runaway_loss_stops_with_the_setting_to_change(digits, tmp_path, settings):
    with pytest.raises(DivergenceError, match=r"the loss (is|ran away).*lower lr"):
        train(configure(SMALL, {"epochs": 20}, settings), tmp_path / "run", dataset=digits)


def test_one_class_is_refused(digits, tmp_path):
    one = dataclasses.replace(digits, labels=np.ones((len(digits), 1), np.uint8), classes=("all",))
    with pytest.raises(DataError, match="two or more"):
        train(configure(SMALL), tmp_path / "run", dataset=one)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
@pytest.mark.parametrize("setting", [
    {"epochs": 3}, {"batch_size": 16}, {"optimizer": "adamw", "lr": 0.001}, {"lr": 0.01}, {"lr_final": 0.01},
    {"warmup_epochs": 2.0}, {"schedule": "cosine"}, {"schedule": "step"}, {"backbone_lr": 0.1},
    {"sgd_momentum": 0.0}, {"weight_decay": 0.1},
    {"augment": "none"}, {"augment": "flip"}, {"augment": "crop+flip"}, {"augment": "resized-crop+flip"},
    {"augment": "resized-crop+flip+colour"}, {"clip": 0.01}, {"precision": "bfloat16"}, {"seed": 3},
    {"alpha": 0.99}, {"beta": 2.0}, {"gamma": 1.0}, {"normalization": "train"}, {"detach": False},
    {"validation": 0.3}, {"tuning": 0.3}, {"label_noise": 0.3}, {"similar_weight": 3.0}, {"bits": 13},
    {"image_size": 24}, {"query": 10}, {"train": 20}, {"method": "regu"}, {"method": "dmuh-no-u"},
    {"method": "dmuh-no-bit"}, {"method": "dmuh-no-image"},
], ids=str)  # fmt: skip
def test_every_setting_changes_the_weights(finished, digits, tmp_path, setting):
    changed = train(configure(SMALL, {"epochs": 4}, setting), tmp_path / "run", dataset=digits)
    key = "network.hash_layer.weight"
    assert not np.array_equal(arrays(finished)[key], arrays(changed)[key])


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_nothing(finished, digits, tmp_path, workers):
    assert same(finished, train(configure(SMALL, {"workers": workers}), tmp_path / "run", dataset=digits))


@pytest.mark.parametrize(("schedule", "points"), [
    ("log", [(0, 0.1), (5, 0.01), (10, 0.001)]),
    ("cosine", [(0, 0.1), (5, 0.0505), (10, 0.001)]),
    ("step", [(0, 0.1), (3.3, 0.1), (3.4, 0.01), (6.6, 0.01), (6.7, 0.001), (10, 0.001)]),
])  # fmt: skip
def test_schedules(schedule, points):
    settings = TrainingSettings(epochs=10, lr=0.1, lr_final=0.001, schedule=schedule)
    for epoch, rate in points:
        assert math.isclose(learning_rate(settings, epoch, 100), rate, rel_tol=1e-9), epoch


def test_warmup_rises_to_the_full_rate():
    settings = TrainingSettings(epochs=10, lr=0.1, lr_final=0.1, warmup_epochs=2)
    rates = [learning_rate(settings, step / 5, 5) for step in range(15)]
    assert rates[:10] == pytest.approx([0.1 * (step + 1) / 10 for step in range(10)])
    assert rates[10:] == pytest.approx([0.1] * 5)


def test_bad_training_images_are_left_out_or_fatal(photos, tmp_path, caplog):
    root = tmp_path / "images"
    for path in sorted(photos.rglob("*.png")):
        target = root / path.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    for path in sorted(root.rglob("*.png"))[2:8]:
        path.write_bytes(path.read_bytes()[:60])
    settings = {"dataset": "folder", "data": str(root), "epochs": 2, "bits": 8, "image_size": 16}
    settings["backbone"] = "smallconv"
    with pytest.raises(DataError, match=r"\.png: broken image"):
        train(configure(settings), tmp_path / "fatal")
    run = train(configure(settings, {"on_bad_image": "skip"}), tmp_path / "skipped")
    assert run.finished
    assert "unreadable images were skipped" in caplog.text


def begun_in_vain(config, folder: Path, dataset=None) -> Run:
    """A run that stopped in its first epoch."""
    return stopped(config, folder, dataset, after=0)


def test_after_a_failed_start_the_folder_takes_other_settings(tmp_path):
    photos, folder = photo_folder(tmp_path), tmp_path / "run"
    broken = sorted(photos.rglob("*.png"))[2:8]
    for path in broken:
        path.write_bytes(path.read_bytes()[:60])
    settings = {**SMALL, "dataset": "folder", "data": str(photos), "backbone": "smallconv", "epochs": 1}
    with pytest.raises(DataError, match="broken image"):
        train(configure(settings), folder)
    assert Run(folder).started
    run = train(configure(settings, {"on_bad_image": "skip", "seed": 1}), folder)
    assert run.finished
    assert (run.settings()["on_bad_image"], run.settings()["seed"]) == ("skip", 1)
    assert same(run, train(configure(settings, {"on_bad_image": "skip", "seed": 1}), tmp_path / "fresh"))


def test_what_is_begun_anew_is_as_if_it_were_the_first(finished, digits, tmp_path):
    run = begun_in_vain(configure(SMALL, {"seed": 1, "bits": 9}), tmp_path / "run", digits)
    (run.path / "metrics.jsonl").write_text("of an epoch that was not saved")
    assert same(finished, train(configure(SMALL), run.path, dataset=digits))
    assert [line["epoch"] for line in run.metrics()] == [1, 2, 3, 4]


def test_only_a_run_without_a_finished_epoch_is_begun_anew(digits, tmp_path):
    run = begun_in_vain(configure(SMALL), tmp_path / "vain", digits)
    before = run.config_file.read_bytes()
    with run.locked(), pytest.raises(RunError, match="another process is training"):
        train(configure(SMALL, {"seed": 1}), run.path, dataset=digits)
    assert run.config_file.read_bytes() == before
    one_epoch = stopped(configure(SMALL), tmp_path / "epoch", digits, after=1)
    foreign = Run(tmp_path / "foreign")
    foreign.path.mkdir()
    foreign.config_file.write_text("years of work")
    for taken in (one_epoch, foreign):
        before = taken.config_file.read_bytes()
        with pytest.raises(RunError, match="holds a run already: go on with it by --resume"):
            train(configure(SMALL, {"seed": 1}), taken.path, dataset=digits)
        assert taken.config_file.read_bytes() == before


def test_run_folder_records_versions_and_config(finished):
    assert '"torch"' in (finished.path / "environment.json").read_text()
    assert Path(finished.config_file).read_text().startswith("[method]")
    assert not (finished.path / "checkpoint.safetensors").exists()


# Noisy labels ---------------------------------------------------------------------------------------------------------


def test_noisy_labels_are_learned_from_and_never_measured_with(finished, digits, tmp_path):
    noisy = train(configure(SMALL, {"label_noise": 0.6}), tmp_path / "noisy", dataset=digits)
    fingerprint = digits.fingerprint()
    clean, split = (Split.load(run.split_file, fingerprint) for run in (finished, noisy))
    assert split.digest() == clean.digest()
    assert ((outputs(noisy, digits) >= 0) != (outputs(finished, digits) >= 0)).any()
    found = evaluate_run(noisy, digits)
    labels = (digits.labels[part] for part in (split.query, split.database))
    assert found.metrics.map == evaluate(found.query, found.database, *labels, ranking="hamming").map


# A copy of its own for the uncertainty --------------------------------------------------------------------------------


@pytest.mark.long
def test_a_slower_copy_gives_the_codes_their_uncertainty_and_changes_nothing_else(digits, tmp_path):
    slow = train(configure(SMALL, COPY, {"uncertainty_alpha": 0.99}), tmp_path / "slow", dataset=digits)
    finished = train(configure(SMALL, COPY), tmp_path / "own", dataset=digits)
    ours, theirs = arrays(slow), arrays(finished)
    assert set(ours) == set(theirs)
    for name, value in ours.items():
        assert np.array_equal(value, theirs[name]) or name.startswith("momentum."), name
    hashers = [Hasher.load(run.path) for run in (slow, finished)]
    own, other = (hasher.encode(digits.images) for hasher in hashers)
    np.testing.assert_array_equal(own.bits, other.bits)
    ours_apart, theirs_apart = (hasher.calibration.turnover.at.mean() for hasher in hashers)
    assert ours_apart > 1.5 * theirs_apart
    assert (slow.load_model().metadata["alpha"], finished.load_model().metadata["alpha"]) == (0.99, 0.7)
    assert slow.trace() == finished.trace()
    assert [line["mean_uncertainty"] for line in slow.metrics()] == [
        line["mean_uncertainty"] for line in finished.metrics()
    ]


def test_a_second_copy_of_the_methods_own_pace_is_the_methods_own(digits, tmp_path):
    own = train(configure(SMALL, COPY), tmp_path / "own", dataset=digits)
    assert own.load_model().metadata["alpha"] == 0.7
    assert same(own, train(configure(SMALL, COPY, {"uncertainty_alpha": 0.7}), tmp_path / "run", dataset=digits))


@pytest.mark.parametrize("alpha", [0.0, 0.9])
def test_a_method_without_a_copy_gets_one_by_uncertainty_alpha(digits, tmp_path, alpha):
    config = configure(SMALL, COPY, {"method": "csq", "uncertainty_alpha": alpha, "epochs": 2})
    run = train(config, tmp_path / "run", dataset=digits)
    network, copy = load_networks(run.load_model())
    assert run.load_model().metadata["alpha"] == alpha
    apart = not torch.equal(copy.network.hash_layer.weight, network.hash_layer.weight)
    assert apart == (alpha > 0)
    assert "mean_uncertainty" not in run.metrics()[-1]


@pytest.mark.parametrize(
    "settings", [{}, {"method": "csq"}, {"method": "itq"}, {"freeze": "all", "kernel": 20}], ids=str
)
def test_the_margin_is_an_uncertainty_that_every_method_has(digits, tmp_path, settings):
    run = train(configure(SMALL, {"epochs": 2}, settings), tmp_path / "run", dataset=digits)
    model = run.load_model()
    assert (model.metadata["uncertainty"], model.metadata["alpha"]) == ("margin", None)
    assert not any(name.startswith("momentum.") for name in model.arrays)
    network, source = load_networks(model)
    assert isinstance(source, Margin)
    hasher = Hasher.load(run.path, device="cpu")
    codes = hasher.encode(digits.images[:20])
    pixels = np.stack([read_pixels(image, network.backbone.preprocess) for image in digits.images[:20]])
    with torch.inference_mode():
        outputs = network(torch.from_numpy(pixels)).numpy()
    found = hasher._network.run(hasher.rows(digits.images[:20]))
    np.testing.assert_allclose(found["uncertainty"], 1 / (1 + np.abs(outputs)), atol=1e-3)
    np.testing.assert_array_equal(codes.uncertainty, hasher.calibration.uncertainty(found))
    assert np.ptp(codes.uncertainty) > 0.1
    evaluate_run(run, digits)
    assert Codes.load(run.query_codes).uncertainty is not None


def test_where_uncertainty_comes_from_changes_nothing_else(finished, digits, tmp_path):
    copied = train(configure(SMALL, COPY), tmp_path / "copied", dataset=digits)
    trained = {name: array for name, array in copied.load_model().arrays.items() if not name.startswith("momentum.")}
    np.testing.assert_equal(finished.load_model().arrays, trained)


def test_a_second_copy_that_nothing_uses_is_refused():
    given = {"uncertainty": "margin", "uncertainty_alpha": 0.9}
    with pytest.raises(ConfigError, match="uncertainty_alpha is of a copy that nothing uses"):
        configure(given)
    assert configure(given, {"encoder": "copy"}).training.uncertainty == "margin"


@pytest.mark.parametrize("settings", [{}, {"uncertainty_alpha": 0.9}, {"method": "csq", "uncertainty_alpha": 0.9},
                                      {"freeze": "all", "kernel": 20}], ids=str)  # fmt: skip
def test_the_copy_encodes_where_asked_and_the_network_is_then_its_copy(digits, tmp_path, settings):
    runs = [
        train(configure(SMALL, COPY, settings, {"encoder": encoder}), tmp_path / encoder, dataset=digits)
        for encoder in ("network", "copy")
    ]
    (network, copy), (encoder, other) = (load_networks(run.load_model()) for run in runs)
    assert not torch.equal(network.hash_layer.weight, copy.network.hash_layer.weight)
    for ours, theirs in ((network, other.network), (copy.network, encoder)):
        assert all(torch.equal(value, theirs.state_dict()[key]) for key, value in ours.state_dict().items())


def test_a_method_without_a_copy_cannot_encode_with_it():
    with pytest.raises(ConfigError, match="csq has no copy of its own: encoder = copy needs uncertainty_alpha"):
        configure({"method": "csq", "encoder": "copy"})
    with pytest.raises(ConfigError, match="itq has no copy of its own: encoder must be network"):
        configure({"method": "itq", "encoder": "copy", "uncertainty_alpha": 0.9})


@pytest.mark.parametrize("settings", [
    {"encoder": "copy"}, {**COPY, "uncertainty_alpha": 0.97},
    {**COPY, "uncertainty_alpha": 0.97, "method": "csq", "label_noise": 0.5},
], ids=str)  # fmt: skip
def test_interrupted_with_a_second_copy_or_noisy_labels_and_resumed_gives_the_same(digits, tmp_path, settings):
    config = configure(SMALL, settings)
    whole = train(config, tmp_path / "whole", dataset=digits)

    def stop(progress: Progress) -> None:
        if progress.epoch == 3:
            raise Killed

    with pytest.raises(Killed):
        train(config, tmp_path / "killed", dataset=digits, progress=stop)
    resumed = train(config, tmp_path / "killed", dataset=digits, resume=True)
    assert arrays(resumed).keys() == arrays(whole).keys()
    assert same(whole, resumed)


# With a frozen part ---------------------------------------------------------------------------------------------------

PLAIN, MIRRORED = "computing features", "computing features of mirrored images"


class Count:
    """Notes what is computed."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    @contextmanager
    def __call__(self, what: str, total: int):
        self.told.append((what, total))
        yield lambda _: None


def is_frozen(name: str) -> bool:
    """Whether an array belongs to the first two convolutions."""
    return ".backbone.stages.0." in name or ".backbone.stages.1." in name


@pytest.fixture(scope="session")  # a worker that comes back to this module finds the features kept
def frozen(digits, tmp_path_factory) -> Run:
    """Trained above the second convolution, on digits as they are and mirrored."""
    config, count = configure(SMALL, COPY, {"freeze": "conv2"}), Count()
    assert config.training.augment == "flip"
    run = train(config, tmp_path_factory.mktemp("frozen") / "run", dataset=digits, count=count)
    assert count.told == [(PLAIN, 64), (MIRRORED, 56)]  # training and validation images; training images
    return run


def test_the_next_run_computes_no_features_and_freezes_the_same(frozen, finished, digits, tmp_path):
    count = Count()
    config = configure(SMALL, COPY, {"freeze": "conv2", "lr": 0.05, "bits": 10, "epochs": 2})
    other = train(config, tmp_path / "other", dataset=digits, count=count)
    assert count.told == []
    ours, theirs = arrays(frozen), arrays(other)
    kept = [name for name in ours if is_frozen(name)]
    assert kept == [f"network.backbone.stages.{n}.0.{what}" for n in range(2) for what in ("bias", "weight")]
    assert all(np.array_equal(ours[name], theirs[name]) for name in kept)
    assert not np.array_equal(ours["network.backbone.stages.2.0.weight"], theirs["network.backbone.stages.2.0.weight"])
    assert not np.array_equal(ours["network.hash_layer.weight"], arrays(finished)["network.hash_layer.weight"])
    assert {name.removeprefix("momentum.") for name in ours if name.startswith("momentum.")} == {
        name.removeprefix("network.") for name in ours if name.startswith("network.") and name not in kept
    }


def test_mirrored_images_change_what_is_learned_above_a_frozen_part(frozen, digits, tmp_path):
    config, count = configure(SMALL, {"freeze": "conv2", "augment": "none"}), Count()
    plain = train(config, tmp_path / "run", dataset=digits, count=count)
    assert count.told == []
    assert not np.array_equal(arrays(plain)["network.hash_layer.weight"], arrays(frozen)["network.hash_layer.weight"])


def test_interrupted_above_a_frozen_part_and_resumed_gives_the_same_weights(frozen, digits, tmp_path):
    def stop(progress: Progress) -> None:
        if progress.epoch == 3:
            raise Killed

    folder = tmp_path / "killed"
    with pytest.raises(Killed):
        train(open_run(frozen.path, digits).config, folder, dataset=digits, progress=stop)
    saved = Run(folder).load_checkpoint().arrays
    assert {"network.hash_layer.weight", "momentum.hash_layer.weight", "network.feature_mean"} <= set(saved)
    assert not [name for name in saved if is_frozen(name)]
    assert same(frozen, train(open_run(frozen.path, digits).config, folder, dataset=digits, resume=True))


@torch.inference_mode()
def outputs(run: Run, digits) -> np.ndarray:
    network, _ = load_networks(run.load_model())
    pixels = np.stack([read_pixels(image, network.backbone.preprocess) for image in digits.images])
    return network(torch.from_numpy(pixels)).numpy()


def test_features_that_are_kept_train_and_measure_as_those_computed_on_the_way(digits, tmp_path, monkeypatch):
    monkeypatch.setenv("DMUH_CACHE", str(tmp_path / "cache"))  # where other tests left nothing
    config, count = configure(SMALL, {"freeze": "all"}), Count()
    assert config.training.augment == "none"
    kept = train(config, tmp_path / "kept", dataset=digits, count=count)
    assert count.told == [(PLAIN, 64)]
    with monkeypatch.context() as patch:
        patch.setattr(setup, "CACHED", ())
        computed = train(config, tmp_path / "computed", dataset=digits, count=count)
    assert count.told == [(PLAIN, 64)]
    one, other = outputs(kept, digits), outputs(computed, digits)
    np.testing.assert_allclose(one, other, atol=1e-3)
    assert one.std() > 0.1
    evaluation = evaluate_run(kept, digits, count=count)
    assert count.told == [(PLAIN, 64), (PLAIN, len(digits) - 64)]
    for codes in (evaluation.query, evaluation.database):
        expected = one[codes.ids]
        bits = np.unpackbits(codes.bits, axis=1, count=12, bitorder="little")
        assert ((bits == 1) == (expected > 0))[np.abs(expected) > 1e-4].all()


def test_a_model_needs_nothing_but_its_file(shape_run, monkeypatch):
    backbone = create_backbone("efficientnet-lite0", 64)
    backbone.load_pretrained()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    network, momentum = load_networks(shape_run.load_model())
    for key, value in backbone.state_dict().items():
        assert torch.equal(network.backbone.state_dict()[key], value)
        assert momentum.network.backbone.state_dict()[key].data_ptr() == network.backbone.state_dict()[key].data_ptr()
    assert (network.feature_mean != 0).any()
