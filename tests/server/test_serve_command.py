"""dmuh serve as a process: its options, how it begins and ends, and clients that mean it harm."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import numpy as np
import pytest
from serving import Server, picture

from commands import dmuh, refused
from dmuh import Collection, configure, load_dataset, train
from dmuh.datasets import Dataset
from dmuh.encoder import export_run
from test_architecture import without_torch

TOKEN = "a token of some length"


@pytest.fixture(scope="module")
def server(model, photos, tmp_path_factory):
    """A service over twenty images, which tests do not change."""
    state = tmp_path_factory.mktemp("running") / "state"
    with Server(model, "--images", photos, "--state", state, "--seconds", "3", afresh=True) as running:
        yield running


@pytest.mark.parametrize(("arguments", "sentence"), [
    ("{model}", "give the images to serve: a folder by --images, or what dmuh index made by --index"),
    ("{model} --images {photos} --index {photos}", "give the images to serve"),
    ("nowhere --images {photos}", "nowhere does not exist"),
    ("{model} --images nowhere", "the folder nowhere does not exist"),
    ("{model} --index nowhere", "nowhere holds no encoded images: make it by dmuh index"),
    ("{model} --images {photos} --host 0.0.0.0", "other machines reach 0.0.0.0: give the --token"),
    ("{model} --images {photos} --token short", "--token must have at least 16 characters, got 5"),
    ("{model} --images {photos} --host nowhere.invalid --token 0123456789abcdef", "cannot listen on port 8000 of"),
])  # fmt: skip
def test_a_wrong_service_is_one_sentence(model, photos, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    words = arguments.format(model=model, photos=photos).split()
    assert sentence in refused("serve", *words)
    assert not (photos / ".dmuh").exists()
    assert list(tmp_path.iterdir()) == []


def about(address):
    return httpx2.get(f"{address}/api/about").json()


@pytest.mark.long
def test_how_sure_bits_are_is_kept_in_as_many_bits_as_asked_for(model, photos, tmp_path):
    words = [model, "--images", photos, "--state"]
    with Server(*words, tmp_path / "one") as server:
        assert about(server.address)["sure"] == 1
    with Server(*words, tmp_path / "two", "--sure", 2) as server:
        assert about(server.address)["sure"] == 2
    with Server(*words, tmp_path / "two") as server:
        assert about(server.address)["sure"] == 2
    for sure in (0, 1):
        sentence = refused("serve", *words, tmp_path / "two", "--sure", sure)
        assert f"holds codes with 2 sure bits per bit, got codes with {sure}: give --sure 2, or another" in sentence
    assert "Invalid value for '--sure'" in dmuh("serve", *words, tmp_path / "three", "--sure", 3, code=2).stderr


@pytest.mark.long
def test_sure_bits_that_an_index_or_a_model_has_not_are_refused(model, digit_hasher, photos, tmp_path):
    data = load_dataset("folder", photos)
    Collection(tmp_path / "index").write(digit_hasher.encode(data.images), data, model, digit_hasher.digest)
    sentence = refused("serve", model, "--index", tmp_path / "index", "--sure", 2)
    assert "index has 1 sure bits per bit, got --sure 2: index the images again" in sentence
    for sure in ("--sure 1", ""):
        with Server(model, "--index", tmp_path / "index", *sure.split()) as server:
            assert about(server.address)["sure"] == 1
    assert "got --sure 0: index the images again" in refused("serve", model, "--index", tmp_path / "index", "--sure", 0)


def test_the_token_may_come_from_the_environment(model, photos, monkeypatch):
    monkeypatch.setenv("DMUH_TOKEN", "shorter")
    assert "at least 16 characters, got 7" in refused("serve", model, "--images", photos)


def test_a_port_that_is_taken_is_one_sentence(model, photos, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        sentence = refused("serve", model, "--images", photos, "--state", tmp_path / "state", "--port", port)
    assert f"cannot listen on port {port} of 127.0.0.1: Address already in use" in sentence


def test_a_model_of_vectors_is_refused(digits, photos, tmp_path):
    vectors = digits.images.reshape(len(digits), -1).astype(np.float32) / 255
    data = Dataset("features", vectors, digits.labels, digits.classes)
    run = train(configure({"dataset": "features", "method": "itq", "bits": 8}), tmp_path / "run", dataset=data)
    export_run(run.path, tmp_path / "model")
    for model in (run.path, tmp_path / "model"):
        assert "takes feature vectors, and only images can be served" in refused("serve", model, "--images", photos)


def test_without_the_extra_the_install_command_is_said(model, photos):
    program = """
sys.modules['uvicorn'] = None
from dmuh.cli import main
sys.argv = ["dmuh", "serve", sys.argv[1], "--images", sys.argv[2]]
try: main()
except SystemExit as stopped: print(stopped.code)
"""
    command = [sys.executable, "-c", f"import sys\n{program}", str(model), str(photos)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "2\n"
    assert result.stderr == "dmuh: serving needs an optional part of dmuh: pip install 'dmuh[serve]'\n"


def test_it_says_where_it_is_and_answers_there(server):
    assert re.fullmatch(r"serving 20 images at http://127\.0\.0\.1:\d+ \(Ctrl-C ends it\)\n", server.line)
    assert httpx2.get(f"{server.address}/healthz").json() == {"status": "ok"}
    answer = httpx2.post(f"{server.address}/api/search", content=picture(), headers={"content-type": "image/png"})
    assert len(answer.json()["matches"]) == 10
    assert "server" not in answer.headers


def test_other_machines_do_not_reach_it(server):
    """It listens on 127.0.0.1 alone, not on all addresses of this machine."""
    port = int(server.address.rsplit(":", 1)[1])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)


@pytest.mark.long
def test_a_second_service_over_the_same_state_is_refused(model, photos, tmp_path):
    with Server(model, "--images", photos, "--state", tmp_path / "state"):
        sentence = refused("serve", model, "--images", photos, "--state", tmp_path / "state", "--port", 0)
    assert sentence == f"dmuh: another process serves {tmp_path / 'state'}, or changes it by dmuh index"


def receive(connection: socket.socket) -> bytes:
    """Read until the other side ends the connection."""
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.address.rsplit(":", 1)[1])), timeout=30)


def test_a_head_without_end_is_cut_off(server):

    def send_on(connection):
        for _ in range(1000):
            connection.sendall(b"X-Filler: " + b"x" * 10_000 + b"\r\n")
            time.sleep(0.001)

    with connect(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        with pytest.raises(ConnectionError):
            send_on(connection)
    assert httpx2.get(f"{server.address}/healthz").status_code == 200


@pytest.mark.long
def test_a_body_that_does_not_come_is_waited_for_only_so_long(server):
    began = time.monotonic()
    with connect(server) as connection:
        connection.sendall(
            b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-type: image/png\r\ncontent-length: 999\r\n\r\nx"
        )
        answer = receive(connection)  # head and body may come one after the other
    assert b" 503 " in answer.splitlines()[0]
    assert b"took longer than 3 seconds" in answer
    assert 2 < time.monotonic() - began < 20


@pytest.mark.long
@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_a_head_that_does_not_come_is_waited_for_only_so_long(server, begun):
    began = time.monotonic()
    with connect(server) as connection:
        connection.sendall(begun)
        assert receive(connection) == b""
    assert 2 < time.monotonic() - began < 20


def test_garbage_is_refused(server):
    for garbage in (b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n\0\0"):
        with connect(server) as connection:
            connection.sendall(garbage + b"\r\n\r\n")
            assert b"Traceback" not in receive(connection)
    assert httpx2.get(f"{server.address}/healthz").status_code == 200


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_it_is_told_to(model, photos, tmp_path, number):
    with Server(model, "--images", photos, "--state", tmp_path / "state", afresh=True) as server:
        with httpx2.Client(base_url=server.address) as client:
            client.get("/healthz")
            server.process.send_signal(number)
            assert server.process.wait(30) in (0, -signal.SIGTERM)
        assert server.process.stderr.read() == ""


@pytest.mark.long
def test_ctrl_c_in_a_terminal_ends_all_its_processes_in_silence(model, photos, tmp_path):
    """A terminal sends it to all of them at once, also to those that decode."""
    command = [sys.executable, "-m", "dmuh.cli", "serve", model, "--images", photos, "--state", tmp_path, "--port", "0"]
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    address = process.stdout.readline().split(" at ")[1].split()[0]
    for _ in range(3):  # once they answer they have started
        png = {"content-type": "image/png"}
        assert httpx2.post(f"{address}/api/search", content=picture(), headers=png).status_code == 200
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0


@pytest.mark.long
def test_options_reach_the_service(model, photos, tmp_path):
    options = ("--token", TOKEN, "--allow-host", "photos.example", "--megabytes", "0.002", "--megapixels", "0.0009",
               "--rate", "5", "--host", "127.0.0.3")  # fmt: skip
    with (
        Server(model, "--images", photos, "--state", tmp_path / "state", *options) as server,
        httpx2.Client(base_url=server.address, headers={"authorization": f"Bearer {TOKEN}"}) as client,
    ):
        assert server.address.startswith("http://127.0.0.3:")
        assert client.get("/api/about", headers={"host": "photos.example"}).status_code == 200
        assert client.get("/api/about", headers={"authorization": ""}).status_code == 401
        png = {"content-type": "image/png"}
        assert client.post("/api/search", content=picture(size=(31, 31)), headers=png).status_code == 413
        assert client.post("/api/search", content=bytes(2001), headers=png).status_code == 413
        assert 429 in [client.get("/healthz").status_code for _ in range(30)]


@pytest.mark.long
def test_the_export_is_served_without_torch(model, photos, tmp_path):
    """Encoded, indexed, searched and served by a process in which torch cannot be imported."""
    program = """
import json, threading, urllib.request
from dmuh.cli import main
from dmuh.server.http import server as http_server
model, photos, index = sys.argv[1:]
run = http_server.run

def ask_and_stop(app, opened, seconds, ready):
    def ask():
        address = http_server.address_of(opened)
        with urllib.request.urlopen(f"{address}/api/search?path=ones/03.png&k=3") as answer:
            print(len(json.load(answer)["matches"]))
        import signal, os
        os.kill(os.getpid(), signal.SIGINT)
    run(app, opened, seconds, threading.Thread(target=ask).start)

http_server.run = ask_and_stop
for command in (["index", model, photos, "--dataset", "folder", "--out", index],
                ["serve", model, "--index", index, "--port", "0"]):
    sys.argv = ["dmuh", *command]
    try: main()
    except SystemExit as stopped: assert not stopped.code
print(bool(sys.modules.get("torch")))
"""
    lines = without_torch(program, model, photos, tmp_path / "index").splitlines()
    assert lines == [f"20 images indexed: {tmp_path / 'index'}", "3", "False"]
    assert (tmp_path / "index" / "catalogue.sqlite").exists()


@pytest.mark.long
def test_state_stays_out_of_sight_in_the_folder_of_images(model, folder):
    with Server(model, "--images", folder):
        pass
    assert (folder / ".dmuh" / "catalogue.sqlite").exists()
    out = folder.parent / "codes"
    assert "20 images encoded" in dmuh("encode", model, folder, "--out", out).stdout  # added ones are not among them
    assert Path(out).exists()


@pytest.mark.long
def test_an_index_is_served_searched_and_changed_by_one_at_a_time(digit_run, folder, tmp_path):
    """What a service adds is found by dmuh search, at once; dmuh index waits until the service ended."""
    index = tmp_path / "index"
    dmuh("index", digit_run.path, folder, "--out", index)
    before = {file.name for file in index.iterdir()}
    (tmp_path / "new.png").write_bytes(picture(seed=5))
    with Server(digit_run.path, "--index", index) as server, httpx2.Client(base_url=server.address) as client:
        png = {"content-type": "image/png"}
        added = client.post("/api/images?label=new", content=picture(seed=5), headers=png).json()
        assert client.delete("/api/images/3").status_code == 204
        (found,) = json.loads(dmuh("search", index, tmp_path / "new.png", "-k", 30, "--json").stdout)
        assert found["matches"][0]["path"] == str(index / "added" / added["path"].removeprefix("added/"))
        assert 3 not in [match["id"] for match in found["matches"]]
        assert len(found["matches"]) == 20
        for words in (["--sync"], [tmp_path / "new.png", "--add"], []):
            said = refused("index", index, *words)
            assert said == f"dmuh: another process serves or changes {index}: end it, or wait for it, and try again"
    assert {file.name for file in index.iterdir()} - before == {"added"}, "nothing was copied"
    said = json.loads(dmuh("index", index, "--sync", "--json").stdout)
    assert (said["images"], said["added"], said["removed"]) == (20, 0, 0), "what was deleted and added stays so"
    assert "1 images that were added and 1 removals" in refused(
        "index", digit_run.path, folder, "--out", index, "--replace"
    )
