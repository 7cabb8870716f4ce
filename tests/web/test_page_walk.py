"""The walk in a browser: its numbers are the library's."""

import numpy as np
import pytest

import tokenspace as ts
from tokenspace.web.explorer import Explorer

from . import hostile
from .conftest import DESKTOP, PHONE, Site, serving
from .seen import lines, number, numbers, too_wide, written

pytestmark = pytest.mark.browser

TEXT = "the king and the queen"


@pytest.fixture
def walked(site):
    pipeline = site.pipeline
    (walk,) = pipeline.walk([TEXT])
    return pipeline, walk


def shown_rows(page):
    return [cells for _, cells in lines(page)]


def as_shown(rows, start, columns):
    return [[written(float(x)) for x in row[start : start + columns]] for row in rows]


def test_each_token_has_the_librarys_id(visit, site, walked):
    page = visit(site, view="walk", text=TEXT, step="ids")
    page.wait_for_selector("#walk .cards")
    cards = page.locator("#walk .cards li").all_inner_texts()
    assert [int(number(card.split("\n")[2])) for card in cards] == [token.id for token in walked[1].tokens]
    assert page.get_by_text("occurs 2 times").count() >= 1


def test_rows_are_the_tables_own(visit, site, walked):
    page = visit(site, view="walk", text=TEXT, step="lookup")
    shown = shown_rows(page)
    ids = [token.id for token in walked[1].tokens]
    assert shown == as_shown(site.table.lookup(ids), 0, len(shown[0]))


def test_a_repeated_token_picks_one_row_with_two_lines(visit, site, walked):
    page = visit(site, view="walk", text=TEXT, step="lookup")
    ids = [token.id for token in walked[1].tokens]
    assert ids.count(site.table.vocab.find("the").id) == 2
    page.wait_for_selector("#walk svg.strip")
    paths = page.locator("#walk svg.strip > g:not(.strip-row) > path.strip-line.again").all()
    assert len(paths) == 2
    ends = {path.get_attribute("d").rsplit(" ", 1)[1] for path in paths}
    assert len(ends) == 1, "the two lines end at one place"
    labels = page.locator("#walk .strip-row .strip-label").all_text_contents()
    assert labels == [f"row {i:,}" for i in sorted(set(ids))]


def test_every_sum_is_what_stands_above_it(visit, site, walked):
    _, walk = walked
    page = visit(site, view="walk", text=TEXT, step="position")
    shown = shown_rows(page)
    before = walk.steps["scaled"] if "scaled" in walk.steps else walk.steps["lookup"]
    added = walk.steps["position"]
    columns = len(shown[0])
    for part, rows in enumerate([before, added, before + added]):
        assert shown[part::3] == as_shown(rows, 0, columns)


def test_the_last_step_is_the_transformers_input(visit, site, walked):
    page = visit(site, view="walk", text=TEXT, step="output", dim=37)
    shown = shown_rows(page)
    assert shown == as_shown(walked[1].output, 37, len(shown[0]))


def test_layer_norm_stands_beside_the_sum(visit, minilm_site):
    (walk,) = minilm_site.pipeline.walk([TEXT])
    page = visit(minilm_site, view="walk", text=TEXT, step="normalized")
    shown = shown_rows(page)
    total = walk.steps["lookup"] + walk.steps["position"] + walk.steps["segment"]
    assert shown[0::2] == as_shown(total, 0, len(shown[0]))
    assert shown[1::2] == as_shown(walk.steps["normalized"], 0, len(shown[0]))


def test_a_pair_has_two_segments(visit, minilm_site):
    page = visit(minilm_site, view="walk", text="the king", pair="a queen", step="segment")
    (walk,) = minilm_site.pipeline.walk(["the king"], "a queen")
    labels = [label for label, _ in lines(page)][1::3]
    assert labels == [f"+ segment {token.segment}" for token in walk.tokens]
    assert labels.count("+ segment 1") == 3


def test_a_table_without_segments_of_its_own_says_that_they_are_random(visit, builtin_site):
    page = visit(builtin_site, view="walk", text=TEXT, recipe="bert", step="segment")
    lines(page)
    assert "drawn at random, untrained" in page.locator("#walk .panel").inner_text()
    page = visit(builtin_site, view="walk", text=TEXT, step="position")
    lines(page)
    assert "random" not in page.locator("#walk .panel").inner_text()


def test_scores_are_the_heads(visit, site, walked):
    pipeline, walk = walked
    page = visit(site, view="walk", text=TEXT, step="predict")
    page.wait_for_selector("#walk .scores")
    assert "No transformer body" in page.locator("#walk .panel").inner_text()
    shown = page.locator("#walk .scores .bars li").all_inner_texts()
    expected = [candidate for position in pipeline.predict(walk) for candidate in position]
    assert len(shown) == len(expected)
    for text, candidate in zip(shown, expected, strict=True):
        token, logit, share = text.split("\n")
        assert token == candidate.token
        assert logit == f"logit {written(candidate.logit, 2)}"
        assert share == f"{100 * candidate.probability:.1f}\u00a0%"


def test_two_positions_gradients_sum_into_one_row(visit, site, walked):
    pipeline, walk = walked
    gradient = pipeline.gradient(walk)
    page = visit(site, view="walk", text=TEXT, step="gradient")
    shown = lines(page)
    facts = page.locator("#walk .panel .facts").inner_text()
    assert f"{written(gradient.loss, 4)} nats" in facts
    assert f"{gradient.rows_moved:,} of {gradient.rows_in_table:,}" in facts
    the = next(row for row in gradient.rows if row.token == "the")
    assert len(the.positions) == 2
    assert page.locator("#walk .sum-sign").count() == 1 + sum(
        len(row.positions) > 1 for row in gradient.rows if row.token != "the"
    )
    tied = gradient.rows_moved_by_head > 0
    passed_on = ["= through lookup", "+ through head"] if tied else []
    total = "= total" if tied else "= gradient"
    first, second = the.positions
    expected = [f"the from {first}", f"+ from {second}", *passed_on, total, "row", "row after"]
    shown = shown[: len(expected)]
    assert [" ".join(label.split()) for label, _ in shown] == expected
    parts = np.array([[number(cell) for cell in cells] for _, cells in shown])
    np.testing.assert_allclose(parts[0] + parts[1], parts[2], atol=0.0015)
    if tied:
        np.testing.assert_allclose(parts[2] + parts[3], parts[4], atol=0.0015)
        place = [row.token for row in gradient.rows].index("the")
        head = as_shown([gradient.by_head[place]], 0, parts.shape[1])[0]
        assert shown[3][1] == head
    np.testing.assert_allclose(parts[-2] - 0.1 * parts[-3], parts[-1], atol=0.0015)
    assert written(the.gradient) in page.locator("#walk svg.strip").text_content()


def test_the_last_position_of_a_tied_table_has_no_target_and_moves_all_the_same(visit, builtin_site):
    (walk,) = builtin_site.pipeline.walk("the cat sat")
    sat = builtin_site.pipeline.gradient(walk).rows[-1]
    page = visit(builtin_site, view="walk", text="the cat sat", step="gradient")
    labels = [" ".join(label.split()) for label, _ in lines(page)]
    at = labels.index("sat from 2 no target")
    assert labels[at + 1 : at + 3] == ["+ through head", "= total"]
    assert written(sat.gradient) in page.locator("#walk svg.strip").text_content()
    told = page.locator("#walk .panel").inner_text()
    assert "ln 33,003 = 10.4 nats" in told
    assert "The table is used twice" in told
    most = builtin_site.pipeline.gradient(walk).costliest
    costs = f"{most.position}, {written(most.loss, 2)} nats: {most.best} is scored {written(most.margin, 2)} "
    assert f"{costs}above {most.next}" in told


def test_a_phone_shows_each_rows_numbers_and_whole_labels(visit, builtin_site):
    (walk,) = builtin_site.pipeline.walk("the cat sat")
    page = visit(builtin_site, PHONE, view="walk", text="the cat sat", step="gradient")
    lines(page)
    told = page.locator("#walk .picture-of-step").inner_text()
    for row in builtin_site.pipeline.gradient(walk).rows:
        parts = f"lookup {written(row.gradient_lookup, 2)}, head {written(row.gradient_head, 2)}"
        assert f"{parts}; cosine {written(row.cosine, 4)}" in told
    cut = """() => [...document.querySelectorAll("#walk .numbers tbody th")]
        .filter((label) => label.scrollWidth > label.clientWidth || label.scrollHeight > label.clientHeight)
        .map((label) => label.textContent)"""
    assert page.evaluate(cut) == []


def test_a_token_read_as_a_row_of_zeros_says_so(visit, builtin_site):
    page = visit(builtin_site, view="walk", text="the blorfle", step="predict")
    page.wait_for_selector("#walk .scores")
    assert "[UNK]: read as a row of zeros, never trained" in page.locator("#walk .panel").inner_text()
    page = visit(builtin_site, view="walk", text="the blorfle cat", step="gradient", recipe="llama")
    lines(page)
    assert "NaN" not in page.locator("#walk .panel").inner_text()


def test_the_walk_ends_on_what_to_read_next(visit, builtin_site):
    page = visit(builtin_site, view="walk", text="the cat", step="output")
    lines(page)
    assert not page.locator("#walk .reading").is_visible()
    page = visit(builtin_site, view="walk", text="the cat", step="gradient")
    lines(page)
    told = page.locator("#walk .reading").inner_text()
    assert told.startswith("What to read next")
    for part in (
        "docs/concepts.md",
        "docs/learning.md",
        "Attention Is All You Need",
        "Rotary Position Embedding",
    ):
        assert part in told


def test_a_text_that_the_tokenizer_changes_is_said_beside_its_tokens(visit, builtin_site):
    page = visit(builtin_site, view="walk", text="The cat", step="tokens")
    page.wait_for_selector("#walk .chips")
    note = " ".join(page.locator("#walk .panel").inner_text().split())
    assert "The tokenizer changes the text before it splits it: The → the." in note
    page = visit(builtin_site, view="walk", text="the cat", step="tokens")
    page.wait_for_selector("#walk .chips")
    assert "changes the text" not in page.locator("#walk .panel").inner_text()


def test_a_table_of_words_names_what_it_leaves_out(visit, odd_site):
    site = odd_site(np.arange(20.0).reshape(5, 4) / 10, ["a", "cat", "sat", "on", "mat"])
    page = visit(site, view="walk", text="the cat sat.", step="tokens")
    page.wait_for_selector("#walk .chips")
    assert page.locator("#walk .chips li").all_inner_texts() == ["cat", "sat"]
    note = " ".join(page.locator("#walk .panel").inner_text().split())
    assert "Not in the vocabulary, which has no unknown token: the, .. Left out." in note


def test_skip_grams_contexts_score_the_looked_up_row(visit):
    whole = hostile.walking_table()
    rows = np.where(np.arange(len(whole))[:, None] < 3, 0, whole.weight)
    made = {"objective": "skip-gram with negative sampling"}
    table = ts.Table(whole.weight, whole.vocab, whole.tokenizer, -rows, made)
    with serving(Explorer(table)) as url:
        page = visit(Site(url, table), view="walk", text="the cat", step="predict")
        page.wait_for_selector("#walk .scores")
        assert page.locator("#walk .formula").inner_text() == "logits = E[id] · O.T"
        told = " ".join(page.locator("#walk .panel").inner_text().split())
        assert "so skip-gram was trained" in told
        assert "Left out: 3 rows of zeros, never trained: [PAD], [UNK], [SEP]." in told
        shown = page.locator("#walk .scores .bars li").all_inner_texts()
        assert not any(text.startswith("[") for text in shown)


def test_one_token_has_no_gradient_and_says_why(visit, builtin_site):
    page = visit(builtin_site, view="walk", text="king", step="gradient")
    page.wait_for_selector("#walk .panel .note")
    assert "at least two tokens" in page.locator("#walk .panel .note").last.inner_text()


def test_steps_go_on_by_button_key_and_play(visit, builtin_site):
    page = visit(builtin_site, fresh=True, view="walk", text=TEXT)
    page.wait_for_selector("#walk .chips")
    page.clock.install()
    heading = page.locator("#walk h2")
    page.get_by_role("button", name="Step →").click()
    assert heading.inner_text() == "ids"
    page.locator("#main").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#walk h2:text-is('rows')")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#walk h2:text-is('ids')")
    page.get_by_role("button", name="▶ Play").click()
    page.clock.run_for(2700)
    page.wait_for_selector("#walk h2:text-is('rows')")
    page.get_by_role("button", name="❚❚ Pause").click()
    page.clock.run_for(10_000)
    assert heading.inner_text() == "rows"
    assert "step=lookup" in page.url


def test_arrow_keys_walk_the_numbers_from_cell_to_cell(visit, builtin_site):
    page = visit(builtin_site, view="walk", text=TEXT, step="lookup")
    lines(page)
    page.locator("#walk td.cell").first.focus()
    for key in ["ArrowDown", *["ArrowRight"] * 20]:
        page.keyboard.press(key)
    word = builtin_site.table.lookup([builtin_site.table.vocab.find("king").id])[0]
    readout = page.locator("#walk .readout").inner_text()
    assert readout.startswith("king, row")
    assert "dimension 20:" in readout
    assert numbers(readout)[-1] == pytest.approx(float(word[20]), rel=1e-6)
    assert page.locator("#walk h2").inner_text() == "rows"


def test_back_forward_and_reload_keep_the_walk(visit, builtin_site):
    page = visit(builtin_site, view="walk", text=TEXT, step="lookup")
    lines(page)
    page.get_by_role("button", name="Later dimensions").click()
    second = shown_rows(page)
    page.get_by_label("Text", exact=True).fill("a dog")
    page.get_by_role("button", name="Walk", exact=True).click()
    page.wait_for_function("document.querySelectorAll('#walk .numbers tbody tr').length === 2")
    page.go_back()
    page.wait_for_function("document.querySelectorAll('#walk .numbers tbody tr').length === 5")
    assert shown_rows(page) == second
    page.reload()
    assert shown_rows(page) == second
    assert page.get_by_label("Text", exact=True).input_value() == TEXT
    page.go_forward()
    page.wait_for_function("document.querySelectorAll('#walk .numbers tbody tr').length === 2")


def test_a_text_that_is_refused_is_answered_in_words(visit, builtin_site):
    page = visit(builtin_site, view="walk", text=TEXT)
    page.wait_for_selector("#walk .chips")
    page.route("**/api/walk*", lambda route: route.fulfill(status=400, json={"error": "no such luck"}))
    page.get_by_label("Text", exact=True).fill("a dog")
    with page.expect_response("**/api/walk*"):
        page.get_by_role("button", name="Walk", exact=True).click()
    page.wait_for_selector("#walk .status.error")
    assert page.locator("#walk .status").inner_text() == "No such luck"


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("view", ["walk", "query"])
def test_the_page_fits_and_names_its_controls(visit, minilm_site, viewport, view):
    page = visit(minilm_site, viewport, view=view, step="gradient", ask="analogy")
    page.wait_for_selector(f"#{view} .numbers td")
    assert too_wide(page) == []
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button")]
            .filter((one) => one.offsetParent)
            .filter((one) => !one.labels?.length && !one.ariaLabel && !one.innerText?.trim())
            .map((one) => one.outerHTML)"""
    )
    assert unnamed == []


CUT = """() => {
    const picture = document.querySelector("#walk svg.strip");
    if (!picture || picture.viewBox.baseVal.width !== picture.parentElement.clientWidth) return null;
    const box = (node) => node.getBoundingClientRect();
    const cut = (text) => box(text).left < box(picture).left || box(text).right > box(picture).right;
    return [...picture.querySelectorAll("text")].filter(cut).map((text) => text.textContent);
}"""


@pytest.mark.parametrize("step", ["lookup", "gradient"])
def test_no_picture_is_cut(visit, minilm_site, step):
    page = visit(minilm_site, view="walk", text=TEXT, step=step)
    try:
        for width in (360, 600, 690, 768, 900):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.wait_for_function(CUT).json_value() == []
    finally:
        page.set_viewport_size(DESKTOP)


def patched(page, **changes):
    """From now on each walk's document comes with these changes."""

    def answer(route):
        document = route.fetch().json()
        route.fulfill(json={**document, **changes})

    page.route("**/api/walk*", answer)


HEAD = {
    "tied": True,
    "width": 100,
    "bias": False,
    "hidden_scale": None,
    "logit_scale": None,
    "soft_cap": None,
}


@pytest.mark.parametrize(
    ("head", "formula", "sentence"),
    [
        ({}, "logits = hidden · E.T", "the head is tied. Softmax"),
        ({"hidden_scale": 0.1}, "logits = (0.1 hidden) · E.T", "multiplied with 0.1 = 1 / √D."),
        ({"bias": True}, "logits = hidden · E.T + b", "bias b adds a number for each token"),
        (
            {"bias": True, "logit_scale": 0.0625},
            "logits = 0.0625 × (hidden · E.T + b)",
            "The scores are multiplied with 0.0625.",
        ),
        ({"soft_cap": 30.0}, "logits = 30 tanh((hidden · E.T) / 30)", "tanh bends them into ±30."),
    ],
)
def test_scores_say_what_this_head_does(visit, builtin_site, head, formula, sentence):
    page = visit(builtin_site, view="query")
    patched(page, head={**HEAD, **head})
    page.goto(builtin_site.address(view="walk", text="the cat", step="predict"))
    page.wait_for_selector("#walk .scores")
    assert page.locator("#walk .formula").inner_text() == formula
    assert sentence in page.locator("#walk .panel").inner_text()


def test_a_head_of_another_width_leaves_its_two_steps_out(visit, builtin_site):
    page = visit(builtin_site, view="query")
    patched(page, head={**HEAD, "width": 64})
    page.goto(builtin_site.address(view="walk", text="the cat", step="predict"))
    page.wait_for_selector("#walk .chips")
    assert page.locator("#walk .stepper li").all_inner_texts()[-1] == "input"
    told = page.locator("#message").inner_text()
    assert told == "Step 'predict' is not one of this walk; showing tokens."
    assert "step=" not in page.url
    page.get_by_role("button", name="input", exact=True).click()
    page.wait_for_selector("#walk h2:text-is('input')")
    assert "the head takes width 64, these vectors have 100" in page.locator("#walk .panel").inner_text()
    assert not page.locator("#message").is_visible()


def test_the_scales_reason_is_this_recipes(visit, builtin_site):
    page = visit(builtin_site, view="walk", text="the cat", step="scaled")
    lines(page)
    assert "√D, so that positions" in page.locator("#walk .panel").inner_text()
    assert page.title().startswith("Walk – wordnet")
    steps = {name: [[0.5, 1.0]] * 2 for name in ("lookup", "scaled", "output")}
    patched(page, scale=4.90625, d_model=24, steps=steps)
    page.reload()
    lines(page)
    told = page.locator("#walk .panel").inner_text()
    assert "√24 ≈ 4.9063" in told
    assert "√D rounded to bfloat16." in told
    assert "positions" not in told
