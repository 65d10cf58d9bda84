"""Working on the page: endless lists, selection, removal with undo, all of it also by keyboard."""

import re
import shutil

import httpx2
import pytest
from browsing import IN_A_BROWSER, api, expect, expect_ids, ids, photo, settled, texts, until, watched
from serving import Server

pytestmark = IN_A_BROWSER


@pytest.fixture(scope="module")
def many(model, photos, tmp_path_factory):
    """A service over 300 images."""
    folder = tmp_path_factory.mktemp("many")
    for n in range(15):
        for file in photos.rglob("*.png"):
            target = folder / "photos" / file.parent.name / f"{n:02}-{file.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    with Server(model, "--images", folder / "photos", "--state", folder / "state") as running:
        yield running


def test_lists_have_no_end_and_back_returns_to_where_one_was(browser, many):
    with watched(browser, many) as page:
        page.goto(f"{many.address}/#/uncertain")
        expect(page, "#results li").to_have_count(60)
        for _ in range(30):
            page.mouse.wheel(0, 3000)
            page.wait_for_timeout(50)
            if page.locator("#results li").count() == 300:
                break
        expect(page, "#results li").to_have_count(300)
        assert ids(page) == [
            image["id"]
            for n in (0, 200)
            for image in api(many, f"/api/images?n=200&offset={n}&order=uncertainty")["images"]
        ]
        page.wait_for_timeout(300)  # until it is noted how far it was scrolled
        place = page.evaluate("scrollY")
        assert place > 1000
        seen = page.evaluate(
            "[...document.querySelectorAll('#results .photo')].find(e => e.getBoundingClientRect().top > 80).dataset.id"
        )
        photo(page, seen).locator(".open").click()
        page.click("#viewer-similar")
        expect(page, "#title").to_have_text("Nearest images")
        assert page.evaluate("scrollY") == 0  # a new query is on the screen
        expect(page, "#query").to_be_in_viewport()
        page.go_back()
        expect(page, "#viewer").to_be_visible()
        page.keyboard.press("Escape")
        expect(page, "#title").to_have_text("Least sure images")
        expect(page, "#results li").to_have_count(300)
        assert page.evaluate("scrollY") == pytest.approx(place, abs=2)
        page.reload()
        expect(page, "#results li").to_have_count(300)
        until(page, f"Math.abs(scrollY - {place}) < 3")


def test_the_large_view_goes_on_beyond_what_was_loaded(browser, many):
    with watched(browser, many, viewport={"width": 1100, "height": 300}) as page:
        page.goto(f"{many.address}/#/?order=id")
        expect(page, "#results li").to_have_count(96)
        page.goto(f"{many.address}/#/?order=id&open={ids(page)[-1]}")
        expect(page, "#viewer").to_be_visible()
        before = page.inner_text("#viewer-path")
        page.keyboard.press("ArrowRight")
        until(page, "document.querySelectorAll('#results li').length > 96")
        expect(page, "#viewer-path").not_to_have_text(before)


def test_some_images_to_begin_with_are_the_same_after_a_reload(browser, many):
    with watched(browser, many) as page:
        page.goto(many.address)
        expect(page, "#results li").to_have_count(96)
        first = ids(page)
        page.reload()
        expect(page, "#results li").to_have_count(96)
        expect_ids(page, first)
        page.click("#to-search")
        until(page, f"document.querySelector('#results .photo').dataset.id !== '{first[0]}'")


def test_images_are_selected_by_mouse_and_their_paths_saved(page, server):
    page.goto(f"{server.address}/#/?order=id")
    expect_ids(page, list(range(1, 21)))
    boxes = page.locator("#results .pick")
    expect(page, "#selection").to_be_hidden()
    boxes.nth(2).click()
    expect(page, "#selected").to_have_text("1 image selected")
    page.locator("#results .open").nth(6).click(modifiers=["Shift"])
    expect(page, "#selected").to_have_text("5 images selected")
    page.locator("#results .open").nth(4).click(modifiers=["Control"])
    expect(page, "#selected").to_have_text("4 images selected")
    assert ids(page, "#results .selected") == [3, 4, 6, 7]
    with page.expect_download() as download:
        page.click("#export")
    paths = [api(server, f"/api/images/{id_}")["path"] for id_ in (3, 6, 7, 4)]
    assert sorted(download.value.path().read_text().splitlines()) == sorted(paths)
    page.click("#select-all")
    expect(page, "#selected").to_have_text("20 images selected")
    page.click("#select-none")
    expect(page, "#selection").to_be_hidden()
    page.locator("#results .open").nth(1).click()
    page.check("#viewer-select")
    page.keyboard.press("Escape")
    expect(page, "#selected").to_have_text("1 image selected")
    page.click("#to-uncertain")
    expect(page, "#selection").to_be_hidden()


def test_what_was_removed_is_brought_back(own_page, own_server, folder):
    page, server = own_page, own_server
    page.goto(f"{server.address}/#/?order=id")
    expect(page, "#results li").to_have_count(20)
    before = [api(server, f"/api/images/{id_}") for id_ in (4, 5, 6)]
    page.locator("#results .pick").nth(3).click()
    page.locator("#results .pick").nth(5).click(modifiers=["Shift"])
    page.click("#delete")
    expect(page, "#results li").to_have_count(17)
    expect(page, "#toast-text").to_have_text("3 images removed from the collection. Your files stay where they are.")
    expect(page, "#facts").to_have_text("17 images as codes of 20 bits, by dmuh.")
    expect(page, "#selection").to_be_hidden()
    for id_ in (4, 5, 6):
        assert httpx2.get(f"{server.address}/api/images/{id_}").status_code == 404
    assert len(list(folder.rglob("*.png"))) == 20
    assert page.evaluate("document.activeElement.closest('.photo').dataset.id") == "7"
    page.click("#undo")
    expect(page, "#results li").to_have_count(20)
    expect(page, "#toast-text").to_have_text("3 images brought back.")
    assert [api(server, f"/api/images/{id_}") for id_ in (4, 5, 6)] == before
    page.locator("#results .open").nth(9).click()
    page.click("#viewer-delete")  # and the next is shown
    expect(page, "#viewer-path").to_have_text("zeros/00.png")
    expect(page, "#results li").to_have_count(19)
    page.keyboard.press("Escape")
    page.keyboard.press("Control+z")
    expect(page, "#results li").to_have_count(20)


def test_it_is_used_by_keyboard_alone(own_page, own_server):
    page = own_page
    page.goto(f"{own_server.address}/#/?order=id")
    page.reload()
    expect_ids(page, list(range(1, 21)))
    seen = []
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert seen[:8] == ["skip", "brand", "to-search", "to-uncertain", "to-map", "to-duplicates", "to-labels", "file"]
    assert seen[8:] == ["label", "order", "open", "pick"]  # one image takes the focus, arrows lead to the others
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"

    def focused() -> str:
        return page.evaluate("document.activeElement.closest('.photo')?.dataset.id")

    assert focused() == "1"
    page.keyboard.press("ArrowRight")
    assert focused() == "2"
    places = settled(page)
    column, top = places[1]
    below = [at for at, (left, height) in enumerate(places) if left == column and height > top]
    page.keyboard.press("ArrowDown")
    assert focused() == str(ids(page)[below[0]])
    page.keyboard.press("ArrowUp")
    page.keyboard.press("x")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(page, "#selected").to_have_text("3 images selected")
    assert ids(page, "#results .selected") == [2, 3, 4]
    page.keyboard.press("Delete")
    expect(page, "#results li").to_have_count(17)
    assert focused() == "5"
    page.keyboard.press("Control+z")
    expect(page, "#results li").to_have_count(20)
    page.keyboard.press("Control+a")
    expect(page, "#selected").to_have_text("20 images selected")
    page.keyboard.press("Escape")
    expect(page, "#selection").to_be_hidden()
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page, "#viewer").to_be_visible()
    page.keyboard.press("ArrowRight")
    path = page.inner_text("#viewer-path")
    page.keyboard.press("s")
    expect(page, "#title").to_have_text("Nearest images")
    expect(page, "#query-title").to_have_text(path.split("/")[-1])
    assert page.evaluate("document.activeElement.id") == "title"
    page.keyboard.press("?")
    expect(page, "#keys").to_be_visible()


def test_a_screen_reader_finds_names_and_is_told_what_changes(page, server):
    page.goto(f"{server.address}/#/image/4")
    expect(page, "#results li").to_have_count(19)
    page.locator("#results .open").first.click()
    expect(page, "#viewer-strip a").to_have_count(8)
    unnamed = page.evaluate("""[...document.querySelectorAll('input, select, button, a')]
        .filter(e => !e.hidden && !e.labels?.length && !e.ariaLabel && !e.textContent.trim()).map(e => e.outerHTML)""")
    assert unnamed == []
    assert page.evaluate("[...document.images].filter(i => !i.hasAttribute('alt')).length") == 0
    for id_ in ("status", "selected", "toast-text"):
        assert page.get_attribute(f"#{id_}", "role") == "status"
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    assert page.get_attribute("#to-search", "aria-current") is not None
    assert page.locator("#viewer").get_attribute("aria-labelledby") == "viewer-title"


CONTRAST = """selectors => selectors.map(selector => {
    const parse = text => text.match(/[\\d.]+/g).map(Number);
    const linear = v => v <= 10 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => [r, g, b].map(linear)
        .reduce((sum, v, n) => sum + v * [.2126, .7152, .0722][n], 0);
    const element = document.querySelector(selector);
    let behind = element;
    while (behind && (parse(getComputedStyle(behind).backgroundColor)[3] ?? 1) < .5) behind = behind.parentElement;
    const colours = [getComputedStyle(element).color, getComputedStyle(behind ?? document.body).backgroundColor];
    const [a, b] = colours.map(parse).map(light);
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_stand_out(browser, server, scheme):
    with watched(browser, server, color_scheme=scheme) as page:
        page.goto(f"{server.address}/#/image/4")
        expect(page, "#results li").to_have_count(19)
        selectors = ["#title", "#facts", "#status", "#query-facts", "#drop", "nav a[aria-current]", "#to-map",
                     ".photo .name", ".photo .fact", "#filters label span", "#label"]  # fmt: skip
        found = dict(zip(selectors, page.evaluate(CONTRAST, selectors), strict=True))
        assert {selector: ratio for selector, ratio in found.items() if ratio < 4.5} == {}
        assert len(texts(page, "#results .fact")) == 19
        assert re.match(r"rgb", page.evaluate("getComputedStyle(document.body).color"))
