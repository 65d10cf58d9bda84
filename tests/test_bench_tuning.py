"""Tuning before a bench: what is tried, what is chosen, and that the tables are run with it."""

import csv
import json

import pytest

from commands import dmuh
from dmuh.bench import TUNING, chosen_settings, read_grid, read_tuning, tune
from dmuh.bench.cells import SUMMARY, run_cell, summary_of
from dmuh.errors import ConfigError
from dmuh.files.documents import write_document

FILE = """
    [settings]
    dataset = "features"
    bits = 8
    epochs = 3
    batch_size = 16

    [methods.dmuh]
    beta = 0.2

    [tuning]
    tries = 3
    tuning = 0.5
    seed = 7
    bits = 12

    [tuning.methods.dmuh]
    weight_decay = [0.01, 10.0]
    beta = [0.1, 0.2, 0.4]

    [tuning.methods.itq]
    iterations = [50, 1]

    [[table]]
    name = "methods"
    method = ["dmuh", "itq", "lfh"]
    seed = [0, 1]
"""


@pytest.fixture
def read(tmp_path):
    """Reads what is tuned from the text of a grid."""

    def read(text, **overrides):
        (tmp_path / "grid.toml").write_text(text)
        return read_tuning(tmp_path / "grid.toml", overrides)

    return read


def test_a_methods_settings_are_among_its_tries_and_the_rest_is_drawn_by_the_seed(read):
    tries = [one for one in read(FILE).tries if one.method == "dmuh"]
    assert len(tries) == 3
    assert tries[0].settings == {}
    assert tries[0].cell.config.options.beta == 0.2
    assert all(one.cell.config.options.beta == one.settings["beta"] for one in tries[1:])
    assert [one.settings for one in read(FILE).tries] == [one.settings for one in read(FILE).tries]
    drawn = [one.settings for seed in range(40) for one in read(FILE.replace("seed = 7", f"seed = {seed}")).tries]
    assert {(one["weight_decay"], one["beta"]) for one in drawn if "beta" in one} == {
        (decay, beta) for decay in (0.01, 10.0) for beta in (0.1, 0.2, 0.4)
    }


def test_tries_are_of_held_out_training_images_and_have_the_sections_own_settings(read):
    for one in read(FILE).tries:
        config = one.cell.config
        assert (config.protocol.tuning, config.training.seed, config.network.bits) == (0.5, 7, 12)
        assert config.training.epochs == 3
    assert {one.cell.config.training.epochs for one in read(FILE, epochs=2).tries} == {2}


def test_what_is_the_same_run_is_tried_once(read):
    assert [one.settings for one in read(FILE).tries if one.method == "itq"] == [{}, {"iterations": 1}]


def test_a_grid_without_the_section_has_no_tries(read, tmp_path):
    tuning = read('[[table]]\nname = "one"')
    assert tuning.tries == []
    assert tune(tuning, tmp_path / "out") == {}
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("old", "new", "sentence"), [
    ("tries = 3", "tries = 0", "tuning: tries must be a whole number at least 1, got 0"),
    ("tries = 3", "", "tuning: tries must be a whole number at least 1, got None"),
    ("tries = 3", "tries = 3\n    sure = 3", "tuning: sure must be 0, 1 or 2, got 3"),
    ("tries = 3", "tries = 3\n    sure = true", "tuning: sure must be 0, 1 or 2, got True"),
    ("tuning = 0.5", "", "held out: give tuning, such as 0.3"),
    ("weight_decay = [0.01, 10.0]", "weight_decay = 1.0", "weight_decay of dmuh must be a list of values, got"),
    ("weight_decay = [0.01, 10.0]", "wait_decay = [1.0]", "unknown setting 'wait_decay'"),
    ("tuning.methods.dmuh]", "tuning.methods.dmu]", "methods must be sections named after methods, got dmu"),
])  # fmt: skip
def test_a_wrong_section_is_one_sentence(read, old, new, sentence):
    with pytest.raises(ConfigError, match=sentence.replace("[", r"\[")):
        read(FILE.replace(old, new))


def test_tries_can_be_judged_by_sure_bits(read, tmp_path):
    by_hamming, by_sure_bits = read(FILE), read(FILE.replace("tries = 3", "tries = 3\n    sure = 1"))
    assert [one.cell.name for one in by_hamming.tries] == [one.cell.name for one in by_sure_bits.tries]
    first, second, *_ = by_hamming.tries
    for one in by_hamming.tries:  # the first is the best by Hamming distance, the second with sure bits
        measured = {"map": 0.8 if one is first else 0.6, "map_sure_1": 0.9 if one is second else 0.7}
        folder = tmp_path / "runs" / one.cell.name
        folder.mkdir(parents=True)
        write_document(folder / SUMMARY, "dmuh cell", {**measured, "cell": one.cell.name})
    assert by_hamming.best(tmp_path)["dmuh"].settings == first.settings
    assert by_sure_bits.best(tmp_path)["dmuh"].settings == second.settings != first.settings
    by_sure_bits.write(tmp_path)
    with (tmp_path / "tuning.csv").open(newline="") as text:
        assert [line["map"] for line in csv.DictReader(text)][:2] == ["0.700000", "0.900000"]


def made(cells, out):
    """Makes these runs in this process."""
    for cell in cells:
        run_cell(cell, out / "runs" / cell.name, threads=1)


@pytest.mark.long
def test_the_best_try_is_chosen_and_its_settings_are_those_of_all_tables(vectors, tmp_path):
    file, out = tmp_path / "grid.toml", tmp_path / "bench"
    file.write_text(FILE)
    command = ["bench", file, "--data", vectors, "--out", out, "--json"]
    planned = json.loads(dmuh(*command, "--dry-run").stdout)
    assert (planned["runs"], planned["done"]) == (3 + 2 + 6, 0)
    tuning = read_tuning(file, {"data": str(vectors)})
    made([one.cell for one in tuning.tries], out / TUNING)
    scores: dict[str, list[tuple[float, dict[str, object]]]] = {}
    for one in tuning.tries:
        summary = summary_of(out / TUNING / "runs" / one.cell.name)
        scores.setdefault(one.method, []).append((summary["map"], one.settings))
    best = {name: max(found, key=lambda pair: pair[0])[1] for name, found in scores.items()}
    assert len({score for score, _ in scores["dmuh"]}) > 1
    grid = read_grid(file, {"data": str(vectors)}, best)
    for cell in grid.cells:
        if cell.config.method == "dmuh" and best["dmuh"]:
            assert cell.config.options.beta == best["dmuh"]["beta"]
            assert cell.config.training.weight_decay == best["dmuh"]["weight_decay"]
        assert cell.config.protocol.tuning == 0
    made(grid.cells, out)
    said = json.loads(dmuh(*command).stdout)
    assert said["tuned"] == best == chosen_settings(tuning, out)
    with (out / "results.csv").open(newline="") as text:
        assert [row["run"] for row in csv.DictReader(text)] == [cell.name for cell in grid.cells]
    with (out / TUNING / "tuning.csv").open(newline="") as text:
        lines = list(csv.DictReader(text))
    assert {line["method"]: json.loads(line["settings"]) for line in lines if line["chosen"]} == best
    assert [line["run"] for line in lines] == [one.cell.name for one in tuning.tries]
    planned = json.loads(dmuh(*command, "--dry-run").stdout)
    assert planned["done"] == planned["runs"] == 11
    dmuh("report", out, "--out", tmp_path / "report")
    assert "| dmuh | 3 |" in (tmp_path / "report" / "tables" / "bench-tuning.md").read_text()
    assert "Settings that were chosen" in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.long
def test_one_command_tunes_and_runs_the_tables(vectors, tmp_path):
    file, out = tmp_path / "grid.toml", tmp_path / "bench"
    file.write_text(FILE.replace("seed = [0, 1]", "").replace("tries = 3", "tries = 2"))
    said = json.loads(dmuh("bench", file, "--data", vectors, "--out", out, "--jobs", "1", "--json").stdout)
    assert set(said["tuned"]) == {"dmuh", "itq"}
    assert (said["runs"], said["failed"]) == (3, 0)
    assert len(list((out / TUNING / "runs").iterdir())) == 4
    assert len(list((out / "runs").iterdir())) == 3
