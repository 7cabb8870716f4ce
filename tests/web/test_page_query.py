"""The queries in a browser: the library's answers, raw and under the switches, side by side."""

import numpy as np
import pytest

from tokenspace import geometry

from .seen import lines, written

pytestmark = pytest.mark.browser

SWITCHES = [{}, {"center": True}, {"center": True, "remove": 2}]


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
    expected = [
        as_shown(geometry.neighbors(site.table, "king", k=7, metric=metric, **switch)) for switch in SWITCHES
    ]
    shown = columns(page)
    assert shown == expected
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
    assert shown == [
        as_shown(geometry.analogy(site.table, "man", "king", "woman", k=5, **switch)) for switch in SWITCHES
    ]
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
    answers = [geometry.similarity(site.table, "king", "queen", **switch) for switch in SWITCHES]
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
