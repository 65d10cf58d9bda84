"""Two processes train as one with the whole batch does."""

import socket

import numpy as np
import pytest

from dmuh.machine import place_in_group
from dmuh.runs import Run, open_run
from dmuh.trainer import train
from dmuh.trainer.inputs import part_slice
from processes import Started, main
from together import CASES, config_of_case, finish, start, train_cases, watched_training

COMMAND = ["train", "--epochs", "2", "--bits", "12", "--train", "20", "--query", "5", "--set", "image_size=16"]


def relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a.astype(float) - b) / max(np.linalg.norm(a.astype(float)), 1e-12))


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Every case trained by two processes: started once, since that takes longer than the trainings."""
    folder = tmp_path_factory.mktemp("together")
    for code, _, errors in finish(start(2, train_cases, folder, *CASES)):
        assert code == 0, errors
    return folder


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_loss_gradients_and_momentum_weights_are_those_of_one_process(case, together, tmp_path):
    alone = watched_training(case, tmp_path / "run")
    first, second = (np.load(together / case / f"{rank}.npz") for rank in (0, 1))
    assert any(name.startswith("gradient") for name in alone)
    assert any(name.startswith("momentum") for name in alone) == case.startswith(("dmuh", "kept", "anchors", "images"))
    for name, value in alone.items():
        assert relative(value, first[name]) <= 1e-5, name
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert Run(together / case / "run").finished


@pytest.mark.long
def test_one_process_writes_and_logs(together):
    for case in CASES:
        epochs = config_of_case(case).training.epochs
        assert [line["epoch"] for line in Run(together / case / "run").metrics()] == list(range(1, epochs + 1))


@pytest.mark.long
def test_the_command_reports_once_and_goes_on_with_another_number_of_processes(tmp_path):
    whole = finish(start(2, main, *COMMAND, "--out", str(tmp_path / "run")))
    assert [code for code, _, _ in whole] == [0, 0], whole
    assert "MAP 0." in whole[0][1]
    assert whole[1][1:] == ("", "")

    def stop(progress) -> None:
        if progress.epoch == 2:
            raise KeyboardInterrupt

    half = Run(tmp_path / "half")
    with pytest.raises(KeyboardInterrupt):
        train(open_run(tmp_path / "run").config, half.path, progress=stop)
    resumed = finish(start(2, main, "train", "--out", str(half.path), "--resume", "--no-evaluate"))
    assert [code for code, _, _ in resumed] == [0, 0], resumed
    assert [line["epoch"] for line in half.metrics()] == [1, 2]
    weights = half.load_model().arrays
    for name, value in Run(tmp_path / "run").load_model().arrays.items():
        # the layer of classes is fitted to what the trained weights give, by which their differences grow
        assert relative(value, weights[name]) <= (1e-3 if name.startswith("classes.") else 1e-4), name


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--method", "itq", "--dataset", "features", "--data", "{vectors}"], "itq is fitted by one process, got 2"),
        (["--set", "batch_size=3"], "batch_size counts the images of all processes together"),
        (["--dataset", "cifar10", "--data", "none", "--download"], "--download is for one process"),
    ],
)
def test_what_many_processes_cannot_do_is_refused(options, sentence, vectors, tmp_path):
    options = [text.format(vectors=vectors) for text in options]
    command = ["train", "--out", str(tmp_path / "run"), *options]
    for code, output, errors in finish(start(2, main, *command)):
        assert (code, output) == (2, "")
        assert sentence in errors
        assert errors.count("\n") == 1


@pytest.mark.long
def test_a_port_that_is_taken_is_one_sentence(vectors, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        group = {
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        command = ["train", "--out", str(tmp_path / "run"), "--dataset", "features", "--data", str(vectors)]
        code, output, errors = Started(main, *command, **group).finish()
    assert (code, output) == (2, "")
    assert errors.startswith(f"dmuh: the processes cannot meet at 127.0.0.1:{port}, which MASTER_ADDR")
    assert "address already in use" in errors
    assert errors.count("\n") == 1


def test_parts_are_neighbours_and_make_the_whole():
    for n in (0, 1, 2, 7, 128):
        parts = [list(range(n))[part_slice(n, (k, 3))] for k in range(3)]
        assert [number for part in parts for number in part] == list(range(n))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_place_among_processes_is_what_torchrun_says(monkeypatch):
    assert place_in_group() == (0, 1)
    for name, value in {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        assert place_in_group() == (0, 1)
        monkeypatch.setenv(name, value)
    assert place_in_group() == (3, 8)
