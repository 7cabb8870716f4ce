"""The map in a browser: every row is a point where the library's projection puts it."""

import json

import numpy as np
import pytest

from tokenspace import geometry
from tokenspace.geometry.projection import pca

from .conftest import PHONE
from .seen import number, too_wide, written

pytestmark = pytest.mark.browser

READY = "document.querySelector('.map-plot .main-svg') && document.querySelector('#map .caption').innerText"
POINTS = """() => {
    const traces = document.querySelector(".map-plot").data.filter((trace) => trace.hoverinfo === "none");
    const axes = ["x", "y", "z"].filter((axis) => axis in traces[0]);
    return JSON.stringify(traces.map((trace) => axes.map((axis) => Array.from(trace[axis]))));
}"""
PLACE = """([x, y]) => {
    const { xaxis, yaxis } = document.querySelector(".map-plot")._fullLayout;
    return [xaxis._offset + xaxis.l2p(x), yaxis._offset + yaxis.l2p(y)];
}"""


def open_map(visit, site, **state):
    page = visit(site, view="map", **state)
    page.wait_for_function(READY)
    return page


def chosen(page, token):
    page.wait_for_selector(f"#map .map-side h3 .token:text-is('{token}')")
    hits = page.locator("#map .map-side .hits").first
    names = hits.locator(".token").all_inner_texts()
    return [list(hit) for hit in zip(names, hits.locator(".number").all_inner_texts(), strict=True)]


def test_every_row_is_a_point_of_the_projection(visit, site):
    page = open_map(visit, site)
    drawn = [np.array(trace).T for trace in json.loads(page.evaluate(POINTS))]
    projection = pca(site.table)
    kinds = np.array([site.table.vocab.kind(i) for i in range(len(site.table))])
    names = page.locator("#map .swatches bdi").all_inner_texts()
    assert sum(len(points) for points in drawn) == len(site.table)
    for points, kind in zip(drawn, names, strict=True):
        expected = projection.coordinates[kinds == kind]
        np.testing.assert_allclose(points, expected, rtol=1e-5, atol=1e-5)
    titles = page.locator(".map-plot .xtitle, .map-plot .ytitle").all_text_contents()
    assert sorted(titles) == sorted(projection.axes)
    assert "seed 0" in page.locator("#map .caption").inner_text()


def test_a_token_found_is_flown_to_with_its_neighbors(visit, site):
    page = open_map(visit, site)
    field = page.get_by_label("Find a token")
    field.press_sequentially("king")
    page.wait_for_selector("#map [role=option]")
    field.press("ArrowDown")
    field.press("Enter")
    hits = geometry.neighbors(site.table, "king")
    assert chosen(page, "king") == [[hit.token, written(hit.score, 4)] for hit in hits]
    king = site.table.vocab.find("king").id
    assert f"id={king}" in page.url
    at = pca(site.table).coordinates
    page.wait_for_function(
        """(x) => {
            const [left, right] = document.querySelector(".map-plot")._fullLayout.xaxis.range;
            return Math.abs((left + right) / 2 - x) < 1e-3;
        }""",
        arg=float(at[king, 0]),
    )
    to = page.evaluate(
        """() => [...document.querySelectorAll("#map .map-overlay line")].map((line) => [
            Number(line.getAttribute("x2")), Number(line.getAttribute("y2"))])"""
    )
    places = [page.evaluate(PLACE, [float(value) for value in at[hit.id]]) for hit in hits]
    np.testing.assert_allclose(to, places, atol=0.5)


def test_enter_finds_what_was_typed_whole(visit, small_site):
    page = open_map(visit, small_site)
    page.get_by_label("Find a token").fill("king")
    page.keyboard.press("Enter")
    chosen(page, "king")
    page.get_by_label("Find a token").fill("qqqq")
    page.get_by_role("button", name="Find").click()
    page.wait_for_selector("#map .progress-line.error")
    assert "qqqq" in page.locator("#map .progress-line").inner_text()


def test_a_token_typed_as_it_is_shown_is_found_and_case_tells(visit, hostile_site):
    page = open_map(visit, hostile_site)
    for typed, i in ((r"'line\nbreak'", 2), ("King", 12), ("king", 11), ("' '", 10)):
        page.get_by_label("Find a token").fill(typed)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**id={i}")
        page.wait_for_selector(f"#map .map-side p:text('id {i}, ')")


def test_a_point_tells_its_token_and_is_chosen_by_a_click(visit, small_site):
    king = small_site.table.vocab.id("king")
    page = open_map(visit, small_site, id=king)
    chosen(page, "king")
    at = pca(small_site.table).coordinates
    best = geometry.neighbors(small_site.table, "king", k=1)[0]
    for _ in range(8):  # nearer, until it is the only point under the pointer
        page.get_by_role("button", name="Zoom in").click()
    page.wait_for_timeout(300)
    box = page.locator(".map-plot").bounding_box()
    x, y = page.evaluate(PLACE, [float(value) for value in at[king]])
    x, y = x + box["x"], y + box["y"]
    page.mouse.move(x - 3, y)
    page.mouse.move(x, y)
    page.wait_for_selector("#map .map-tip", state="visible")
    assert page.locator("#map .map-tip .token").inner_text() == "king"
    page.locator("#map .map-side .hits button").first.click()
    chosen(page, best.token)
    page.go_back()
    chosen(page, "king")
    page.reload()
    page.wait_for_function(READY)
    chosen(page, "king")


def test_colors_by_length_and_cluster(visit, small_site):
    page = open_map(visit, small_site, color="norm")
    lengths = np.sort(np.linalg.norm(small_site.table.lookup(range(len(small_site.table))), axis=1))
    low, high = (number(text) for text in page.locator("#map .amount-ends span").all_inner_texts())
    last = len(lengths) - 1
    assert (low, high) == tuple(
        pytest.approx(lengths[int(share * last)], abs=0.001) for share in (0.01, 0.99)
    )
    page.get_by_label("Color").select_option("cluster")
    page.wait_for_selector("#map .swatches")
    sizes = [number(text) for text in page.locator("#map .swatches .number").all_inner_texts()]
    assert sum(sizes) == len(small_site.table)
    assert sizes == sorted(sizes, reverse=True)
    page.locator("#map .swatches button").first.click()  # alone
    page.wait_for_function(
        f"JSON.parse(({POINTS})()).reduce((n, trace) => n + trace[0].length, 0) === {int(sizes[0])}"
    )
    assert "color=cluster" in page.url
    page.get_by_label("Find a token").fill("king")
    page.keyboard.press("Enter")
    chosen(page, "king")
    clusters = geometry.clusters(small_site.table)
    name = clusters.names[clusters.labels[small_site.table.vocab.id("king")]]
    assert page.locator("#map .map-side p").first.inner_text().endswith(f", cluster “{name}”")
    page.go_back()
    page.go_back()
    page.wait_for_selector("#map .amount")


def test_a_lasso_lists_what_it_holds(visit, small_site):
    page = open_map(visit, small_site)
    page.get_by_role("button", name="Drag draws a lasso").click()
    at = pca(small_site.table).coordinates
    box = page.locator(".map-plot .nsewdrag").bounding_box()
    left, right, top, bottom = box["x"] + 200, box["x"] + 420, box["y"] + 200, box["y"] + 330
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in [(right, top), (right, bottom), (left, bottom), (left, top + 1)]:
        page.mouse.move(x, y, steps=4)
    page.mouse.up()
    page.wait_for_selector("#map h3:text-is('Lasso')")
    told = page.locator("#map .map-side h3:text-is('Lasso') + p").inner_text()
    found = number(told.split(" token")[0])
    inside = page.evaluate(
        """([left, right, top, bottom]) => {
            const { xaxis, yaxis } = document.querySelector(".map-plot")._fullLayout;
            const box = document.querySelector(".map-plot").getBoundingClientRect();
            const x = (pixel) => xaxis.p2l(pixel - box.left - xaxis._offset);
            const y = (pixel) => yaxis.p2l(pixel - box.top - yaxis._offset);
            return [x(left), x(right), y(bottom), y(top)];
        }""",
        [left, right, top, bottom],
    )
    within = (at[:, 0] > inside[0]) & (at[:, 0] < inside[1]) & (at[:, 1] > inside[2]) & (at[:, 1] < inside[3])
    assert found == pytest.approx(within.sum(), rel=0.05)
    names = page.locator("#map .map-side .hits .token").all_inner_texts()
    assert set(names) <= set(small_site.table.vocab)
    assert 0 < len(names) <= 300


def test_three_dimensions(visit, small_site):
    page = open_map(visit, small_site, dims=3, id=small_site.table.vocab.id("king"))
    chosen(page, "king")
    traces = json.loads(page.evaluate(POINTS))
    assert {len(trace) for trace in traces} == {3}
    assert page.get_by_role("button", name="Drag draws a lasso").is_disabled()


def test_a_map_that_takes_long_shows_how_far_it_is(visit, small_site):
    page = visit(small_site, view="walk")
    answers = iter([{"running": True, "fraction": 0.25}, {"running": True, "fraction": 0.5}])

    def slow(route):
        waiting = next(answers, None)
        if waiting is None:
            route.continue_()
        else:
            route.fulfill(status=202, json=waiting)

    page.route("**/api/map*", slow)
    page.get_by_role("navigation").get_by_role("link", name="Map").click()
    page.wait_for_selector("#map progress")
    assert "%" in page.locator("#map .progress-line").inner_text()
    page.wait_for_function(READY)
    page.wait_for_selector("#map progress", state="detached")


def test_the_map_fits_a_phone(visit, small_site):
    page = visit(small_site, PHONE, view="map", color="norm")
    page.wait_for_function(READY)
    assert too_wide(page) == []


def test_long_names_are_cut_in_the_legend(visit, hostile_site):
    page = visit(hostile_site, PHONE, view="map", color="cluster", k=9)
    page.wait_for_selector("#map .swatches button")
    wide = page.evaluate(
        """() => [...document.querySelectorAll("#map .swatches, #map .swatches button")]
            .filter((one) => one.scrollWidth > one.clientWidth + 1).length"""
    )
    assert wide == 0
    titles = page.locator("#map .swatches button").evaluate_all("(all) => all.map((one) => one.title.length)")
    assert max(titles) > 100


def test_titles_in_space_are_short_where_there_is_little_room(visit, small_site):
    titles = """() => ["xaxis", "yaxis", "zaxis"].map(
        (name) => document.querySelector(".map-plot").layout.scene[name].title.text)"""
    page = visit(small_site, PHONE, view="map", dims=3)
    page.wait_for_function(READY)
    assert page.evaluate(titles) == ["PC 1", "PC 2", "PC 3"]
    assert "% of the variance" in page.locator("#map .caption").inner_text()
    page = visit(small_site, view="map", dims=3)
    page.wait_for_function(READY)
    assert "% of the variance" in page.evaluate(titles)[0]


def test_what_an_address_asks_wrongly_is_said_and_put_right(visit, small_site):
    page = open_map(visit, small_site, color="shape", id="x", method="mds")
    told = page.locator("#message").inner_text()
    assert "Projection (method) 'mds' is not known; allowed: pca, tsne, umap; showing PCA." in told
    assert "Color 'shape' is not known; allowed: kind, cluster, norm, honesty; showing" in told
    assert "Id must be from 0 to 1,999, found 'x'; showing no token chosen." in told
    assert page.url.endswith("?view=map")


def test_an_unknown_view_of_a_table_without_a_walk_shows_the_map(visit, odd_site):
    pieces = odd_site(np.eye(4), ["▁the", "▁cat", "▁sat", "s"], "sentencepiece")
    page = visit(pieces, view="plan")
    page.wait_for_function(READY)  # its tokenizer is missing: the map is what it can show
    assert (
        page.locator("#message").inner_text()
        == "View 'plan' is not known; allowed: walk, map, query; showing map."
    )
    assert page.url.endswith("?view=map")


def test_a_table_without_a_walk_opens_on_its_map(visit, odd_site):
    page = visit(odd_site(np.eye(4), ["▁the", "▁cat", "▁sat", "s"], "sentencepiece"))
    page.wait_for_function(READY)
    assert page.title().startswith("Map – ")
    page.get_by_role("navigation").get_by_role("link", name="Walk").click()
    page.locator("#walk").get_by_role("link", name="Query").click()
    page.wait_for_selector("#query .hits li")
    assert page.title().startswith("Query – ")


def test_ticks_of_tiny_numbers_need_no_inline_style(visit, odd_site):
    rows = np.random.default_rng(0).normal(size=(30, 4)) * 1e-30
    page = open_map(visit, odd_site(rows))  # `visit` sees whether the policy refuses a style
    ticks = page.locator(".map-plot .xtick").all_text_contents()
    assert any("e" in tick for tick in ticks)


def test_what_is_too_small_for_a_map_is_said(visit, odd_site):
    page = visit(odd_site(np.zeros((6, 4))), view="map", color="cluster")
    page.wait_for_selector("#map .progress-line.error")
    assert (
        "No row of this table that a token names has a direction"
        in page.locator("#map .progress-line").inner_text()
    )
    page = visit(odd_site(np.ones((5, 1))), view="map")
    assert page.locator("#map").inner_text() == (
        "A map needs two rows and two dimensions; this table is 5 × 1."
    )
    page = visit(odd_site(np.arange(10).reshape(5, 2)), view="map", dims=3)
    page.wait_for_function(READY)
    assert page.locator("#message").inner_text() == (
        "Dimensions (dims) '3' is not known; allowed: 2; showing two dimensions."
    )
    assert page.get_by_label("Dimensions").locator("option").all_inner_texts() == ["2"]


def test_a_table_of_one_dimension_has_two_switches(visit, odd_site):
    page = visit(odd_site(np.arange(5).reshape(5, 1)), view="query", q="t1")
    page.wait_for_selector("#query .hits li")
    assert page.locator("#query .column h3").all_inner_texts() == ["raw", "centered"]
    assert page.get_by_label("Top directions removed").count() == 0
    assert "two ways" in page.locator("#query .status").inner_text()
