"""The browser of the tests: Debian's Chromium, without a window."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# The first has no window, no profiles and no extensions to set up, which takes half of the others' time.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), None)
NO_CHROMIUM = "no Chromium is installed: apt-get install chromium-headless-shell"
# as root, and without calls to its makers
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
          "--disable-sync", "--no-first-run"]  # fmt: skip


@contextmanager
def launched() -> Iterator[Any]:
    """Run the browser. It ends with the tests of a file: meanwhile this thread can run no other event loop."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield browser
        browser.close()
