"""The page, used as people use it: in a real Chromium, by mouse, finger and keyboard."""

import math
import os
import re
import shutil
from collections.abc import Iterator

import httpx2
import pytest
from PIL import Image
from serving import Server, picture

from extras import needs

sync_api = needs("playwright", "dev", "playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium"),
]
TOKEN = "a token of some length"
# as root, and without calls to its makers
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run"]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator["sync_api.Browser"]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(model, photos, tmp_path_factory) -> Iterator[Server]:
    """A service over twenty images, which tests do not change."""
    with Server(model, "--images", photos, "--state", tmp_path_factory.mktemp("page") / "state") as running:
        yield running


@pytest.fixture
def own_server(model, folder, tmp_path) -> Iterator[Server]:
    """A service that the test may change."""
    with Server(model, "--images", folder, "--state", tmp_path / "state") as running:
        yield running


@pytest.fixture
def page(browser, server) -> Iterator["sync_api.Page"]:
    with watched(browser, server) as page:
        page.goto(server.address)
        yield page


@pytest.fixture
def own_page(browser, own_server) -> Iterator["sync_api.Page"]:
    with watched(browser, own_server) as page:
        page.goto(own_server.address)
        yield page


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


def test_upload_click_filter_and_delete(own_page, own_server, folder):
    page, server = own_page, own_server
    expect(page, "#facts").to_have_text("20 images as codes of 20 bits, by dmuh.")
    expect(page, "#results li").to_have_count(20)
    page.set_input_files("#file", folder / "ones" / "03.png")
    expect(page, "#query-title").to_have_text("03.png")
    expect(page, "#status").to_have_text("20 images, nearest first.")
    assert texts(page, "#results li:first-child .fact")[0] == "the same image"
    assert "identical" in page.locator("#results li").first.get_attribute("class")
    apart = [float(text.split()[0]) for text in texts(page, "#results .fact") if text.endswith(" apart")]
    assert len(apart) == 19
    assert apart == sorted(apart)
    assert set(texts(page, "#results .likely")) <= {"the same image", "very likely", "maybe", "unlikely"}
    said = page.locator("#results .from").nth(1).get_attribute("aria-label")
    assert re.search(r"^Search from image \d+, \w+, (very likely|maybe|unlikely), [\d.]+ bits? apart, less sure", said)

    found = page.locator("#results .from").nth(5)
    id_ = int(re.search(r"image (\d+)", found.get_attribute("aria-label"))[1])
    found.click()
    expect(page, "#query-title").to_have_text(f"Image {id_}")
    expect(page, "#status").to_have_text("19 images, nearest first.")
    assert page.url.endswith(f"#/image/{id_}")

    page.select_option("#label", "zeros")
    expect(page, "#status").to_have_text(re.compile(r"^(9|10) images"))
    assert set(texts(page, "#results .name strong")) == {"zeros"}
    page.fill("#radius", "0")
    page.keyboard.press("Enter")
    near = api(server, f"/api/search?id={id_}&label=zeros&radius=0")["matches"]
    expect(page, "#results li").to_have_count(len(near))
    page.fill("#radius", "")
    page.keyboard.press("Enter")
    page.select_option("#label", "")
    expect(page, "#results li").to_have_count(19)

    first = page.locator("#results li").first
    gone = int(re.search(r"\d+", first.locator(".delete").get_attribute("aria-label"))[0])
    first.locator(".delete").click()
    expect(page, "#results li:first-child .delete").to_have_text("Delete?")
    first.locator(".delete").click()
    expect(page, "#results li").to_have_count(18)
    expect(page, "#facts").to_have_text("19 images as codes of 20 bits, by dmuh.")
    assert httpx2.get(f"{server.address}/api/images/{gone}").status_code == 404
    page.go_back()
    expect(page, "#query-title").to_have_text("03.png")
    expect(page, "#results li").to_have_count(19)
    page.click("#to-search")
    expect(page, "#results-title").to_have_text("Where to begin")
    expect(page, "#query").to_be_hidden()


def in_cases(probability: float) -> str:
    """A probability in words."""
    for whole in (10, 100, 1000):
        if probability * whole >= 0.95:
            return f"{math.floor(probability * whole + 0.5)} of {whole:,} cases"
    return "fewer than 1 of 1,000 cases"


def test_the_code_is_drawn_and_how_sure_its_bits_are_is_seen(page, server):
    image = api(server, "/api/images?n=100&order=uncertainty")["images"][0]
    page.goto(f"{server.address}/#/image/{image['id']}")
    expect(page, "#code .bit").to_have_count(20)
    bits, unsure = page.locator("#code .bit").all(), image["bit_uncertainty"]
    assert "".join("1" if "one" in bit.get_attribute("class") else "0" for bit in bits) == image["bits"]
    for n, bit in enumerate(bits):
        assert bit.get_attribute("title") == f"bit {n + 1} is {image['bits'][n]}, turns over in {in_cases(unsure[n])}"
    drawn = "bit => [bit.lastChild.getBoundingClientRect().height, getComputedStyle(bit.firstChild).borderTopColor]"
    heights, shades = zip(*(bit.evaluate(drawn) for bit in bits), strict=True)
    assert list(heights) == pytest.approx([24 * p for p in unsure], abs=0.1)
    order = sorted(range(20), key=lambda n: unsure[n])
    lightness = [sum(map(float, re.findall(r"[\d.]+", shades[n])[:3])) for n in order]
    assert lightness == sorted(lightness)  # on white, the less sure the fainter
    assert lightness[0] < lightness[-1]
    least = max(range(20), key=lambda n: unsure[n])
    label = page.get_attribute("#code", "aria-label")
    assert label == f"Code {image['bits']}; the least sure, bit {least + 1}, turns over in {in_cases(unsure[least])}"
    facts = page.inner_text("#query-facts")
    assert f"About {20 * image['uncertainty']:.1f} of 20 bits may turn over, more than for 99% of the" in facts


def test_least_sure_images_come_first(page, server):
    page.click("#to-uncertain")
    expect(page, "#results-title").to_have_text("Least sure images")
    expect(page, "#results li").to_have_count(20)
    expect(page, "#at-least").to_be_hidden()
    images = api(server, "/api/images?n=100&order=uncertainty")["images"]
    everyone = [image["uncertainty"] for image in images]
    shares = [int(re.fullmatch(r"less sure than (\d+)%", text).group(1)) for text in texts(page, "#results .fact")]
    below = [100 * sum(other < own for other in everyone) / len(everyone) for own in everyone]
    assert shares == pytest.approx(below, abs=6)  # a step of 20 images is 5%
    assert shares == sorted(shares, reverse=True)
    page.select_option("#label", "ones")
    expect(page, "#results li").to_have_count(10)


def test_what_is_not_likely_enough_is_left_out_and_nothing_close_enough_is_said(page, server):
    page.goto(f"{server.address}/#/image/4")
    everything = api(server, "/api/search?id=4&k=24")["matches"]
    expect(page, "#results li").to_have_count(19)
    assert texts(page, "#at-least option") == ["any", "maybe", "very likely"]
    for choice, least in (("maybe", 0.4), ("very likely", 0.8)):
        page.select_option("#at-least", label=choice)
        expect(page, "#results li").to_have_count(sum(match["match"] >= least for match in everything))
    alone, answer = next(
        (id_, answer)
        for id_ in range(1, 11)
        if not (answer := api(server, f"/api/search?id={id_}&k=24&label=zeros&at_least=0.8"))["matches"]
    )
    page.goto(f"{server.address}/#/image/{alone}")
    expect(page, "#query-title").to_have_text(f"Image {alone}")
    page.select_option("#label", "zeros")
    expect(page, "#status").to_have_text(
        f"Nothing close enough: the likeliest of the nearest images shares a label in {in_cases(answer['best'])}."
    )
    expect(page, "#results li").to_have_count(0)
    page.select_option("#at-least", label="any")
    expect(page, "#results li").to_have_count(10)


def test_the_ranking_in_the_address_is_asked_for(browser, server):
    with watched(browser, server) as page:
        page.goto(f"{server.address}/?ranking=hamming#/image/4")
        expect(page, "#results li").to_have_count(19)
        apart = [text for text in texts(page, "#results .fact") if text.endswith(" apart")]
        matches = api(server, "/api/search?id=4&k=24&ranking=hamming")["matches"]
        assert apart == [f"{m['hamming']} {'bit' if m['hamming'] == 1 else 'bits'} apart" for m in matches]


def test_an_image_is_added_and_strange_words_are_only_shown(own_page, tmp_path):
    page = own_page
    strange = "<img src=x onerror=alert(1)>"
    (tmp_path / "noise.png").write_bytes(picture(seed=4))
    page.set_input_files("#file", tmp_path / "noise.png")
    page.fill("#add-label", strange)
    page.click("#add button")
    expect(page, "#status").to_contain_text("Added as image 21; 21 images now.")
    assert strange in texts(page, "#results .name strong")
    assert page.locator("#results .name img").count() == 0
    page.select_option("#label", strange)
    expect(page, "#results li").to_have_count(1)


def test_names_that_are_not_unicode_are_shown_and_searched_from(browser, model, folder, tmp_path):
    (folder / "ones" / "00.png").rename(folder / os.fsdecode(b"caf\xe9.png"))
    with Server(model, "--images", folder, "--state", tmp_path / "state") as server, watched(browser, server) as page:
        page.goto(f"{server.address}/#/uncertain")
        expect(page, "#results li").to_have_count(20)
        tile = page.locator("#results li", has_text=r"caf\xe9.png")
        assert tile.locator("button.from").get_attribute("title") == r"caf\xe9.png"
        tile.locator("button.from").click()
        expect(page, "#results-title").to_have_text("Nearest images")
        expect(page, "#query-image").to_have_js_property("naturalWidth", 40)


def test_what_is_wrong_is_said(browser, server, tmp_path):
    (tmp_path / "text.png").write_text("no image")
    report = "Failed to load resource: the server responded with a status of 415 (Unsupported Media Type)"
    with watched(browser, server, [report]) as page:
        page.goto(server.address)
        page.set_input_files("#file", tmp_path / "text.png")
        expect(page, "#status").to_have_text("This is not a JPEG, PNG, WebP or GIF image.")
        expect(page, "#status").to_have_class("wrong")


def test_it_is_used_by_keyboard_alone(page, server):
    expect(page, "#results li").to_have_count(20)
    seen = []
    for _ in range(8):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert seen[:4] == ["to-search", "to-uncertain", "file", "label"]
    assert "from" in seen
    while page.evaluate("document.activeElement.className") != "from":
        page.keyboard.press("Shift+Tab")
    style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert style == "solid"
    page.keyboard.press("Enter")
    expect(page, "#query-title").to_contain_text("Image ")
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, select')].filter(e => !e.labels.length && !e.hidden).map(e => e.id)"
    )
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(browser, server, scheme):
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True, "color_scheme": scheme}
    with watched(browser, server, **phone) as page:
        page.goto(f"{server.address}/#/image/3")
        expect(page, "#results li").to_have_count(19)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        columns = page.evaluate(
            "getComputedStyle(document.getElementById('results')).gridTemplateColumns.split(' ').length"
        )
        assert columns == 2
        page.locator("#results .from").first.tap()
        page.wait_for_function("location.hash !== '#/image/3'")
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]


def test_a_token_is_asked_for_once(browser, model, folder, tmp_path):
    with Server(model, "--images", folder, "--state", tmp_path / "state", "--token", TOKEN) as server:
        page = browser.new_page()
        page.goto(server.address)
        expect(page, "#token").to_be_visible()
        page.fill("#token-text", "wrong")
        page.keyboard.press("Enter")
        expect(page, "#token-status").to_have_text("This is not the token.")
        page.fill("#token-text", TOKEN)
        page.keyboard.press("Enter")
        expect(page, "#results li").to_have_count(20)
        expect(page, "#token").to_be_hidden()
        assert page.evaluate("document.cookie") == ""  # scripts do not see it
        page.reload()
        expect(page, "#results li").to_have_count(20)
        shown = page.locator("#results img").first
        shown.scroll_into_view_if_needed()
        page.wait_for_function("document.querySelector('#results img').naturalWidth > 0")
        page.close()
        page = browser.new_page()
        page.goto(f"{server.address}/#token={TOKEN.replace(' ', '%20')}")
        expect(page, "#results li").to_have_count(20)
        assert TOKEN.replace(" ", "%20") not in page.url
        page.close()


# They are loaded once more, so that the event which this waits for is one that the page has seen before.
HOW_THEY_ARE_DRAWN = """async images => Promise.all(images.map(async image => {
    await new Promise(loaded => {
        image.addEventListener("load", loaded, {once: true});
        image.loading = "eager";
        image.src = image.src;
    });
    return [image.naturalWidth, getComputedStyle(image).imageRendering];
}))"""


def test_digits_are_shown_by_their_pixels_and_photographs_smoothly(browser, model, folder, tmp_path):
    for side in (28, 40, 90):
        Image.new("RGB", (side, side), (side, 0, 0)).save(folder / f"side{side}.png")
    with Server(model, "--images", folder, "--state", tmp_path / "state") as server, watched(browser, server) as page:
        page.goto(server.address)
        expect(page, "#results li").to_have_count(23)
        drawn = dict(page.eval_on_selector_all("#results img", HOW_THEY_ARE_DRAWN))
        assert {side: drawn[side] for side in (28, 40, 90)} == {28: "pixelated", 40: "auto", 90: "auto"}
