"""Grids of runs: how they are read, made, broken off and gone on with, and what their uncertainty is worth."""

import contextlib
import csv
import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import spearmanr

from commands import dmuh, refused
from dmuh import errors
from dmuh.bench import Grid, State, estimate, read_grid, run_grid, runner
from dmuh.bench.cells import run_cell, summary_of
from dmuh.bench.results import write_results
from dmuh.bench.uncertainty import area_under_curve, reliability
from dmuh.codes import Codes
from dmuh.datasets import load_dataset
from dmuh.errors import ConfigError, DmuhError, RunError
from dmuh.files import locked
from dmuh.files.documents import read_document, write_document
from dmuh.images import read_pixels
from dmuh.network import load_networks
from dmuh.protocols import Split, protocol_of
from dmuh.runs import Run
from processes import started_by_dmuh
from tiny import noise_set

# Reading a grid -------------------------------------------------------------------------------------------------------


@pytest.fixture
def read(tmp_path):
    """Reads a grid from its text."""

    def read(text: str, **overrides: object) -> Grid:
        (tmp_path / "grid.toml").write_text(text)
        return read_grid(tmp_path / "grid.toml", overrides)

    return read


def test_lists_are_axes_and_a_tables_runs_are_all_their_combinations_in_the_order_of_the_file(read):
    grid = read("""
        [settings]
        epochs = 7
        [[table]]
        name = "methods"
        title = "All of them"
        published = "cifar10"
        method = ["regu", "dmuh"]
        bits = [24, 12]
        seed = [0, 1]
    """)
    found = [(cell.config.method, cell.config.network.bits, cell.config.training.seed) for cell in grid.cells]
    assert found == [(method, bits, seed) for method in ("regu", "dmuh") for bits in (24, 12) for seed in (0, 1)]
    assert {cell.config.training.epochs for cell in grid.cells} == {7}
    (table,) = grid.tables
    assert (table.name, table.title, table.published) == ("methods", "All of them", "cifar10")
    assert list(table.axes.items()) == [("method", ["regu", "dmuh"]), ("bits", [24, 12]), ("seed", [0, 1])]


def test_a_table_without_axes_is_one_run_and_has_a_name(read):
    grid = read("[[table]]\n[[table]]\nbits = 8")
    assert [table.name for table in grid.tables] == [table.title for table in grid.tables] == ["table1", "table2"]
    assert [cell.tables for cell in grid.cells] == [("table1",), ("table2",)]
    assert not any(cell.study for cell in grid.cells)


LAYERS = """
    [settings]
    lr = 0.5
    {shared}
    [methods.regu]
    beta = 0.25
    lr = 0.25
    [methods.dpsh]
    eta = 3.0
    [[table]]
    method = ["dmuh", "regu", "dpsh"]
    {table}
"""


@pytest.mark.parametrize(("shared", "table", "overrides", "rates"), [
    ("", "", {}, [0.5, 0.25, 0.5]),
    ("", "lr = 0.125", {}, [0.125] * 3),
    ("", "lr = 0.125", {"lr": 2.0}, [2.0] * 3),
])  # fmt: skip
def test_a_methods_own_settings_go_before_shared_ones_the_tables_before_these_and_overrides_before_all(
    read, shared, table, overrides, rates
):
    configs = [cell.config for cell in read(LAYERS.format(shared=shared, table=table), **overrides).cells]
    assert [config.training.lr for config in configs] == rates
    assert (configs[1].options.beta, configs[2].options.eta) == (0.25, 3.0)


def test_the_method_may_be_shared_by_all_tables(read):
    grid = read("""
        [settings]
        method = "regu"
        [methods.regu]
        beta = 0.25
        [[table]]
        bits = [8, 12]
    """)
    assert [(cell.config.method, cell.config.options.beta) for cell in grid.cells] == [("regu", 0.25)] * 2


def test_a_method_that_overrides_the_files_has_its_own_settings(read):
    text = "[methods.dmuh]\nalpha = 0.5\n[methods.regu]\nbeta = 0.25\n[[table]]\nmethod = 'dmuh'"
    (cell,) = read(text, method="regu").cells
    assert cell.config.options.beta == 0.25


def test_a_preset_is_that_of_each_method_and_settings_go_before_it(read):
    grid = read("""
        [[table]]
        preset = "paper"
        method = ["dmuh", "dpsh"]
        epochs = 5
    """)
    dmuh_, dpsh = grid.cells
    assert (dmuh_.preset, dpsh.preset) == ("paper", "paper")
    assert (dmuh_.config.options.beta, dpsh.config.training.lr) == (50.0, 0.05)
    assert (dmuh_.config.training.epochs, dpsh.config.training.epochs) == (5, 5)


def test_a_run_of_several_tables_is_made_once_and_studied_if_one_of_them_asks(read):
    grid = read("""
        [[table]]
        name = "methods"
        method = ["dmuh", "regu"]
        [[table]]
        name = "beta"
        study = true
        beta = [0.3, 0.5]
    """)
    assert [(cell.config.method, cell.tables, cell.study) for cell in grid.cells] == [
        ("dmuh", ("methods", "beta"), True),
        ("regu", ("methods",), False),
        ("dmuh", ("beta",), True),
    ]


def test_a_name_says_what_a_run_is_and_not_where_it_is_made(read):
    text = "[[table]]\nbits = 12\nseed = 3\n"
    (plain,) = read(text).cells
    # runs that were made before a setting was there are found again: see _LATER in bench/grid.py
    assert plain.name == "mnist5k-dmuh-12-3-1fa1815c"
    for place in ({"data": "/elsewhere"}, {"device": "cuda:1"}, {"workers": 3}):
        assert [cell.name for cell in read(text, **place).cells] == [plain.name]
    names = {plain.name}
    for other in ({"beta": 0.5}, {"lr": 0.5}, {"label_noise": 0.5}, {"image_size": 24}, {"on_bad_image": "skip"}):
        names |= {cell.name for cell in read(text, **other).cells}
    assert len(names) == 6


@pytest.mark.parametrize("place", ['data = ["a", "b"]', "workers = [0, 1]", 'device = ["cpu", "cuda"]'])
def test_where_runs_are_made_is_no_axis(read, place):
    with pytest.raises(ConfigError, match=f"{place.split()[0]} must be one value"):
        read(f"[[table]]\n{place}")


@pytest.mark.parametrize(("text", "sentence"), [
    ("[setings]\n[[table]]", "unknown section 'setings': did you mean settings"),
    ("", r"grid\.toml has no table: write \[\[table\]\]"),
    ("table = []", "has no table"),
    ("[table]\nbits = [8]", "has no table"),
    ("bits = [8", "is not a TOML file"),
    ("[methods.dmhu]\n[[table]]", "unknown method 'dmhu': did you mean dmuh"),
    ("[[table]]\nmethod = ['dmuh', 'dpsch']", "table 1: unknown method 'dpsch': did you mean dpsh"),
    ("[[table]]\nname = 'a'\n[[table]]\nname = 'a'\nbits = 8", "has two tables named a"),
    ("[[table]]\n[[table]]\nbits = []", r"table 2: bits must be a list of different values, got \[\]"),
    ("[[table]]\nbits = [8, 12, 8]", r"bits must be a list of different values, got \[8, 12, 8\]"),
    ("[[table]]\nname = 'a b'", "name must be letters, digits and -, got 'a b'"),
    ("[[table]]\nname = 3", "name must be letters, digits and -, got 3"),
    ("[[table]]\ntitle = 3", "title must be a text, got 3"),
    ("[[table]]\npublished = ['coco']", r"published must be a text, got \['coco'\]"),
    ("[[table]]\npreset = true", "preset must be a text, got True"),
    ("[[table]]\npreset = 'author'", "unknown preset 'author': known are paper"),
    ("[[table]]\nstudy = 1", "study must be true or false, got 1"),
    ("[[table]]\nstudy = [true, false]", r"study must be true or false, got \[True, False\]"),
    ("[[table]]\nbitz = [8]", "unknown setting 'bitz': did you mean bits"),
    ("[[table]]\nbits = ['8']", "bits must be a whole number .* got '8'"),
    ("[settings]\nbits = [8, 12]\n[[table]]", r"bits must be a whole number .* got \[8, 12\]"),
    ("[methods.dpsh]\nbeta = 1.0\n[[table]]\nmethod = 'dpsh'", "unknown setting 'beta'"),
    ("settings = 3\n[[table]]", "settings must be a section"),
    ("methods = 3\n[[table]]", "methods must be"),
    ("[methods]\ndmuh = 3\n[[table]]", "dmuh must be a section"),
    ("table = [8, 12]", "table 1"),
    ("[[table]]\nmethod = [['dmuh']]", "unknown method"),
    ("[settings]\nmethod = ['dmuh', 'regu']\n[[table]]", "unknown method"),
])  # fmt: skip
def test_a_wrong_grid_is_one_sentence(read, text, sentence):
    with pytest.raises(ConfigError, match=sentence) as stopped:
        read(text)
    assert "grid.toml" in str(stopped.value)
    assert "\n" not in str(stopped.value) or "TOML" in str(stopped.value)


def test_a_grid_that_is_not_there_is_one_sentence(tmp_path):
    assert "cannot read the grid nowhere.toml: No such file" in refused("bench", "nowhere.toml", "--out", tmp_path)


PUBLISHED = sorted((Path(__file__).parents[1] / "configs" / "bench").glob("*.toml"))


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.stem)
def test_a_published_grid_can_be_run_by_the_command_in_its_header(file):
    words = file.read_text().splitlines()[0].removeprefix("# ").split()
    assert words[:3] == ["dmuh", "bench", f"configs/bench/{file.name}"]
    assert words[-2] == "--out"
    assert read_grid(file, {}).cells


# Making the runs ------------------------------------------------------------------------------------------------------

SMALL = """
    [settings]
    dataset = "features"
    bits = 8
    epochs = 30
    batch_size = 16

    [[table]]
    name = "methods"
    method = "itq"

    [[table]]
    name = "rates"
    method = "dmuh"
    clip = 0.0
    lr = [1e3, 0.1]

    [[table]]
    name = "seeds"
    method = "itq"
    seed = [0, 1, 2, 3]
"""
COSTS = ("train_seconds", "peak_memory_mb")


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("grids") / "small.toml"
    file.write_text(SMALL)
    return file


@pytest.fixture(scope="module")
def grid(small, vectors) -> Grid:
    return read_grid(small, {"data": str(vectors)})


@pytest.fixture(scope="module")
def made(grid, tmp_path_factory) -> Path:
    """The runs of the small grid, made one after the other in this process."""
    out = tmp_path_factory.mktemp("made") / "bench"
    for cell in grid.cells:
        run_cell(cell, out / "runs" / cell.name, threads=1)
    write_results(grid, out)
    return out


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def figures(out: Path) -> list[dict[str, str]]:
    """The lines of the results without what the runs cost."""
    return [{key: value for key, value in row.items() if key not in COSTS} for row in rows(out)]


def test_every_run_has_a_line_with_its_settings_and_what_was_measured(made, grid):
    lines = rows(made)
    assert [line["run"] for line in lines] == [cell.name for cell in grid.cells]
    for line, cell in zip(lines, grid.cells, strict=True):
        own = cell.config
        assert (line["dataset"], line["method"], line["bits"]) == ("features", own.method, "8")
        assert (line["seed"], line["tables"]) == (str(own.training.seed), ";".join(cell.tables))
        assert float(line["lr"]) == own.training.lr
        assert json.loads(line["config"])["training"]["epochs"] == 30
        assert re.fullmatch(r"python=\S+ dmuh=\S+ torch=\S+ .*", line["versions"])
        assert re.fullmatch(r"\w+ \S+, \d+ cores", line["machine"])
        assert float(line["train_seconds"]) >= 0
        assert float(line["peak_memory_mb"]) > 10
        if not line["error"]:
            run = Run(made / "runs" / cell.name)
            assert float(line["map"]) == pytest.approx(run.evaluation()["map"], abs=1e-6)
            assert float(line["train_map"]) == pytest.approx(run.metrics()[-1]["train_map"], abs=1e-6)
            assert line["split"] == run.load_model().metadata["split"]
    assert [table["name"] for table in read_document(made / "tables.json", "dmuh tables")["tables"]] == [
        "methods",
        "rates",
        "seeds",
    ]


def test_the_results_do_not_say_where_anything_lies(made, vectors):
    text = (made / "results.csv").read_text()
    assert str(vectors) not in text
    assert not re.search(r"""(^|[\s",=])/""", text)


def test_the_results_do_not_say_where_weights_lie(read, tmp_path):
    grid = read("[[table]]\nbackbone = 'cnnf'\nweights = '/home/me/imagenet.mat'")
    (cell,) = grid.cells
    folder = tmp_path / "runs" / cell.name
    none = np.empty(0, np.int64)
    Run(folder).begin(cell.config, Split(none, none, none, none), noise_set())
    failed = {"error": "it went wrong", "train_seconds": 0, "peak_memory_mb": 0, "cell": cell.name}
    write_document(folder / "cell.json", "dmuh cell", failed)
    write_results(grid, tmp_path)
    assert "/home/me" not in (tmp_path / "results.csv").read_text()


def test_a_training_that_goes_wrong_is_a_result_and_stops_no_other(made, small, vectors):
    failed = next(line for line in rows(made) if line["error"])
    assert failed["lr"] == "1000.0"
    assert re.search(r"the loss (is|ran away).*lower lr \(now 1000\)", failed["error"])
    assert failed["map"] == failed["precision_within_radius"] == failed["split"] == ""
    assert [bool(line["map"]) for line in rows(made)] == [True, False] + [True] * 4
    told = dmuh("bench", small, "--out", made, "--data", vectors)
    assert told.stdout == f"6 runs, 1 of them failed: {made / 'results.csv'}\n"
    assert told.stderr == f"dmuh: {failed['run']}: {failed['error']}\n"
    told = json.loads(dmuh("bench", small, "--out", made, "--data", vectors, "--json").stdout)
    assert told == {"results": str(made / "results.csv"), "runs": 6, "failed": 1}


def test_codes_that_become_alike_are_a_result_too(read, tmp_path):
    np.savez(tmp_path / "alike.npz", features=np.ones((40, 4), "f4"), labels=np.arange(40) % 2)
    text = "[[table]]\nmethod = 'dhn'\nepochs = 6\nbits = 8"
    (cell,) = read(text, dataset="features", data=str(tmp_path / "alike.npz")).cells
    run_cell(cell, tmp_path / "run", threads=1)
    assert re.search("the same code for 5 epochs .* lower quantization or lr", summary_of(tmp_path / "run")["error"])


def test_an_error_stands_in_place_of_all_figures(read, vectors, tmp_path):
    text = "[[table]]\nmethod = 'regu'\nbeta = 1e4\nlr = 0.5\nclip = 0.0\nbits = 8\nbatch_size = 16"
    grid = read(text, dataset="features", data=str(vectors))
    (cell,) = grid.cells
    run_cell(cell, tmp_path / "runs" / cell.name, threads=1)
    write_results(grid, tmp_path)
    (line,) = rows(tmp_path)
    assert line["error"]
    assert line["train_map"] == line["validation_map"] == ""


def test_what_is_done_is_left_alone(made, small, vectors):
    def seen() -> dict[Path, tuple[int, int]]:
        files = (file for file in (made / "runs").rglob("*") if file.is_file())
        return {file: (file.stat().st_mtime_ns, file.stat().st_ino) for file in files}

    before, results = seen(), (made / "results.csv").read_bytes()
    assert any(file.name == "model.safetensors" for file in before)
    dmuh("bench", small, "--out", made, "--data", vectors)
    assert seen() == before
    assert (made / "results.csv").read_bytes() == results


def epochs(out: Path) -> int:
    """How many epochs the runs have logged."""
    return sum(file.read_text().count("\n") for file in out.glob("runs/*/metrics.jsonl"))


def begin(small: Path, vectors: Path, out: Path) -> subprocess.Popen[str]:
    """Start the command in processes of its own, as from a terminal."""
    command = [sys.executable, "-m", "dmuh.cli", "bench", small, "--out", out, "--data", vectors]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def kill_workers(process: subprocess.Popen[str]) -> None:
    """Kill the workers of a process, where the system lists them."""
    file = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    for pid in file.read_text().split() if file.is_file() else []:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(int(pid), signal.SIGKILL)


def same_but_for_costs(out: Path, made: Path) -> bool:
    names = [line["run"] for line in rows(made) if line["map"]]
    models = [[Run(folder / "runs" / name).load_model().checksum for name in names] for folder in (out, made)]
    return figures(out) == figures(made) and models[0] == models[1]


@pytest.mark.long
def test_broken_off_in_every_way_and_finished_by_two_workers_it_gives_what_it_would_have(
    made, grid, small, vectors, tmp_path, monkeypatch
):
    out = tmp_path / "bench"
    for how, least in (("Ctrl-C", 0), ("killed", 8)):
        process = begin(small, vectors, out)
        deadline = time.monotonic() + 120
        while not ((out / "tables.json").exists() and epochs(out) >= least) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.02)
        if how == "Ctrl-C":
            time.sleep(0.5)  # a worker is starting
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
        else:
            process.kill()
        said, told = process.communicate(timeout=60)  # returns when the last process that could write is gone
        assert said == ""
        assert "Traceback" not in told
        if how == "Ctrl-C":
            assert (process.returncode, told) == (130, "dmuh: stopped; the same command goes on from here\n")
        assert len(rows(out)) < len(grid.cells), "the process was too quick to be stopped"

    def kill_worker(_: State) -> None:
        for worker in started_by_dmuh():
            os.kill(worker.pid, signal.SIGKILL)

    with pytest.raises(RunError, match=r"a worker was killed.*the same command goes on from here"):
        run_grid(grid, out, jobs=2, report=kill_worker)
    states: list[State] = []
    monkeypatch.setattr(runner, "_LOOK", 0.01)
    ((failed, error),) = run_grid(grid, out, jobs=2, report=states.append)
    assert same_but_for_costs(out, made)
    assert {failed.name: error} == {line["run"]: line["error"] for line in rows(made) if line["error"]}
    assert (states[-1].done, states[-1].failed, states[-1].running, states[-1].seconds_left) == (6, 1, [], 0)
    assert [state.done for state in states] == sorted(state.done for state in states)
    shown = {running for state in states for running in state.running}
    assert {(name, total) for name, _, total in shown} <= {(cell.name, 30) for cell in grid.cells}
    assert any(1 < done < 30 for _, done, _ in shown)


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_where_it_would_have(made, small, vectors, tmp_path):
    out, moments = tmp_path / "bench", random.Random(0)
    for attempt in range(6):
        process = begin(small, vectors, out)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=moments.uniform(3, 18))
        if attempt % 3:
            process.kill()
        else:
            kill_workers(process)
        process.communicate(timeout=120)
    dmuh("bench", small, "--out", out, "--data", vectors)
    assert same_but_for_costs(out, made)


def test_two_benches_in_one_folder_are_refused(small, tmp_path):
    with locked(tmp_path / ".lock", lambda: None):
        sentence = refused("bench", small, "--out", tmp_path)
    assert sentence == f"dmuh: another process is making the runs in {tmp_path}"


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DmuhError)]


@pytest.mark.parametrize(
    "kind",
    KINDS,
    ids=lambda kind: kind.__name__,
)
def test_every_error_comes_out_of_a_worker_as_it_was_raised(kind):
    arguments = {errors.MissingExtraError: ("drawing", "train"), errors.RequestError: (404, "one sentence")}
    arguments[errors.CatalogueError] = (500, "one sentence")
    error = kind(*arguments.get(kind, ("one sentence",)))
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error)


# How long it takes ----------------------------------------------------------------------------------------------------


def test_a_dry_run_says_what_would_be_done_and_does_nothing(small, grid, tmp_path):
    out = tmp_path / "bench"
    *names, last = dmuh("bench", small, "--out", out, "--dry-run").stdout.splitlines()
    assert names == [cell.name for cell in grid.cells]
    assert re.fullmatch(r"0 of 6 runs are done, the rest takes \d min \(roughly: none is done to tell by\)", last)
    told = json.loads(dmuh("bench", small, "--out", out, "--dry-run", "--json").stdout)
    assert (told["runs"], told["done"], told["left"]) == (6, 0, names)
    halved = json.loads(dmuh("bench", small, "--out", out, "--dry-run", "--json", "--jobs", 2).stdout)
    assert halved["seconds"] == pytest.approx(told["seconds"] / 2, abs=1)
    assert not out.exists()


def test_the_time_left_is_told_by_the_runs_of_the_method_that_are_done(made, small, grid, tmp_path):
    out = shutil.copytree(made, tmp_path / "bench")
    assert estimate(grid, out, 1).seconds_left == 0
    gone, *others = (cell for cell in grid.cells if cell.config.method == "itq")
    shutil.rmtree(out / "runs" / gone.name)
    spent = [summary_of(out / "runs" / cell.name)["train_seconds"] + 3 for cell in others]
    state = estimate(grid, out, 2)
    assert (state.done, state.total, state.failed, state.running) == (5, 6, 1, [])
    assert state.seconds_left == pytest.approx(sum(spent) / len(spent) / 2)
    shown, last = dmuh("bench", small, "--out", out, "--dry-run").stdout.splitlines()
    assert shown == gone.name
    assert last == "5 of 6 runs are done, the rest takes 1 min"


def test_of_a_bench_that_is_done_no_rest_is_told(made, small):
    assert dmuh("bench", small, "--out", made, "--dry-run").stdout == "6 of 6 runs are done\n"


# What the uncertainty is worth ----------------------------------------------------------------------------------------


@given(
    values=st.integers(1, 30).flatmap(
        lambda n: st.tuples(
            hnp.arrays(np.float64, n, elements=st.integers(-3, 3).map(float)),
            hnp.arrays(np.float64, n, elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0, 1)),
        )
    )
)
@settings(deadline=None)
def test_the_area_under_the_curve_is_that_of_a_plain_double_loop(values):
    score, share = values
    right = total = 0.0
    for flipped_score, flipped in zip(score, share, strict=True):
        for kept_score, flips in zip(score, share, strict=True):
            weight = flipped * (1 - flips)
            total += weight
            right += weight * (1.0 if flipped_score > kept_score else 0.5 if flipped_score == kept_score else 0.0)
    found = area_under_curve(score, share)
    assert found == pytest.approx(right / total, rel=1e-6) if total > 1e-9 else np.isnan(found) or total > 0


@pytest.mark.parametrize(("share", "area"), [
    ([0, 0, 1, 1], 1.0), ([1, 1, 0, 0], 0.0), ([1, 0, 0, 1], 0.5), ([0.5] * 4, 0.5),
])  # fmt: skip
def test_the_area_is_one_where_all_that_flips_scores_higher_and_half_by_chance(share, area):
    assert area_under_curve(np.arange(4.0), np.array(share, float)) == area


@pytest.fixture(scope="module")
def studies(bench) -> dict[str, tuple[Run, dict]]:
    """The runs of the digits' bench that were studied, by method."""
    files = bench.glob("runs/*/uncertainty.json")
    return {file.parent.name.split("-")[1]: (Run(file.parent), Run(file.parent).study()) for file in files}


def test_only_runs_of_a_table_that_asks_are_studied(studies):
    assert sorted(studies) == ["csq", "dmuh"]


def test_a_study_of_images_is_of_the_uncertainty_and_precision_of_the_queries(studies):
    run, found = studies["dmuh"]
    assert sorted(found["images"]) == ["copy", "image", "least", "margin", "ratio", "turnover"]
    unsure, precision = (np.array(found["scatter"][key]) for key in ("uncertainty", "average_precision"))
    assert precision.tolist() == run.evaluation()["average_precision"]
    own = found["images"]["image"]
    assert own["rank_correlation"] == pytest.approx(spearmanr(unsure, precision).statistic)
    order = np.argsort(unsure, kind="stable")
    assert own["map_of_certain_half"] == pytest.approx(precision[order[: len(order) // 2]].mean())
    assert own["map_of_other_half"] == pytest.approx(precision[order[len(order) // 2 :]].mean())
    codes = Codes.load(run.query_codes)
    np.testing.assert_allclose(unsure, codes.image_uncertainty, rtol=1e-3, atol=1e-6)
    least = np.sort(codes.uncertainty, axis=1)[:, -8:].mean(axis=1)
    assert found["images"]["least"]["rank_correlation"] == pytest.approx(
        spearmanr(least, precision).statistic, abs=0.01
    )
    assert 0 < found["u"]["bits"][0] <= found["u"]["images"][-1] <= found["u"]["bits"][-1]


def test_a_study_says_how_far_the_probability_is_from_what_happened(studies, mnist):
    run, found = studies["dmuh"]
    query, database = run.load_codes()
    unsure, bits, others = query.uncertainty, query.unpack(), database.unpack()
    turned = np.empty(bits.shape)
    for row, position in enumerate(query.ids):
        alike = others[(mnist.labels[database.ids] & mnist.labels[position]).any(axis=1)]
        for bit in range(query.n_bits):
            differ = int((alike[:, bit] != bits[row, bit]).sum())
            turned[row, bit] = 0.5 if 2 * differ == len(alike) else float(2 * differ > len(alike))
    own = found["calibration"]
    assert np.mean(own["seen"]) == pytest.approx(turned.mean(), abs=0.01)
    assert np.mean(own["said"]) == pytest.approx(unsure.mean(), abs=0.01)
    assert own["error"] == pytest.approx(np.mean(np.abs(np.subtract(own["said"], own["seen"]))))
    assert own["seen"][-1] > own["seen"][0]


def test_reliability_is_taken_tenth_by_tenth():
    said = np.linspace(0, 0.5, 100)
    found = reliability(said.reshape(10, 10), np.full((10, 10), 0.25))
    np.testing.assert_allclose(found["said"], said.reshape(10, 10).mean(axis=1))
    assert found["seen"] == [0.25] * 10
    assert found["error"] == pytest.approx(np.abs(said.reshape(10, 10).mean(axis=1) - 0.25).mean())


def test_a_study_of_bits_says_which_flip(studies):
    _, found = studies["dmuh"]
    assert 0 < found["flip_rate"] < 0.5
    for predictor in ("margin", "copy", "ratio", "turnover"):
        own = found["bits"][predictor]
        assert 0 <= own["auc"] <= 1
        assert len(own["flip_rate_by_tenth"]) == 10
        assert np.mean(own["flip_rate_by_tenth"]) == pytest.approx(found["flip_rate"], abs=0.02)
    assert found["bits"]["margin"]["auc"] > 0.6
    assert found["bits"]["margin"]["flip_rate_by_tenth"][-1] > found["bits"]["margin"]["flip_rate_by_tenth"][0]


def test_a_method_without_a_copy_has_a_probability_by_its_margin(studies):
    _, found = studies["csq"]
    assert list(found["images"]) == [*found["bits"], "least", "image"] == ["turnover", "margin", "least", "image"]
    assert "u" not in found


def shifted(pixels: np.ndarray, down: int, right: int) -> np.ndarray:
    """The image moved by so many pixels, its edge repeated where it leaves a gap."""
    side = len(pixels)
    rows_, columns = (np.clip(np.arange(side) + by, 0, side - 1) for by in (down, right))
    return pixels[rows_][:, columns]


def test_bits_that_flip_are_those_of_the_network_on_the_shifted_image(studies, mnist):
    run, found = studies["dmuh"]
    network, _ = load_networks(run.load_model())
    preprocess = network.backbone.preprocess
    step = max(1, round(preprocess.size / 32))
    flips = []
    for position in Split.load(run.split_file, mnist.fingerprint()).query:
        pixels = read_pixels(mnist.images[position], preprocess)
        moved = [shifted(pixels, *by) for by in ((0, 0), (0, step), (0, -step), (step, 0), (-step, 0))]
        with torch.inference_mode():
            bits = network(torch.from_numpy(np.stack(moved))) >= 0
        flips.append((bits[1:] != bits[0]).float().mean().item())
    assert found["flip_rate"] == pytest.approx(np.mean(flips), abs=0.002)


@pytest.mark.parametrize(
    ("method", "read_from", "measures"),
    [("dmuh", "copy", ["turnover", "margin", "copy", "ratio"]), ("itq", "margin", ["turnover", "margin"])],
)
def test_a_study_of_feature_vectors_has_no_bits_to_flip(read, vectors, tmp_path, method, read_from, measures):
    text = f"[[table]]\nstudy = true\nmethod = '{method}'\nuncertainty = '{read_from}'\nbits = 8\nepochs = 2"
    (cell,) = read(text, dataset="features", data=str(vectors)).cells
    run_cell(cell, tmp_path / "run", threads=1)
    found = Run(tmp_path / "run").study()
    assert list(found["images"]) == [*measures, "least", "image"]
    assert not {"bits", "flip_rate"} & set(found)
    assert ("u" in found) == (read_from == "copy")


def test_a_query_that_cannot_be_read_is_left_out_of_a_study(read, photos, tmp_path):
    root = shutil.copytree(photos, tmp_path / "photos")
    text = "[[table]]\nstudy = true\nquery = 3\nepochs = 2\nbits = 8\nbackbone = 'smallconv'\nimage_size = 16"
    (cell,) = read(text, dataset="folder", data=str(root), on_bad_image="skip").cells
    data = load_dataset(cell.config.data)
    position = protocol_of(cell.config.protocol, "folder").split(data.labels, 0).query[0]
    Path(data.path(position)).write_bytes(b"no image")
    run_cell(cell, tmp_path / "run", threads=1)
    assert len(Run(tmp_path / "run").study()["scatter"]["uncertainty"]) == 5
