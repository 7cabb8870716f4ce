"""No view scrolls sideways, however narrow the window and however long what it shows."""

import pytest

from tokenspace.walk import Pipeline
from tokenspace.web.explorer import Explorer

from .conftest import PHONE, WORST_TEXT, Site, serving
from .seen import too_wide

pytestmark = pytest.mark.browser

NARROW = {"width": 320, "height": 740}
STEPS = ["ids", "lookup", "position", "output", "predict", "gradient"]


@pytest.fixture(scope="module")
def far_site(minilm_folder, tmp_path_factory):
    """A checkpoint whose path has no place to break a line at, and is said in notes, errors and the head."""
    folder = tmp_path_factory.mktemp("far") / ("x" * 200)
    folder.mkdir()
    for file in minilm_folder.iterdir():
        (folder / file.name).symlink_to(file)
    explorer = Explorer.open(folder)
    with serving(explorer) as url:
        yield Site(url, explorer.table, Pipeline.open(folder))


@pytest.mark.parametrize("viewport", [PHONE, NARROW], ids=["phone", "narrow"])
@pytest.mark.parametrize(
    "state",
    [
        *({"view": "walk", "step": step} for step in STEPS),
        {"view": "walk", "step": "ids", "text": "x" * 400},
        *({"view": "query", "ask": ask} for ask in ("neighbors", "similarity", "analogy")),
        {"view": "query", "ask": "neighbors", "token": "x" * 400},
    ],
    ids=lambda state: "-".join(text[:10] for text in state.values()),
)
def test_a_long_path_and_a_long_text(visit, far_site, viewport, state):
    page = visit(far_site, viewport, **state)
    page.wait_for_selector(f"#{state['view']} :is(.chips, .cards, .numbers td, .scores, .status.error)")
    assert too_wide(page) == []
    page.locator(".about summary").click()
    assert too_wide(page) == []


@pytest.mark.parametrize("step", STEPS)
def test_hostile_tokens(visit, hostile_site, step):
    page = visit(hostile_site, NARROW, view="walk", text=WORST_TEXT, step=step)
    page.wait_for_selector("#walk :is(.cards, .numbers td, .scores)")
    assert too_wide(page) == []
