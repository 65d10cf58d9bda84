"""The HTTP interface of a service: its API, its page, and what looks after it."""

from importlib import resources

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from dmuh import __version__
from dmuh.errors import RequestError
from dmuh.server.arrivals import Arrivals
from dmuh.server.guard import COOKIE, Guard, Limits, session_of
from dmuh.server.metrics import CONTENT_TYPE, Metrics
from dmuh.server.routes import about_routes, image_routes, search_routes
from dmuh.server.schemas import responses
from dmuh.server.service import Service

_ABOUT = """Search a collection of images by short binary codes that know where they are unsure.

An image to search with, or to add, is the body of a request, as it is:
`curl --data-binary @query.jpg -H 'content-type: image/jpeg' 'http://127.0.0.1:8000/api/search?k=5'`.
Where a token was set, send `Authorization: Bearer TOKEN`. Every refusal is JSON with one sentence: `{"error": "…"}`.
"""
_PAGE = {
    "/": ("text/html; charset=utf-8", ["server/page/page.html"]),
    "/page.css": ("text/css; charset=utf-8", ["report/page.css", "server/page/page.css"]),
    "/page.js": ("text/javascript; charset=utf-8", ["server/page/page.js"]),
    "/icon.svg": ("image/svg+xml", ["server/page/icon.svg"]),
}


def create_app(service: Service, limits: Limits, metrics: Metrics) -> Guard:
    """Return the guarded application of a service."""
    app = FastAPI(
        title="dmuh", version=__version__, description=_ABOUT, docs_url=None, redoc_url=None,
        exception_handlers={
            RequestError: _refused, RequestValidationError: _invalid, HTTPException: _no_route, Exception: _failed
        },
    )  # fmt: skip
    arrivals = Arrivals(limits.bytes)
    for router in (about_routes(service), search_routes(service, arrivals), image_routes(service, arrivals)):
        app.include_router(router)
    _add_session(app, limits)
    _add_health(app, service, metrics)
    for path, (kind, files) in _PAGE.items():
        _add_file(app, path, kind, b"".join(resources.files("dmuh").joinpath(file).read_bytes() for file in files))
    return Guard(app, limits, metrics)


def _add_session(app: FastAPI, limits: Limits) -> None:
    @app.post("/api/session", status_code=204, responses=responses(204, "The browser keeps a cookie from now on."))
    async def session() -> Response:
        """Exchange the token, shown as for every request, for a cookie, by which a browser shows images."""
        response = Response(status_code=204)
        if limits.token is not None:  # the guard has seen it
            response.set_cookie(COOKIE, session_of(limits.token), httponly=True, samesite="strict")
        return response


def _add_health(app: FastAPI, service: Service, metrics: Metrics) -> None:
    @app.get("/healthz", responses={200: {"content": {"application/json": {"example": {"status": "ok"}}}}})
    async def health() -> dict[str, str]:
        """Tell that the service answers."""
        return {"status": "ok"}

    @app.get("/metrics", responses=responses(200, "Metrics.", {"text/plain": {"schema": {"type": "string"}}}))
    async def measured() -> Response:
        """Return what the service counts, in the text format of Prometheus."""
        return Response(metrics.text(len(service)), headers={"content-type": CONTENT_TYPE})


def _add_file(app: FastAPI, path: str, kind: str, content: bytes) -> None:
    @app.get(path, include_in_schema=False)
    async def file() -> Response:
        return Response(content, headers={"content-type": kind, "cache-control": "no-cache"})


async def _refused(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, RequestError)
    return JSONResponse({"error": str(error)}, error.status)


async def _invalid(request: Request, error: Exception) -> Response:
    """Return the first thing that is wrong with the parameters, in one sentence."""
    del request
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    given, message = str(first.get("input"))[:50], str(first["msg"])
    return JSONResponse({"error": f"{first['loc'][-1]}: {message[0].lower()}{message[1:]}, got {given!r}"}, 422)


async def _no_route(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": f"{error.detail}".lower()}, error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    del request, error  # which the guard logs
    return JSONResponse({"error": "the service failed, which is a mistake of its own; its log says more"}, 500)
