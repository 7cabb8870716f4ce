"""The page as one file, opened from a disk in a browser that is offline."""

import contextlib
import json
import re

import ml_dtypes
import numpy as np
import pytest

import tokenspace as ts
from tokenspace.errors import CorpusError, OutputError, ShapeError
from tokenspace.geometry.kept import kept
from tokenspace.geometry.projection import project
from tokenspace.web import export as export_module
from tokenspace.web.answers import as_json, unpacked
from tokenspace.web.explorer import Explorer
from tokenspace.web.export import Written, export

from . import hostile

pytestmark = pytest.mark.browser
SWITCHES = [{}, {"center": True}, {"remove": 2}]


@pytest.fixture(scope="module")
def table():
    """Enough rows to cluster, the hostile tokens among them, and a tokenizer."""
    walking = hostile.walking_table(dim=12)
    tokens = [*walking.vocab, *hostile.TOKENS, "[unused-row-24]"]
    tokens += [f"word{n}" for n in range(60)]
    rows = np.random.default_rng(3).normal(size=(len(tokens), 12)).astype(np.float32)
    rows[5] = 0
    rows += rows.mean(axis=0) + 0.3
    rows[5] = 0
    assert tokens.index("[unused-row-24]") == 24
    return ts.Table(rows, ts.Vocab(tokens, special=[0], encoding="word"), walking.tokenizer)


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    """``opened(table, …)`` exports it and opens the file; the page, its watch, and what was written."""
    with contextlib.ExitStack() as stack:

        def opened(table, **options):
            path = tmp_path_factory.mktemp("export") / "page.html"
            written = export(Explorer(table), path, **options)
            context = browser.new_context(offline=True)
            stack.callback(context.close)
            page = context.new_page()
            told = []
            page.on("console", lambda message: told.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: told.append(str(error)))
            page.on("request", lambda request: told.append(f"request {request.url[:60]}"))
            page.goto(path.as_uri())
            page.wait_for_selector("#opening", state="hidden")
            assert told == [f"request {path.as_uri()[:60]}"]
            return page, told, written, path

        yield opened


@pytest.fixture(scope="module")
def whole(opened, table):
    return opened(table, texts=["the cat the", "a dog"])


def ask(page, call, **parameters):
    """What the file answers; an error's message as ``{"error": …}``."""
    return page.evaluate(
        """([call, parameters]) => modules["api.js"].ask(call, parameters)
            .then((answer) => answer, (error) => ({ error: error.message, name: error.constructor.name }))""",
        [call, parameters],
    )


def close(found, expected):
    assert [(hit["token"], hit["id"]) for hit in found] == [(hit["token"], hit["id"]) for hit in expected]
    np.testing.assert_allclose(
        [hit["score"] for hit in found], [hit["score"] for hit in expected], rtol=2e-5, atol=2e-6
    )


def shown(tokens):
    return [token.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for token in tokens]


def test_the_file_holds_what_it_says(whole, table):
    page, _, written, path = whole
    assert written == Written(path.stat().st_size, "float32", 0, None)
    facts = ask(page, "table")
    assert facts["offline"] is True
    assert facts["left_out"] is None
    assert facts["examples"][0] == {"text": "the cat the", "pair": None, "recipe": "original"}
    assert facts["provenance"][0]["label"] == "this file"
    tokens = ask(page, "tokens")
    assert tokens["tokens"] == shown(table.vocab)


def test_nothing_is_loaded_and_no_other_script_runs(whole):
    page, _, _, path = whole
    text = path.read_text("utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy
    assert "connect-src" not in policy  # so that default-src holds
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?!data:)', text)
    blocked = page.evaluate(
        """() => new Promise((resolve) => {
            document.addEventListener("securitypolicyviolation", (event) => resolve(event.violatedDirective));
            const script = document.createElement("script");
            script.textContent = "window.ran = true";
            document.head.append(script);
        })"""
    )
    assert blocked == "script-src-elem"
    assert page.evaluate("window.ran") is None
    with pytest.raises(Exception, match="Failed to fetch"):
        page.evaluate("fetch('http://127.0.0.1:1/')")


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("switches", SWITCHES, ids=["raw", "centered", "removed"])
def test_neighbors_are_the_librarys(whole, table, metric, switches):
    page, explorer = whole[0], Explorer(table)
    for i in (6, 10, 5, 24):  # a word, a hostile one, a row of zeros, a row without a token
        found = ask(page, "neighbors", id=i, k=9, metric=metric, **switches)
        expected = explorer.neighbors(i, 9, metric, **switches)
        if i != 5 or metric != "cosine":  # where every score is 0, the ids decide, and rounding decides them
            close(found["hits"], [{**hit, "token": shown([hit["token"]])[0]} for hit in expected["hits"]])
        assert found["query"]["zero"] is (i == 5)
        assert found["settings"] == {**expected["settings"], "metric": metric}
    assert ask(page, "neighbors", q="cat", k=3) == ask(page, "neighbors", id=table.vocab.id("cat"), k=3)


@pytest.mark.parametrize("method", ["3cosadd", "3cosmul"])
@pytest.mark.parametrize("switches", SWITCHES, ids=["raw", "centered", "removed"])
def test_analogies_and_their_arrows_are_the_librarys(whole, table, method, switches):
    page, explorer = whole[0], Explorer(table)
    found = ask(page, "analogy", a="cat", b="dog", c_id=30, k=4, method=method, **switches)
    expected = explorer.analogy("cat", "dog", 30, 4, method, **switches)
    close(found["hits"], expected["hits"])
    assert found["words"] == expected["words"]
    for name, point in expected["arrows"]["points"].items():
        np.testing.assert_allclose(found["arrows"]["points"][name], point, atol=1e-5)
    assert found["arrows"]["axes"] == expected["arrows"]["axes"]
    assert found["arrows"]["plane_share"] == pytest.approx(expected["arrows"]["plane_share"], abs=1e-5)
    assert found["arrows"]["cosine"] == pytest.approx(expected["arrows"]["cosine"], abs=1e-5)


@pytest.mark.parametrize("switches", SWITCHES, ids=["raw", "centered", "removed"])
def test_similarities_are_the_librarys(whole, table, switches):
    found = ask(whole[0], "similarity", a="cat", b_id=12, **switches)
    expected = Explorer(table).similarity("cat", 12, **switches)
    for name in ("cosine", "dot", "l2"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-5)
    assert (found["a"], found["b"]["ids"]) == (expected["a"], expected["b"]["ids"])


def test_the_heat_map_is_the_librarys(whole, table):
    found, expected = (
        ask(whole[0], "heatmap", q=["cat"], id=[12]),
        Explorer(table).heatmap(["cat", 12]),
    )
    for mine, theirs in zip(found["rows"], expected["rows"], strict=True):
        np.testing.assert_array_equal(np.float32(mine["values"]), unpacked(theirs["values"]))
        assert mine["id"] == theirs["id"]
    assert found["limit"] == pytest.approx(expected["limit"], rel=1e-6)


def test_completion_is_the_servers(whole, table):
    explorer = Explorer(table)
    for prefix in ("WO", "k", "<", "\n", "👩", "ord1", " ", "'line\\n", "line\\nb"):
        expected = [each["id"] for each in explorer.complete(prefix, 20)["tokens"]]
        assert [each["id"] for each in ask(whole[0], "complete", prefix=prefix, n=20)["tokens"]] == expected


@pytest.mark.parametrize(
    ("encoding", "tokens", "asked"),
    [
        ("byte-level", ["king", "Ġking", "ĠcafÃ©", "Ġ"], ["king", "café", "Ġking", " "]),
        ("sentencepiece", ["king", "▁king", "▁new▁york", "▁"], ["king", "new york", "▁king"]),
        ("wordpiece", ["##king", "king", "##"], ["king", "##king"]),
    ],
)
def test_words_mean_what_they_mean_to_the_vocabulary(whole, encoding, tokens, asked):
    vocab = ts.Vocab(tokens, encoding=encoding)
    found = whole[0].evaluate(
        """([tokens, encoding, asked]) => {
            const words = new modules["local_words.js"].Words(tokens, encoding, tokens.map(() => 0));
            return { ids: asked.map((word) => words.find(word)), completed: words.complete("caf", 9) };
        }""",
        [tokens, encoding, asked],
    )
    expected = [vocab.known(word) for word in asked]
    assert found["ids"] == [-1 if each is None else each.id for each in expected]
    assert found["completed"] == ([2] if encoding == "byte-level" else [])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rows_of_every_type_are_read_to_the_bit(whole, dtype):
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    values = np.array([0, -0.0, 1, -2.5, 65504, 6e-8, 6.1e-5, 0.1, 3.1415926], np.float32).astype(kind)
    found = whole[0].evaluate(
        """([bytes, dtype]) => Array.from(modules["local_rows.js"].widened(Uint8Array.from(bytes), dtype))""",
        [list(values.tobytes()), dtype],
    )
    np.testing.assert_array_equal(np.float32(found), values.astype(np.float32))


def test_maps_clusters_and_honesty_are_the_servers(whole, table):
    page, explorer = whole[0], Explorer(table)
    for dims in (2, 3):
        made = project(table, "pca", dims)
        found = ask(page, "map", method="pca", dims=dims, seed=0)
        np.testing.assert_array_equal(
            np.stack([unpacked(axis) for axis in found["points"]], axis=1), made.coordinates
        )
        share = kept(table, made)
        assert ask(page, "kept", method="pca", dims=dims, seed=0)["mean"] == pytest.approx(
            share.mean, rel=1e-6
        )
    clusters = ask(page, "clusters", seed=0)
    assert len(clusters["clusters"]) == clusters["k"] > 1
    assert unpacked(clusters["label"]).size == len(explorer.table)
    for call, parameters in [
        ("map", {"method": "tsne"}),
        ("map", {"remove": 1}),
        ("kept", {"k": 5}),
        ("clusters", {"k": 3}),
    ]:
        assert "tokenspace explore" in ask(page, call, **parameters)["error"]


def test_walks_are_the_recorded_ones(whole, table):
    page, explorer = whole[0], Explorer(table)
    for recipe in ("original", "bert", "gpt2", "llama"):
        expected = explorer.walk("the cat the", recipe=recipe, predict=True, gradient=True)
        assert ask(page, "walk", text="the cat the", recipe=recipe, predict=1) == json.loads(
            as_json(expected)
        )
    assert ask(page, "walk", text="the cat the", pair="", recipe="")["recipe"] == "original"
    other = ask(page, "walk", text="the dog")
    assert 'the walks of "the cat the", "a dog"' in other["error"]
    assert other["name"] == "ApiError"


def test_what_is_no_token_is_said(whole):
    assert "no tokenizer to split it" in ask(whole[0], "neighbors", q="kingdom")["error"]
    assert "id must be from 0 to" in ask(whole[0], "neighbors", id=999)["error"]
    assert "11 directions" not in ask(whole[0], "neighbors", id=1, remove=10).get("error", "")
    assert "must be from 0 to 10, found 11" in ask(whole[0], "neighbors", id=1, remove=11)["error"]


def test_the_three_views_work_from_the_disk(whole):
    page, told, _, path = whole
    before = len(told)
    page.goto(f"{path.as_uri()}?view=query&q=cat")
    page.wait_for_selector("#query .hits li")
    page.goto(f"{path.as_uri()}?view=map")
    page.wait_for_selector("#map .main-svg", timeout=60_000)
    page.goto(f"{path.as_uri()}?view=walk&step=gradient")
    page.wait_for_selector("#walk h2")
    page.go_back()
    page.wait_for_selector("#map .main-svg", timeout=60_000)
    new = told[before:]
    assert all(line.startswith(("request file:", "request blob:")) for line in new)


def test_a_table_too_large_leaves_its_rows_out_and_says_so(opened, table):
    page, _, written, _ = opened(table, limit=100)
    assert (written.rows, written.neighbors) == (None, 5)
    assert "analogies, similarities, heat maps and switches are left out" in written.left_out
    found = ask(page, "neighbors", q="cat", k=10)
    expected = Explorer(table).neighbors("cat", 5)["hits"]
    close(found["hits"], [{**hit, "token": shown([hit["token"]])[0]} for hit in expected])
    assert found["settings"]["k"] == 5
    assert ask(page, "neighbors", id=5)["query"]["zero"] is True
    for call in (
        {"call": "analogy", "a": "cat", "b": "dog", "c": "mat"},
        {"call": "similarity", "a": "cat", "b": "dog"},
        {"call": "heatmap", "q": ["cat"]},
        {"call": "neighbors", "q": "cat", "center": 1},
        {"call": "neighbors", "q": "cat", "metric": "dot"},
    ):
        assert ask(page, call.pop("call"), **call)["error"].startswith(written.left_out)
    assert ask(page, "complete", prefix="ca")["tokens"]


def test_rows_that_fit_as_float16_are_rounded_and_the_exact_neighbors_kept(opened, table):
    page, _, written, _ = opened(table, limit=table.weight.nbytes // 2, neighbors=3)
    assert (written.rows, written.neighbors, written.left_out) == ("float16", 3, None)
    assert "rounded from float32" in ask(page, "table")["provenance"][0]["value"]
    exact = Explorer(table).neighbors("cat", 3)["hits"]
    close(ask(page, "neighbors", q="cat", k=3)["hits"], exact)
    rounded = Explorer(ts.Table(table.weight.astype(np.float16), table.vocab)).neighbors("cat", 6)["hits"]
    close(ask(page, "neighbors", q="cat", k=6)["hits"], rounded)


def test_rows_that_float16_cant_hold_are_left_out(table, tmp_path):
    large = ts.Table(table.weight * 1e5, table.vocab, table.tokenizer)
    written = export(Explorer(large), tmp_path / "x.html", limit=table.weight.nbytes // 2)
    assert written.rows is None


def test_a_table_without_a_tokenizer_has_no_walks(opened):
    page, _, _, path = opened(hostile.pieces())
    assert "no tokenizer" in ask(page, "table")["walk"]
    assert page.locator("#map").is_visible()
    page.goto(f"{path.as_uri()}?view=walk")
    page.wait_for_selector("#walk a")
    assert "no tokenizer" in page.inner_text("#walk")


def test_what_cant_be_made_of_a_table_is_left_out_and_said(opened):
    one = ts.Table(np.ones((1, 2), np.float32), ts.Vocab(["alone"], encoding="word"))
    page, _, written, _ = opened(one)
    assert (written.rows, written.left_out) == ("float32", None)
    assert ask(page, "neighbors", q="alone")["hits"] == []
    missing = ask(page, "table")["missing"]
    for name, message in missing.items():
        call, _, dims = name.partition("-")
        assert ask(page, call, **({"dims": int(dims)} if dims else {}))["error"] == message
    assert {"kept-2", "map-3"} <= set(missing)


def test_nothing_is_written_where_something_is_wrong(table, tmp_path):
    with pytest.raises(CorpusError):
        export(Explorer(table), tmp_path / "x.html", texts=[" "])
    with pytest.raises(ShapeError, match="0 to 100 neighbors"):
        export(Explorer(table), tmp_path / "x.html", neighbors=101)
    with pytest.raises(OutputError):
        export(Explorer(table), tmp_path / "none" / "x.html")
    assert not list(tmp_path.iterdir())


def test_index_must_be_as_expected():
    with pytest.raises(ValueError, match="0 places"):
        export_module._index("<p>", "", "")
    with pytest.raises(ValueError, match="end its element"):
        export_module._index("<p>", "</STYLE>", "")
