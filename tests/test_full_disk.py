"""A disk that is full or read-only: one sentence, and the same command goes on when there is room."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import dmuh

FAST = ["--epochs", "4", "--bits", "12", "--backbone", "smallconv", "--set", "image_size=16"]
AGAIN = "; make room and give the same command again, a training with --resume: it goes on"
LONG_OUTPUT = "train --help"  # more than is written at once, in a narrow terminal
NARROW = {**os.environ, "COLUMNS": "40"}
RUN = [sys.executable, "-c", "from dmuh.cli import main; main()"]
# The kernel itself refuses every byte from a moment on: at once, or when a number of checkpoints were written.
FULL = """
import resource, signal, sys
from dmuh.cli import main
from dmuh.runs import Run

def fill(): resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

def save(self, *arguments, **options):
    global left
    write(self, *arguments, **options)
    left -= 1
    if not left: fill()

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
left = int(sys.argv.pop(1))
write, Run.save_checkpoint = Run.save_checkpoint, save
if not left: fill()
main()
"""


def on_a_full_disk(checkpoints: int, *arguments: object) -> str:
    """Run a command, refused for want of room; return the sentence."""
    command = [sys.executable, "-c", FULL, str(checkpoints), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def training(photos, tmp_path_factory) -> tuple[list[object], Path]:
    """A command, but for its --out, and what it makes undisturbed."""
    command = ["train", "--dataset", "folder", "--data", photos, *FAST]
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    dmuh(*command, "--out", out)
    return command, out


@pytest.mark.long
@pytest.mark.parametrize("checkpoints", [0, 2])
def test_a_training_stopped_by_a_full_disk_goes_on_to_the_same_bits(training, tmp_path, checkpoints):
    command, undisturbed = training
    command = [*command, "--out", tmp_path / "run"]
    sentence = on_a_full_disk(checkpoints, *command)
    assert sentence.startswith("dmuh: ")
    assert sentence.endswith(f"File too large{AGAIN}")
    dmuh(*command, "--resume")
    made, wanted = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run", undisturbed))
    assert made.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_array_equal(made[name], wanted[name])
    scores = [json.loads((folder / "evaluation.json").read_text()) for folder in (tmp_path / "run", undisturbed)]
    assert scores[0] == scores[1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
@pytest.mark.parametrize("command", [LONG_OUTPUT, "cache"])
def test_output_that_has_no_room_is_a_sentence(command):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*RUN, *command.split()], stdout=full, stderr=subprocess.PIPE, text=True, env=NARROW)
    assert (done.returncode, done.stderr) == (2, f"dmuh: No space left on device{AGAIN}\n")


@pytest.mark.parametrize("command", [LONG_OUTPUT, "cache"])
def test_a_reader_that_leaves_is_no_error(command):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*RUN, *command.split()], stdout=write, stderr=subprocess.PIPE, text=True, env=NARROW)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("command", [LONG_OUTPUT, "cache"])
def test_a_closed_output_is_no_error(command):
    closed = ["sh", "-c", 'exec "$@" >&-', "sh"]
    done = subprocess.run([*closed, *RUN, *command.split()], stderr=subprocess.PIPE, env=NARROW)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.long
def test_a_read_only_disk_is_a_sentence(photos, tmp_path):
    own = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none "$1" && shift && exec "$@"']
    tried = subprocess.run([*own, "sh", tmp_path, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"this machine allows no mounts of one's own: {tried.stderr.strip()}")
    command = ["train", "--dataset", "folder", "--data", photos, "--out", tmp_path / "run", *FAST]
    done = subprocess.run([*own, "sh", tmp_path, *RUN, *map(str, command)], capture_output=True, text=True)
    assert done.returncode == 2
    said = done.stderr.splitlines()[-1]
    assert said == f"dmuh: {tmp_path / 'run'}: Read-only file system; name a folder that can be written"
