"""The commands and programs that the README and the pages of docs/ show, and a place to run them in."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commands import dmuh
from processes import Command

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A block that the tests cannot run says what it needs in its title, which the site shows above it.
NOT_RUN = ("needs", "takes")
FENCE = re.compile(r"^```(\w+)( +[^\n]*)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"
# What is computed at length from the embedded digits is told to use fewer of them: it is the commands that are tested.
FEWER = {
    "dmuh bench configs/bench/digits.toml": ["--set", "query=5", "--set", "train=20", "--set", "epochs=2"],
    "dmuh train --dataset mnist5k": ["--set", "query=5", "--set", "train=20", "--set", "image_size=16"],
}


@dataclass(frozen=True)
class Block:
    """One fenced block of a page: its language, what its title says, and its lines."""

    language: str
    title: str
    text: str

    @property
    def runs(self) -> bool:
        return self.language in ("console", "python") and not self.title.startswith(NOT_RUN)

    def commands(self) -> list[list[str]]:
        """The commands of a console block, without comments; one that ends in a backslash goes on."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def blocks(page: Path) -> list[Block]:
    found = []
    for language, attributes, text in FENCE.findall(page.read_text()):
        title = re.search(r'title="([^"]*)"', attributes)
        assert bool(title) == bool(attributes.strip()), f"{page}: what does {attributes!r} say?"
        found.append(Block(language, title[1] if title else "", text))
    return found


@contextmanager
def service(arguments: list[str]) -> Iterator[str]:
    """Run `dmuh serve` or `dmuh open` on a free port; yields its address once it answers."""
    process = Command(*arguments, "--port", "0")
    try:
        line = process.stdout.readline()
        assert line.startswith("serving "), line
        yield line.split(" at ")[1].split()[0]
    finally:
        process.terminate()
        process.communicate()


@dataclass
class Reader:
    """Someone who types what the pages say. What was typed before and needs not be done again is not."""

    done: set[tuple[str, ...]] = field(default_factory=set)
    output: list[str] = field(default_factory=list)

    def read(self, page: Path) -> None:
        names: dict[str, Any] = {}
        with ExitStack() as services:
            address = ""
            for block in blocks(page):
                if block.runs and block.language == "python":
                    exec(compile(block.text, str(page), "exec"), names)
                    continue
                for words in block.commands() if block.runs else []:
                    if words[:2] in (["dmuh", "serve"], ["dmuh", "open"]):
                        services.close()
                        address = services.enter_context(service(words[1:]))
                    else:
                        self.run(words, address)

    def run(self, words: list[str], address: str) -> None:
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words
        elif words[0] == "curl":
            command = [word.replace(ADDRESS, address) for word in words]
            ran = subprocess.run([*command, "--fail-with-body", "--silent"], capture_output=True, text=True)
            assert ran.returncode == 0, (words, ran.stdout)
        elif words[0] == "dmuh":
            if tuple(words) not in self.done:
                fewer = next((more for begun, more in FEWER.items() if shlex.join(words).startswith(begun)), [])
                self.output.append(dmuh(*words[1:], *fewer).stdout)
            self.done.add(tuple(words))
        else:
            raise AssertionError(f"nobody runs {words}: give the block a title that begins with 'needs'")
