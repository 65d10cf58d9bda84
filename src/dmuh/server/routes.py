"""The routes of the API: what is asked for goes to the service, what it says goes out."""

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from dmuh.errors import RequestError
from dmuh.server.schemas import (
    UPLOAD,
    About,
    Answer,
    Id,
    Image,
    ImageList,
    K,
    Label,
    Labels,
    N,
    Name,
    Offset,
    QueryId,
    QueryPath,
    Radius,
    binary,
    responses,
)
from dmuh.server.searcher import Search
from dmuh.server.service import Service

_UPLOADS: dict[str, Any] = {
    "_400": "The upload is empty or broke off.", "_413": "Too many bytes or pixels.", "_415": "Not an image."
}  # fmt: skip
_GONE = "There is no such image, or its file is gone."
_KEPT = {"cache-control": "private, max-age=86400, immutable"}  # no id is ever given to another image


def search_routes(service: Service, most_bytes: int) -> APIRouter:
    """Return the routes that search."""
    router = APIRouter(prefix="/api")

    @router.get("/search", responses=responses(200, "The nearest images.", Answer, _404="There is no such image."))
    async def search(
        id: QueryId = None,  # noqa: A002
        path: QueryPath = None,
        k: K = 10,
        radius: Radius = None,
        label: Label = None,
    ) -> Response:
        """Find the images nearest to one of the collection, which is named by its id or its path."""
        if (id is None) == (path is None):
            raise RequestError(422, "give the id or the path of an image, and not both")
        return _json(await service.search(Search(k, radius, label, id, path)))

    @router.post("/search", openapi_extra=UPLOAD, responses=responses(200, "The nearest images.", Answer, **_UPLOADS))
    async def search_upload(request: Request, k: K = 10, radius: Radius = None, label: Label = None) -> Response:
        """Find the images nearest to one that is sent."""
        code = await service.encode(await _body(request, most_bytes))
        return _json(await service.search(Search(k, radius, label, code=code)))

    return router


def image_routes(service: Service, most_bytes: int) -> APIRouter:
    """Return the routes to the images."""
    router = APIRouter(prefix="/api/images")
    seen = responses(200, "The image.", Image, _404="There is no such image.")
    new = responses(201, "The new image.", Image, **_UPLOADS)

    @router.get("", responses=responses(200, "Images.", ImageList))
    async def images(
        order: Literal["uncertainty", "id", "random"] = "id", n: N = 24, offset: Offset = 0, label: Label = None
    ) -> Response:
        """List images: the least certain first, by id, or some at random."""
        return _json(await service.images(order, n, offset, label))

    @router.post("", status_code=201, openapi_extra=UPLOAD, responses=new)
    async def add(request: Request, labels: Labels = [], name: Name = None) -> Response:  # noqa: B006
        """Add an image to the collection. Once it is acknowledged it is found, also after a crash."""
        content = await _body(request, most_bytes)
        return _json(await service.add(content, labels, {} if name is None else {"name": name}), 201)

    @router.get("/{id}", responses=seen)
    async def image(id: Id) -> Response:  # noqa: A002
        """Tell what is known of an image."""
        return _json(await service.image(id))

    @router.delete("/{id}", status_code=204, responses=responses(204, "It is deleted.", _404="There is no such image."))
    async def delete(id: Id) -> Response:  # noqa: A002
        """Delete an image from the collection; a file that was not added through the service stays where it is."""
        await service.delete(id)
        return Response(status_code=204)

    @router.get("/{id}/file", responses=responses(200, "The file.", binary("image/*"), _404=_GONE))
    async def file(id: Id) -> Response:  # noqa: A002
        """Return the file of an image as it is."""
        content, kind = await service.file(id)
        return Response(content, media_type=kind, headers=_KEPT)

    @router.get("/{id}/thumbnail", responses=responses(200, "The picture.", binary("image/webp"), _404=_GONE))
    async def thumbnail(id: Id) -> Response:  # noqa: A002
        """Return a small picture of an image."""
        return Response(await service.thumbnail(id), media_type="image/webp", headers=_KEPT)

    return router


def about_routes(service: Service) -> APIRouter:
    """Return the route that tells what is served."""
    router = APIRouter(prefix="/api")

    @router.get("/about", responses=responses(200, "What is served.", About))
    async def about() -> dict[str, Any]:
        """Tell which model is served, how many images there are, and their labels."""
        return await service.about()

    return router


async def _body(request: Request, most: int) -> bytes:
    """Return the uploaded file, of which no more is read than is allowed."""
    kind = request.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
    if not kind.startswith("image/") and kind != "application/octet-stream":
        raise RequestError(415, "send the image itself as the body, with its type: curl --data-binary @image.jpg")
    too_large = RequestError(413, f"an upload may have {most:,} bytes at most")
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length) > most:
        raise too_large
    content = bytearray()
    try:
        async for part in request.stream():
            content += part
            if len(content) > most:
                raise too_large
    except ClientDisconnect as error:
        raise RequestError(400, "the upload broke off") from error
    return bytes(content)


def _json(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")
