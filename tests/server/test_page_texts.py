"""The page where the model has texts: a sentence is typed, and its pictures are there. In a browser."""

import shutil
from urllib.parse import quote_plus

import pytest
from browsing import IN_A_BROWSER, PHONE, api, expect, ids, texts, watched
from serving import Server

from commands import dmuh

pytestmark = IN_A_BROWSER
DARK = {"color_scheme": "dark"}


@pytest.fixture(scope="module")
def opened(coloured, tmp_path_factory):
    """One's own pictures, opened with a model that has texts."""
    folder = shutil.copytree(coloured / "pictures", tmp_path_factory.mktemp("opened") / "pictures")
    with Server(folder, "--model", coloured / "model", by="open") as running:
        yield running


@pytest.fixture(scope="module")
def captioned(coloured, tmp_path_factory):
    """An index whose list has sentences about its pictures."""
    folder = tmp_path_factory.mktemp("captioned") / "index"
    options = ("--dataset", "csv", "--texts", "caption", "--out", folder)
    dmuh("index", coloured / "model", coloured / "list.csv", *options)
    with Server("--index", folder) as running:
        yield running


def say(page, text: str) -> None:
    page.get_by_role("searchbox", name="Say what you look for").fill(text)
    page.locator("#text").press("Enter")
    expect(page, "#query-title").to_have_text(f"“{text}”")
    expect(page, "#results:not([aria-busy])").to_be_visible()


@pytest.mark.parametrize("options", [{}, PHONE | DARK], ids=["wide", "phone"])
def test_a_sentence_is_typed_and_its_pictures_are_there(browser, opened, options):
    with watched(browser, opened, **options) as page:
        page.goto(opened.address)
        expect(page, "#status").to_contain_text("search by words or with an image of your own")
        for text in ("a red circle", "the blue square"):
            say(page, text)
            found = api(opened, f"/api/search?text={quote_plus(text)}&k=60")
            assert ids(page) == [match["id"] for match in found["matches"]]
            colour, shape = text.split()[1:]
            assert all(match["path"].startswith(f"{colour}/{shape}") for match in found["matches"][:10])
            expect(page, "#results .photo:first-child .fact").to_have_text("very likely")
        expect(page, "#query-open").to_be_hidden()
        assert page.url.endswith("#/search?text=the+blue+square")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.go_back()
        expect(page, "#query-title").to_have_text("“a red circle”")
        expect(page, "#text").to_have_value("a red circle")


def test_the_address_is_shared_and_nothing_may_be_close_enough(browser, opened):
    with watched(browser, opened) as page:
        page.goto(f"{opened.address}/#/search?text=a+green+circle&label=green")
        expect(page, "#query-title").to_have_text("“a green circle”")
        expect(page, "#text").to_have_value("a green circle")
        first = ids(page)
        page.reload()
        expect(page, "#query-title").to_have_text("“a green circle”")
        assert ids(page) == first
        expect(page, "#by").to_have_count(0)
        page.goto(f"{opened.address}/#/search?text=a+green+circle&label=blue&at_least=0.8")
        expect(page, "#status").to_contain_text(
            "Nothing close enough: the likeliest of the nearest images shares a label"
        )
        page.locator("#brand").click()
        expect(page, "#text").to_have_value("")
        expect(page, "#query").to_be_hidden()


def test_from_words_to_an_image_and_its_like(browser, opened):
    with watched(browser, opened) as page:
        page.goto(f"{opened.address}/#/search?text=a+red+square")
        page.locator("#results .photo:first-child .open").click()
        expect(page, "#viewer-likely").to_contain_text("Very likely")
        page.locator("#viewer-similar").click()
        expect(page, "#query-open").to_be_visible()
        expect(page, "#text").to_have_value("")
        assert "text=" not in page.url


@pytest.mark.parametrize("options", [{}, PHONE | DARK], ids=["wide", "phone"])
def test_an_image_is_answered_in_words(browser, captioned, coloured, options):
    with watched(browser, captioned, **options) as page:
        page.goto(f"{captioned.address}/#/image/5")
        expect(page, "#query-texts h3").to_have_text("Texts that fit")
        found = [one for one in api(captioned, "/api/captions?id=5&k=3")["texts"] if one["likely"] != "unlikely"]
        expect(page, "#texts li").to_have_count(len(found))  # they come after their heading
        assert texts(page, "#texts li") == [f"{one['text']}\n{one['likely']}" for one in found]
        assert found[0]["likely"] == "very likely"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.locator("#file").set_input_files(coloured / "pictures" / "red" / "circle-00.png")
        expect(page, "#query-title").to_have_text("circle-00.png")
        expect(page, "#texts li:first-child a").to_contain_text("red circle")
        sentence = page.locator("#texts li:first-child a").inner_text()
        page.locator("#texts li:first-child a").click()
        expect(page, "#query-title").to_have_text(f"“{sentence}”")
        expect(page, "#query-texts").to_be_hidden()
        page.go_back()
        expect(page, "#texts li:first-child a").to_have_text(sentence)


def test_there_are_no_sentences_where_the_collection_has_none(browser, opened):
    with watched(browser, opened) as page:
        page.goto(f"{opened.address}/#/image/5")
        expect(page, "#results:not([aria-busy]) .photo").not_to_have_count(0)
        expect(page, "#query-texts").to_be_hidden()


def test_there_is_no_box_where_the_model_has_no_texts(page):
    expect(page, "#results .photo").to_have_count(20)
    expect(page, "#by-text").to_be_hidden()
    expect(page, "#status").to_have_text(
        "Choose one to see it large and what is like it, or search with an image of your own."
    )
