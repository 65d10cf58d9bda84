"""The published experiments: each file is what its header says, and can be run."""

import shlex
from pathlib import Path

import pytest

from dmuh.config import read_toml
from dmuh.methods import configure

FILES = sorted((Path(__file__).parents[1] / "configs").glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_can_be_run_by_the_command_in_its_header(file):
    command = shlex.split(file.read_text().splitlines()[0].removeprefix("# "))
    assert command[:4] == ["dmuh", "train", "--config", f"configs/{file.name}"]
    assert command[-2] == "--out"
    config = configure(read_toml(file))
    assert config.data.dataset in ("cifar10", "csv", "folder")
    assert config.protocol.validation == 0  # all training images train; what was tuned was tuned before


def test_there_are_some():
    assert {"cifar10-frozen", "cifar10-stage3", "coco18", "apparel"} <= {file.stem for file in FILES}
