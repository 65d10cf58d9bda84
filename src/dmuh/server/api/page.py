"""The routes of the page: its HTML, CSS and JavaScript, which are in server/page/."""

from importlib import resources

from fastapi import APIRouter, Response

from dmuh.server.http.guard import PAGE_FILES

_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_OTHERS = {"/": ("text/html; charset=utf-8", "page.html"), "/icon.svg": ("image/svg+xml", "icon.svg")}


def page_routes() -> APIRouter:
    """Return the routes of the page's files; the CSS is that of reports with the page's behind it."""
    router, folder = APIRouter(), resources.files("dmuh").joinpath("server/page")
    for path, (kind, name) in _OTHERS.items():
        _add_file(router, path, kind, folder.joinpath(name).read_bytes())
    reports = resources.files("dmuh").joinpath("report/page.css").read_bytes()
    for file in folder.iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in _KINDS:
            content = (reports if file.name == "page.css" else b"") + file.read_bytes()
            _add_file(router, f"{PAGE_FILES}{file.name}", _KINDS[suffix], content)
    return router


def _add_file(router: APIRouter, path: str, kind: str, content: bytes) -> None:
    @router.get(path, include_in_schema=False)
    async def file() -> Response:
        return Response(content, headers={"content-type": kind, "cache-control": "no-cache"})
