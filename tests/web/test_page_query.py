"""The queries in a browser: the library's answers, raw and under the switches, side by side."""

import numpy as np
import pytest

from tokenspace import geometry
from tokenspace.shown import shown
from tokenspace.web import limits

from .seen import lines, written

pytestmark = pytest.mark.browser


def columns(page):
    """The hits of each column as (token, score), once all are there."""
    page.wait_for_function(
        """() => document.querySelectorAll("#query .column .hits").length === 3
            && !document.querySelector(".expected")"""
    )
    return page.evaluate(
        """() => [...document.querySelectorAll("#query .column")].map((column) =>
            [...column.querySelectorAll(".hits li")].map((hit) =>
                [hit.querySelector(".token").innerText, hit.querySelector(".number").innerText]))"""
    )


def as_shown(hits):
    return [[hit.token, written(hit.score, 4)] for hit in hits]


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_neighbors_under_three_switches(visit, site, metric):
    page = visit(site, view="query", ask="neighbors", q="king", metric=metric, k=7)
    expected = [as_shown(geometry.neighbors(view, "king", k=7, metric=metric)) for view in site.views]
    assert columns(page) == expected
    fresh = set(page.locator("#query li.fresh .token").all_inner_texts())
    raw = {token for token, _ in expected[0]}
    assert fresh == {token for column in expected[1:] for token, _ in column} - raw


def test_the_rows_of_a_query_are_the_tables(visit, site):
    page = visit(site, view="query", ask="neighbors", q="king")
    columns(page)
    shown = lines(page, "#query")
    words = ["king", *(hit.token for hit in geometry.neighbors(site.table, "king", k=5))]
    assert [label for label, _ in shown] == words
    for (_, cells), word in zip(shown, words, strict=True):
        row = site.table.lookup([site.table.vocab.id(word)])[0]
        assert cells == [written(float(x)) for x in row[: len(cells)]]


def test_a_neighbor_leads_to_its_own_and_back(visit, builtin_site):
    page = visit(builtin_site, view="query", ask="neighbors", q="king")
    first = columns(page)
    page.locator("#query .hits button").first.click()
    best = geometry.neighbors(builtin_site.table, "king", k=1)[0]
    page.wait_for_selector(f"#query .status:has-text('of {best.token}')")
    second = columns(page)
    assert second[0] == as_shown(geometry.neighbors(builtin_site.table, best.token))
    page.reload()
    assert columns(page) == second
    page.go_back()
    page.wait_for_selector("#query .status:has-text('of king')")
    assert columns(page) == first


def test_an_analogy_is_arithmetic_with_two_arrows(visit, site):
    page = visit(site, view="query", ask="analogy")
    shown = columns(page)
    assert shown == [as_shown(geometry.analogy(view, "man", "king", "woman", k=5)) for view in site.views]
    best = geometry.analogy(site.table, "man", "king", "woman", k=1)[0].token
    assert page.locator("#query .arithmetic").first.inner_text() == f"king − man + woman ≈ {best}"
    drawing = page.locator("#query svg.arrows").first
    assert sorted(drawing.locator(".arrow-label").all_text_contents()) == sorted(
        ["man", "king", "woman", best]
    )
    assert drawing.locator("polygon").count() == 2
    assert "% of the squared lengths" in page.locator("#query figcaption").first.inner_text().replace(
        "\u00a0", " "
    )


def test_similarity_by_three_measures(visit, site):
    page = visit(site, view="query", ask="similarity", a="king", b="queen")
    page.wait_for_function(
        """() => {
            const table = document.querySelector("#query .measures");
            return table && !table.innerText.includes("…");
        }"""
    )
    shown = [row.locator("td").all_inner_texts() for row in page.locator("#query .measures tbody tr").all()]
    answers = [geometry.similarity(view, "king", "queen") for view in site.views]
    assert shown == [
        [written(getattr(answer, measure), 4) for answer in answers] for measure in ("cosine", "dot", "l2")
    ]


def test_a_word_of_pieces_says_so(visit, minilm_site):
    page = visit(minilm_site, view="query", ask="rows", words="king embeddings")
    shown = lines(page, "#query")
    pieces = geometry.resolve(minilm_site.table, "embeddings")
    assert [label for label, _ in shown] == ["king", f"embeddings mean of {len(pieces.tokens)}"]
    cells = shown[1][1]
    assert cells == [written(float(x)) for x in np.asarray(pieces.vector)[: len(cells)]]


def test_completion_by_keyboard_asks_for_that_id(visit, builtin_site):
    page = visit(builtin_site, view="query", ask="neighbors", q="queen")
    columns(page)
    field = page.get_by_label("Word or token")
    field.fill("")
    field.press_sequentially("kin")
    page.wait_for_selector("#query [role=option]")
    names = page.locator("#query [role=option] .token").all_inner_texts()
    assert all("kin" in name for name in names)
    field.press("ArrowDown")
    field.press("Enter")
    page.wait_for_url("**id=*")
    assert f"id={builtin_site.table.vocab.id(names[0])}" in page.url
    assert field.input_value() == names[0]


def test_a_word_that_is_unknown_is_answered_in_words(visit, builtin_site):
    page = visit(builtin_site, view="query", ask="neighbors", q="kingg")
    page.wait_for_selector("#query .status.error")
    assert "close spellings" in page.locator("#query .status").inner_text()
    page.get_by_label("Word or token").fill("king")
    page.get_by_role("button", name="Ask", exact=True).click()
    assert columns(page)[0]


def ask(page):
    page.get_by_role("button", name="Ask", exact=True).click()


def test_a_token_typed_as_it_is_shown_is_asked(visit, hostile_site):
    page = visit(hostile_site, view="query", ask="neighbors", q="King", k=5)
    columns(page)
    page.get_by_label("Word or token").fill(r"'line\nbreak'")
    ask(page)
    page.wait_for_selector(r"#query .status:has-text('of \'line\\nbreak\'')")
    assert columns(page)[0] == [
        [shown(hit.token), written(hit.score, 4)] for hit in geometry.neighbors(hostile_site.table, 2, k=5)
    ]
    assert page.get_by_label("Word or token").input_value() == r"'line\nbreak'"
    page.get_by_role("button", name="Heat map").click()
    page.get_by_label("Words, apart").fill(r"' ', king,'line\nbreak', 'King")
    ask(page)
    page.wait_for_selector("#query .status.error")
    assert '"\'King" is not one of' in page.locator("#query .status").inner_text()
    page.get_by_label("Words, apart").fill(r"' ', king,'line\nbreak', King")
    ask(page)
    page.wait_for_selector("#query .status:has-text('4 rows')")
    assert [label for label, _ in lines(page, "#query")] == ["' '", "king id 11", r"'line\nbreak'", "King"]


def test_of_two_tokens_that_look_alike_the_one_taken_is_said(visit, hostile_site):
    said = "king stands at several ids. This is the first, id 11; the other is 14."
    for question in ({"q": "king"}, {"ask": "similarity"}, {"ask": "analogy", "a": "King", "c": "kings"}):
        page = visit(hostile_site, view="query", **{"a": "king", "b": "king", **question})
        page.wait_for_selector("#query .numbers td")
        notes = page.locator("#query .note").all_inner_texts()
        assert set(notes) == {said}
    page = visit(hostile_site, view="query", id=11)
    page.wait_for_selector("#query .numbers td")
    assert page.locator("#query .note").count() == 0


def test_what_an_address_asks_too_much_of_is_said_in_the_words_of_the_controls(visit, small_site):
    page = visit(small_site, view="query", k=5_000, remove=-1, metric="l1", id=99_999)
    columns(page)
    told = page.locator("#message").inner_text()
    for sentence in (
        "How many (k) must be from 1 to 1,000, found 5,000; showing 10.",
        "Top directions removed (remove) must be from 0 to 64, found '-1'; showing 2.",
        "Metric 'l1' is not known; allowed: cosine, dot, l2; showing cosine.",
        "Id must be from 0 to 1,999, found 99,999; showing the first word.",
    ):
        assert sentence in told
    assert page.url.endswith("?view=query")
    page = visit(small_site, view="query", ask="analogy", a_id=2_000, k="", remove=0)
    page.wait_for_selector("#query .status:has-text('man is to')")
    assert page.locator("#message").inner_text() == (
        "Id (a_id) must be from 0 to 1,999, found 2,000; showing the first word."
    )
    assert page.locator("#query .column h3").all_inner_texts() == ["raw", "centered"]
    labels = {text.lower() for text in page.locator("#query label, #map label").all_text_contents()}
    names = [limits.HOW_MANY, limits.REMOVED, limits.CLUSTERS, limits.PROJECTION, limits.DIMENSIONS]
    assert {name.partition(" (")[0] for name in names} <= labels


def test_a_control_keeps_what_is_too_much_to_itself(visit, small_site):
    page = visit(small_site, view="query", q="king")
    columns(page)
    address = page.url
    for label, too_much in (("How many", "1001"), ("Top directions removed", "65"), ("How many", "")):
        field = page.get_by_label(label)
        before = field.input_value()
        field.fill(too_much)
        field.press("Tab")
        assert not field.evaluate("(field) => field.validity.valid")
        assert page.url == address
        field.fill(before)
        field.press("Tab")
        address = page.url
    page.get_by_label("How many").fill("3")
    page.get_by_label("How many").press("Tab")
    page.wait_for_url("**k=3*")
    page.get_by_label("Word or token").fill("")
    ask(page)
    assert "q=king" in page.url


def test_more_words_than_a_heat_map_shows_are_counted(visit, small_site):
    page = visit(small_site, view="query", ask="rows", words="a " * 500)
    page.wait_for_selector("#query .status.error")
    assert page.locator("#query .status").inner_text() == "A heat map here shows 1 to 64 rows, found 500"


def test_back_keeps_each_view_as_it_was(visit, builtin_site):
    page = visit(builtin_site, view="query", ask="similarity", a="cat", b="dog")
    page.wait_for_selector("#query .measures")
    page.get_by_role("link", name="Walk").click()
    page.wait_for_selector("#walk .chips")
    page.get_by_role("link", name="Query").click()
    page.wait_for_selector("#query .measures")
    assert "a=cat" in page.url
    page.go_back()
    page.wait_for_selector("#walk .chips")
    assert page.locator("#query").is_hidden()
