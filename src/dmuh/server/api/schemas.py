"""Parameters and answers of the API, for its OpenAPI description; json_answers.py writes the answers themselves."""

from typing import Annotated, Any

from fastapi import Header, Path, Query
from pydantic import BaseModel, Field

MOST_K, MOST_LISTED = 1000, 200
_LARGEST = 2**63 - 1
_PATH = r"Below the collection's folder; a byte that is not UTF-8 is shown by its number, as in caf\xe9.jpg."

Id = Annotated[int, Path(ge=0, le=_LARGEST, description="Id of an image.", examples=[17])]
QueryId = Annotated[int | None, Query(ge=0, le=_LARGEST, description="Id of an image.", examples=[17])]
QueryPath = Annotated[
    str | None, Query(max_length=4096, description="Path of an image, as answers show it.", examples=["cats/03.jpg"])
]
K = Annotated[int, Query(ge=1, le=MOST_K, description="How many images at most.")]
Radius = Annotated[
    int | None, Query(ge=0, le=1024, description="Distance up to which images count; without it all do.", examples=[8])
]
Label = Annotated[str | None, Query(max_length=200, description="Label that they must have.", examples=["cats"])]
Labels = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=200)]],
    Query(alias="label", max_length=20, description="Label of the new image; may be given several times."),
]
Name = Annotated[str | None, Query(max_length=200, description="What the new image is called.", examples=["a.jpg"])]
N = Annotated[int, Query(ge=1, le=MOST_LISTED, description="How many images at most.")]
Offset = Annotated[int, Query(ge=0, le=_LARGEST, description="How many images to pass over.")]

Known = Annotated[
    str, Header(alias="if-none-match", max_length=4096, description="Tags of what the browser has.", examples=['"1-2"'])
]


class Code(BaseModel):
    """A code: its bits, and how uncertain it is; both uncertainties are null for methods that have none."""

    uncertainty: float | None = Field(description="Of the image: the mean over its bits.", examples=[0.0123])
    bits: str = Field(description="One character per bit.", examples=["01101001"])
    bit_uncertainty: list[float] | None = Field(
        description="One number per bit, to four places.", examples=[[0.01, 0, 0.002, 0.3, 0, 0, 0.01, 0.0004]]
    )


class Image(Code):
    """An image of the catalogue."""

    id: int = Field(examples=[17])
    path: str = Field(description=_PATH, examples=["cats/03.jpg"])
    labels: list[str] = Field(examples=[["cats"]])
    metadata: dict[str, str] = Field(examples=[{"taken": "2021"}])


class Match(Image):
    """An image that was found."""

    distance: int = Field(description="How many bits differ from the query's.", examples=[3])


class QueryImage(Code):
    """The query: an image of the catalogue, or an upload, of which there is only the code."""

    id: int | None = None
    path: str | None = None
    labels: list[str] | None = None
    metadata: dict[str, str] | None = None


class Answer(BaseModel):
    """The nearest images, nearest first, equal distances by id; the query itself is not among them."""

    query: QueryImage
    matches: list[Match]


class ImageList(BaseModel):
    """Some images of the catalogue."""

    images: list[Image]


class About(BaseModel):
    """What is served."""

    method: str = Field(examples=["dmuh"])
    backbone: str = Field(examples=["smallconv"])
    n_bits: int = Field(examples=[32])
    images: int = Field(examples=[2500])
    labels: dict[str, int] = Field(description="Every label with the number of its images.", examples=[{"cats": 10}])
    uncertainty_percentiles: list[float] | None = Field(
        description="What 0, 1, …, 100% of the collection's images stay at or below in uncertainty: 101 numbers, of a "
        "sample.",
        examples=[[n / 1000 for n in range(101)]],
    )
    high_bit_uncertainty: float | None = Field(
        description="What 95% of the collection's bits stay below.", examples=[0.08]
    )


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
_UPLOADED = ("image/jpeg", "image/png", "image/webp", "image/gif", "application/octet-stream")
UPLOAD = {"requestBody": {"required": True, "description": "The image file itself.", "content": binary(*_UPLOADED)}}
