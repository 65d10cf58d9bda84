"""Figures in the README and the docs are those of results/ and of benchmarks/results."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
TABLES = {file.stem: file.read_text() for file in (ROOT / "results").rglob("tables/*.md")}
SPEED = {file.stem: file.read_text() for file in (ROOT / "benchmarks" / "results").glob("*.md")}
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
# A figure of speed: a number and its unit.
MEASURED = re.compile(rf"(?<![\w.,])({NUMBER} ?(?:ms|MB|s|/s|×))(?![\w.])")


def rows(table: str) -> list[list[str]]:
    """The cells of a Markdown table, without the marks of bold."""
    lines = [line for line in table.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]


def section(text: str, title: str) -> str:
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]


def text_of_report() -> str:
    """The text of the page of results, without its pictures."""
    page = re.sub(r'"data:[^"]*"', '""', (ROOT / "results" / "index.html").read_text())
    return re.sub(r"<[^>]+>", " ", re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)).replace("−", "-")


def test_results_of_the_readme():
    header, *shown = rows(section(README, "Results"))
    assert header == ["method", "CIFAR-10", "MS-COCO, 18 classes", "clothes"]
    assert len(shown) >= 4
    for number, name in enumerate(("tuned-cifar10", "tuned-coco18", "tuned-apparel"), start=1):
        columns, *known = rows(TABLES[f"{name}-storage"])
        plain, sure = columns.index("Hamming distance"), columns.index("soft, 1 sure bit per bit")
        measured = {row[0]: f"{row[plain]} → {row[sure]}" for row in known if row[1] == "32"}
        for row in shown:
            assert row[number] == measured[row[0].split(",")[0]]


def test_results_of_the_tutorial():
    text = (ROOT / "docs" / "tutorials" / "codes-for-a-shop.md").read_text()
    (lengths, *shown), (columns, *known) = rows(text), rows(TABLES["tuned-apparel-methods"])
    measured = {f"`{row[0]}`": dict(zip(columns, row, strict=True)) for row in known}
    assert len(shown) >= 4
    for name, *figures in shown:
        assert figures == [measured[name][length].split(" ±")[0] for length in lengths[1:]]


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/results.md", "docs/uncertainty.md", "docs/tuning.md", "docs/tutorials/codes-for-a-shop.md"],
)
def test_every_map_was_measured(page):
    text = (ROOT / page).read_text()
    tried = [page.read_text() for page in (ROOT / "docs" / "experiments").glob("*.md")]
    known = " ".join([*TABLES.values(), text_of_report(), SPEED["demo"], *tried])
    figures = re.findall(r"(?<![\d.])-?0\.\d{3,4}(?![\d.]|.ms)", text)
    figures = [figure for figure in figures if f"{figure} ms" not in text and f"{figure} s" not in text]
    assert page == "docs/results.md" or figures
    for figure in figures:
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", known), f"{page} has {figure}, which nothing gave"


def test_tables_of_the_docs_are_included():
    """Not copied: the site takes them from where they were written."""
    for page, least in (("docs/results.md", 8), ("docs/speed.md", 9), ("docs/scale.md", 1)):
        included = re.findall(r'^--8<-- "(.*)"$', (ROOT / page).read_text(), re.MULTILINE)
        assert len(included) >= least
        for file in included:
            assert (ROOT / file).is_file(), f"{page} includes {file}"
    for page in ("results", "speed"):
        assert not re.search(r"^\|", (ROOT / "docs" / f"{page}.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/a-million-images.md"])
def test_every_speed_was_measured(page):
    text = (ROOT / page).read_text()
    known = {found for table in SPEED.values() for found in MEASURED.findall(table)}
    figures = MEASURED.findall(section(text, "Speed") if page == "README.md" else text)
    arithmetic = {"16 MB"}  # a million codes of 8 bytes, and their ids
    assert len(figures) >= 2
    assert set(figures) - known - arithmetic == set()


def test_ratios_of_the_readme_are_those_of_their_rows():
    _, *shown = rows(section(README, "Speed"))
    for what, peer, ours, ratio in shown:
        times = [float(re.search(NUMBER, cell.replace(",", "").split(": ")[-1])[0]) for cell in (peer, ours)]
        computed = times[1] / times[0] if "/s" in ours else times[0] / times[1]
        assert float(ratio.rstrip("×")) == pytest.approx(computed, rel=0.03), what


def test_each_measurement_names_its_command():
    for file in (ROOT / "benchmarks" / "results").glob("*.md"):
        if file.name == "README.md":
            continue
        command = re.match(
            r"<!-- (?:python (?:tests/\S+ python )?(benchmarks/\S+?\.py)|make (\w+))[ ,]", file.read_text()
        )
        assert command, file.name
        assert command[2] or (ROOT / command[1]).is_file(), file.name
