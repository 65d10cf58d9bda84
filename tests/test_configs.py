"""The published experiments: each file is what its header says, and can be run."""

import shlex
from pathlib import Path

import pytest

from dmuh.bench import read_grid, read_tuning
from dmuh.config import Config, read_toml
from dmuh.methods import METHODS, Objective, configure

CONFIGS = Path(__file__).parents[1] / "configs"
FILES = sorted(CONFIGS.glob("*.toml"))
GRIDS = sorted((CONFIGS / "bench").glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_can_be_run_by_the_command_in_its_header(file):
    command = shlex.split(file.read_text().splitlines()[0].removeprefix("# "))
    assert command[:4] == ["dmuh", "train", "--config", f"configs/{file.name}"]
    assert command[-2] == "--out"
    config = configure(read_toml(file))
    assert config.data.dataset in ("cifar10", "csv", "folder")
    # all training images train, but for a few by which it is counted how often bits turn over; nothing is tuned
    assert config.protocol.validation in (0, 0.05)


def test_there_are_some():
    assert {"cifar10-frozen", "cifar10-stage3", "coco18", "apparel"} <= {file.stem for file in FILES}


@pytest.mark.parametrize("file", GRIDS, ids=lambda file: file.stem)
def test_a_grid_can_be_run_by_the_command_in_its_header(file):
    command = shlex.split(file.read_text().splitlines()[0].removeprefix("# "))
    assert command[:3] == ["dmuh", "bench", f"configs/bench/{file.name}"]
    assert command[-2:] == ["--out", f"bench/{file.stem}"]
    grid = read_grid(file, {})
    assert grid.cells
    tuning = "tuning" in file.stem or "terms" in file.stem
    for cell in grid.cells:
        assert (cell.config.protocol.tuning > 0) == tuning  # settings are never chosen by the test images
        counted = {"sure": 0.1, "tuned": 0.1, "classes": 0.1, "unseen": 0.1, "default": 0.1, "several": 0.1,
                   "texts": 0.1, "trained": 0.05}  # to count on how often bits turn over  # fmt: skip
        assert cell.config.protocol.validation == counted.get(file.stem.split("-")[0], 0.0)
        later = (10, 11, 12) if file.stem.startswith("several-") else (3, 4, 5)
        never_looked_at = file.stem.startswith(("tuned-", "classes-", "default-", "several-", "trained-"))
        seeds = (7, 8, 9) if tuning else later if never_looked_at else (0, 1, 2)
        assert cell.config.training.seed in seeds  # nor by the seeds of the tables
    for one in read_tuning(file, {}).tries:
        assert one.cell.config.protocol.tuning > 0
        assert one.cell.config.training.seed == 7


def settings_but(config: Config, *others: str) -> dict[str, object]:
    """The settings of method, network and training, without the seed, who reads the images, and these."""
    sections = config.to_dict()
    known = sections["method"] | sections["network"] | sections["training"]
    return {key: value for key, value in known.items() if key not in ("seed", "workers", *others)}


def test_the_grid_of_trained_stages_runs_the_config_that_it_names():
    config = configure(read_toml(CONFIGS / "cifar10-lite2.toml"))
    for cell in read_grid(CONFIGS / "bench" / "trained-cifar10.toml", {}).cells:
        assert settings_but(cell.config) == settings_but(config)
        assert cell.config.protocol.validation == config.protocol.validation


def test_trained_stages_of_a_folder_differ_from_those_of_cifar10_in_what_the_docs_say():
    folder, cifar10 = (configure(read_toml(CONFIGS / f"{name}.toml")) for name in ("folder-stages", "cifar10-stage4"))
    assert settings_but(folder, "recode", "uncertainty") == settings_but(cifar10, "recode", "uncertainty")
    assert (folder.training.recode, cifar10.training.recode) == ("never", "auto")
    assert (folder.training.uncertainty, cifar10.training.uncertainty) == ("classes", "margin")


PAPER_GRIDS = [file for file in GRIDS if file.stem.startswith("paper-")]


@pytest.mark.parametrize("file", PAPER_GRIDS, ids=lambda file: file.stem)
def test_every_deep_method_of_the_papers_grids_has_settings_of_its_own_and_trains_as_long(file):
    deep = [cell for cell in read_grid(file, {}).cells if issubclass(METHODS[cell.config.method], Objective)]
    assert {cell.config.method for cell in deep} >= {"dmuh", "csq", "dhn", "dsh", "dpsh", "dsdh", "ddsh"}
    for cell in deep:
        assert cell.preset == "paper", cell.name
        assert cell.config.training.epochs == 150, cell.name


def test_every_table_and_figure_of_the_paper_has_its_grid():
    names = {"cifar10", "nuswide", "coco", "clothing1m"}
    tables = {name: {t.name for t in read_grid(GRIDS[0].with_name(f"paper-{name}.toml"), {}).tables} for name in names}
    assert all({"methods", "csq"} <= own for own in tables.values())
    assert all("ablations" in tables[name] for name in ("cifar10", "nuswide", "coco"))
    assert {"curves", "alpha", "beta", "gamma"} <= tables["cifar10"]
