"""What `dmuh search` found: as JSON, as tables and as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmuh.cli.console import say_table, warn

if TYPE_CHECKING:
    from dmuh.cli.answers import Answer, Answers
    from dmuh.cli.queries import Queries
    from dmuh.collection import Item


def results_of(
    queries: "Queries",
    answers: "list[Answers]",
    items: "dict[int, Item]",
    percentiles: list[float] | None,
) -> list[dict[str, Any]]:
    """Return what was found for each query: its path, its uncertainty, and its matches, the nearest first."""
    from dmuh.codes import less_certain_than

    unsure, of_bits = queries.codes.image_uncertainty, queries.codes.uncertainty
    return [
        {
            "query": name,
            "n_bits": queries.codes.n_bits,
            "unsure_bits": None if of_bits is None else round(float(of_bits[row].sum()), 4),
            "uncertainty": None if unsure is None else round(float(unsure[row]), 6),
            "less_certain_than": (
                None
                if unsure is None or percentiles is None or queries.calibration is not None
                else less_certain_than(float(unsure[row]), percentiles)
            ),
            "best_match": None if (best := answers[row].best) is None else round(best, 4),
            "matches": [
                {**match_of(answer), "identical": answer.identical, **vars(items[answer.id])}
                for answer in answers[row].found
            ],
        }
        for row, name in enumerate(queries.names)
    ]


def match_of(answer: "Answer") -> dict[str, Any]:
    """Return how far an answer is, and what that means."""
    from dmuh.encoder.matching import likely

    return {
        "distance": answer.distance if isinstance(answer.distance, int) else round(answer.distance, 4),
        "hamming": answer.hamming,
        "match": None if answer.match is None else round(answer.match, 4),
        "likely": None if answer.match is None else likely(answer.match),
    }


def nothing_said(what: str, best: float | None, at_least: float | None) -> str:
    """Return what is said where nothing was found, or nothing that is likely enough."""
    if at_least is None or best is None:
        return f"no {what} is near"
    return f"nothing close enough: the best answer shares a label with a probability of {best:.2f}"


def say_results(results: list[dict[str, Any]], at_least: float | None) -> None:
    """Print a table for each query."""
    from dmuh.encoder.matching import turning_over
    from dmuh.index.soft import distance_text

    for result in results:
        note = "" if result["unsure_bits"] is None else turning_over(result["unsure_bits"], result["n_bits"])
        if result["less_certain_than"] is not None:
            note += f"; less sure than {result['less_certain_than']}% of the collection"
        rows = [
            {
                "distance": distance_text(match["distance"]),
                "match": words_of(match),
                "labels": ";".join(match["labels"]),
                "image": match["path"],
            }
            for match in result["matches"]
        ]
        empty = nothing_said("image", result["best_match"], at_least)
        say_table(f"{result['query']}{f' ({note})' if note else ''}", rows, empty=empty)


def words_of(match: dict[str, Any]) -> str:
    """Return what a match is called: the same image, or how likely it shares a label with the query, if it is known."""
    return "same image" if match.get("identical") else match["likely"] or ""


def _caption(distance: str, words: str) -> str:
    """Return the line under a picture; without words it says what the number is."""
    return f"{distance}, {words}" if words else f"distance {distance}"


def draw_sheet(results: list[dict[str, Any]], file: Path, *, of_texts: bool = False) -> None:
    """Draw each query, an image or a text, and its matches as a row; say if images are not where they were indexed."""
    from dmuh.catalogue.paths import displayed
    from dmuh.files import written_whole
    from dmuh.index.soft import distance_text
    from dmuh.report.thumbnails import Tile, Words, contact_sheet

    rows = [
        [
            Tile(Words(result["query"]), "query")
            if of_texts
            else Tile(result["query"], "query", displayed(Path(result["query"]).name)),
            *(
                Tile(m["path"], _caption(distance_text(m["distance"]), words_of(m)), displayed(";".join(m["labels"])))
                for m in result["matches"]
            ),
        ]
        for result in results
    ]
    paths = {match["path"] for result in results for match in result["matches"]}
    gone = sorted(path for path in paths if not Path(path).is_file())
    if gone:
        warn(
            f"{len(gone):,} of {len(paths):,} found images are grey in the picture, as they are not where they were "
            f"indexed, such as {gone[0]}: if they moved, index them again with --replace"
        )
    picture = contact_sheet(rows)
    with written_whole(file) as temporary:
        picture.save(temporary, "PNG")
