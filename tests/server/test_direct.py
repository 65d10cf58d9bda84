"""Routes that are answered without FastAPI's way to them answer, refuse and are counted as they were."""

import asyncio

import pytest
from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient

from dmuh.errors import RequestError
from dmuh.server.api.direct import Direct
from dmuh.server.api.query_route import QueryRoute


async def refused(request: Request, error: Exception) -> Response:
    del request
    return JSONResponse({"error": type(error).__name__}, getattr(error, "status", 422))


@pytest.fixture
def app() -> tuple[FastAPI, APIRouter]:
    router = APIRouter(route_class=QueryRoute)

    @router.get("/search")
    async def search(k: int = 1) -> Response:
        if k == 0:
            raise RequestError(404, "there is no such image")
        if k == 13:
            raise HTTPException(418)
        return JSONResponse({"k": k})

    @router.post("/search")
    async def sent(request: Request) -> Response:
        return Response(await request.body())

    handlers = {RequestError: refused, RequestValidationError: refused, HTTPException: refused, Exception: refused}
    made = FastAPI(exception_handlers=handlers)
    made.include_router(router)
    return made, router


@pytest.mark.parametrize("query", ["", "k=3", "k=x", "k=0", "k=13"])
def test_it_answers_and_refuses_as_fastapi(app, query):
    direct, through = TestClient(Direct(app[0], app[1].routes)), TestClient(app[0])
    ours, theirs = (own.get(f"/search?{query}") for own in (direct, through))
    assert (ours.status_code, ours.content, ours.headers) == (theirs.status_code, theirs.content, theirs.headers)


def test_a_body_arrives(app):
    assert TestClient(Direct(app[0], app[1].routes)).post("/search", content=b"body").content == b"body"


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/search"), ("HEAD", "/search"), ("GET", "/search/"), ("GET", "/no")]
)
def test_all_else_is_passed_on(app, method, path):
    direct, through = TestClient(Direct(app[0], app[1].routes)), TestClient(app[0])
    ours, theirs = (own.request(method, path, follow_redirects=False) for own in (direct, through))
    assert (ours.status_code, ours.content) == (theirs.status_code, theirs.content)
    assert ours.status_code != 200


def test_requests_are_counted_by_the_route(app):
    scope = {"type": "http", "method": "GET", "path": "/search", "query_string": b"", "headers": []}

    async def send(message: object) -> None:
        del message

    asyncio.run(Direct(app[0], app[1].routes)(scope, None, send))
    assert scope["route"].path == "/search"


def test_a_mistake_of_its_own_is_left_to_the_guard(app):
    @app[1].get("/broken")
    async def broken() -> Response:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        TestClient(Direct(app[0], app[1].routes)).get("/broken")
