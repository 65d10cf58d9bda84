"""dmuh search --captions: images are answered with the nearest sentences."""

from typing import TYPE_CHECKING, Any

from dmuh.cli.console import say_table
from dmuh.cli.found import match_of, nothing_said, words_of

if TYPE_CHECKING:
    from dmuh.cli.answers import Asked
    from dmuh.cli.queries import Queries
    from dmuh.encoder.captions import Captions


def in_words(queries: "Queries", captions: "Captions", asked: "Asked") -> list[dict[str, Any]]:
    """Return for each query the nearest sentences, each with the ids of the images that it is about."""
    from dmuh.cli.answers import Stored, find
    from dmuh.index import HammingIndex

    codes = captions.codes
    stored = Stored(codes.sure, lambda ids: codes[ids], lambda _: {})  # no sentence is the same as an image
    answers = find(HammingIndex().add(codes), stored, queries.codes, asked, captions.by)
    return [
        {
            "query": name,
            "best_match": None if own.best is None else round(own.best, 4),
            "texts": [
                {**match_of(answer), "text": captions.sentences[answer.id], "images": captions.images[answer.id]}
                for answer in own.found
            ],
        }
        for name, own in zip(queries.names, answers, strict=True)
    ]


def say_captions(results: list[dict[str, Any]], at_least: float | None) -> None:
    """Print a table for each query."""
    from dmuh.index.soft import distance_text

    for result in results:
        rows = [
            {"distance": distance_text(text["distance"]), "match": words_of(text), "text": text["text"]}
            for text in result["texts"]
        ]
        say_table(result["query"], rows, empty=nothing_said("text", result["best_match"], at_least))
