"""Tokens that a page could trip over, in every view: shown as the terminal shows them, and never obeyed."""

import numpy as np
import pytest

from tokenspace.shown import shown

from . import hostile
from .conftest import WORST_TEXT
from .seen import too_wide

pytestmark = pytest.mark.browser


def expected(token, longest):
    """What stands on the page: the token as `shown` writes it, cut where it is long."""
    text = shown(token.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def nothing_was_obeyed(page):
    scripts = page.evaluate("[...document.scripts].map((script) => script.src)")
    assert all(script.endswith(("/static/main.js", "/plotly.js")) for script in scripts)
    assert page.evaluate("document.querySelectorAll('script:not([src])').length") == 0
    assert too_wide(page) == []


def go(page, search):
    """To another state of the page, as Back would."""
    page.evaluate("(search) => history.pushState(null, '', search)", search)
    page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")


def text_of(locator):
    return locator.evaluate_all("(nodes) => nodes.map((node) => node.textContent)")


def test_in_the_walk(visit, hostile_site):
    page = visit(hostile_site, view="walk", text=WORST_TEXT)
    page.wait_for_selector("#walk .chips")
    tokens = WORST_TEXT.split("|")
    assert len(tokens) == 12
    assert text_of(page.locator("#walk .chips .token")) == [expected(token, 40) for token in tokens]
    title = page.locator("#walk .chips .token[title]").first.get_attribute("title")
    assert title.startswith("x" * 2_000)
    assert "2,000 characters" in title
    for step in ["ids", "lookup", "position", "output", "predict", "gradient"]:
        page.goto(hostile_site.address(view="walk", text=WORST_TEXT, step=step))
        page.wait_for_selector("#walk .cards, #walk .numbers td, #walk .scores")
        nothing_was_obeyed(page)


def test_in_a_query(visit, hostile_site):
    size = len(hostile_site.table)
    page = visit(hostile_site, view="query", ask="neighbors", id=0, k=size)
    page.wait_for_selector("#query .numbers td")
    names = text_of(page.locator("#query .column").first.locator(".hits .token"))
    others = [token for token in [*hostile_site.table.vocab][1:] if not token.startswith("[unused-row")]
    assert sorted(names) == sorted(expected(token, 24) for token in others)
    assert page.get_by_label("Word or token").input_value() == hostile.TOKENS[0]
    nothing_was_obeyed(page)
    page = visit(hostile_site, view="query", ask="neighbors", id=2, k=size)
    page.wait_for_selector("#query .numbers td")
    assert page.get_by_label("Word or token").input_value() == r"'line\nbreak'"


def test_a_right_to_left_token_does_not_turn_its_line(visit, hostile_site):
    page = visit(hostile_site, view="query", ask="neighbors", id=0, k=16)
    page.wait_for_selector("#query .hits .token")
    assert set(
        page.locator("#query .hits .token").evaluate_all(
            "(nodes) => nodes.map((node) => getComputedStyle(node).unicodeBidi)"
        )
    ) == {"isolate"}


def test_on_the_map(visit, hostile_site):
    page = visit(hostile_site, view="map", id=0)
    page.wait_for_selector("#map .map-side .hits")
    heading = text_of(page.locator("#map .map-side h3 .token"))
    assert heading == [hostile.TOKENS[0]]
    labels = text_of(page.locator("#map .map-overlay text"))
    assert hostile.TOKENS[0] in labels
    nothing_was_obeyed(page)
    for i in range(len(hostile.TOKENS)):
        go(page, f"?view=map&id={i}")
        page.wait_for_function(
            "(text) => document.querySelector('#map .map-side h3 .token')?.textContent === text",
            arg=expected(hostile_site.table.vocab[i], 30),
        )
    nothing_was_obeyed(page)


def test_the_name_in_space_is_no_markup(visit, odd_site):
    tokens = ["<b>bold</b>", "one<br>two", "&lt;", "<script>alert(1)</script>", "line\nbreak"]
    page = visit(odd_site(np.eye(5), tokens), view="map", dims=3, id=0)
    for i, token in enumerate(tokens):
        go(page, f"?view=map&dims=3&id={i}")
        page.wait_for_function(
            "(text) => document.querySelector('#map .annotation-text')?.textContent === text",
            arg=expected(token, 28),
        )
    nothing_was_obeyed(page)


def test_as_proposals(visit, hostile_site):
    page = visit(hostile_site, view="query", ask="neighbors", id=0)
    page.wait_for_selector("#query .hits li")  # the answer, which writes its token into the field
    field = page.get_by_label("Word or token")
    field.fill("")
    field.press_sequentially("<scr")
    page.wait_for_selector("#query [role=option]")
    assert text_of(page.locator("#query [role=option] .token"))[0] == hostile.TOKENS[0]
    nothing_was_obeyed(page)
