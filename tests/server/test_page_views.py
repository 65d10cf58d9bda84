"""The page's map and its duplicates."""

import csv
import io
import re
import shutil

import httpx2
import pytest
from browsing import IN_A_BROWSER, PHONE, api, expect, expect_ids, photo, texts, until, watched
from serving import Server

pytestmark = IN_A_BROWSER


@pytest.fixture(scope="module")
def mapped(model, photos, tmp_path_factory):
    """A service over forty images, of which each is there twice and four lie in the wrong folder."""
    folder = tmp_path_factory.mktemp("mapped")
    for file in photos.rglob("*.png"):
        for name in ("", "copy-"):
            target = folder / "photos" / file.parent.name / f"{name}{file.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    with Server(model, "--images", folder / "photos", "--state", folder / "state") as running:
        yield running


def opened(page, server, address: str) -> None:
    page.goto(f"{server.address}/#/{address}")
    expect(page, "#groups li").not_to_have_count(0, timeout=120_000)  # it is computed at first


def test_an_area_of_the_map_shows_its_images_and_is_in_the_address(browser, mapped):
    with watched(browser, mapped) as page:
        opened(page, mapped, "map")
        expect(page, "#status").to_contain_text("Draw around images")
        answer = api(mapped, "/api/map")
        assert [text.split(" (")[0] for text in texts(page, "#legend li")] == answer["names"]
        box = page.locator("#plane").bounding_box()
        corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98)]
        x, y = box["x"] + 0.02 * box["width"], box["y"] + 0.02 * box["height"]
        page.mouse.move(x, y)
        page.mouse.down()
        for left, top in [*corners, corners[0]]:
            page.mouse.move(box["x"] + left * box["width"], box["y"] + top * box["height"], steps=4)
        page.mouse.up()
        expect(page, "#results .photo").to_have_count(40)
        expect(page, "#status").to_contain_text("40 images in this part of the map, mostly")
        assert "area=" in page.url
        page.reload()
        expect(page, "#results .photo").to_have_count(40)
        photo(page, 5).locator(".open").click()
        expect(page, "#viewer").to_be_visible()
        page.go_back()
        page.go_back()
        expect(page, "#results .photo").to_have_count(0)
        page.select_option("#colour", label="by how sure they are")
        expect(page, "#legend li").to_have_text(["sure", "as most", "unsure"])
        assert "colour=sure" in page.url


def test_the_map_is_used_by_keyboard_by_its_groups(browser, mapped):
    with watched(browser, mapped) as page:
        opened(page, mapped, "map")
        sizes = [int(re.search(r": (\d+) image", text)[1]) for text in texts(page, "#groups a")]
        assert sum(sizes) == 40
        assert sizes == sorted(sizes, reverse=True)
        page.locator("#groups a").first.focus()
        page.keyboard.press("Enter")
        expect(page, "#results .photo").to_have_count(sizes[0])
        assert page.url.endswith("#/map?group=1")
        expect(page, "#groups a[aria-current]").to_have_count(1)
        page.locator("#plane").focus()
        look = "document.getElementById('plane').toDataURL()"
        before = page.evaluate(look)
        page.keyboard.press("+")
        page.wait_for_timeout(200)
        zoomed = page.evaluate(look)
        assert zoomed != before
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(200)
        assert page.evaluate(look) != zoomed
        assert page.locator("#plane").get_attribute("aria-label")


def test_a_click_on_the_map_opens_an_image(browser, mapped):
    with watched(browser, mapped) as page:
        opened(page, mapped, "map")
        answer = api(mapped, "/api/map")
        box = page.locator("#plane").bounding_box()
        scale = min(box["width"], box["height"]) / 1080
        x = box["x"] + box["width"] / 2 + (answer["x"][7] - 500) * scale
        y = box["y"] + box["height"] / 2 + (answer["y"][7] - 500) * scale
        page.mouse.click(x, y)
        expect(page, "#viewer").to_be_visible()
        until(page, "document.getElementById('viewer-path').textContent !== ''")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_map_duplicates_and_labels(browser, mapped, scheme):
    with watched(browser, mapped, **PHONE, color_scheme=scheme) as page:
        opened(page, mapped, "map")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator("#plane").bounding_box()["y"] < 250
        for view in ("duplicates", "labels"):
            page.locator(f"#to-{view}").tap()
            expect(page, "#results").not_to_have_attribute("aria-busy", "true")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_duplicates_are_shown_in_groups_and_the_others_removed_and_brought_back(browser, model, folder, tmp_path):
    for name in ("a.png", "b.png"):
        shutil.copy(folder / "ones" / "03.png", folder / "ones" / name)
    shutil.copy(folder / "zeros" / "00.png", folder / "copy.png")
    with Server(model, "--images", folder, "--state", tmp_path / "state") as server, watched(browser, server) as page:
        page.goto(f"{server.address}/#/duplicates")
        expect(page, ".group").to_have_count(2)
        expect(page, "#status").to_contain_text("2 images are there more than once.")
        groups = api(server, "/api/duplicates")["groups"]
        assert [len(group["images"]) for group in groups] == [3, 2]
        assert texts(page, ".photo.best .fact") == ["keep: first of equal files"] * 2
        page.click("#select-others")
        expect(page, "#selected").to_have_text("3 images selected")
        page.click("#delete")
        expect(page, ".group").to_have_count(0)
        assert api(server, "/api/duplicates")["total"] == 0
        assert len(list(folder.rglob("*.png"))) == 23
        page.click("#undo")
        expect(page, ".group").to_have_count(2)
        page.locator(".group .open").nth(1).click()
        expect(page, "#viewer").to_be_visible()


def test_labels_are_accepted_kept_and_taken_back_by_one_key(browser, model, folder, tmp_path):
    for image in sorted(folder.rglob("*.png")):  # of so few images little would be sure
        for number in range(4):
            shutil.copy(image, image.with_name(f"again-{number}-{image.name}"))
    for name in ("02.png", "07.png"):
        (folder / "ones" / name).rename(folder / "zeros" / f"strange-{name}")
    with Server(model, "--images", folder, "--state", tmp_path / "state") as server, watched(browser, server) as page:
        page.goto(f"{server.address}/#/labels")
        expect(page, "#status").to_contain_text("probably ha", timeout=60_000)
        suspects = api(server, "/api/review")["suspects"]
        assert {"zeros/strange-02.png", "zeros/strange-07.png"} <= {one["image"]["path"] for one in suspects}
        expect_ids(page, [one["image"]["id"] for one in suspects])
        assert texts(page, ".suspect .change")[0] == "zeros → ones"
        assert texts(page, ".suspect .fact") == [one["in_words"] for one in suspects]
        first, second = (one["image"]["id"] for one in suspects[:2])
        photo(page, first).locator(".open").focus()
        page.keyboard.press("a")
        expect(page, "#results .photo").to_have_count(len(suspects) - 1)
        assert page.evaluate("document.activeElement.closest('.photo').dataset.id") == str(second)
        page.keyboard.press("k")
        expect(page, "#results .photo").to_have_count(len(suspects) - 2)
        decided = {one["image"]["id"]: one["decision"] for one in api(server, "/api/review?decided=true")["suspects"]}
        assert decided == {first: "accept", second: "skip"}
        page.keyboard.press("Control+z")
        expect(page, f'.photo[data-id="{second}"]').to_have_count(1)
        page.select_option("#decided", label="decided")
        expect(page, "#results .photo").to_have_count(1)
        with page.expect_download() as download:
            page.click("text=Save decisions")
        (row,) = csv.DictReader(io.StringIO(download.value.path().read_text()))
        assert (row["path"], row["suggested"], row["decision"]) == (suspects[0]["image"]["path"], "ones", "accept")
        page.click("text=Undo")
        expect(page, "#results .photo").to_have_count(0)
        assert api(server, "/api/review")["decided"] == 0
        assert httpx2.get(f"{server.address}/api/images/{first}").json()["labels"] == ["zeros"]  # only noted
