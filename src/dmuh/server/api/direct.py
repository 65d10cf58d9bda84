"""Direct: the route that is asked most is answered without FastAPI's way to it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

Answer = Callable[[Request], Awaitable[Response]]
Refuse = Callable[[Request, Exception], Awaitable[Response]]


class Direct:
    """An ASGI application that answers some routes of a FastAPI application itself, and passes all else on.

    FastAPI looks through all routes, and through five layers that these have no use for, which takes as long as a
    search. A route's function, checks and refusals stay the same.

    routes  these, with no parameters in their paths
    """

    def __init__(self, app: FastAPI, routes: Iterable[BaseRoute]) -> None:
        self._app: ASGIApp = app
        self._refusals: Mapping[Any, Any] = app.exception_handlers
        kinds = [kind for kind in self._refusals if isinstance(kind, type) and issubclass(kind, Exception)]
        self._refused = tuple(kind for kind in kinds if kind is not Exception)
        self._answers: dict[tuple[str, str], tuple[APIRoute, Answer]] = {
            (method, route.path): (route, route.get_route_handler())
            for route in routes
            if isinstance(route, APIRoute)
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        found = self._answers.get((scope.get("method", ""), scope.get("path", "")))
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"], answer = found  # by which requests are counted
        request = Request(scope, receive, send)
        try:
            response = await answer(request)
        except self._refused as error:
            refuse: Refuse = next(self._refusals[kind] for kind in type(error).__mro__ if kind in self._refusals)
            response = await refuse(request, error)
        await response(scope, receive, send)
