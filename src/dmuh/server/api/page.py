"""The routes of the page: its HTML, CSS and JavaScript, which are in server/page/."""

from importlib import resources

from fastapi import APIRouter, Response

_FILES = {
    "/": ("text/html; charset=utf-8", ["server/page/page.html"]),
    "/page.css": ("text/css; charset=utf-8", ["report/page.css", "server/page/page.css"]),
    "/page.js": ("text/javascript; charset=utf-8", ["server/page/page.js"]),
    "/icon.svg": ("image/svg+xml", ["server/page/icon.svg"]),
}


def page_routes() -> APIRouter:
    """Return the routes of the page's files; the CSS is that of reports with the page's behind it."""
    router = APIRouter()
    for path, (kind, files) in _FILES.items():
        content = b"".join(resources.files("dmuh").joinpath(file).read_bytes() for file in files)
        _add_file(router, path, kind, content)
    return router


def _add_file(router: APIRouter, path: str, kind: str, content: bytes) -> None:
    @router.get(path, include_in_schema=False)
    async def file() -> Response:
        return Response(content, headers={"content-type": kind, "cache-control": "no-cache"})
