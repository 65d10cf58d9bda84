"""dmuh review."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmuh.cli import console
from dmuh.cli.console import say, say_json, say_table, warn
from dmuh.cli.encode import load, reading_by
from dmuh.cli.options import Data, DatasetOptions, Json, OptionGroup, Workers, with_groups
from dmuh.cli.stopping import stoppable
from dmuh.errors import ConfigError, DataError

if TYPE_CHECKING:
    from dmuh.catalogue import Catalogue
    from dmuh.images import Reading
    from dmuh.review import Labelled, Suspect

_SHOWN = 20  # rows of the table that is printed


@dataclass(frozen=True)
class ListOptions(OptionGroup):
    """Which suspects are listed, and where."""

    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="CSV file to write; one that is there stays.")
    ] = None
    n: Annotated[
        int | None, typer.Option("-n", min=1, metavar="N", help="List the N most suspicious images at most.")
    ] = None
    at_least: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="P", help="List images whose labels are wrong with this probability."),
    ] = 0.5
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also show the suspects as pictures on a page, an HTML file.")
    ] = None
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of what is drawn at random.")] = 0


@dataclass(frozen=True)
class DecisionOptions(OptionGroup):
    """What was decided of suspects, and where it is kept."""

    apply: Annotated[
        Path | None,
        typer.Option(
            metavar="DECISIONS",
            help="Write the corrected list of all images to --out, by decisions: a list of suspects with its last "
            "column filled in, or the folder in which `dmuh open` or `dmuh serve` keeps those made on the page.",
        ),
    ] = None
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="With --apply: keep its decisions in the catalogue of this folder, too, for the page."
        ),
    ] = None


@with_groups
@stoppable("features that were computed are kept: give the same command again")
def review(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Folder of a run, of an index, or of images with one folder per class; or a CSV list of images.",
        ),
    ],
    listed: ListOptions = ListOptions(),  # noqa: B008 (never used: each option has its default)
    decided: DecisionOptions = DecisionOptions(),  # noqa: B008 (never used either)
    by: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="How the images of an index are compared: features (the default where its files are there), or codes.",
        ),
    ] = None,
    data: Data = None,
    dataset: DatasetOptions = DatasetOptions(),  # noqa: B008 (never used either)
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Find images whose label is probably wrong, with the label that would be right and how sure that is.

    Example: dmuh review photos --out suspects.csv

    Each image is judged by all others: by the features that the training of a run kept, by ImageNet features of the
    files of a folder, a list or an index, computed where they are missing, or by the codes of an index. With several
    labels per image it finds labels that are missing and such that are too much.

    Write accept, skip or the right labels (with semicolons between them) into the last column of the list, then:

    dmuh review photos --apply suspects.csv --out corrected.csv, which dmuh train --dataset csv takes
    """
    if decided.apply is not None and listed.out is None:
        raise ConfigError("--apply writes the corrected list: say where by --out FILE")
    if decided.state is not None and decided.apply is None:
        raise ConfigError("--state keeps the decisions that --apply names: give --apply, too")
    for file in (listed.out, listed.page):
        if file is not None and file.exists():
            raise DataError(f"{file} exists already: nothing is replaced, so give another name")
    reading = reading_by(dataset.on_bad_image, workers)
    labelled = _labelled(source, data, dataset, by, reading)
    if len(reading.bad):
        warn(reading.bad.summary())
    if decided.apply is not None and listed.out is not None:
        _apply(labelled, decided.apply, listed.out, decided.state, as_json)
    else:
        _list(labelled, listed, as_json)


def _labelled(
    source: Path, data: Path | None, dataset: DatasetOptions, by: str | None, reading: "Reading"
) -> "Labelled":
    """Return the images, labels and vectors of what was named."""
    from dmuh.collection import Collection
    from dmuh.review import of_dataset, of_folder, of_index, of_run
    from dmuh.runs import Run

    is_index = dataset.dataset is None and Collection(source).exists
    is_run = dataset.dataset is None and not is_index and Run(source).started
    if by is not None and (by not in ("features", "codes") or not is_index):
        what = "is for an index" if not is_index else "must be features or codes"
        raise ConfigError(f"--by {what}, got {by!r}")
    if data is not None and not is_run:
        raise ConfigError(f"--data says where the images of a run are, but {source} is none")
    of_a_list = [key for key in dataset.given() if key not in ("dataset", "on_bad_image")]
    if of_a_list and dataset.dataset is None and source.is_dir():
        raise ConfigError(f"--{of_a_list[0].replace('_', '-')} is for a CSV list, but {source} is a folder")
    if is_index:
        return of_index(Collection(source), reading, by)
    if is_run:
        return of_run(Run(source), data, reading)
    if not source.exists():
        raise DataError(f"{source} does not exist")
    if dataset.dataset is None and source.is_dir():
        return of_folder(source, reading)
    if dataset.dataset is None:
        from dataclasses import replace

        dataset = replace(dataset, dataset="csv")
    return of_dataset(load([source], dataset), reading)


def _list(labelled: "Labelled", wanted: ListOptions, as_json: bool) -> None:
    """Find suspects, print them and write them to files."""
    from dmuh.review import suspects_of, write_suspects

    suspects = suspects_of(labelled, seed=wanted.seed, count=console.counting_bar)
    expected = sum(suspect.probability for suspect in suspects)
    listed = [suspect for suspect in suspects if suspect.probability >= wanted.at_least][: wanted.n]
    if wanted.out is not None:
        write_suspects(wanted.out, listed)
    if wanted.page is not None:
        from dmuh.report.suspects import write_suspects_page

        write_suspects_page(wanted.page, listed)
    if as_json:
        about = {"images": len(suspects), "expected_wrong": round(expected, 1), "by": labelled.by}
        say_json(about | {"suspects": [_plain(suspect) for suspect in listed]})
        return
    rows = [_row(suspect) for suspect in listed[:_SHOWN]]
    say_table(f"labels that are wrong with a probability of {wanted.at_least:g} or more", rows)
    more = len(listed) - _SHOWN
    left = f" ({more:,} more in a list: --out FILE)" if more > 0 and wanted.out is None else ""
    say(
        f"{len(listed):,} of {len(suspects):,} images listed{left}; about {expected:,.0f} labels are wrong, "
        f"judged by {labelled.by}"
    )
    if wanted.out is not None:
        say(f"the list is at {wanted.out}: write accept, skip or the right labels into its last column")
    if wanted.page is not None:
        say(f"the page is at {wanted.page.absolute()}")


def _apply(labelled: "Labelled", decisions: Path, out: Path, state: Path | None, as_json: bool) -> None:
    """Write the corrected list of all images."""
    from dmuh.review import keep_decisions, kept_decisions, read_decisions, write_labels

    if decisions.is_dir():
        with _catalogue(decisions) as catalogue:
            made = kept_decisions(catalogue)
    else:
        made = read_decisions(decisions, labelled)
    made = {path: decision for path, decision in made.items() if path in set(labelled.paths)}
    changed = write_labels(out, labelled, made)
    kept = None
    if state is not None:
        with _catalogue(state) as catalogue:
            kept = keep_decisions(catalogue, made)
    if as_json:
        say_json({"images": len(labelled.paths), "decisions": len(made), "changed": changed, "kept": kept})
        return
    kept_there = "" if kept is None else f", {kept:,} kept in {state}"
    n = len(labelled.paths)
    say(f"{len(made):,} decisions{kept_there}; {changed:,} of {n:,} images have other labels in {out}")


def _catalogue(folder: Path) -> "Catalogue":
    """Open the catalogue of a service, or of a folder that was opened."""
    from dmuh.catalogue import Catalogue, StateFolder

    for state in (folder, folder / "look", folder / ".dmuh", folder / ".dmuh" / "look"):
        file = StateFolder(state).catalogue_file
        if file.is_file():
            return Catalogue(file, 0)  # no codes are read
    raise DataError(
        f"{folder} has no catalogue: name the folder that dmuh open or dmuh serve keeps it in, or a CSV file"
    )


def _row(suspect: "Suspect") -> dict[str, str]:
    from dmuh.catalogue.paths import displayed

    return {
        "image": displayed(suspect.path.removeprefix(f"{Path.cwd()}{os.sep}")),
        "label": ";".join(suspect.labels) or "none",
        "suggested": ";".join(suspect.suggested) or "none",
        "probability": f"{suspect.probability:.2f}",
        "in words": suspect.in_words,
    }


def _plain(suspect: "Suspect") -> dict[str, Any]:
    """Return a suspect as JSON has it."""
    from dmuh.catalogue.paths import displayed

    about = {"path": displayed(suspect.path), "labels": suspect.labels, "suggested": suspect.suggested}
    more = {"missing": suspect.missing, "too_much": suspect.too_much}
    return about | more | {"probability": suspect.probability, "in_words": suspect.in_words}
