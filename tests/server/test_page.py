"""The page, used as people use it: in a real Chromium, by mouse, finger and keyboard."""

import os
import re

import httpx2
import pytest
from browsing import IN_A_BROWSER, PHONE, api, expect, expect_ids, ids, in_cases, photo, texts, until, watched
from PIL import Image
from serving import Server, picture

pytestmark = IN_A_BROWSER
TOKEN = "a token of some length"


def test_upload_filter_and_search_from_what_was_found(page, server, photos):
    expect(page, "#facts").to_have_text("20 images as codes of 20 bits, by dmuh.")
    expect(page, "#results li").to_have_count(20)
    page.set_input_files("#file", photos / "ones" / "03.png")
    expect(page, "#query-title").to_have_text("03.png")
    expect(page, "#status").to_have_text("20 images, nearest first.")
    assert texts(page, "#results .fact")[0] == "the same image"
    assert set(texts(page, "#results .fact")) <= {"the same image", "very likely", "maybe", "unlikely"}
    said = page.locator("#results .open").nth(1).get_attribute("aria-label")
    assert re.search(r"^Image \d+, (ones|zeros), (very likely|maybe|unlikely)$", said)
    assert "bits apart" in page.locator("#results .fact").nth(1).get_attribute("title")

    id_ = ids(page)[5]
    photo(page, id_).locator(".open").click()
    page.click("#viewer-similar")
    expect(page, "#viewer").to_be_hidden()
    expect(page, "#status").to_have_text("19 images, nearest first.")
    assert page.url.endswith(f"#/image/{id_}")
    expect_ids(page, [match["id"] for match in api(server, f"/api/search?id={id_}&k=60")["matches"]])

    page.select_option("#label", "zeros")
    expect(page, "#status").to_have_text(re.compile(r"^(9|10) images"))
    assert set(texts(page, "#results .name")) == {"zeros"}
    page.fill("#radius", "0")
    page.keyboard.press("Enter")
    near = api(server, f"/api/search?id={id_}&label=zeros&radius=0")["matches"]
    expect(page, "#results li").to_have_count(len(near))
    for _ in range(2):
        page.go_back()
    expect(page, "#results li").to_have_count(19)
    page.go_back()
    expect(page, "#viewer-title").to_be_visible()
    page.go_back()
    expect(page, "#query-title").to_have_text("03.png")
    expect(page, "#results li").to_have_count(20)
    page.click("#to-search")
    expect(page, "#title").to_have_text("Where to begin")
    expect(page, "#query").to_be_hidden()


def test_reload_back_and_links_keep_view_filters_ranking_and_the_open_image(browser, server):
    with watched(browser, server) as page:
        page.goto(f"{server.address}/#/image/4?label=zeros&ranking=hamming")
        expect(page, "#results li").to_have_count(10)
        matches = api(server, "/api/search?id=4&k=60&ranking=hamming&label=zeros")["matches"]
        assert ids(page) == [match["id"] for match in matches]
        page.locator("#results .open").nth(2).click()
        expect(page, "#viewer").to_be_visible()
        address = page.url
        assert address.endswith(f"#/image/4?label=zeros&ranking=hamming&open={matches[2]['id']}")
        page.reload()
        expect(page, "#viewer").to_be_visible()
        expect(page, "#viewer-path").to_have_text(matches[2]["path"])
        assert page.input_value("#label") == "zeros"
        assert page.input_value("#ranking") == "hamming"
        assert ids(page) == [match["id"] for match in matches]
        page.keyboard.press("ArrowRight")
        expect(page, "#viewer-path").to_have_text(matches[3]["path"])
        page.go_back()  # to the list, however many images were looked at
        expect(page, "#viewer").to_be_hidden()
        assert page.url.endswith("#/image/4?label=zeros&ranking=hamming")
        page.go_forward()
        expect(page, "#viewer-path").to_have_text(matches[3]["path"])
    with watched(browser, server) as page:
        page.goto(address)  # a link that somebody sent
        expect(page, "#viewer-path").to_have_text(matches[2]["path"])
        page.keyboard.press("Escape")
        expect(page, "#viewer").to_be_hidden()
        expect(page, "#results li").to_have_count(10)
    with watched(browser, server) as page:
        page.goto(f"{server.address}/?ranking=hamming#/image/4")  # a link of earlier versions
        expect(page, "#results li").to_have_count(19)
        assert page.input_value("#ranking") == "hamming"
        apart = re.search(r"[\d.]+ bits? apart", page.locator("#results .fact").nth(3).get_attribute("title"))
        assert "." not in apart[0]


def test_the_large_view_shows_names_labels_sureness_and_similar_images(page, server):
    page.goto(f"{server.address}/#/image/4")
    expect(page, "#results li").to_have_count(19)
    matches = api(server, "/api/search?id=4&k=19")["matches"]
    page.locator("#results .open").nth(1).click()
    second = matches[1]
    expect(page, "#viewer-title").to_have_text(second["path"].split("/")[-1])
    expect(page, "#viewer-path").to_have_text(second["path"])
    assert texts(page, "#viewer-labels a") == second["labels"]
    assert f"shares a label in {in_cases(second['match'])}" in page.inner_text("#viewer-likely")
    assert "bits may turn over" in page.inner_text("#viewer-sure")
    until(page, "document.getElementById('viewer-image').naturalWidth > 0")
    assert page.get_attribute("#viewer-image", "src") == f"/api/images/{second['id']}/picture"
    near = [match["id"] for match in api(server, f"/api/search?id={second['id']}&k=8")["matches"]]
    expect(page, "#viewer-strip a").to_have_count(8)
    assert [f"open={id_}" in link for id_, link in zip(
        near, page.locator("#viewer-strip a").evaluate_all("all => all.map(a => a.href)"), strict=True
    )] == [True] * 8  # fmt: skip
    page.keyboard.press("ArrowRight")
    expect(page, "#viewer-path").to_have_text(matches[2]["path"])
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page, "#viewer-path").to_have_text(matches[0]["path"])
    expect(page, "#previous").to_be_disabled()
    page.click("#next")
    page.keyboard.press("Escape")
    expect(page, "#viewer").to_be_hidden()
    assert page.evaluate("document.activeElement.closest('.photo').dataset.id") == str(
        second["id"]
    )  # the focus returns


def test_a_link_to_an_image_that_is_gone_says_so(browser, server):
    report = "Failed to load resource: the server responded with a status of 404 (Not Found)"
    with watched(browser, server, [report]) as page:
        page.goto(f"{server.address}/#/image/4?open={2**40}")
        expect(page, "#viewer-title").to_have_text(f"There is no image {2**40}.")
        page.click("#viewer-close")
        expect(page, "#viewer").to_be_hidden()
        expect(page, "#results li").to_have_count(19)


def test_what_differs_between_two_codes_and_which_bits_were_coin_tosses(page, server):
    answer = api(server, "/api/search?id=4&k=19")
    query = answer["query"]
    page.goto(f"{server.address}/#/image/4")
    expect(page, "#results li").to_have_count(19)
    for match in answer["matches"][::6]:
        photo(page, match["id"]).locator(".open").click()
        expect(page, "#viewer-path").to_have_text(match["path"])
        differing = [n for n in range(20) if match["bits"][n] != query["bits"][n]]
        tossed = [n for n in differing if max(query["bit_uncertainty"][n], match["bit_uncertainty"][n]) >= 1 / 3]
        marks = page.locator("#viewer-bits .pair").evaluate_all("all => all.map(pair => pair.className)")
        assert [n for n, mark in enumerate(marks) if "differs" in mark] == differing
        assert [n for n, mark in enumerate(marks) if "tossed" in mark] == tossed
        said = page.inner_text("#viewer-differs")
        assert said.startswith((f"{len(differing)} of 20 bits differ", "All 20 bits are the query's"))
        assert ("coin toss" in said) == bool(differing)
        label = page.get_attribute("#viewer-bits", "aria-label")
        assert all(f"{n + 1} (tossed)" in label for n in tossed)
        page.keyboard.press("Escape")
        expect(page, "#viewer").to_be_hidden()


def test_the_code_is_drawn_and_how_sure_its_bits_are_is_seen(page, server):
    image = api(server, "/api/images?n=100&order=uncertainty")["images"][0]
    page.goto(f"{server.address}/#/image/{image['id']}")
    page.click("#query-code summary")
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
    may = sum(unsure)
    facts = f"Among the least sure 2%: about {may:.1f}" if may < 3 else f"Among the least sure 2%: about {may:.0f}"
    assert f"{facts} of its 20 bits may turn over." in page.inner_text("#query-facts")


def test_least_sure_images_come_first(page, server):
    page.click("#to-uncertain")
    expect(page, "#title").to_have_text("Least sure images")
    expect(page, "#results li").to_have_count(20)
    expect(page, "#at-least").to_have_count(0)
    expect_ids(page, [image["id"] for image in api(server, "/api/images?n=100&order=uncertainty")["images"]])
    order = ["among the least sure 2%", "among the least sure 10%", "less sure than most", "as sure as most",
             "surer than most"]  # fmt: skip
    ranks = [order.index(text) for text in texts(page, "#results .fact")]
    assert ranks == sorted(ranks)
    assert {0, 4} <= set(ranks)
    page.select_option("#label", "ones")
    expect(page, "#results li").to_have_count(10)
    page.reload()
    expect(page, "#results li").to_have_count(10)
    assert page.input_value("#label") == "ones"


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
    page.goto(f"{server.address}/#/image/{alone}?at_least=0.8&label=zeros")
    expect(page, "#status").to_have_text(
        f"Nothing close enough: the likeliest of the nearest images shares a label in {in_cases(answer['best'])}."
    )
    expect(page, "#results li").to_have_count(0)
    page.select_option("#at-least", label="any")
    expect(page, "#results li").to_have_count(10)


def test_an_image_is_added_and_strange_words_are_only_shown(own_page, tmp_path):
    page = own_page
    strange = "<img src=x onerror=alert(1)>"
    (tmp_path / "noise.png").write_bytes(picture(seed=4))
    page.set_input_files("#file", tmp_path / "noise.png")
    page.fill("#add-label", strange)
    page.click("#add button")
    expect(page, "#toast-text").to_have_text("Added as image 21; 21 images now.")
    expect(page, "#facts").to_contain_text("21 images")
    expect(page, "#results li").to_have_count(21)
    assert strange in texts(page, "#results .name")
    assert page.locator("#results .name img").count() == 0
    page.select_option("#label", strange)
    expect(page, "#results li").to_have_count(1)


def test_names_that_are_not_unicode_are_shown_and_searched_from(browser, model, folder, tmp_path):
    (folder / "ones" / "00.png").rename(folder / os.fsdecode(b"caf\xe9.png"))
    with Server(model, "--images", folder, "--state", tmp_path / "state") as server, watched(browser, server) as page:
        page.goto(f"{server.address}/#/uncertain")
        expect(page, "#results li").to_have_count(20)
        named = page.locator("#results li", has_text=r"caf\xe9.png")
        assert named.locator(".open").get_attribute("title") == r"caf\xe9.png"
        named.locator(".open").click()
        expect(page, "#viewer-title").to_have_text(r"caf\xe9.png")
        page.click("#viewer-similar")
        expect(page, "#title").to_have_text("Nearest images")
        expect(page, "#query-image").to_have_js_property("naturalWidth", 40)


def test_after_a_refused_upload_the_query_before_it_is_gone(browser, server, photos, tmp_path):
    (tmp_path / "text.png").write_text("no image")
    report = "Failed to load resource: the server responded with a status of 415 (Unsupported Media Type)"
    with watched(browser, server, [report]) as page:
        page.goto(server.address)
        page.set_input_files("#file", photos / "ones" / "03.png")
        expect(page, "#query-title").to_have_text("03.png")
        page.set_input_files("#file", tmp_path / "text.png")
        expect(page, "#status").to_have_text("This is not a JPEG, PNG, WebP, GIF, AVIF or HEIC image.")
        expect(page, "#status").to_have_class("wrong")
        expect(page, "#query").to_be_hidden()
        expect(page, "#results li").to_have_count(0)
        page.go_back()
        expect(page, "#query-title").to_have_text("03.png")
        expect(page, "#results li").to_have_count(20)
        page.reload()  # which loses the user's file
        expect(page, "#status").to_contain_text("choose it again")


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
        until(page, "document.querySelector('#results img').naturalWidth > 0")
        page.close()
        page = browser.new_page()
        page.goto(f"{server.address}/#token={TOKEN.replace(' ', '%20')}")
        expect(page, "#results li").to_have_count(20)
        assert TOKEN.replace(" ", "%20") not in page.url
        page.close()
        for path in ("/page/main.js", "/page/page.css", "/icon.svg", "/"):
            assert httpx2.get(f"{server.address}{path}").status_code == 200
        assert httpx2.get(f"{server.address}/page/../api/about").status_code == 401


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_results_above_the_fold_and_does_not_scroll_sideways(browser, server, scheme):
    with watched(browser, server, **PHONE, color_scheme=scheme) as page:
        for address in ("/", "/#/image/3", "/#/uncertain"):
            page.goto(f"{server.address}{address}")
            expect(page, "#results li").to_have_count(19 if "image" in address else 20)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            first = page.locator("#results .open").first.bounding_box()
            assert first["y"] + first["height"] < 500  # of 780
        page.goto(f"{server.address}/#/image/3")
        page.locator("#results .open").nth(3).tap()
        expect(page, "#viewer").to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator("#next").tap()
        page.locator("#viewer-similar").tap()
        expect(page, "#viewer").to_be_hidden()
        until(page, "location.hash !== '#/image/3'")
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]
