"""The page in a real Chromium: what tests of it share."""

import math
import time

import httpx2
import pytest

from chromium import CHROMIUM, NO_CHROMIUM
from extras import needs

sync_api = needs("playwright", "dev", "playwright.sync_api")
IN_A_BROWSER = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
]
PHONE = {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True}


class watched:  # noqa: N801
    """A page that may not report anything beside what is expected, nor ask others for anything."""

    def __init__(self, browser, server, reports=(), **options) -> None:
        self.expected = list(reports)
        self.page = browser.new_page(**{"viewport": {"width": 1100, "height": 900}, **options})
        self.page.set_default_timeout(20_000)
        self.reports: list[str] = []
        self.asked: set[str] = set()
        self.server = server
        self.page.on("console", lambda message: self.reports.append(message.text))
        self.page.on("pageerror", lambda error: self.reports.append(str(error)))
        self.page.on("request", lambda request: self.asked.add(request.url))

    def __enter__(self):
        return self.page

    def __exit__(self, kind, *_) -> None:
        self.page.close()
        if kind is None:
            assert self.reports == self.expected
            foreign = {url for url in self.asked if not url.startswith((self.server.address, "blob:"))}
            assert foreign == set()


def texts(page, selector: str) -> list[str]:
    return page.locator(selector).all_inner_texts()


def expect(page, selector: str):
    return sync_api.expect(page.locator(selector))


def api(server, path: str) -> dict:
    return httpx2.get(f"{server.address}{path}").json()


def ids(page, selector: str = "#results .photo") -> list[int]:
    """The ids of the images that are shown."""
    return [int(id_) for id_ in page.locator(selector).evaluate_all("all => all.map(item => item.dataset.id)")]


def expect_ids(page, wanted: list[int], seconds: float = 20) -> None:
    """Wait until these images are shown, in this order: another view may have shown as many before."""
    late = time.monotonic() + seconds
    while ids(page) != wanted and time.monotonic() < late:
        page.wait_for_timeout(50)
    assert ids(page) == wanted


def settled(page) -> list[list[float]]:
    """Wait until the images that are shown stay where they are; return where that is, left and top of each."""
    where = "all => all.map(item => item.getBoundingClientRect()).map(box => [box.left, box.top])"
    before, now = None, page.locator("#results .photo").evaluate_all(where)
    while now != before:
        page.wait_for_timeout(100)
        before, now = now, page.locator("#results .photo").evaluate_all(where)
    return now


def photo(page, id_: int):
    return page.locator(f'#main .photo[data-id="{id_}"]')


def in_cases(probability: float) -> str:
    """A probability in words."""
    for whole in (10, 100, 1000):
        if probability * whole >= 0.95:
            return f"{math.floor(probability * whole + 0.5)} of {whole:,} cases"
    return "fewer than 1 of 1,000 cases"


def until(page, condition: str, seconds: float = 20) -> None:
    """Wait for a condition; the page's policy forbids the browser to evaluate one by itself again and again."""
    late = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < late, condition
        page.wait_for_timeout(50)
