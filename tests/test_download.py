"""Downloads from a real server on this machine: whole, cut, resumed, refused; and --download on top of them."""

import dataclasses
import fcntl
import hashlib
import json
import re
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dmuh.cli import app, console
from dmuh.config import DataSettings
from dmuh.datasets import DATASETS, cifar10, download, download_dataset, load_dataset
from dmuh.datasets.download import fetch
from dmuh.errors import ConfigError, DataError, InputError
from test_cifar10 import pack, write_binary

CONTENT = np.random.default_rng(0).bytes(300_000)
CUT = 120_000


def silent(done, total):
    pass


class Server(ThreadingHTTPServer):
    """Serves one file under every name.

    ranges   whether it knows Range requests
    cut      closes the connection after so many bytes of an answer
    hang     … once this event comes
    reset    … by an error of the connection instead of its end
    shift    begins a range so many bytes too late
    status   answers this alone
    lengths  whether it says how long an answer is
    asked    the Range header of each request so far
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.ranges, self.cut, self.shift, self.status = CONTENT, True, None, 0, 200
        self.hang = threading.Event()
        self.hang.set()
        self.lengths, self.reset, self.asked = True, False, []
        self.url = f"http://127.0.0.1:{self.server_port}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        if server.status != 200:
            self.send_error(server.status)
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and server.ranges else None
        if start is not None and start >= len(server.content):
            self.send_error(416)
            return
        body = server.content[start or 0 :]
        self.send_response(200 if start is None else 206)
        if start is not None:
            begin = start + server.shift
            self.send_header("Content-Range", f"bytes {begin}-{len(server.content) - 1}/{len(server.content)}")
        if server.lengths:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.cut])
        self.wfile.flush()
        server.hang.wait(5)
        if server.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.hang.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def get(server, tmp_path):
    """Fetches the server's file, and returns it and what the progress was told."""
    target = tmp_path / "new" / "file.bin"

    def run(sha256: str = hashlib.sha256(CONTENT).hexdigest()):
        told = []
        fetch(server.url, target, sha256, lambda done, total: told.append((done, total)))
        return told

    run.target, run.part = target, tmp_path / "new" / "file.bin.dmuh-part"
    return run


def cut_short(server, get):
    """Fetch with a connection that breaks."""
    server.cut = CUT
    with pytest.raises(DataError) as caught:
        get()
    server.cut = None
    return str(caught.value)


def test_a_whole_file(server, get):
    told = get()
    assert get.target.read_bytes() == CONTENT
    assert told[0] == (0, len(CONTENT))
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert told == sorted(told)
    assert server.asked == [None]
    assert list(get.target.parent.iterdir()) == [get.target]


def test_a_cut_connection_keeps_what_came_and_the_next_call_asks_for_the_rest(server, get):
    sentence = cut_short(server, get)
    assert f"closed after {CUT:,} of {len(CONTENT):,} bytes" in sentence
    assert f"{get.part} keeps the {CUT:,} bytes that came and the same command goes on from there" in sentence
    assert get.part.read_bytes() == CONTENT[:CUT]
    assert not get.target.exists()
    told = get()
    assert server.asked == [None, f"bytes={CUT}-"]
    assert told[0] == (CUT, len(CONTENT))
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert get.target.read_bytes() == CONTENT
    assert not get.part.exists()


def test_cut_twice(server, get):
    cut_short(server, get)
    assert f"keeps the {2 * CUT:,} bytes" in cut_short(server, get)
    get()
    assert server.asked == [None, f"bytes={CUT}-", f"bytes={2 * CUT}-"]
    assert get.target.read_bytes() == CONTENT


def test_a_server_without_ranges_sends_it_all_again(server, get):
    cut_short(server, get)
    server.ranges = False
    told = get()
    assert told[0] == (0, len(CONTENT))
    assert server.asked == [None, f"bytes={CUT}-"]
    assert get.target.read_bytes() == CONTENT


def test_a_server_that_sends_another_range_is_asked_for_all(server, get):
    cut_short(server, get)
    server.shift = 7
    get()
    assert server.asked == [None, f"bytes={CUT}-", None]
    assert get.target.read_bytes() == CONTENT


def test_a_part_that_is_longer_than_the_file_is_begun_anew(server, get):
    get.part.parent.mkdir()
    get.part.write_bytes(b"x" * (len(CONTENT) + 1))
    get()
    assert server.asked == [f"bytes={len(CONTENT) + 1}-", None]
    assert get.target.read_bytes() == CONTENT


def test_a_part_that_is_whole_needs_no_server(server, get):
    get.part.parent.mkdir()
    get.part.write_bytes(CONTENT)
    assert get() == []
    assert server.asked == []
    assert get.target.read_bytes() == CONTENT


def test_a_wrong_checksum_removes_what_came(server, get):
    with pytest.raises(DataError, match=r"gave a file with sha256 [0-9a-f]{64}, expected 0{64}: it is removed"):
        get("0" * 64)
    assert list(get.target.parent.iterdir()) == []
    get()
    assert get.target.read_bytes() == CONTENT


@pytest.mark.parametrize("status", [404, 403, 500])
def test_an_answer_that_is_no_file_is_said_and_keeps_what_came(server, get, status):
    server.status = status
    with pytest.raises(DataError, match=rf"cannot fetch http.*: the server answered {status} \w+.*; the same command"):
        get()
    assert list(get.target.parent.iterdir()) == []
    server.status = 200
    cut_short(server, get)
    server.status = status
    with pytest.raises(DataError, match=f"answered {status} .*keeps the {CUT:,} bytes"):
        get()
    assert get.part.stat().st_size == CUT


def test_a_server_that_falls_silent(server, get, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    server.hang.clear()
    assert re.search(rf"said nothing for 0\.2 s; .* keeps the {CUT:,} bytes", cut_short(server, get))
    server.hang.set()
    get()
    assert get.target.read_bytes() == CONTENT


def test_a_connection_that_is_reset(server, get):
    server.reset = True
    assert "Connection reset by peer" in cut_short(server, get)
    server.reset = False
    get()
    assert get.target.read_bytes() == CONTENT


def test_no_server(get, server, monkeypatch):
    server.url = "http://127.0.0.1:9/file.bin"
    with pytest.raises(DataError, match=r":9/file\.bin: Connection refused; the same command tries again"):
        get()


def test_an_unknown_length(server, get):
    server.lengths = False
    told = get()
    assert told[-1] == (len(CONTENT), None)
    assert get.target.read_bytes() == CONTENT


def test_a_stop_keeps_what_came(server, get):
    def stop(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(server.url, get.target, "0" * 64, stop)
    kept = get.part.read_bytes()
    assert kept
    assert CONTENT.startswith(kept)


def test_two_processes_do_not_fetch_the_same_file(server, get):
    get.part.parent.mkdir()
    with get.part.open("wb") as other:
        other.write(CONTENT[:10])
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match=r"another process is fetching .*file\.bin"):
            get()
    assert get.part.exists()


def test_a_place_that_cannot_be_written_is_named(get, tmp_path):
    (tmp_path / "new").write_bytes(b"a file")
    with pytest.raises(DataError, match=r"cannot write .*new: File exists"):
        get()


@pytest.mark.parametrize("url", ["http://example.org/a", "ftp://127.0.0.1/a", "file:///etc/hosts", "a"])
def test_only_https_is_fetched(tmp_path, url):
    with pytest.raises(InputError, match=f"only https addresses are fetched, got {url}"):
        fetch(url, tmp_path / "a", "0" * 64, silent)


def test_archives_of_the_table():
    archives = {name: source.archive for name, source in DATASETS.items() if source.archive}
    assert list(archives) == ["cifar10"]
    for archive in archives.values():
        assert archive.url.startswith("https://")
        assert archive.url.endswith(f"/{archive.file}")
        assert re.fullmatch("[0-9a-f]{64}", archive.sha256)


# -- data sets -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_cifar10(server, tmp_path, monkeypatch) -> Server:
    """The server has an archive of small batches, and DATASETS names it."""
    monkeypatch.setattr(cifar10, "_BATCH", 20)
    rng = np.random.default_rng(0)
    names = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    rows = {name: (np.arange(20) % 10, rng.integers(0, 256, (20, 3072), np.uint8)) for name in names}
    archive = pack(write_binary(tmp_path / "made" / "cifar-10-batches-bin", rows), tmp_path / "made" / "archive")
    server.content = archive.read_bytes()
    source = DATASETS["cifar10"]
    sha256 = hashlib.sha256(server.content).hexdigest()
    local = dataclasses.replace(source.archive, url=server.url, sha256=sha256)
    monkeypatch.setitem(DATASETS, "cifar10", dataclasses.replace(source, archive=local))
    return server


def ask(data: Path | str = "", dataset: str = "cifar10") -> DataSettings:
    settings = DataSettings(dataset=dataset, data=str(data))
    download_dataset(settings, silent)
    return settings


def test_cifar10_is_fetched_once_and_read(small_cifar10, tmp_path):
    settings = ask(tmp_path / "new" / "data")
    assert [path.name for path in (tmp_path / "new" / "data").iterdir()] == ["cifar-10-python.tar.gz"]
    assert load_dataset(settings).images.shape == (120, 32, 32, 3)
    ask(tmp_path / "new" / "data")
    ask(tmp_path / "new" / "data" / "cifar-10-python.tar.gz")
    assert len(small_cifar10.asked) == 1


def test_data_that_are_there_are_not_fetched(small_cifar10, tmp_path):
    made = tmp_path / "made"
    ask(made)
    ask(made / "cifar-10-batches-bin")
    ask(made / "archive")
    (tmp_path / "binary").mkdir()
    (made / "archive").rename(tmp_path / "binary" / "cifar-10-binary.tar.gz")
    assert len(load_dataset(ask(tmp_path / "binary"))) == 120
    assert small_cifar10.asked == []


def test_an_archive_that_is_cut_short_is_left_to_its_owner(small_cifar10, tmp_path):
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.write_bytes(small_cifar10.content[:5_000])
    with pytest.raises(DataError, match="whole archive"):
        load_dataset(DataSettings(dataset="cifar10", data=str(tmp_path)))
    for data in (tmp_path, archive):
        with pytest.raises(
            DataError, match=r"cifar-10-python.tar.gz is there already, and is not what .* move it away"
        ):
            ask(data)
    assert archive.read_bytes() == small_cifar10.content[:5_000]
    assert small_cifar10.asked == []
    archive.rename(tmp_path / "other")
    assert len(load_dataset(ask(tmp_path))) == 120


def test_what_another_program_has_fetched_is_not_touched(server, get):
    browsers = get.target.with_name("file.bin.part")
    browsers.parent.mkdir()
    browsers.write_bytes(b"of a browser")
    cut_short(server, get)
    get()
    assert browsers.read_bytes() == b"of a browser"
    assert get.target.read_bytes() == CONTENT
    assert sorted(browsers.parent.iterdir()) == [get.target, browsers]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_file_that_is_there_is_not_replaced(server, get, when):
    def write(done, total):
        get.target.write_bytes(b"mine")

    get.target.parent.mkdir()
    if when == "before":
        write(0, 0)
    with pytest.raises(DataError, match=r"file\.bin is there already, and is not what would be fetched"):
        fetch(server.url, get.target, hashlib.sha256(CONTENT).hexdigest(), write)
    assert get.target.read_bytes() == b"mine"


def test_a_file_in_the_way(small_cifar10, tmp_path):
    (tmp_path / "notes.txt").write_text("no archive")
    with pytest.raises(ConfigError, match=r"needs a folder to fetch cifar10 into, but .*notes\.txt is a file"):
        ask(tmp_path / "notes.txt")


@pytest.mark.parametrize(("dataset", "error", "words"), [
    ("nuswide", DataError, r"--download cannot fetch nuswide: ask the NUS-WIDE authors .*lms\.comp\.nus\.edu\.sg"),
    ("coco", DataError, r"--download cannot fetch coco: download train2014, val2014 .*cocodataset\.org"),
    ("clothing1m", DataError, r"--download cannot fetch clothing1m: ask .*github\.com/Cysu/noisy_label"),
    ("mnist5k", ConfigError, "--download is for cifar10: the data set mnist5k is embedded or your own"),
    ("folder", ConfigError, "--download is for cifar10: the data set folder is embedded or your own"),
    ("csv", ConfigError, "--download is for cifar10: the data set csv"),
    ("images", ConfigError, "--download is for cifar10: the data set images"),
    ("cifar", ConfigError, "unknown data set 'cifar': did you mean cifar10"),
    ("cifar10", ConfigError, "--download needs a folder to fetch cifar10 into: --data DIR"),
])  # fmt: skip
def test_what_cannot_be_fetched_is_said(dataset, error, words):
    with pytest.raises(error, match=words):
        ask(dataset=dataset)


@pytest.mark.parametrize(("dataset", "words"), [
    ("nuswide", r"ask the NUS-WIDE authors"),
    ("coco", r"download train2014.*cocodataset\.org"),
    ("clothing1m", r"ask the Clothing1M authors"),
    ("cifar10", r"get it from www\.cs\.toronto\.edu.*`dmuh train --download`"),
])  # fmt: skip
def test_data_that_are_missing_say_where_to_get_them(dataset, words, tmp_path):
    with pytest.raises(ConfigError, match=f"the data set {dataset} needs a folder or file: --data PATH; {words}"):
        load_dataset(DataSettings(dataset=dataset))
    with pytest.raises(DataError, match=f"nowhere does not exist; {words}"):
        load_dataset(DataSettings(dataset=dataset, data=str(tmp_path / "nowhere")))
    if dataset == "cifar10":
        with pytest.raises(DataError, match=f"holds no CIFAR-10: .*cifar-10-binary.tar.gz; {words}"):
            load_dataset(DataSettings(dataset=dataset, data=str(tmp_path)))


# -- the command line ------------------------------------------------------------------------------------------------


def train(*arguments: object):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def test_train_with_download(small_cifar10, tmp_path):
    options = ["--dataset", "cifar10", "--data", tmp_path / "data", "--query", 1, "--train", 4, "--epochs", 1]
    options += ["--bits", 8, "--backbone", "smallconv", "--set", "image_size=16", "--set", "validation=0"]
    options += ["--no-evaluate", "--json"]
    without = train(*options, "--out", tmp_path / "run")
    assert isinstance(without.exception, DataError)
    assert not (tmp_path / "data").exists()
    result = train(*options, "--out", tmp_path / "run", "--download")
    assert result.exception is None, result.exception
    assert json.loads(result.stdout)["run"] == str(tmp_path / "run")
    assert result.stderr == ""  # no bar where there is no terminal
    assert train("--out", tmp_path / "run", "--resume", "--download", "--no-evaluate").exception is None
    assert len(small_cifar10.asked) == 1


def test_train_that_cannot_download(server, small_cifar10, tmp_path, monkeypatch):
    refused = train("--dataset", "folder", "--data", tmp_path, "--download", "--out", tmp_path / "run")
    assert isinstance(refused.exception, ConfigError)
    assert not (tmp_path / "run").exists()

    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("dmuh.datasets.fetch", stop)
    stopped = train("--dataset", "cifar10", "--data", tmp_path, "--download", "--out", tmp_path / "run")
    assert "the same command goes on from there" in str(stopped.exception)


def test_the_bar_counts_bytes_on_a_terminal(monkeypatch, capsys):
    with console.download_bar() as progress:
        progress(500_000, 1_000_000)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with console.download_bar() as progress:
        progress(500_000, 1_000_000)
        progress(1_000_000, 1_000_000)
    assert re.search(r"downloading.*1\.0.*MB", capsys.readouterr().err)
