"""Tables that lack what others have: the page opens on what they hold, and says calmly what they can't."""

import json
import re

import numpy as np
import pytest

from tokenspace.web.explorer import Explorer
from tokenspace.web.export import export

from .test_page_map import POINTS, READY

pytestmark = pytest.mark.browser

ASKS = ("neighbors", "similarity", "rows", "analogy")
TOO_FEW = "An analogy needs 4 tokens, three to ask about and one that answers; this table has 1."


def asked(page, ask):
    """What the page says to that question, once it has said it."""
    page.get_by_role("button", name={"rows": "Heat map"}.get(ask, ask.capitalize()), exact=True).click()
    page.wait_for_selector("#query .tabs [aria-pressed=true], #query [aria-pressed=true]")
    page.wait_for_selector("#query:not(:has([aria-busy])) .answer > *")
    assert page.locator("#query .status.error").count() == 0
    return page.locator("#query .answer").inner_text()


def test_a_table_of_one_row_opens_without_an_error(visit, odd_site, browser, tmp_path):
    site = odd_site(np.ones((1, 4)))
    page = visit(site, view="query")
    refused = []
    page.on("response", lambda response: refused.append(response.url) if response.status >= 400 else None)
    page.wait_for_selector("#query .numbers td")
    assert page.locator("#query .status").inner_text() == "0 neighbors of t0 by cosine, two ways."
    for ask in ASKS:
        told = asked(page, ask)
    assert told == TOO_FEW
    page.reload()
    page.wait_for_selector("#query .note")
    assert page.locator("#query .status.error").count() == 0
    assert refused == []
    path = tmp_path / "page.html"
    export(Explorer(site.table), path)
    context = browser.new_context(offline=True)
    try:
        file = context.new_page()
        file.goto(f"{path.as_uri()}?view=query")
        file.wait_for_selector("#query .numbers td")
        for ask in ASKS:
            told = asked(file, ask)
        assert told == TOO_FEW
        file.goto(f"{path.as_uri()}?view=query&q=king")
        file.wait_for_selector("#query .status.error")
        assert "'king' is not the one token of" in file.locator("#query .status").inner_text()
    finally:
        context.close()
    page = visit(site, view="query", q="king")
    page.wait_for_selector("#query .status.error")
    assert "'king' is not the one token of" in page.locator("#query .status").inner_text()


def test_the_first_questions_are_about_the_tables_own_words(visit, odd_site):
    tokens = ["+", "zero", "red", "a b", "blue", "green", "pink"]
    rows = np.random.default_rng(0).normal(size=(7, 4))
    rows[1] = 0
    page = visit(odd_site(rows, tokens), view="query")
    page.wait_for_selector("#query .numbers td")
    assert page.get_by_label("Word or token").input_value() == "red"
    asked(page, "similarity")
    assert page.locator("#query .status").inner_text().startswith("The cosine of red and blue is")
    asked(page, "rows")
    assert page.get_by_label("Words, apart").input_value() == "red blue green pink"
    asked(page, "analogy")
    assert page.locator("#query .status").inner_text().startswith("green is to red as pink is to")


def test_arrows_of_length_zero_have_no_direction(visit, odd_site):
    page = visit(odd_site(np.zeros((5, 4))), view="query", ask="analogy")
    page.wait_for_selector("#query figcaption")
    told = page.locator("#query figcaption").first.inner_text()
    ring = "Ring: b − a + c of rows scaled to length 1."
    assert told == f"{ring} Both arrows have length 0, so they have no direction."


def test_a_map_whose_colors_are_refused_is_drawn_without(visit, odd_site):
    page = visit(odd_site(np.ones((20, 4))), view="map", color="cluster")
    page.wait_for_selector("#map .progress-line.error")
    said = page.locator("#map .progress-line").inner_text()
    assert said.startswith("No row of this table that a token names has a direction about the mean row")
    page.wait_for_function(READY)
    drawn = json.loads(page.evaluate(POINTS))
    assert [len(trace[0]) for trace in drawn] == [20]
    side = page.locator("#map .map-side").inner_text().split()
    assert side == ["Colors", "Not", "colored.", "all", "20"]
    page.get_by_label("Color").select_option("kind")
    page.wait_for_selector("#map .swatches bdi:text-is('word-initial')")
    assert page.locator("#map .progress-line.error").count() == 0


def test_clusters_are_as_many_as_suit_the_table_until_one_says_how_many(visit, odd_site):
    rows = np.random.default_rng(1).normal(size=(20, 4))
    page = visit(odd_site(rows), view="query")
    asked_for = []
    page.on("request", lambda request: asked_for.append(request.url) if "/clusters" in request.url else None)
    page.goto(re.sub(r"\?.*", "?view=map&color=cluster", page.url))
    page.wait_for_selector("#map h3:text-is('Colors') + p:has-text('5 clusters in the original space')")
    field = page.get_by_label("Clusters")
    assert field.input_value() == "5"
    assert not any("k=" in url for url in asked_for)
    field.fill("3")
    field.press("Tab")
    page.wait_for_selector("#map h3:text-is('Colors') + p:has-text('3 clusters in the original space')")
    assert "k=3" in page.url
    assert "k=3" in asked_for[-1]
    page.go_back()
    page.wait_for_function(
        "document.querySelector('#map input[max]:not([max=\"4294967295\"])').value === '5'"
    )


def test_a_name_that_begins_small_stays_so(visit, odd_site):
    page = visit(odd_site(np.random.default_rng(0).normal(size=(3, 4))), view="map", method="tsne")
    page.wait_for_selector("#map .progress-line.error, #map .caption:not(:empty)")
    rules = """async () => {
        const { sentence } = await import("./static/message.js");
        return ["t-SNE needs", "a map, too", "'a' is", "3 of", "plotly: no", "scikit-learn"].map(sentence);
    }"""
    assert page.evaluate(rules) == [
        "t-SNE needs",
        "A map, too",
        "'a' is",
        "3 of",
        "Plotly: no",
        "Scikit-learn",
    ]


def test_every_correction_is_told(visit, builtin_site):
    page = visit(builtin_site, view="walk", recipe="x", dim="zz", step="y")
    page.wait_for_selector("#walk .chips")
    told = page.locator("#message").inner_text()
    assert told.startswith(
        "Recipe 'x' is not known; allowed: original, bert, gpt2, llama; showing the table's own. "
    )
    assert ", found 'zz'; showing the first one. " in told
    assert told.endswith(" Step 'y' is not one of this walk; showing tokens.")


def test_the_picture_of_rows_shows_the_dimensions_below_it(visit, builtin_site):
    page = visit(builtin_site, view="walk", text="the cat", step="lookup", dim=16)
    table = builtin_site.table
    page.wait_for_selector("#walk .numbers td")
    assert page.locator("#walk .pager .where").inner_text().startswith("dimensions 16–")
    cells = page.locator("#walk .strip-row").first.locator(".strip-cell").count()
    heading = f"rows plucked out, their numbers %s–%s of {table.dim}"
    assert page.locator("#walk .strip-heading").last.text_content() == heading % (16, 15 + cells)
    colors = "(nodes) => nodes.map((node) => node.style.fill.startsWith('rgba(230'))"
    ids = sorted(table.vocab.id(word) for word in ("the", "cat"))

    def above(start):
        return (table.lookup(ids)[:, start : start + cells] >= 0).ravel().tolist()

    assert page.locator("#walk .strip-cell").evaluate_all(colors) == above(16)
    page.get_by_role("button", name="Earlier dimensions").click()
    assert page.locator("#walk .strip-heading").last.text_content() == (
        f"rows plucked out, their first {cells} of {table.dim} numbers"
    )
    assert page.locator("#walk .strip-cell").evaluate_all(colors) == above(0)


def test_up_from_the_field_is_the_last_proposal(visit, small_site):
    page = visit(small_site, view="query", q="queen")
    page.wait_for_selector("#query .numbers td")
    field = page.get_by_label("Word or token")
    field.fill("")
    field.press_sequentially("kin")
    page.wait_for_selector("#query [role=option]")
    field.press("ArrowUp")
    options = page.locator("#query [role=option]")
    chosen = options.evaluate_all("(all) => all.map((one) => one.getAttribute('aria-selected'))")
    assert chosen == ["false"] * (options.count() - 1) + ["true"]
    field.press("ArrowDown")
    assert options.first.get_attribute("aria-selected") == "true"
