"""The page of a folder that was opened by `dmuh open`."""

import shutil

import pytest
from browsing import IN_A_BROWSER, api, expect, expect_ids, photo, until, watched
from PIL import Image
from serving import Server

pytestmark = IN_A_BROWSER


@pytest.fixture(scope="module")
def opened(photos, tmp_path_factory):
    """A folder of two classes of ten images, and a loose TIFF."""
    folder = shutil.copytree(photos, tmp_path_factory.mktemp("opened") / "photos")
    Image.new("RGB", (300, 200), "teal").save(folder / "a.tif")
    with Server(folder, by="open") as running:
        yield running


def test_images_are_searched_by_look_or_by_class(browser, opened):
    with watched(browser, opened) as page:
        page.goto(f"{opened.address}/#/image/5")
        by_look = [match["id"] for match in api(opened, "/api/search?id=5&k=60")["matches"]]
        by_class = [match["id"] for match in api(opened, "/api/search?id=5&k=60&by=class")["matches"]]
        assert sorted(by_look) == sorted(by_class)
        assert by_look != by_class
        joined = ",".join(map(str, by_class))
        expect(page, "#results .photo").to_have_count(20)
        expect_ids(page, by_look)
        page.select_option("#by", label="class")
        expect(page, "#results .photo").to_have_count(20)
        until(page, "location.hash.includes('by=class')")
        until(page, f"[...document.querySelectorAll('#results .photo')].map(one => one.dataset.id) == '{joined}'")
        page.reload()
        until(page, f"[...document.querySelectorAll('#results .photo')].map(one => one.dataset.id) == '{joined}'")
        expect(page, "#by").to_have_value("class")


def test_a_tiff_is_shown_large(browser, opened):
    with watched(browser, opened) as page:
        page.goto(f"{opened.address}/#/?order=id")
        tiff = next(image["id"] for image in api(opened, "/api/images?n=100")["images"] if image["path"] == "a.tif")
        photo(page, tiff).locator(".open").click()
        expect(page, "#viewer").to_be_visible()
        page.wait_for_selector("#viewer-image")
        width = page.locator("#viewer-image").evaluate(
            "async image => { await image.decode(); return image.naturalWidth; }"
        )
        assert width == 300
