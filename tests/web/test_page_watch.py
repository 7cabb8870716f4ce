"""The watch over the browser tests: what it must see, so that a test that is green proves something."""

import pytest

from .conftest import DESKTOP, watched_page

pytestmark = pytest.mark.browser

WRONG = """() => {
    document.head.append(Object.assign(document.createElement("script"), { textContent: "1" }));
    fetch("http://127.0.0.1:1/").catch(() => null);
    console.error("said");
    setTimeout(() => { throw new Error("thrown"); });
    setTimeout(() => alert("asked"));
    return new Promise((resolve) => setTimeout(resolve, 20));
}"""
TOLD = ("refused: script-src-elem", "refused: connect-src", "console: said", "error: thrown", "dialog: asked")


@pytest.fixture(scope="module")
def opened(browser):
    page, watch = watched_page(browser, DESKTOP)
    yield page, watch
    page.context.close()


@pytest.fixture
def watched(opened, small_site):
    page, watch = opened
    watch.begin(small_site.url)
    page.goto(small_site.address(view="query"))
    return page, watch


@pytest.mark.parametrize("left", ["visit", "reload", "back"])
def test_what_went_wrong_is_seen_though_the_page_was_left(watched, small_site, left):
    page, watch = watched
    if left == "back":
        page.goto(small_site.address(view="query", q="queen"))
    page.evaluate(WRONG)
    if left == "visit":
        watch.begin(small_site.url)
        page.goto(small_site.address(view="query", q="queen"))
    elif left == "reload":
        page.reload()
    else:
        page.go_back()
    page.wait_for_selector("#query .hits li")
    with pytest.raises(AssertionError) as seen:
        watch.check()
    assert [told for told in TOLD if told not in str(seen.value)] == []
    watch.check()  # each is told once


def test_nothing_wrong_is_nothing_told(watched):
    page, watch = watched
    page.wait_for_selector("#query .hits li")
    page.reload()
    page.wait_for_selector("#query .hits li")
    watch.check()
