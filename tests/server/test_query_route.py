"""A route that checks its parameters together answers, refuses and is described as FastAPI's own."""

from typing import Annotated, Literal

import pytest
from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from dmuh.server.api.query_route import QueryRoute

Number = Annotated[int, Query(ge=1, le=9, description="A number.", examples=[3])]
Share = Annotated[float | None, Query(ge=0, le=1, allow_inf_nan=False)]
Word = Annotated[str | None, Query(max_length=3)]


def client(route_class: type[APIRoute]) -> TestClient:
    router = APIRouter(prefix="/api", route_class=route_class)

    @router.get("/plain")
    async def plain(
        n: Number = 5, share: Share = None, by: Literal["one", "two"] = "one", word: Word = None
    ) -> Response:
        return JSONResponse([n, share, by, word])

    @router.post("/sent")
    async def sent(request: Request, n: Number = 5) -> Response:
        return JSONResponse([n, (await request.body()).decode()])

    app = FastAPI()
    app.include_router(router)
    return TestClient(app)


@pytest.fixture(scope="module")
def clients() -> tuple[TestClient, TestClient]:
    return client(QueryRoute), client(APIRoute)


QUERIES = [
    "",
    "n=3",
    "n=0",
    "n=10",
    "n=x",
    "n=",
    "n=3.0",
    "n=3.5",
    "n=1&n=2",
    "share=0.25",
    "share=nan",
    "share=2",
    "by=two",
]
QUERIES += [
    "by=three",
    "word=abc",
    "word=abcd",
    "word=",
    "word=%C3%A9",
    "other=1",
    "n=2&share=1&by=two&word=a",
    "n=x&word=abcd",
]


@pytest.mark.parametrize("query", QUERIES)
def test_it_takes_and_refuses_what_fastapi_does(clients, query):
    ours, theirs = (own.get(f"/api/plain?{query}") for own in clients)
    assert ours.status_code == theirs.status_code
    if ours.status_code == 200:
        assert ours.json() == theirs.json()
        return
    shown = [
        [(wrong["loc"][-1], wrong["msg"], wrong["input"]) for wrong in own.json()["detail"]] for own in (ours, theirs)
    ]
    assert shown[0] == shown[1]


def test_a_function_may_have_the_request_too(clients):
    ours, theirs = (own.post("/api/sent?n=7", content=b"body").json() for own in clients)
    assert ours == theirs == [7, "body"]


def test_it_is_described_as_fastapi_describes_it(clients):
    ours, theirs = (own.get("/openapi.json").json() for own in clients)
    assert ours["paths"]["/api/plain"]["get"]["parameters"]
    assert ours == theirs
