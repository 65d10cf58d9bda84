"""Progress bars, seen from a terminal, a pipe and a notebook."""

import logging
import os
import pty
import subprocess
import sys

import pytest
from rich import progress

from dmuh.progress import Bar, counting_bar, uncounted
from extras import needs
from terminal import Terminal


def on_a_terminal(program: str, *arguments: object) -> str:
    """Run a program whose error output is a terminal; return what it wrote there."""
    parent, child = pty.openpty()
    command = [sys.executable, "-c", program, *map(str, arguments)]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(command, stderr=child, env=environment)
    os.close(child)
    written = b""
    try:
        while more := os.read(parent, 4096):
            written += more
    except OSError:  # the other end was closed
        pass
    os.close(parent)
    assert process.wait() == 0, written.decode()
    return written.decode()


TRAINING = """
import dmuh, sys
config = dmuh.configure({"dataset": "features", "data": sys.argv[1], "epochs": 2, "bits": 8, "batch_size": 16})
dmuh.train(config, sys.argv[2] + "/none", progress=False)
dmuh.train(config, sys.argv[2] + "/told", progress=lambda step: None)
sys.stderr.write("by default:")
dmuh.train(config, sys.argv[2] + "/default")
"""


@pytest.mark.long
def test_training_shows_a_bar_on_a_terminal_unless_told_otherwise(vectors, tmp_path):
    silent, _, shown = on_a_terminal(TRAINING, vectors, tmp_path).partition("by default:")
    assert "training" in shown
    assert "epoch 2/2" in shown
    assert "training" not in silent


def test_encoding_shows_a_bar_if_asked_to(digit_run, digit_hasher, photos):
    program = """
import dmuh, sys
hasher = dmuh.Hasher.load(sys.argv[1], "cpu")
hasher.encode(sys.argv[2])
sys.stderr.write("if asked to:")
hasher.encode(sys.argv[2], progress=True)
"""
    silent, _, shown = on_a_terminal(program, digit_run.path, photos).partition("if asked to:")
    assert "encoding" not in silent
    assert "20/20" in shown


STEPS = """
import logging, sys, time
from dmuh.trainer.bar import Progress, training_bar
logging.basicConfig(level=logging.INFO, format="%(message)s")
terms = {"similarity": 12.3456, "quantisation": 0.1234, "uncertainty": 0.01}
with training_bar() as report:
    for epoch in range(1, 101):
        report(Progress(epoch, 100, 123_456, 123_456, terms, 0.1234, 0.8765))
        time.sleep(0.01)
    time.sleep(0.3)
"""


@pytest.mark.long
@pytest.mark.parametrize(("columns", "terms"), [(80, False), (200, True)])
def test_the_line_of_a_training_fits_the_terminal_and_keeps_the_map(columns, terms):
    with Terminal("-c", STEPS, columns=columns) as terminal:
        code, lines = terminal.end()
    shown = [line for part in lines for line in part.split("\r") if "epoch" in line]
    assert code == 0
    assert shown
    assert max(map(len, shown)) <= columns
    assert all("val MAP 0.8765" in line for line in shown)
    assert any("epoch 100/100" in line for line in shown)
    assert all(("similarity 12.346" in line) == terms for line in shown)


def test_without_a_terminal_there_is_a_line_per_minute_and_none_in_the_first(monkeypatch, caplog):
    now = 1000.0
    monkeypatch.setattr("dmuh.progress.time.monotonic", lambda: now)
    with caplog.at_level(logging.INFO, "dmuh"), Bar("encoding", 10_000) as bar:
        for _ in range(10):  # 20 seconds each
            now += 20
            bar.advance(1000, "a note", "another")
    assert [message.split(" of ")[0] for message in caplog.messages] == [f"encoding: {n},000" for n in (3, 6, 9)]
    assert all(message.endswith("a note, another") for message in caplog.messages)


def test_a_bar_counts_on_a_terminal_and_is_silent_in_a_pipe():
    program = """
from dmuh.progress import counting_bar
with counting_bar("reading", 30) as advance:
    for _ in range(3): advance(10)
"""
    shown = on_a_terminal(program)
    assert "reading" in shown
    assert "30/30" in shown
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_bar_knows_its_total(capsys):
    with Bar("reading") as bar:
        assert bar.total is None
        bar.set(2, 8, "two")
        bar.advance(3)
        assert bar.total == 8
    with uncounted("reading", 3) as advance, counting_bar("reading", None) as other:
        assert advance(3) is other(3) is None
    assert capsys.readouterr() == ("", "")


def test_a_notebook_shows_a_bar_and_takes_it_away():
    nbformat, nbclient = needs("nbformat", "dev"), needs("nbclient", "dev")
    needs("ipykernel", "dev")
    cells = [
        "from dmuh.progress import Bar\nbar = Bar('<reading>', 30)\nbar.start()\nbar.advance(10, 'a note')",
        "bar.stop()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    shown = []

    class Client(nbclient.NotebookClient):
        def process_message(self, msg, cell, cell_index):
            if msg["msg_type"] in ("display_data", "update_display_data"):
                shown.append(msg["content"]["data"].get("text/html"))
            return super().process_message(msg, cell, cell_index)

    Client(notebook, kernel_name="python3", timeout=120).execute()
    assert len(shown) == 2
    assert '<progress max="30" value="10"></progress> &lt;reading&gt;  10 of 30' in shown[0]
    assert "a note" in shown[0]
    assert shown[1] == ""
    assert not [output for cell in notebook.cells for output in cell.outputs if output.output_type != "display_data"]


def test_a_bar_that_is_interrupted_as_it_begins_is_taken_away(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    start = progress.Progress.start

    def interrupted(bar: progress.Progress) -> None:
        start(bar)
        raise KeyboardInterrupt

    monkeypatch.setattr(progress.Progress, "start", interrupted)
    bar = Bar("reading", 3)
    with pytest.raises(KeyboardInterrupt):
        bar.start()
    assert not bar._bar.live.is_started
