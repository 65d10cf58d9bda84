"""The routes of the API: each passes its parameters to the service and sends its answer."""

from contextlib import closing
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from starlette.types import Receive, Scope, Send

from dmuh.errors import RequestError
from dmuh.server.api.query_route import QueryRoute
from dmuh.server.api.schemas import (
    UPLOAD,
    About,
    Answer,
    AskedRanking,
    AtLeast,
    By,
    CaptionAnswer,
    Duplicates,
    Id,
    Ids,
    Image,
    ImageList,
    K,
    Known,
    Label,
    Labels,
    Map,
    N,
    Name,
    NTexts,
    Offset,
    QueryCode,
    QueryId,
    QueryPath,
    QueryText,
    Radius,
    Review,
    Seed,
    binary,
    responses,
)
from dmuh.server.http.guard import COOKIE, session_of
from dmuh.server.http.uploads import UploadReceiver
from dmuh.server.images.files import ImageFile, is_known
from dmuh.server.limits import Limits
from dmuh.server.metrics import CONTENT_TYPE, ServiceMetrics
from dmuh.server.queries import Search
from dmuh.server.service import Service

_UPLOADS: dict[str, Any] = {
    "_400": "The upload is empty or broke off.", "_413": "Too many bytes or pixels.", "_415": "Not an image."
}  # fmt: skip
_GONE = "There is no such image, or its file is gone."
_SAME = "What the browser has is current."
_UNSUSPECTED = "The labels of no such image are probably wrong."
_FULL = "The disk is full."


def search_routes(service: Service, uploads: UploadReceiver) -> APIRouter:
    """Return the routes that search."""
    router = APIRouter(prefix="/api", route_class=QueryRoute)

    @router.get("/search", responses=responses(200, "The nearest images.", Answer, _404="There is no such image."))
    async def search(
        id: QueryId = None,  # noqa: A002
        path: QueryPath = None,
        code: QueryCode = None,
        text: QueryText = None,
        k: K = 10,
        radius: Radius = None,
        label: Label = None,
        ranking: AskedRanking = None,
        at_least: AtLeast = None,
        by: By = "look",
    ) -> Response:
        """Find the images nearest to one of the collection, by its id or path, to a code, or to what a text says."""
        if [id, path, code, text].count(None) != 3:
            raise RequestError(
                422, "give the id or the path of an image, or a code, or a text, and not several of them"
            )
        if (code is not None or text is not None) and by == "class":
            kind = "a code" if text is None else "the code of a text"
            raise RequestError(422, f"{kind} is one of the service's own: leave out by=class")
        given = None if code is None else service.code(code)
        given = given if text is None else await service.encode_text(text)
        search = Search(k, radius, label, id, path, given, text, ranking, at_least, by_class=by == "class")
        return _json(await service.search(search))

    @router.post("/search", openapi_extra=UPLOAD, responses=responses(200, "The nearest images.", Answer, **_UPLOADS))
    async def search_upload(
        request: Request,
        k: K = 10,
        radius: Radius = None,
        label: Label = None,
        ranking: AskedRanking = None,
        at_least: AtLeast = None,
        by: By = "look",
    ) -> Response:
        """Find the images nearest to one that is sent."""
        async with uploads.receive(request) as content:
            code = await service.encode(content, by_class=by == "class")
        search = Search(k, radius, label, code=code, ranking=ranking, at_least=at_least, by_class=by == "class")
        return _json(await service.search(search))

    return router


def caption_routes(service: Service, uploads: UploadReceiver) -> APIRouter:
    """Return the routes that answer images in words."""
    router = APIRouter(prefix="/api", route_class=QueryRoute)
    nearest = "The nearest sentences."

    @router.get("/captions", responses=responses(200, nearest, CaptionAnswer, _404="There is no such image."))
    async def captions(
        id: QueryId = None,  # noqa: A002
        path: QueryPath = None,
        code: QueryCode = None,
        k: NTexts = 5,
        ranking: AskedRanking = None,
        at_least: AtLeast = None,
    ) -> Response:
        """Find the sentences that fit an image of the collection best, by its id or path, or a code."""
        if [id, path, code].count(None) != 2:
            raise RequestError(422, "give the id or the path of an image, or a code, and not several of them")
        given = None if code is None else service.code(code)
        return _json(
            await service.captions(Search(k, id=id, path=path, code=given, ranking=ranking, at_least=at_least))
        )

    @router.post("/captions", openapi_extra=UPLOAD, responses=responses(200, nearest, CaptionAnswer, **_UPLOADS))
    async def captions_of_upload(
        request: Request, k: NTexts = 5, ranking: AskedRanking = None, at_least: AtLeast = None
    ) -> Response:
        """Find the sentences that fit an image that is sent best."""
        service.check_captions()
        async with uploads.receive(request) as content:
            code = await service.encode(content)
        return _json(await service.captions(Search(k, code=code, ranking=ranking, at_least=at_least)))

    return router


def image_routes(service: Service, uploads: UploadReceiver) -> APIRouter:
    """Return the routes that list, add, describe and delete images."""
    router = APIRouter(prefix="/api/images")
    found = responses(200, "The image.", Image, _404="There is no such image.")
    new = responses(201, "The new image.", Image, **_UPLOADS, _507=_FULL)
    gone = responses(204, "It is deleted.", _404="There is no such image.", _507=_FULL)
    restored = responses(200, "The image.", Image, _404="No such image was deleted a short time ago.", _507=_FULL)

    @router.get("", responses=responses(200, "Images.", ImageList))
    async def images(
        order: Literal["uncertainty", "id", "random"] = "id",
        n: N = 24,
        offset: Offset = 0,
        label: Label = None,
        seed: Seed = None,
        ids: Ids = [],  # noqa: B006
    ) -> Response:
        """List images: the least sure first, by id, some at random, or those that are named."""
        if ids:
            return _json(await service.some_images(ids))
        return _json(await service.images(order, n, offset, label, seed))

    @router.post("", status_code=201, openapi_extra=UPLOAD, responses=new)
    async def add(request: Request, labels: Labels = [], name: Name = None) -> Response:  # noqa: B006
        """Add an image to the collection. Once it is acknowledged it is found, also after a crash."""
        async with uploads.receive(request) as content:
            return _json(await service.add(content, labels, {} if name is None else {"name": name}), 201)

    @router.get("/{id}", responses=found)
    async def image(id: Id) -> Response:  # noqa: A002
        """Return an image: its path, labels, metadata and code."""
        return _json(await service.image(id))

    @router.delete("/{id}", status_code=204, responses=gone)
    async def delete(id: Id) -> Response:  # noqa: A002
        """Delete an image from the collection; a file that was not added through the service stays where it is."""
        await service.delete(id)
        return Response(status_code=204)

    @router.post("/{id}/restore", responses=restored)
    async def restore(id: Id) -> Response:  # noqa: A002
        """Bring back an image that was deleted a short time ago, under the same id."""
        return _json(await service.restore(id))

    return router


def file_routes(service: Service) -> APIRouter:
    """Return the routes of the images' files and thumbnails."""
    router = APIRouter(prefix="/api/images")

    @router.get("/{id}/file", responses=responses(200, "The file.", binary("image/*"), _304=_SAME, _404=_GONE))
    async def file(id: Id, known: Known = "") -> Response:  # noqa: A002
        """Return the file of an image as it is."""
        return _sent(await service.file(id), known)

    @router.get("/{id}/picture", responses=responses(200, "The picture.", binary("image/*"), _304=_SAME, _404=_GONE))
    async def picture(id: Id, known: Known = "") -> Response:  # noqa: A002
        """Return an image as browsers show it: its file, or a WebP file made of it if it is a TIFF, PPM or HEIC."""
        found = await service.picture(id, known)
        return _sent(found, known) if isinstance(found, ImageFile) else _made(*found)

    small = responses(200, "The picture.", binary("image/webp"), _304=_SAME, _404=_GONE, _413="Too large.")

    @router.get("/{id}/thumbnail", responses=small)
    async def thumbnail(id: Id, known: Known = "") -> Response:  # noqa: A002
        """Return a small picture of an image."""
        return _made(*await service.thumbnail(id, known))

    return router


def about_routes(service: Service) -> APIRouter:
    """Return the route that tells what is served."""
    router = APIRouter(prefix="/api")

    @router.get("/about", responses=responses(200, "What is served.", About))
    async def about() -> dict[str, Any]:
        """Tell which model is served, how many images there are, and their labels."""
        return await service.about()

    @router.get("/map", responses=responses(200, "The map.", Map))
    async def collection_map() -> Response:
        """Tell where each image lies on a map, on which those with similar codes are beside each other."""
        return _json(await service.map())

    return router


def cleaning_routes(service: Service) -> APIRouter:
    """Return the routes by which a collection is cleaned."""
    router = APIRouter(prefix="/api")
    csv = {"text/csv": {"schema": {"type": "string"}}}

    @router.get("/duplicates", responses=responses(200, "Groups.", Duplicates))
    async def duplicates(n: N = 24, offset: Offset = 0) -> Response:
        """List images that are the same, in groups, with the one to keep."""
        return _json(await service.duplicates(n, offset))

    @router.get("/review", responses=responses(200, "Images.", Review))
    async def review(n: N = 24, offset: Offset = 0, decided: bool = False) -> Response:
        """List images whose labels are probably wrong: those to be decided on, or those that are decided."""
        return _json(await service.suspects(n, offset, decided))

    @router.post(
        "/review/{id}", status_code=204, responses=responses(204, "It is kept.", _404=_UNSUSPECTED, _507=_FULL)
    )
    async def decide(id: Id, decision: Literal["accept", "skip", "undo"]) -> Response:  # noqa: A002
        """Accept the labels that are suggested for an image, keep those it has (skip), or take that back (undo)."""
        await service.decide(id, decision)
        return Response(status_code=204)

    @router.get("/review/decisions.csv", responses=responses(200, "The list.", csv))
    async def decisions() -> Response:
        """Return what was decided, as a list that `dmuh review` takes."""
        return Response(await service.decisions(), headers={"content-type": "text/csv; charset=utf-8"})

    return router


def session_routes(limits: Limits) -> APIRouter:
    """Return the route that gives a browser its cookie."""
    router = APIRouter(prefix="/api")

    @router.post("/session", status_code=204, responses=responses(204, "The browser keeps a cookie from now on."))
    async def session() -> Response:
        """Exchange the token, shown as for every request, for a cookie, by which a browser shows images."""
        response = Response(status_code=204)
        if limits.token is not None:  # the guard has checked it
            response.set_cookie(COOKIE, session_of(limits.token), httponly=True, samesite="strict")
        return response

    return router


def monitoring_routes(service: Service, metrics: ServiceMetrics) -> APIRouter:
    """Return the routes for programs that watch over the service."""
    router = APIRouter()

    @router.get("/healthz", responses={200: {"content": {"application/json": {"example": {"status": "ok"}}}}})
    async def health() -> dict[str, str]:
        """Tell that the service answers."""
        return {"status": "ok"}

    @router.get("/metrics", responses=responses(200, "Metrics.", {"text/plain": {"schema": {"type": "string"}}}))
    async def measured() -> Response:
        """Return what the service counts, in the text format of Prometheus."""
        return Response(metrics.text(len(service)), headers={"content-type": CONTENT_TYPE})

    return router


def _json(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")


def _made(tag: str, content: bytes | None) -> Response:
    """Return the answer with a WebP file; None if the browser has it."""
    if content is None:
        return Response(status_code=304, headers=_checked(tag))
    return Response(content, media_type="image/webp", headers=_checked(tag))


def _sent(file: ImageFile, known: str) -> Response:
    """Return the answer with a file; without it if the browser has it."""
    if is_known(file.tag, known):
        file.close()
        return Response(status_code=304, headers=_checked(file.tag))
    return _Sent(file)


class _Sent(Response):
    """A file that is sent in parts, each when the client has taken those before it."""

    def __init__(self, picture: ImageFile) -> None:
        super().__init__(media_type=picture.kind, headers=_checked(picture.tag))
        self.headers["content-length"] = str(picture.length)
        self._picture = picture

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, and close it."""
        del scope, receive
        with closing(self._picture) as picture:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            at = 0
            while at < picture.length:
                part = await picture.part(at)
                at += len(part)
                await send({"type": "http.response.body", "body": part, "more_body": at < picture.length})


def _checked(tag: str) -> dict[str, str]:
    """Return the headers by which a browser asks again before it shows a cached image, which may be deleted."""
    return {"etag": tag, "cache-control": "private, no-cache"}
