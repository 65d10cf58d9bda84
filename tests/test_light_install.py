"""The light install: what `dmuh export` wrote is encoded with, searched and served in an environment without torch."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from dmuh.encoder import export_run

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def light(tmp_path_factory) -> Path:
    """The programs of an environment in which dmuh was installed to serve, and no torch."""
    folder = tmp_path_factory.mktemp("light") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "pip", "install", "-q", "--no-deps"]
    locked = [*pip, "--require-hashes", "--only-binary", ":all:", "-r", ROOT / "lock" / "serve.txt"]
    result = subprocess.run(locked, capture_output=True, text=True, check=False)
    if "No matching distribution found" in result.stderr:  # which pip says without a network, too
        pytest.skip(f"pip finds no packages here: {result.stderr.splitlines()[-1]}")
    assert result.returncode == 0, result.stderr
    subprocess.run([*pip, "--no-index", "--no-build-isolation", ROOT], check=True)
    subprocess.run([folder / "bin" / "pip", "check"], check=True)
    return folder / "bin"


def test_an_export_is_encoded_with_searched_and_served(light, digit_run, digit_hasher, photos, tmp_path):
    model, index = tmp_path / "model", tmp_path / "index"
    export_run(digit_run.path, model)
    image = photos / "ones" / "03.png"

    def run(*arguments: object) -> str:
        result = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, check=False, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert run(light / "python", "-c", "import importlib.util as u; print(u.find_spec('torch'))") == "None\n"
    program = "import dmuh, sys; print(dmuh.Hasher.load(sys.argv[1]).encode(sys.argv[2]).bits.tolist())"
    assert json.loads(run(light / "python", "-c", program, model, image)) == digit_hasher.encode(image).bits.tolist()
    run(light / "dmuh", "index", model, photos, "--dataset", "folder", "--out", index)
    (answer,) = json.loads(run(light / "dmuh", "search", index, image, "-k", "1", "--json"))
    assert answer["matches"][0]["distance"] == 0
    command = [light / "dmuh", "serve", model, "--index", index, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().split(" at ")[1].split()[0]
            with urllib.request.urlopen(f"{address}/api/search?path=ones/03.png&k=3") as found:
                assert len(json.load(found)["matches"]) == 3
            with urllib.request.urlopen(address) as page:
                assert b"Image search" in page.read()
        finally:
            server.terminate()


def test_words_ask_for_images(light, coloured, tmp_path):
    for command in (
        ("index", coloured / "model", coloured / "list.csv", "--dataset", "csv", "--texts", "caption"),
        ("search", "--text", "a red circle", "-k", "3", "--json"),
    ):
        place = ("--out", tmp_path / "index") if command[0] == "index" else (tmp_path / "index",)
        words = list(map(str, [light / "dmuh", *command, *place]))
        result = subprocess.run(words, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
    (answer,) = json.loads(result.stdout)
    assert [match["labels"] for match in answer["matches"]] == [["red circle"]] * 3
    command = [light / "dmuh", "serve", "--index", tmp_path / "index", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().split(" at ")[1].split()[0]
            picture = (coloured / "pictures" / "blue" / "square-05.png").read_bytes()
            asked = urllib.request.Request(f"{address}/api/captions?k=1", picture, {"content-type": "image/png"})
            with urllib.request.urlopen(asked) as found:
                assert "blue square" in json.load(found)["texts"][0]["text"]
        finally:
            server.terminate()
