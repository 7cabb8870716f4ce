"""Answers that come too late: whoever has gone on is shown, and told, nothing of them."""

import pytest

from .seen import lines
from .test_page_map import READY, chosen

pytestmark = pytest.mark.browser

LATE = """async () => {
    const { ask } = await import("./static/api.js");
    const going = new AbortController();
    const fetched = window.fetch;
    let status = 202;
    const json = () => { going.abort(); return Promise.resolve({ running: true, fraction: 0.5 }); };
    window.fetch = () => {
        const response = { ok: true, status, json };
        status = 200;
        return Promise.resolve(response);
    };
    const told = [];
    try {
        await ask("map", {}, { signal: going.signal, progress: (fraction) => told.push(fraction) });
    } catch (error) {
        told.push(error.name);
    }
    window.fetch = fetched;
    return told;
}"""


def held(page, pattern):
    """From now on such requests wait in this list; ``let(page, held, n)`` waits until there are ``n``."""
    waiting = []
    page.route(pattern, lambda route: waiting.append(route))
    return waiting


def let(page, waiting, n):
    for _ in range(200):
        if len(waiting) >= n:
            break
        page.wait_for_timeout(20)
    assert len(waiting) == n
    return waiting[-1]


@pytest.mark.parametrize(
    ("begin", "drawn"),
    [("output", "#walk .scores"), ("predict", "#walk svg.strip")],
    ids=["scores", "gradient"],
)
def test_a_step_left_before_its_answer_says_nothing(visit, builtin_site, begin, drawn):
    page = visit(builtin_site, view="walk", text="the cat", step=begin)
    page.wait_for_selector("#walk .scores" if begin == "predict" else "#walk .numbers td")
    own = page.locator("#walk .panel .note").all_inner_texts()
    waiting = held(page, "**/api/walk*")
    page.keyboard.press("ArrowRight")
    let(page, waiting, 1)
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(100)
    assert page.locator("#walk .panel .note").all_inner_texts() == own
    page.keyboard.press("ArrowRight")
    last = let(page, waiting, 2)
    page.wait_for_timeout(100)
    assert page.locator("#walk .panel .note").count() == 0
    assert page.locator("#walk").locator("[aria-busy]").count() == 1
    last.continue_()
    page.wait_for_selector(drawn)
    assert page.locator(drawn).count() == 1
    assert page.locator("#walk .waiting").count() == 0


def test_a_text_left_before_its_walk_is_not_shown(visit, builtin_site):
    page = visit(builtin_site, view="walk", text="the cat", step="lookup")
    before = lines(page)
    waiting = held(page, "**/api/walk*")
    page.get_by_label("Text", exact=True).fill("a dog")
    page.get_by_role("button", name="Walk", exact=True).click()
    late = let(page, waiting, 1)
    page.go_back()
    page.wait_for_function("document.querySelector('#walk input').value === 'the cat'")
    late.continue_()
    page.wait_for_timeout(300)
    assert lines(page) == before
    assert page.locator("#walk").locator("[aria-busy]").count() == 0


def test_a_token_found_late_takes_nobody_back(visit, small_site):
    page = visit(small_site, view="map")
    page.wait_for_function(READY)
    waiting = held(page, "**/api/complete*")
    page.get_by_label("Find a token").fill("king")
    page.keyboard.press("Enter")
    while not any("n=1&" in f"{route.request.url}&" for route in waiting):
        page.wait_for_timeout(20)
    page.get_by_role("link", name="Query").click()
    page.wait_for_selector("#query .hits li")
    address = page.url
    for route in waiting:
        route.continue_()
    page.wait_for_timeout(300)
    assert page.url == address
    page.get_by_role("link", name="Map").click()
    page.wait_for_function(READY)
    assert page.locator("#map .map-side h3 .token").count() == 0


def test_a_proposal_for_less_is_not_taken_for_more(visit, small_site):
    page = visit(small_site, view="map")
    page.wait_for_function(READY)
    field = page.get_by_label("Find a token")
    field.press_sequentially("kin")
    page.wait_for_selector("#map [role=option]")
    field.press("ArrowDown")
    page.wait_for_selector("#map [role=option][aria-selected=true]")
    field.fill("queen")
    assert page.locator("#map [role=option][aria-selected=true]").count() == 0
    field.press("Enter")
    chosen(page, "queen")


def test_an_answer_that_is_no_longer_wanted_is_none(visit, small_site):
    page = visit(small_site, view="query")
    assert page.evaluate(LATE) == ["AbortError"]


@pytest.mark.parametrize(
    ("state", "path", "label", "columns"),
    [
        ({"view": "query", "ask": "neighbors", "id": 5}, "neighbors", "Word or token", 3),
        ({"view": "query", "ask": "similarity", "a_id": 5, "b_id": 6}, "similarity", "First word", 3),
        ({"view": "query", "ask": "analogy", "a_id": 5, "b_id": 6, "c_id": 7}, "analogy", "as c", 3),
        ({"view": "map", "id": 5}, "neighbors", "Find a token", 1),
    ],
    ids=["neighbors", "similarity", "analogy", "map"],
)
def test_an_answer_leaves_what_is_typed_meanwhile(visit, small_site, state, path, label, columns):
    page = visit(small_site, view="walk")  # whose routes are in place before the question is asked
    waiting = held(page, f"**/api/{path}*")
    page.goto(small_site.address(**state))
    field = page.get_by_label(label, exact=True)
    page.wait_for_selector("#opening", state="hidden")
    let(page, waiting, columns)
    field.fill("kin")
    page.wait_for_selector(f"#{state['view']} [role=option]")
    page.route(f"**/api/{path}*", lambda route: route.continue_())
    for route in waiting:
        route.continue_()
    page.wait_for_selector("#query .hits li, #query .measures td, #map .map-side h3 .token")
    assert field.input_value() == "kin"
    assert page.locator("[role=option]").count() > 0
