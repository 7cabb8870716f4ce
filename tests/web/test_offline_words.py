"""Words and refusals of the page that is one file: the server's own."""

from urllib.parse import quote

import numpy as np
import pytest

from tokenspace.errors import TokenspaceError
from tokenspace.table import Table
from tokenspace.vocab import Vocab
from tokenspace.web.answers import as_text
from tokenspace.web.calls import CALLS, answer
from tokenspace.web.explorer import Explorer
from tokenspace.web.export import export

from . import hostile

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def explorer():
    return Explorer(hostile.table(dim=12))


@pytest.fixture(scope="module")
def page(browser, explorer, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "page.html"
    export(explorer, path)
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("#opening", state="hidden")
    yield page
    context.close()


def told(page, call, query):
    """What the file says to a call, or refuses."""
    return page.evaluate(
        """([call, query]) => {
            const given = {};
            for (const [key, value] of new URLSearchParams(query)) (given[key] ??= []).push(value);
            for (const key of Object.keys(given)) if (given[key].length === 1) given[key] = given[key][0];
            return modules["api.js"].ask(call, given).then((found) => found, (error) => error.message);
        }""",
        [call, query],
    )


def said(explorer, call, query):
    """The same of the server."""
    try:
        return answer(explorer, CALLS[call], query.encode())
    except TokenspaceError as error:
        return str(error)


@pytest.mark.parametrize(
    ("call", "query"),
    [
        ("neighbors", "q=king&k=0"),
        ("neighbors", "q=king&k=1001"),
        ("neighbors", "q=king&metric=l1"),
        ("neighbors", "id=17"),
        ("neighbors", "id=99999"),
        ("neighbors", "q=king&remove=11"),
        ("neighbors", "q=" + "x" * 2_001),
        ("similarity", "a_id=17&b=king"),
        ("analogy", "a=king&b=king&c=king&k=2000"),
        ("analogy", "a=king&b=king&c=king&method=l2"),
        ("heatmap", ""),
        ("heatmap", "&".join(["q=king"] * 65)),
    ],
)
def test_a_refusal_is_the_servers_sentence(page, explorer, call, query):
    expected = said(explorer, call, query)
    if "remove=" in query:  # a file holds 10 directions at most
        expected = "top directions removed (remove) must be from 0 to 10, found 11"
    assert isinstance(expected, str)
    assert told(page, call, query) == expected


def test_an_unknown_word_begins_as_the_servers_sentence(page, explorer):
    start, _, _ = said(explorer, "neighbors", "q=quene").partition(";")
    assert start == "'quene' is not one of the 17 tokens of this vocabulary"
    assert told(page, "neighbors", "q=quene").startswith(f"{start}, and a file has no tokenizer to split it")


@pytest.mark.parametrize(
    "typed",
    [
        "king",
        r"'line\nbreak'",
        r"'\x00\x1b[31m'",
        "\ufffd\ufffd",
        "' '",
        "'\\'\"`\\\\'",
        "'king'",
        '" "',
        "''",
    ],
)
def test_a_token_typed_as_it_is_shown_is_the_servers(page, explorer, typed):
    expected = said(explorer, "neighbors", f"k=1&q={quote(typed)}")
    found = told(page, "neighbors", f"k=1&q={quote(typed)}")
    if isinstance(expected, str):
        assert "is not one of the 17 tokens" in found
        return
    for key in ("ids", "also", "tokens", "word"):
        mine = [as_text(one) if isinstance(one, str) else one for one in [expected["query"][key]]]
        mine = [as_text(one) for one in mine[0]] if key == "tokens" else mine[0]
        assert found["query"][key] == mine
    completed = [each["id"] for each in told(page, "complete", f"prefix={quote(typed)}")["tokens"]]
    assert completed == [each["id"] for each in explorer.complete(typed)["tokens"]]


def test_ids_that_look_alike_are_told_as_by_the_server(page, explorer):
    for query in ("a=king&b=King&c=kings", "a_id=11&b=King&c=kings"):
        assert told(page, "analogy", query)["words"] == said(explorer, "analogy", query)["words"]
    rows = told(page, "heatmap", "q=king&q=King")["rows"]
    assert [row["also"] for row in rows] == [[14], []]


SPELLINGS = ["Ġthe", "ĠcafÃ©", "čas", "<|čas|>", "ĠÎ»ÏĮγος", "Ġstraße", "plain"]
PLAIN = ["the", "cafe\u0301", "Å", "ti\u00ea\u0301ng", "ΛΟΓΟΣ", "λογος", "Straße"]


@pytest.mark.parametrize("encoding", ["byte-level", "word"])
def test_spellings_are_the_servers(browser, encoding, rng, tmp_path):
    special, added = ([3], [2]) if encoding == "byte-level" else ([], [])
    tokens = SPELLINGS if encoding == "byte-level" else PLAIN
    vocab = Vocab(tokens, special=special, encoding=encoding, added=added)
    explorer = Explorer(Table(rng.normal(size=(len(vocab), 4)).astype(np.float32), vocab))
    export(explorer, tmp_path / "page.html")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("#opening", state="hidden")
    words = ("café", "cafe\u0301", "čas", "čas", "\ras", "ΛΟΓΟΣ", "λογοσ", "A\u030a", "ti\u1ebfng", "STRASSE")
    for word in words:
        query = f"prefix={quote(word)}"
        found, expected = told(page, "complete", query), said(explorer, "complete", query)
        assert found["tokens"] == expected["tokens"], word
        query = f"q={quote(word)}&k=2"
        found, expected = told(page, "neighbors", query), said(explorer, "neighbors", query)
        assert isinstance(found, str) == isinstance(expected, str), word
        if not isinstance(found, str):
            assert found["query"] == expected["query"], word
    context.close()
