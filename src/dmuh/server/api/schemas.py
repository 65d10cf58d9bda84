"""Parameters and answers of the API, for its OpenAPI description; json_answers.py writes the answers themselves."""

from typing import Annotated, Any, Literal

from fastapi import Header, Path, Query
from pydantic import BaseModel, Field

from dmuh.encoder.matching import Likely
from dmuh.index.soft import Ranking

MOST_K, MOST_LISTED, LONGEST_TEXT = 1000, 200, 500
_LARGEST = 2**63 - 1
_PATH = r"Below the collection's folder; a byte that is not UTF-8 is shown by its number, as in caf\xe9.jpg."

Id = Annotated[int, Path(ge=0, le=_LARGEST, description="Id of an image.", examples=[17])]
QueryId = Annotated[int | None, Query(ge=0, le=_LARGEST, description="Id of an image.", examples=[17])]
QueryPath = Annotated[
    str | None, Query(max_length=4096, description="Path of an image, as answers show it.", examples=["cats/03.jpg"])
]
QueryCode = Annotated[
    str | None,
    Query(
        max_length=4096,
        description="A code in hexadecimal digits, two per byte; bits 0 to 7 are the first byte, 0 the lowest.",
        examples=["8f373714"],
    ),
]
QueryText = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=LONGEST_TEXT,
        description="A sentence that says what the images show, where /api/about has no no_texts.",
        examples=["two dogs on a beach"],
    ),
]
K = Annotated[int, Query(ge=1, le=MOST_K, description="How many images at most.")]
NTexts = Annotated[int, Query(ge=1, le=MOST_K, description="How many sentences at most.")]
Radius = Annotated[
    float | None,
    Query(
        ge=0,
        le=1024,
        allow_inf_nan=False,
        description="Distance up to which images count, in bits of the ranking, beside identical ones; without it all "
        "do.",
        examples=[8],
    ),
]
AskedRanking = Annotated[
    Ranking | None,
    Query(
        description="Order of the answers: by the number of bits that are expected to differ, given how sure each is, "
        "or by the number that differ. Without it soft, where it is known how sure the bits of the query are."
    ),
]
AtLeast = Annotated[
    float | None,
    Query(
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Probability of sharing a label with the query below which images are left out.",
        examples=[0.5],
    ),
]
By = Annotated[
    Literal["look", "class"],
    Query(description="Codes that are searched: the service's own, or those by class where /api/about says by_class."),
]
Label = Annotated[str | None, Query(max_length=200, description="Label that they must have.", examples=["cats"])]
Labels = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=200)]],
    Query(alias="label", max_length=20, description="Label of the new image; may be given several times."),
]
Name = Annotated[str | None, Query(max_length=200, description="What the new image is called.", examples=["a.jpg"])]
N = Annotated[int, Query(ge=1, le=MOST_LISTED, description="How many images at most.")]
Offset = Annotated[int, Query(ge=0, le=_LARGEST, description="How many images to pass over.")]
Ids = Annotated[
    list[Annotated[int, Field(ge=0, le=_LARGEST)]],
    Query(
        alias="id",
        max_length=MOST_LISTED,
        description="Images to list, in this order, in place of others; may be given several times.",
    ),
]
Seed = Annotated[
    int | None, Query(ge=0, le=_LARGEST, description="Images at random are the same for the same seed.", examples=[1])
]

Known = Annotated[
    str, Header(alias="if-none-match", max_length=4096, description="Tags of what the browser has.", examples=['"1-2"'])
]


def _distance() -> Any:
    return Field(
        description="By soft ranking how many bits are expected to differ from the query's; by Hamming ranking how "
        "many do, a whole number.",
        examples=[3.4],
    )


def _hamming() -> Any:
    return Field(description="How many bits differ from the query's.", examples=[3])


def _likely() -> Any:
    return Field(description="The same in words: from 0.8, from 0.4, and below.", examples=["very likely"])


def _left_out(what: str) -> Any:
    return Field(description=f"How many of the k nearest {what} were left out by at_least.", examples=[0])


def _best(what: str) -> Any:
    return Field(
        description=f"The largest probability of sharing a label among the k nearest {what}, null if there is none or "
        "it is not known.",
        examples=[0.87],
    )


class Code(BaseModel):
    """A code: its bits, and how sure they are, where that is known."""

    uncertainty: float | None = Field(
        description="Of the image, 0 to 1: what is expected to be missing to the average precision of a search from "
        "it; of a model that did not learn from labels, the share of its bits that is expected to turn over.",
        examples=[0.0123],
    )
    bits: str = Field(description="One character per bit.", examples=["01101001"])
    bit_uncertainty: list[float] | None = Field(
        description="The probability that each bit turns over, 0 to 0.5, to four places; for an image of the "
        "collection that of the bit's level.",
        examples=[[0.01, 0, 0.002, 0.3, 0, 0, 0.01, 0.0004]],
    )


class Image(Code):
    """An image of the catalogue."""

    id: int = Field(examples=[17])
    path: str = Field(description=_PATH, examples=["cats/03.jpg"])
    labels: list[str] = Field(examples=[["cats"]])
    metadata: dict[str, str] = Field(examples=[{"taken": "2021"}])


class Match(Image):
    """An image that was found."""

    distance: float = _distance()
    hamming: int = _hamming()
    match: float | None = Field(
        description="Probability that it shares a label with the query, by its distance; 1 for an identical image, "
        "null if it is not known.",
        examples=[0.87],
    )
    likely: Likely | None = _likely()
    identical: bool = Field(description="Whether it is the same image as the query.", examples=[False])


class QueryImage(Code):
    """The query: an image of the catalogue, or an upload or a text, of which there is only the code."""

    text: str | None = Field(None, description="The sentence, where that was searched with.", examples=[None])
    id: int | None = None
    path: str | None = None
    labels: list[str] | None = None
    metadata: dict[str, str] | None = None


class Answer(BaseModel):
    """The nearest images: those that are the same as the query, then by distance; the query itself is not among them.

    Equal distances are in a fixed random order.
    """

    query: QueryImage
    ranking: Ranking
    matches: list[Match]
    left_out: int = _left_out("images")
    best: float | None = _best("images")


class Caption(BaseModel):
    """A sentence about images of the collection that was found."""

    text: str = Field(examples=["two dogs on a beach"])
    images: list[int] = Field(
        description="Ids of the images that it is about, as their list says: the first 200 of them.", examples=[[17]]
    )
    distance: float = _distance()
    hamming: int = _hamming()
    match: float | None = Field(
        description="Probability that it shares a label with the image, by its distance; null if it is not known.",
        examples=[0.87],
    )
    likely: Likely | None = _likely()


class CaptionAnswer(BaseModel):
    """The nearest sentences, by distance; equal distances are in a fixed random order."""

    query: QueryImage
    ranking: Ranking
    texts: list[Caption]
    left_out: int = _left_out("sentences")
    best: float | None = _best("sentences")


class ImageList(BaseModel):
    """Some images of the catalogue."""

    images: list[Image]


class About(BaseModel):
    """What is served."""

    method: str = Field(examples=["dmuh"])
    backbone: str = Field(examples=["smallconv"])
    n_bits: int = Field(examples=[32])
    images: int = Field(examples=[2500])
    sure: int = Field(description="Bits that say how sure each bit of a stored code is.", examples=[1])
    ranking: Ranking = Field(
        description="Order of what is found from an image of the collection, where none is asked for; that of what is "
        "found from an upload or a text is soft."
    )
    match_known: bool = Field(
        description="Whether it is known how often images at a distance share a label.", examples=[True]
    )
    by_class: bool = Field(description="Whether images can be searched by class too.", examples=[False])
    no_uploads: str | None = Field(
        description="Why images cannot be sent, where codes are hashes of another program; else null.", examples=[None]
    )
    no_texts: str | None = Field(
        description="Why sentences cannot be searched with, as the model learned from images alone; null where they "
        "can.",
        examples=[None],
    )
    no_captions: str | None = Field(
        description="Why images cannot be answered with sentences, as the model or the collection has none; null where "
        "they can.",
        examples=[None],
    )
    labels: dict[str, int] = Field(description="Every label with the number of its images.", examples=[{"cats": 10}])
    uncertainty_percentiles: list[float] | None = Field(
        description="What 0, 1, …, 100% of the collection's images stay at or below in uncertainty: 101 numbers, of a "
        "sample.",
        examples=[[n / 1000 for n in range(101)]],
    )


class Map(BaseModel):
    """Where each image lies on a map of two dimensions, column by column, by id."""

    working: bool = Field(
        description="Whether places are being computed of images that have none yet: ask again in a second.",
        examples=[False],
    )
    how: str | None = Field(
        description="How the places were found: tsne, or pca where scikit-learn is not installed.", examples=["tsne"]
    )
    ids: list[int] = Field(examples=[[1, 2]])
    x: list[float] = Field(description="0 to 1000.", examples=[[10.5, 990]])
    y: list[float] = Field(description="0 to 1000.", examples=[[500, 20.1]])
    names: list[str] = Field(description="Labels.", examples=[["cats"]])
    label: list[int] = Field(
        description="Position in names of each image's rarest label, −1 without.", examples=[[0, -1]]
    )
    uncertainty: list[float | None] = Field(examples=[[0.01, 0.2]])


class DuplicateGroup(BaseModel):
    """Images that are the same, or nearly so."""

    images: list[Image]
    kinds: list[str] = Field(
        description="What each is to the best: best, identical, same file, same pixels or near.",
        examples=[["best", "near"]],
    )
    best: int = Field(description="Id of the one to keep.", examples=[17])
    reason: str = Field(description="Why that one.", examples=["the largest file"])


class Duplicates(BaseModel):
    """Groups of images that are the same, or nearly so."""

    working: bool = Field(description="Whether they are still looked for: ask again in a second.", examples=[False])
    by: str = Field(
        description="features, by which near duplicates are found too (dmuh open), or identical.", examples=["features"]
    )
    total: int = Field(description="How many groups there are.", examples=[1])
    groups: list[DuplicateGroup]


class Suspect(BaseModel):
    """An image whose labels are probably wrong."""

    image: Image
    suggested: list[str] = Field(description="Labels that images like it have.", examples=[["dogs"]])
    probability: float = Field(description="That its labels are wrong.", examples=[0.93])
    in_words: str = Field(examples=["very probably wrong"])
    decision: str | None = Field(description="What was decided: accept, skip or own.", examples=[None])


class Review(BaseModel):
    """Images whose labels are probably wrong, the most probable first."""

    working: bool = Field(description="Whether they are still looked for: ask again in a second.", examples=[False])
    open: int = Field(description="How many are to be decided on.", examples=[1])
    decided: int = Field(description="How many are decided.", examples=[0])
    suspects: list[Suspect]


class Error(BaseModel):
    """What was wrong, in one sentence."""

    error: str = Field(examples=["there is no image 17"])


Content = dict[str, Any]  # of an answer that is not JSON, by media type


def binary(*types: str) -> Content:
    """Return the description of content that is a file of one of these types."""
    return {kind: {"schema": {"type": "string", "format": "binary"}} for kind in types}


def responses(
    status: int, about: str, content: type[BaseModel] | Content | None = None, **refused: str
) -> dict[int | str, Any]:
    """Return the description of a route's answers: the right one, and the refusals by status, as _404="…"."""
    right: dict[str, Any] = {"description": about}
    if content is not None:
        right["content" if isinstance(content, dict) else "model"] = content
    wrong = _REFUSED | {int(key[1:]): sentence for key, sentence in refused.items()}
    described: dict[int | str, Any] = {status: right}
    for code in sorted(wrong):
        described[code] = {"description": wrong[code]} | ({} if code == 304 else {"model": Error})
    return described


_REFUSED = {
    400: "The request is malformed.",
    401: "A token is needed.",
    403: "The host or the origin is another.",
    422: "A parameter or an image is wrong.",
    429: "Too many requests.",
    503: "Too busy, or it took too long.",
}
_UPLOADED = (
    "image/jpeg", "image/png", "image/webp", "image/gif", "image/avif", "image/heic", "application/octet-stream"
)  # fmt: skip
UPLOAD = {"requestBody": {"required": True, "description": "The image file itself.", "content": binary(*_UPLOADED)}}
