"""The page over hashes of another program, in a browser."""

import csv
from pathlib import Path

import numpy as np
import pytest
from browsing import IN_A_BROWSER, PHONE, api, expect, expect_ids, watched
from PIL import Image
from serving import Server

from commands import dmuh

pytestmark = IN_A_BROWSER


def average_hash(file: Path) -> str:
    pixels = np.asarray(Image.open(file).convert("L").resize((16, 16)))
    return np.packbits(pixels > pixels.mean()).tobytes().hex()


@pytest.fixture(scope="module")
def hashes(photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hashes")
    rows = [(file, average_hash(file), file.parent.name) for file in sorted(photos.rglob("*.png"))]
    with (folder / "hashes.csv").open("w", newline="") as out:
        csv.writer(out).writerows([("path", "hash", "label"), *rows])
    dmuh("index", folder / "hashes.csv", "--hash", "ahash", "--out", folder / "index")
    with Server("--index", folder / "index") as running:
        running.value = rows[4][1]
        yield running


@pytest.mark.parametrize("options", [{}, PHONE], ids=["wide", "phone"])
def test_a_value_is_searched_with_and_images_are_not_taken(browser, hashes, options):
    with watched(browser, hashes, **options) as page:
        page.goto(hashes.address)
        expect(page, "#results .photo").to_have_count(20)
        expect(page, "#facts").to_contain_text("codes of 256 bits, by ahash. Images cannot be sent here, as")
        expect(page, "#drop").to_be_hidden()
        expect(page, "#file").to_be_disabled()
        expect(page, "#to-uncertain").to_be_hidden()
        page.get_by_role("searchbox", name="Search by ahash").fill(f"0x{hashes.value.upper()}")
        page.get_by_role("button", name="Search").click()
        expect(page, "#query-title").to_have_text(hashes.value)
        expect(page, "#query-open").to_be_hidden()
        assert f"#/code/{hashes.value}" in page.url
        found = api(hashes, f"/api/search?code={hashes.value}&k=60")
        expect_ids(page, [match["id"] for match in found["matches"]])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.reload()
        expect(page, "#query-title").to_have_text(hashes.value)
        page.locator("#code-text").fill("8f37")
        page.locator("#code-text").press("Enter")
        expect(page, "#status").to_have_text("The ahash of an image has 64 hexadecimal digits here.")


def test_an_image_that_is_dropped_is_refused_with_the_reason(browser, hashes):
    with watched(browser, hashes) as page:
        page.goto(hashes.address)
        expect(page, "#results .photo").to_have_count(20)
        page.evaluate(
            """() => {
              const data = new DataTransfer();
              data.items.add(new File(["x"], "x.png", { type: "image/png" }));
              document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true, bubbles: true }));
            }"""
        )
        expect(page, "#status").to_contain_text("Images cannot be sent here")
        expect(page, "#results .photo").to_have_count(20)
