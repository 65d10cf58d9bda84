"""The application: all routes and error handlers, behind the guard."""

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from dmuh import __version__
from dmuh.errors import RequestError
from dmuh.server.api.direct import Direct
from dmuh.server.api.page import page_routes
from dmuh.server.api.routes import (
    about_routes,
    caption_routes,
    cleaning_routes,
    file_routes,
    image_routes,
    monitoring_routes,
    search_routes,
    session_routes,
)
from dmuh.server.http.guard import Guard
from dmuh.server.http.uploads import UploadReceiver
from dmuh.server.limits import Limits
from dmuh.server.metrics import ServiceMetrics
from dmuh.server.service import Service

_ABOUT = """Search a collection of images by short binary codes that know where they are unsure.

An image to search with, or to add, is the body of a request, as it is:
`curl --data-binary @query.jpg -H 'content-type: image/jpeg' 'http://127.0.0.1:8000/api/search?k=5'`.
Where a token was set, send `Authorization: Bearer TOKEN`. Every refusal is JSON with one sentence: `{"error": "…"}`.
"""


def create_app(service: Service, limits: Limits, metrics: ServiceMetrics) -> Guard:
    """Return the guarded application of a service."""
    app = FastAPI(
        title="dmuh", version=__version__, description=_ABOUT, docs_url=None, redoc_url=None,
        exception_handlers={
            RequestError: _refused, RequestValidationError: _invalid, HTTPException: _no_route, Exception: _failed
        },
    )  # fmt: skip
    uploads = UploadReceiver(limits.bytes)
    searching = search_routes(service, uploads)
    for router in (
        about_routes(service), searching, caption_routes(service, uploads),
        image_routes(service, uploads), file_routes(service), cleaning_routes(service), session_routes(limits),
        monitoring_routes(service, metrics), page_routes(),
    ):  # fmt: skip
        app.include_router(router)
    return Guard(Direct(app, searching.routes), limits, metrics)


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
