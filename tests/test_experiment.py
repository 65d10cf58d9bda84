"""The report of benches: tables in every format, figures, and one page that needs nothing else."""

import csv
import io
import json
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from chromium import CHROMIUM, NO_CHROMIUM, launched
from commands import dmuh, refused
from dmuh.datasets import DATASETS
from dmuh.errors import FormatError
from dmuh.files.documents import file_digest, read_document, write_document
from dmuh.methods import METHODS
from dmuh.protocols import PROTOCOLS
from dmuh.report import experiment, figures
from dmuh.report.benches import Part
from dmuh.report.experiment import write_report
from dmuh.report.markup import page, section
from dmuh.report.summary import best_of, summary
from dmuh.report.tables import ResultTable, html_table, latex, make_tables, markdown, row_name, tidy_csv
from dmuh.runs import Run
from extras import needs

# Tables ---------------------------------------------------------------------------------------------------------------


def line(method: str, bits: int, value: float | None, seed: int = 0, **more: object) -> dict[str, str]:
    """A line of results.csv, as far as tables read it; without a value the training went wrong."""
    known = {"dataset": "cifar10", "tables": "methods", "method": method, "bits": bits, "seed": seed}
    known["map"] = "" if value is None else f"{value:.6f}"
    return {key: str(value) for key, value in (known | more).items()}


def table_of(
    lines: Sequence[dict[str, str]], name: str = "methods", published: str = "", axes: Sequence[str] = ("method",)
) -> ResultTable:
    about = {"name": name, "title": "A title", "published": published, "axes": {key: [] for key in axes}}
    (made,) = make_tables([own | {"tables": name} for own in lines], [about])
    return made


class Cells(HTMLParser):
    """The texts of the cells of an HTML table, and which of them are bold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.bold: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, _attributes):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        self._inside.append(tag)

    def handle_endtag(self, _tag):
        self._inside.pop()

    def handle_data(self, data):
        if {"td", "th"} & set(self._inside):
            self.rows[-1][-1] += data
            if "b" in self._inside:
                self.bold.append(data)


def from_markdown(text: str) -> list[list[str]]:
    head, rule, *lines = [[cell.strip() for cell in own.strip("|\n").split("|")] for own in text.splitlines()]
    assert set(rule) == {"---"}
    return [head, *([cell.replace("**", "") for cell in own] for own in lines)]


def from_latex(text: str) -> list[list[str]]:
    text = re.sub(r"\\textbf\{(.*?)\}", r"\1", text).replace(r"$\pm$", "±").replace("--", "–").replace(r"\_", "_")
    return [own.removesuffix(r" \\").split(" & ") for own in text.splitlines() if own.endswith(r"\\")]


SEEDS = [
    line("dmuh", 12, 0.5), line("dmuh", 12, 0.6, 1), line("dmuh", 12, 0.7, 2), line("dmuh", 24, 0.9),
    line("no_paper", 12, None), line("no_paper", 24, 0.8),
]  # fmt: skip


def test_figures_are_means_and_deviations_over_seeds_and_what_is_missing_is_a_dash():
    assert from_markdown(markdown(table_of(SEEDS))) == [
        ["method", "12 bits", "24 bits"],
        ["dmuh", "0.600 ± 0.100", "0.900"],
        ["no_paper", "–", "0.800"],
    ]


def test_the_papers_figures_have_columns_of_their_own_where_there_are_some():
    assert from_markdown(markdown(table_of([*SEEDS, line("dmuh", 16, 0.1)], published="cifar10"))) == [
        ["method", "12 bits", "16 bits", "24 bits", "paper, 12", "paper, 16", "paper, 24"],
        ["dmuh", "0.600 ± 0.100", "0.100", "0.900", "0.772", "–", "0.815"],
        ["no_paper", "–", "–", "0.800", "–", "–", "–"],
    ]
    for without in (table_of(SEEDS), table_of(SEEDS, published="mnist5k"), table_of(SEEDS, "other", "cifar10")):
        assert "paper, " not in markdown(without)


def test_figures_of_another_data_set_say_so_in_the_table_itself():
    lines = [{**own, "dataset": "folder"} for own in SEEDS]
    table = table_of(lines, published="clothing1m")
    wanted = ["method", "12 bits", "24 bits", "paper on Clothing1M, 12", "paper on Clothing1M, 24"]
    assert from_markdown(markdown(table))[0] == from_latex(latex(table))[0] == wanted
    assert "What the paper reports on Clothing1M, another data set, with its own network" in html_table(table)
    assert {row["published_on"] for row in csv.DictReader(io.StringIO(tidy_csv(table)))} == {"clothing1m", ""}
    same = table_of(SEEDS, published="cifar10")
    assert "What the paper reports on CIFAR-10, with its own network" in html_table(same)
    assert "paper on" not in markdown(same) + latex(same)


def test_all_formats_say_the_same():
    table = table_of(SEEDS, published="cifar10")
    wanted = from_markdown(markdown(table))
    assert from_latex(latex(table)) == wanted
    ours, paper = html_table(table).split("<details")
    assert Cells(ours).rows == [row[:3] for row in wanted]
    assert Cells(f"<details{paper}").rows == [[row[0], *row[3:]] for row in wanted if row[0] != "no_paper"]
    assert "<details" not in html_table(table_of(SEEDS))
    head, *lines = csv.reader(io.StringIO(tidy_csv(table)))
    assert head == ["dataset", "method", "bits", "map", "std", "seeds", "published", "published_on"]
    by_place = {(own[1], f"{own[2]} bits"): own for own in lines}
    for row in wanted[1:]:
        for bits, shown, paper in zip(wanted[0][1:3], row[1:3], row[3:], strict=True):
            dataset, *_, mean, deviation, n, published, published_on = by_place[row[0], bits]
            assert published_on == ("cifar10" if published else "")
            assert dataset == "cifar10"
            text = "–" if not mean else f"{float(mean):.3f}" + (f" ± {float(deviation):.3f}" if deviation else "")
            assert (text, f"{float(published):.3f}" if published else "–") == (shown, paper)
            assert int(n) == {"–": 0, "0.600 ± 0.100": 3}.get(shown, 1)


def over_seeds(method: str, *values: float | None) -> list[dict[str, str]]:
    return [line(method, 12, value, seed) for seed, value in enumerate(values)]


def bold_of(table: ResultTable) -> list[str]:
    """The rows that are bold, which all formats agree on."""
    texts = Cells(html_table(table)).bold
    assert re.findall(r"\*\*(.*?)\*\*", markdown(table)) == texts
    assert re.findall(r"\\textbf\{(.*?)\}", latex(table).replace(r"$\pm$", "±")) == texts
    assert texts == [table.ours[row, 12].text for row in table.rows if row in table.bold(12)]
    return [row for row in table.rows if row in table.bold(12)]


@pytest.mark.parametrize(("values", "bold"), [
    ({"dmuh": (0.60, 0.62), "csq": (0.50, 0.52), "itq": (0.1, 0.1)}, ["dmuh"]),  # beyond noise: alone
    ({"dmuh": (0.60, 0.62), "csq": (0.58, 0.60), "itq": (0.1, 0.1)}, ["dmuh", "csq"]),  # 0.610 - 0.014 < 0.590 + 0.014
    ({"dmuh": (0.58, 0.60), "csq": (0.60, 0.62), "itq": (0.1, 0.1)}, ["dmuh", "csq"]),
    ({"dmuh": (0.60, 0.62), "csq": (0.54, 0.62), "itq": (0.1, 0.1)}, ["dmuh", "csq"]),  # by its own deviation
    ({"dmuh": (0.602, 0.602), "csq": (0.6, 0.6), "itq": (0.1, 0.1)}, ["dmuh"]),
    ({"dmuh": (0.6004, 0.6004), "csq": (0.6, 0.6), "itq": (0.1, 0.1)}, ["dmuh", "csq"]),  # they look the same
    ({"dmuh": (0.60, 0.62), "csq": (0.58, 0.60)}, []),  # both lead: nothing stands out
    ({"dmuh": (0.9, 0.9)}, []),
    ({"dmuh": (0.61,), "csq": (0.6,), "itq": (0.1,)}, []),  # one seed says nothing
    ({"dmuh": (0.61,), "csq": (0.5, 0.51), "itq": (0.1, 0.1)}, []),  # as does the best by one seed
    ({"dmuh": (0.60, 0.62), "csq": (0.6,), "itq": (0.1,)}, ["dmuh", "csq"]),
    ({"dmuh": (None, None), "csq": (0.2, 0.2), "itq": (0.1, 0.1)}, ["csq"]),
    ({"dmuh": (None,), "csq": (None,)}, []),
])  # fmt: skip
def test_within_noise_nothing_is_bold_alone(values, bold):
    table = table_of([run for method, maps in values.items() for run in over_seeds(method, *maps)])
    assert bold_of(table) == bold


LEAD, TIE, ONE = (
    [*over_seeds("dmuh", 0.6, 0.62), *over_seeds("csq", *csq), *over_seeds("itq", 0.1, 0.1)]
    for csq in ((0.5, 0.52), (0.58, 0.6), (0.7,))
)


@pytest.mark.parametrize(("lines", "sentence"), [
    (LEAD, "dmuh, 0.610 ± 0.014 at 12 bits: its lead is beyond noise, the next is csq (0.510 ± 0.014)"),
    (TIE, "dmuh, 0.610 ± 0.014 at 12 bits, but no lead beyond noise: csq could as well be first"),
    (ONE, "csq, 0.700 at 12 bits, before dmuh (0.610 ± 0.014); one seed, so noise is not known"),
    (LEAD[:2], "dmuh, 0.610 ± 0.014 at 12 bits, the only method"),
    (over_seeds("dmuh", None), "no run has a result"),
    ([run for k in range(7) for run in over_seeds(f"m{k}", 0.5 - k / 1000, 0.6 - k / 1000)],
     "m0, 0.550 ± 0.071 at 12 bits, but no lead beyond noise: m1, m2, m3, m4 and 2 more could as well be first"),
])  # fmt: skip
def test_the_summary_says_what_is_best_and_whether_beyond_noise(lines, sentence):
    assert best_of([table_of(lines[:1], "other"), table_of(lines)]) == sentence
    assert best_of([table_of(lines, "other")]) == sentence


def test_the_summary_tells_apart_rows_of_several_settings():
    lines = [run | {"lr": lr} for lr in ("0.1", "0.2") for run in over_seeds("dmuh", 0.6, 0.62)]
    told = best_of([table_of(lines, axes=("method", "lr"))])
    assert told == "dmuh (0.1), 0.610 ± 0.014 at 12 bits, but no lead beyond noise: dmuh (0.2) could as well be first"


def part(name: str, *more: dict[str, object]) -> Part:
    """A part of a report with one line for each of these changes."""
    usual = {"protocol": "", "backbone": "smallconv", "freeze": "none", "error": "", "train_seconds": 1800,
             "peak_memory_mb": 1234, "versions": "python=3.11 torch=2.13", "machine": "Linux x86_64, 2 cores",
             "config": {"protocol": {}}}  # fmt: skip
    rows = []
    for changes in more:
        values = usual | changes
        values["config"] = json.dumps(values["config"])
        rows.append(line("dmuh", 12, 0.5) | {key: str(value) for key, value in values.items()})
    return Part(Path(name), name, rows, [table_of(rows)])


def test_the_summary_says_in_five_lines_what_was_run():
    told = summary([part("first", {}, {"seed": 1, "bits": 24})])
    assert {title: sentences for title, sentences in told.items() if title != "Best"} == {
        "Runs": {"": "2 runs of 1 method, none failed; 1.0 hours of training, at most 1.2 GB of memory per run"},
        "Codes": {"": "12 and 24 bits; seeds 0 and 1"},
        "Protocol": {"": f"{PROTOCOLS['cifar10'].about}; network smallconv, all of it trains"},
        "Machine": {"": "Linux x86_64, 2 cores; python 3.11, torch 2.13"},
    }
    assert list(told) == ["Best", "Runs", "Codes", "Protocol", "Machine"]
    assert list(told["Best"]) == ["first"]


def test_the_summary_names_the_parts_that_differ():
    noisy = {"dataset": "csv", "freeze": "stage3", "error": "collapsed", "config": {"protocol": {"label_noise": 0.3}}}
    old = {"versions": "python=3.11", "machine": "", "freeze": "all"}
    told = summary([part("a", {}, {"seed": 1}), part("b", noisy), part("c", old), part("d", old)])
    assert list(told["Best"]) == ["a", "b", "c", "d"]
    assert told["Runs"][""].startswith("5 runs of 1 method, 1 failed")
    assert told["Codes"][""] == "12 bits; seeds 0 and 1 (a); seed 0 (b, c and d)"
    assert told["Protocol"][""].split("; ") == [
        f"{PROTOCOLS['cifar10'].about} (a, c and d)",
        f"{PROTOCOLS['stratified'].about} (b)",
        "label_noise = 0.3 (b)",
        "network smallconv, all of it trains (a)",
        "network smallconv, frozen up to stage3 (b)",
        "network smallconv, frozen (c and d)",
    ]
    assert told["Machine"][""] == "Linux x86_64, 2 cores; python 3.11, torch 2.13; python 3.11"


@pytest.mark.parametrize(("value", "name"), [("50", "50"), ("50.0", "50"), ("0.20", "0.2"), ("crop+flip", "crop+flip")])
def test_a_number_is_as_short_as_it_can_be(value, name):
    assert row_name(value) == name


@pytest.mark.parametrize("beta", ["50", "50.0"])
def test_a_parameter_finds_its_row_in_the_paper(beta):
    own = [line("dmuh", 12, 0.8, beta=beta), line("dmuh", 12, 0.7, beta="55.5")]
    assert from_markdown(markdown(table_of(own, "beta", "cifar10", ("beta", "bits", "seed")))) == [
        ["beta", "12 bits", "paper, 12"],
        ["50", "0.800", "0.772"],
        ["55.5", "0.700", "–"],
    ]


def test_numbers_that_differ_late_are_rows_of_their_own():
    own = [line("dmuh", 12, 0.8, lr="1000001"), line("dmuh", 12, 0.2, lr="1000002")]
    assert len(table_of(own, axes=("lr",)).rows) == 2


def test_rows_are_the_combinations_of_all_axes_but_lengths_seeds_and_data_sets():
    own = [line("dmuh", 12, 0.8, alpha="0.5"), line("dmuh", 12, 0.7, alpha="0.9"), line("regu", 12, 0.6, alpha="0.5")]
    table = table_of(own, axes=("dataset", "method", "alpha", "bits", "seed"))
    assert table.heading == "method, alpha"
    assert table.rows == ["dmuh, 0.5", "dmuh, 0.9", "regu, 0.5"]
    assert table_of(own[:1], axes=("bits", "seed")).rows == ["dmuh"]


def test_every_data_set_and_every_table_that_a_run_stands_in_has_a_table():
    own = [line("dmuh", 12, 0.8, tables="a;b"), line("dmuh", 12, 0.7, tables="b", dataset="coco")]
    about = [{"name": name, "title": "", "published": "", "axes": {"method": []}} for name in "abc"]
    made = make_tables(own, about)
    assert [(table.name, table.dataset) for table in made] == [("a", "cifar10"), ("b", "cifar10"), ("b", "coco")]
    assert [table.ours["dmuh", 12].mean for table in made] == [0.8, 0.8, 0.7]


ODD = "a_<b>&c"


def test_names_are_escaped_on_a_page():
    text = html_table(table_of([line(ODD, 12, 0.5), line("dmuh", 12, 0.4)]))
    assert "a_&lt;b&gt;&amp;c" in text
    assert Cells(text).rows[1][0] == ODD
    assert "<b>x" not in page("<b>x", [section("<b>x", "<b>x", "")])


@pytest.mark.parametrize(("name", "escaped"), [
    ("a_b", r"a\_b"),
    ("50%", r"50\%"),
    ("a&b", r"a\&b"),
    ("a#b", r"a\#b"),
    ("a$b", r"a\$b"),
    ("a{b}", r"a\{b\}"),
    ("a\\b~c^", r"a\textbackslash{}b\textasciitilde{}c\textasciicircum{}"),
])  # fmt: skip
def test_names_are_escaped_for_latex(name, escaped):
    last = latex(table_of([line(name, 12, 0.5)])).splitlines()[-3]
    assert last == rf"{escaped} & 0.500 \\"


def test_names_are_escaped_for_markdown():
    text = markdown(table_of([line("a|b", 12, 0.5)]))
    assert re.split(r"(?<!\\)\|", text.splitlines()[-1])[1:-1] == [r" a\|b ", " 0.500 "]


PUBLISHED = tomllib.loads(resources.files("dmuh.report").joinpath("published.toml").read_text())


@pytest.mark.parametrize(("table", "dataset"), [(table, own) for table, sets in PUBLISHED.items() for own in sets])
def test_what_the_paper_reports_agrees_with_itself(table, dataset):
    own = PUBLISHED[table][dataset]
    assert dataset in DATASETS
    assert own["bits"] == sorted(set(own["bits"]))
    for row, values in own.items():
        assert len(values) == len(own["bits"]), row
        if row != "bits":
            assert row in METHODS or row == row_name(row)
            assert all(0 < value < 1 for value in values)


def test_the_paper_gives_one_method_at_one_length_one_figure():
    """The rows that its tables share are its method's own, with β = 50, γ = 1 and α = 0.7."""
    own = dict(zip(PUBLISHED["methods"]["cifar10"]["bits"], PUBLISHED["methods"]["cifar10"]["dmuh"], strict=True))
    for table, row in (("beta", "50"), ("gamma", "1"), ("alpha", "0.7"), ("csq", "dmuh"), ("curves", "dmuh")):
        other = PUBLISHED[table]["cifar10"]
        shared = dict(zip(other["bits"], other[row], strict=True))
        assert {bits: shared[bits] for bits in shared if bits in own}.items() <= own.items(), table


# The report -----------------------------------------------------------------------------------------------------------


def seal(folder: Path, tables: list[dict]) -> None:
    """Write the tables of a bench folder, with the checksum of its results."""
    digest = file_digest(folder / "results.csv")
    write_document(folder / "tables.json", "dmuh tables", {"tables": tables, "results": digest})


def part_of(whole: Path, folder: Path, *tables: str, runs: bool = False) -> Path:
    """A bench folder with only these tables of another, and its runs if they are wanted."""
    folder.mkdir(parents=True)
    with (whole / "results.csv").open(newline="") as file:
        reader = csv.DictReader(file)
        kept = [own for own in reader if set(tables) & set(own["tables"].split(";"))]
    with (folder / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, reader.fieldnames)
        writer.writeheader()
        writer.writerows(kept)
    chosen = [own for own in read_document(whole / "tables.json", "dmuh tables")["tables"] if own["name"] in tables]
    seal(folder, chosen)
    for own in kept if runs else ():
        shutil.copytree(whole / "runs" / own["run"], folder / "runs" / own["run"])
    return folder


@pytest.fixture(scope="module")
def report(bench, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("report") / "out"
    write_report([bench], out, "Results <& more>")
    return out


COMPARED, STUDIED = (
    ("map", "precision-recall", "precision-at-k", "curves", "storage"),
    ("uncertainty", "flips", "reliability", "two-bits"),
)


def test_a_report_is_a_page_and_every_table_and_figure_as_files(report):
    found = {str(file.relative_to(report)) for file in report.rglob("*") if file.is_file()}
    names = {f"small-features-{name}" for name in ("methods", "ablations", "curves", "limits")}
    tables = {f"tables/{name}.{kind}" for name in names | {"small-mnist5k-certainty"} for kind in ("md", "tex", "csv")}
    tables |= {"tables/small-features-storage.md", "tables/small-mnist5k-uncertainty.md"}
    names = {f"small-features-{name}" for name in COMPARED} | {f"small-mnist5k-{name}" for name in STUDIED}
    drawings = {f"figures/{name}{kind}" for name in names for kind in (".svg", "-dark.svg", ".png")}
    assert found == {"index.html", "results-small.csv", "figures/small-mnist5k-images.png"} | tables | drawings


def test_a_table_says_how_many_of_its_runs_failed_and_why(bench, tmp_path):
    folder = part_of(bench, tmp_path / "bench", "methods", runs=True)
    write_report([folder], tmp_path / "before")
    with (folder / "results.csv").open(newline="") as file:
        reader = csv.DictReader(file)
        (first, *others), columns = list(reader), reader.fieldnames
    first |= {"map": "", "error": "the loss is nan in epoch 1: lower lr (now <9>)"}
    with (folder / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows([first, *others])
    seal(folder, read_document(folder / "tables.json", "dmuh tables")["tables"])
    write_report([folder], tmp_path / "after")
    text = "1 of its runs failed, the first because the loss is nan in epoch 1: lower lr (now &lt;9&gt;)."
    assert [text in (tmp_path / name / "index.html").read_text() for name in ("before", "after")] == [False, True]


def test_every_picture_opens(report):
    for file in report.rglob("*.png"):
        with Image.open(file) as picture:
            picture.load()
            assert min(picture.size) > 100
    for file in report.rglob("*.svg"):
        assert ET.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_the_page_needs_nothing_from_outside(report):
    text = (report / "index.html").read_text()
    assert "http" not in text
    assert not re.search(r'(src|href|srcset)="(?!data:|#)', text)
    assert "@import" not in text
    assert text.count("data:image/svg+xml") == 2 * len(COMPARED + STUDIED)
    assert text.count('<figure class="tile') == 2 * 12


def test_the_page_sums_up_the_bench_and_escapes_its_words(report):
    text = (report / "index.html").read_text()
    assert "<title>Results &lt;&amp; more&gt;</title>" in text
    assert "<h3>Methods &amp; more</h3>" in text
    lines = dict(re.findall(r"<div><dt>(.*?)</dt>(.*?)</div>", text))
    assert list(lines) == ["Best", "Runs", "Codes", "Protocol", "Machine"]
    assert re.findall(r"<dd><b>(.*?)</b>: (\w+), ", lines["Best"])[1][0] == "small-mnist5k"
    assert "17 runs of 4 methods, 1 failed" in lines["Runs"]
    assert "8 and 12 bits; seeds 0 and 1 (small-features); seed 0 (small-mnist5k)" in lines["Codes"]
    assert "train = 20.0, tuning = 0.6 (small-mnist5k)" in lines["Protocol"]
    assert re.search(r"\w+ \w+, \d+ cores; python 3", lines["Machine"])
    assert "over 2 seeds" in text
    assert "One seed: noise is not known, so nothing is bold." in text
    assert "What the paper reports on CIFAR-10, another data set" in text


class Page(HTMLParser):
    """What of a page links lead to, its links, and what it folds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.folded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.ids += [named["id"]] if "id" in named else []
        self.links += [named["href"]] if "href" in named else []
        self.folded += [named["id"]] if tag == "details" and "id" in named and "open" not in named else []


def test_the_contents_lead_to_every_table_and_figure(report):
    page = Page((report / "index.html").read_text())
    assert len(set(page.ids)) == len(page.ids)
    assert len(page.links) == len(list(report.glob("tables/*.tex"))) + len(COMPARED + STUDIED)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_figures_that_the_paper_has_are_folded(report):
    folded = Page((report / "index.html").read_text()).folded
    assert {name.partition("-figure-")[2] for name in folded} == {
        "precision-recall", "precision-at-k", "curves", "two-bits"
    }  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    """A browser, if the machine has one."""
    needs("playwright", "dev")
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    with launched() as running:
        yield running


@pytest.mark.parametrize("scripts", [True, False])
def test_the_switch_shows_one_data_set_or_all(report, browser, scripts):
    page = browser.new_page(java_script_enabled=scripts)
    page.goto(f"file://{report / 'index.html'}")

    def shown() -> list[str]:
        return page.locator("article > h2:visible").all_inner_texts()

    assert shown() == ["small-features"]
    assert page.locator(".contents h3:visible").count() == 1
    for choice, parts in (("small-mnist5k", ["small-mnist5k"]), ("all", ["small-features", "small-mnist5k"])):
        page.locator("fieldset").get_by_text(choice, exact=True).click()
        assert shown() == parts
    page.close()


def test_a_link_shows_what_is_switched_off_and_opens_what_is_folded(report, browser):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(f"file://{report / 'index.html'}#small-mnist5k-figure-two-bits")
    assert page.get_by_text("Most uncertain").is_visible()
    assert page.locator("article:visible").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 390  # nothing makes a telephone scroll sideways
    page.close()


def test_the_tables_have_the_results(report, bench):
    with (bench / "results.csv").open(newline="") as file:
        results = list(csv.DictReader(file))
    with (report / "tables" / "small-features-methods.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 6
    for own in lines:
        maps = [
            float(run["map"])
            for run in results
            if (run["method"], run["bits"]) == (own["method"], own["bits"]) and "methods" in run["tables"].split(";")
        ]
        assert float(own["map"]) == pytest.approx(statistics.mean(maps), abs=1e-6)
        assert float(own["std"]) == pytest.approx(statistics.stdev(maps), abs=1e-6)
        assert own["seeds"] == "2"
    limits = from_markdown((report / "tables" / "small-features-limits.md").read_text())
    assert [row[0] for row in limits] == ["lr", "0.1", "1000"]
    assert limits[2][1] == "–"
    assert (report / "results-small.csv").read_text() == (bench / "results.csv").read_text()


def test_the_page_says_what_each_study_found(report, bench):
    text = (report / "index.html").read_text()
    in_markdown = (report / "tables" / "small-mnist5k-uncertainty.md").read_text()
    studies = {file.parent.name: Run(file.parent).study() for file in bench.glob("runs/*/uncertainty.json")}
    assert len(studies) == 2
    for study in studies.values():
        for predictor, own in study["images"].items():
            auc = f"{study['bits'][predictor]['auc']:.3f}" if predictor in study["bits"] else "–"
            cells = (predictor, f"{own['rank_correlation']:.3f}", f"{own['map_of_certain_half']:.3f}",
                     f"{own['map_of_other_half']:.3f}", auc)  # fmt: skip
            assert "".join(f"<td>{cell}</td>" for cell in cells) in text
            assert f"| {' | '.join(cells)} |" in in_markdown


@pytest.fixture
def studied(bench, tmp_path) -> Path:
    """A bench with nothing but two studied runs, which may be changed."""
    return part_of(bench, tmp_path / "studied", "certainty", runs=True)


@pytest.mark.parametrize("other", [
    "nowhere",
    "photos",
])  # fmt: skip
def test_images_that_are_gone_or_others_by_now_are_not_shown(studied, photos, tmp_path, caplog, other):
    for file in studied.glob("runs/*/config.toml"):
        place = photos if other == "photos" else tmp_path / other
        text = file.read_text().replace('dataset = "mnist5k"', 'dataset = "folder"')
        file.write_text(text.replace('data = ""', f'data = "{place}"'))
    write_report([studied], tmp_path / "out")
    assert "are not shown" in caplog.text
    text = (tmp_path / "out" / "index.html").read_text()
    assert "Two bits over the epochs" in text
    assert '<figure class="tile' not in text


def test_a_report_is_written_without_torch(studied, tmp_path):
    program = (
        "import sys; sys.modules['torch'] = None\nfrom dmuh.cli import main\n"
        "sys.argv = ['dmuh', 'report', *sys.argv[1:]]\nmain()"
    )
    command = [sys.executable, "-c", program, studied, "--out", tmp_path / "out", "--title", "A title"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == f"the page is at {tmp_path / 'out' / 'index.html'}\n"
    assert "Most uncertain" in (tmp_path / "out" / "index.html").read_text()


def test_several_benches_are_one_page(bench, tmp_path):
    parts = [part_of(bench, tmp_path / name, name) for name in ("limits", "certainty")]
    told = json.loads(dmuh("report", *parts, "--out", tmp_path / "out", "--json").stdout)
    assert told == {"page": str(tmp_path / "out" / "index.html")}
    assert sorted(file.name for file in (tmp_path / "out").glob("*.csv")) == [
        "results-certainty.csv",
        "results-limits.csv",
    ]
    text = Path(told["page"]).read_text()
    assert text.count("<table>") == 2
    assert "<dd>4 runs of" in text
    assert "<h1>Results</h1>" in text


def test_benches_of_one_name_keep_their_files_apart(bench, tmp_path):
    parts = [part_of(bench, tmp_path / name / "digits", "limits") for name in ("first", "second")]
    write_report(parts, tmp_path / "out")
    assert len(list((tmp_path / "out").glob("results-*.csv"))) == 2
    assert len(list((tmp_path / "out" / "tables").glob("*.md"))) == 2


def test_the_folder_one_is_in_has_its_name(bench, tmp_path, monkeypatch):
    monkeypatch.chdir(part_of(bench, tmp_path / "digits", "limits"))
    write_report([Path()], tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").glob("*.csv")] == ["results-digits.csv"]


def test_a_bench_without_a_finished_run_gives_a_page(bench, tmp_path):
    bench = part_of(bench, tmp_path / "begun", "limits")
    (bench / "results.csv").write_text((bench / "results.csv").read_text().splitlines(keepends=True)[0])
    with pytest.raises(FormatError, match=r"results\.csv was altered since dmuh bench wrote it"):
        write_report([bench], tmp_path / "out")
    seal(bench, read_document(bench / "tables.json", "dmuh tables")["tables"])
    write_report([bench], tmp_path / "out")
    assert "<dt>Runs</dt><dd>none is done</dd>" in (tmp_path / "out" / "index.html").read_text()


def test_a_folder_that_is_no_bench_is_one_sentence(tmp_path):
    (tmp_path / "other").mkdir()
    for folder in ("other", "nowhere"):
        sentence = refused("report", tmp_path / folder, "--out", tmp_path / "out")
        assert sentence == f"dmuh: {tmp_path / folder} holds no results: expected a folder made by dmuh bench"
    assert not (tmp_path / "out").exists()


# Figures --------------------------------------------------------------------------------------------------------------


def test_rows_are_drawn_with_the_best_at_the_top():
    drawing = figures.map_by_row({"csq": (0.5, None), "dmuh": (0.9, 0.01), "a<b": (0.7, 0.02)}, "MAP at 32 bits")
    ET.fromstring(drawing.light)
    assert drawing.alt == "MAP at 32 bits: from dmuh to csq"
    places = [drawing.light.index(f"<!-- {name} -->") for name in ("csq", "a&lt;b", "dmuh")]
    assert places == sorted(places)  # labels are drawn from the bottom up
    assert Image.open(io.BytesIO(drawing.png)).format == "PNG"


def test_trainings_are_compared_with_their_test_map():
    metrics = [{"epoch": epoch, "loss": 1 / epoch, **({"train_map": 0.5} if epoch > 1 else {})} for epoch in (1, 2, 3)]
    drawing = figures.training_compared({"dmuh": metrics, "regu": metrics[:2]}, {"dmuh": 0.8125, "regu": 0.25})
    assert "dmuh: test MAP 0.812" in drawing.light
    assert "regu: test MAP 0.250" in drawing.light
    assert drawing.alt.endswith(": dmuh, regu")


@pytest.mark.parametrize("n", [1, 7])
def test_uncertainty_is_drawn_for_fewer_queries_than_it_has_tenths(n):
    drawing = figures.precision_by_uncertainty([n - k for k in range(n)], [k / n for k in range(n)])
    assert "<!-- mean of a tenth -->" in drawing.light


def test_precision_of_the_first_k_ends_where_it_is_cut():
    curve = {"rank": [1, 10, 100, 1000], "precision": [1.0, 0.9, 0.8, 0.1], "recall": [0, 0, 0, 1]}
    whole, cut = (figures.precision_at_k({"dmuh": curve, "csq": curve}, most) for most in (None, 100))
    assert "<!-- 1,000 -->" in whole.light
    assert "<!-- 1,000 -->" not in cut.light


@pytest.mark.parametrize("n", [1, 2, 6, 7, 8, 16])
def test_lines_are_spread_over_the_ranking_and_keep_the_first_row(n):
    ranked = [f"row{i}" for i in range(n)]
    chosen = experiment._spread(ranked, "row0")
    assert len(chosen) == min(n, 7)
    assert {"row0", ranked[-1]} <= set(chosen)
    assert chosen == [row for row in ranked if row in chosen]
    assert "row5" in experiment._spread([f"row{i}" for i in range(16)], "row5")


def test_rows_stand_in_the_order_of_the_file_also_where_a_run_is_shared_with_an_earlier_table():
    rows = [
        {"tables": tables, "dataset": "d", "gamma": gamma, "bits": "12", "map": "0.5", "method": "dmuh"}
        for gamma, tables in (("1.0", "beta;gamma"), ("0.2", "gamma"), ("3.0", "gamma"))
    ]
    about = {"name": "gamma", "title": "", "published": "", "axes": {"gamma": [0.2, 0.5, 1.0, 3.0], "bits": [12]}}
    (table,) = make_tables(rows, [about])
    assert table.rows == ["0.2", "1", "3"]


def test_a_page_that_dmuh_did_not_write_is_not_replaced(bench, tmp_path):
    page = tmp_path / "index.html"
    page.write_text("<title>my home page</title>")
    assert "was not written by this dmuh: nothing is replaced" in refused("report", bench, "--out", tmp_path)
    assert "was not written by this dmuh" in refused("demo", "--out", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["index.html"]
    page.unlink()
    for _ in range(2):  # its own is
        dmuh("report", part_of(bench, tmp_path / f"bench {_}", "limits"), "--out", tmp_path)
