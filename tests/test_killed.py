"""Trainings that get SIGKILL again and again come to the same bits as those that nobody disturbs."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dmuh.runs import Run

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "dmuh.cli", "train", "--no-evaluate", "--out"]
COMMON = ["--bits", "12", "--query", "5", "--set", "batch_size=20"]
FROZEN = ["--backbone", "efficientnet-lite0", "--set", "image_size=32"]
STAGES = ["--backbone", "efficientnet-lite0", "--freeze", "stage4", "--set", "image_size=64", "--set", "augment=flip"]
STAGES += ["--set", "optimizer=adamw", "--set", "lr=0.001"]
DEEP = ["--epochs", "40", "--train", "20"]
DROPOUT = ["--freeze", "all", "--set", "hidden=32", "--set", "dropout=0.5", "--set", "lr=0.01"]
SLOWLY = ["--set", "image_size=16", "--set", "lr=0.001"]
KINDS = {
    "dmuh from scratch": [*DEEP, "--set", "image_size=16"],
    "dmuh, stages trained": [*STAGES, "--epochs", "25", "--train", "10"],
    "dmuh, frozen": [*FROZEN, *DEEP, "--epochs", "150", "--freeze", "all", "--set", "kernel=50"],
    "dmuh, dropout": [*FROZEN, *DEEP, "--epochs", "150", *DROPOUT],
    "regu": [*DEEP, "--method", "regu", "--set", "image_size=16"],
    "csq": [*DEEP, "--method", "csq", "--set", "image_size=16"],
    "dsdh, discrete steps": [*DEEP, "--method", "dsdh", "--set", "image_size=16"],
    "ddsh, discrete steps": [*DEEP, "--method", "ddsh", "--epochs", "12", *SLOWLY],
    "dpsh, buffers": [*DEEP, "--method", "dpsh", "--set", "image_size=16"],
    "sdh": [*FROZEN, "--method", "sdh", "--train", "60"],
    "lfh": [*FROZEN, "--method", "lfh", "--train", "60"],
}
KILLS = 5


def killed(command: list[str], run: Run, rng: random.Random) -> int:
    """Start a training and kill it a moment after its next epoch, or after it began; return its code."""
    log, shallow = run.path / "metrics.jsonl", "--epochs" not in command
    before = log.read_bytes().count(b"\n") if log.exists() else 0
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        lines = log.read_bytes().count(b"\n") if log.exists() else 0
        if run.started if shallow else lines > before:
            time.sleep(rng.uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    return process.wait()


@pytest.mark.parametrize("kind", KINDS)
def test_killed_again_and_again_it_comes_to_the_same_bits(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("DMUH_CACHE", str(tmp_path / "cache"))
    rng = random.Random(kind)
    whole, run = Run(tmp_path / "whole"), Run(tmp_path / "killed")
    command = [*COMMAND, str(run.path), *COMMON, *KINDS[kind], "--resume"]
    codes = [killed(command, run, rng) for _ in range(KILLS)]
    assert codes.count(-signal.SIGKILL) == KILLS, "it was too quick to be killed so often"
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run([*COMMAND, str(whole.path), *COMMON, *KINDS[kind]], check=True, capture_output=True)
    ours, theirs = run.load_model(), whole.load_model()
    assert ours.checksum == theirs.checksum
    assert all(np.array_equal(ours.arrays[name], array) for name, array in theirs.arrays.items())
    assert [line["epoch"] for line in run.metrics()] == [line["epoch"] for line in whole.metrics()]
    assert run.trace() == whole.trace()
    assert not list(Path(run.path).glob(".*.dmuh-*"))
