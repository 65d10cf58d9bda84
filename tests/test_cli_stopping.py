"""Ctrl-C: exit code 130, and how to go on."""

import shlex

import pytest

from commands import dmuh
from dmuh.runs import Run
from terminal import Terminal

FAST = ["--bits", "12", "--backbone", "smallconv", "--set", "image_size=16"]


def stopped_training(run: Run, epochs: int, *command: object) -> list[str]:
    """Press Ctrl-C in a training once it has done so many epochs; return the lines it wrote."""
    with Terminal("-m", "dmuh.cli", *command) as terminal:
        terminal.read_until(lambda _: run.started and len(run.metrics()) >= epochs)
        terminal.press_ctrl_c()
        code, lines = terminal.end()
    assert code == 130
    assert not any("Traceback" in line for line in lines)
    return lines


@pytest.mark.long
def test_a_training_says_how_to_go_on_and_goes_on(photos, tmp_path):
    run = Run(tmp_path / "the run")
    command = ["train", "--dataset", "folder", "--data", photos, "--out", run.path, "--epochs", "100000", *FAST]
    said = stopped_training(run, 2, *command)[-1]
    assert said == f"dmuh: stopped; go on by: dmuh train --out {shlex.quote(str(run.path))} --resume"
    done = len(run.metrics())
    assert stopped_training(run, done + 2, *shlex.split(said.partition("go on by: dmuh ")[2]))[-1] == said
    gone_on = [row["epoch"] for row in run.metrics()]
    assert gone_on == [*range(1, len(gone_on) + 1)]


@pytest.mark.long
@pytest.mark.parametrize("command", ["index", "encode"])
def test_encoding_that_is_stopped_writes_nothing(digit_run, photos, tmp_path, command):
    out = tmp_path / "out"
    with Terminal("-m", "dmuh.cli", command, digit_run.path, *[photos] * 1000, "--out", out) as terminal:
        terminal.read_until(lambda text: "/20000" in text)
        terminal.press_ctrl_c()
        code, lines = terminal.end()  # which also waits for the processes that read images
    assert (code, lines[-1]) == (130, "dmuh: stopped; give the same command again")
    assert not any("Traceback" in line for line in lines)
    assert not out.exists()


@pytest.mark.long
def test_shards_that_are_done_are_kept(digit_run, photos, tmp_path):
    out = tmp_path / "shards"
    with Terminal(
        "-m", "dmuh.cli", "encode", digit_run.path, *[photos] * 500, "--shards", 10, "--out", out
    ) as terminal:
        terminal.read_until(lambda _: any(out.glob("shard-*.json")))
        terminal.press_ctrl_c()
        code, lines = terminal.end()
    assert code == 130
    assert lines[-1] == "dmuh: stopped; shards that are done are kept: the same command goes on from here"
    assert 1 <= len(list(out.glob("*.parquet"))) < 10


COMMANDS = {
    "train --out {tmp}/run": ("dmuh.datasets.load_dataset", "give the same command again"),
    "search {tmp}/index x.png": ("dmuh.collection.Collection.reading", "give the same command again"),
    "evaluate {run}": ("dmuh.runs.Run.load_model", "give the same command again"),
    "bench {grid} --out {tmp}/bench": ("dmuh.bench.run_grid", "the same command goes on from here"),
    "report {tmp} --out {tmp}/report": ("dmuh.report.experiment.write_report", "give the same command again"),
    "export {run} --out {tmp}/model": ("dmuh.encoder.export_run", "give the same command again"),
    "demo --out {tmp}/demo": ("dmuh.datasets.load_dataset", "the same command goes on from here"),
    "list --settings": ("dmuh.config.describe", "give the same command again"),
    "warm": ("dmuh.index.kernel_use.KERNELS.rehearsals", "give the same command again"),
    "cache": ("dmuh.machine.cache_folder", "give the same command again"),
    "open {photos} --port 0": (
        "dmuh.opening.open_folder", "what was computed is kept: the same command goes on from there",
    ),
    "duplicates {photos}": (
        "dmuh.features.folder_features", "features that were computed are kept: give the same command again",
    ),
    "review {photos}": (
        "dmuh.review.of_folder", "features that were computed are kept: give the same command again",
    ),
    "serve {run} --images {photos} --port 0": (
        "dmuh.encoder.adding.add_images", "what was encoded is kept: the same command goes on from there",
    ),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_every_command_ends_with_130_and_a_hint(digit_run, photos, bench, tmp_path, monkeypatch, command):
    function, advice = COMMANDS[command]

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(function, interrupt)
    places = {"run": digit_run.path, "photos": photos, "tmp": tmp_path, "grid": bench.parent / "grid.toml"}
    words = command.format(**places).split()
    if words[0] in ("open", "serve"):
        words += ["--state", str(tmp_path / "state")]
    result = dmuh(*words, code=130)
    assert (result.stdout, result.stderr) == ("", f"dmuh: stopped; {advice}\n")


def test_one_that_is_stopped_before_its_command_begins(monkeypatch):
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dmuh.cli.place_in_group", interrupt)
    assert dmuh("list", code=130).stderr == "dmuh: stopped; give the same command again\n"
