import sys
import threading
import time

import numpy as np
import pytest

import tokenspace as ts
from tokenspace import geometry
from tokenspace.errors import ShapeError, TableFormatError, TokenIdError, VocabError
from tokenspace.geometry.kept import kept
from tokenspace.geometry.projection import project
from tokenspace.plots import Heatmap, Norms
from tokenspace.plots.arrows import Arrows
from tokenspace.plots.norms import KINDS
from tokenspace.web.answers import as_json, unpacked
from tokenspace.web.explorer import Explorer
from tokenspace.web.jobs import Running
from tokenspace.web.views import Views

from . import hostile


@pytest.fixture(scope="module")
def built_in():
    return Explorer.open("wordnet")


@pytest.fixture(scope="module")
def wordnet(built_in):
    """The first rows of the built-in table, which are its most frequent words."""
    ids = np.arange(4_000)
    return ts.Table(built_in.table.weight[ids], built_in.table.vocab.take(ids))


@pytest.fixture(scope="module")
def explorer(wordnet):
    return Explorer(wordnet)


@pytest.fixture
def odd():
    return Explorer(hostile.table())


def finished(ask):
    """The answer of a slow call, polled as the page does."""
    for _ in range(600):
        answer = ask()
        if not isinstance(answer, Running):
            return answer
        time.sleep(0.05)
    raise AssertionError("the answer never came")


def test_facts(built_in):
    facts = built_in.facts()
    assert (facts["name"], facts["rows"], facts["dim"], facts["dtype"]) == ("wordnet", 33_003, 100, "float16")
    assert (facts["recipe"], facts["pairs"], facts["walk"]) == ("original", False, None)
    assert [recipe["name"] for recipe in facts["recipes"]] == ["original", "bert", "gpt2", "llama"]
    assert [recipe["pairs"] for recipe in facts["recipes"]] == [False, True, False, False]
    assert {"label": "objective", "value": "skip-gram with negative sampling"} in facts["provenance"]
    assert facts["methods"]["pca"] is True
    assert facts["kinds"] == list(KINDS)
    text = "the cat sat on the mat"
    assert facts["defaults"] == {"words": ["king", "queen", "man", "woman"], "text": text, "remove": 2}
    assert facts["named"] == 33_003


def test_a_checkpoint_is_opened_with_its_own_layer(minilm_folder):
    facts = Explorer.open(minilm_folder).facts()
    assert (facts["recipe"], facts["pairs"], facts["name"]) == ("bert", True, "model")
    assert Explorer.open(minilm_folder, "gpt2").facts()["recipe"] == "gpt2"


def test_a_table_without_a_tokenizer_says_why_it_has_no_walk():
    odd = Explorer(hostile.pieces())
    facts = odd.facts()
    assert (facts["tokenizer"], facts["recipe"], facts["recipes"], facts["pairs"]) == (None, None, [], False)
    assert "no tokenizer" in facts["walk"]
    with pytest.raises(VocabError, match="no tokenizer"):
        odd.walk("king")


def test_tokens_kinds_and_norms_are_the_tables(explorer, wordnet):
    answer, norms = explorer.tokens(), Norms.of(wordnet)
    assert answer["tokens"] == list(wordnet.vocab)
    np.testing.assert_array_equal(unpacked(answer["kind"]), norms.kinds)
    np.testing.assert_allclose(unpacked(answer["norm"]), norms.lengths, rtol=1e-6)
    assert not unpacked(answer["placeholder"]).any()


def test_rows_without_a_token_are_marked(odd):
    assert np.flatnonzero(unpacked(odd.tokens()["placeholder"])).tolist() == [16]


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
@pytest.mark.parametrize(
    "switches", [{}, {"center": True}, {"remove": 2}], ids=["raw", "centered", "removed"]
)
def test_neighbors_are_the_librarys(explorer, wordnet, metric, switches):
    answer = explorer.neighbors("king", k=7, metric=metric, **switches)
    hits = geometry.neighbors(wordnet, "king", 7, metric=metric, **switches)
    assert [(hit["id"], np.float32(hit["score"])) for hit in answer["hits"]] == [
        (hit.id, np.float32(hit.score)) for hit in hits
    ]
    king = wordnet.vocab.id("king")
    assert answer["query"] == {"word": "king", "ids": [king], "tokens": ["king"], "also": [], "zero": False}
    assert answer["settings"]["center"] is bool(switches)
    assert explorer.neighbors(king, k=7, metric=metric, **switches)["hits"] == answer["hits"]


def test_a_composed_word_shows_its_pieces(minilm):
    answer = Explorer(minilm).neighbors("tokenspace", k=3)
    assert len(answer["query"]["ids"]) > 1
    assert answer["query"]["tokens"] == [minilm.vocab[i] for i in answer["query"]["ids"]]
    assert [hit["id"] for hit in answer["hits"]] == [
        hit.id for hit in geometry.neighbors(minilm, "tokenspace", 3)
    ]


def test_a_zero_row_is_said(explorer, wordnet):
    zero = int(np.flatnonzero(~np.asarray(wordnet.weight, np.float32).any(axis=1))[0])
    assert explorer.neighbors(zero)["query"]["zero"] is True


def test_similarity_is_the_librarys(explorer, wordnet):
    answer = explorer.similarity("king", "queen", remove=1)
    found = geometry.similarity(wordnet, "king", "queen", remove=1)
    for name in ("cosine", "dot", "l2"):
        assert np.float32(answer[name]) == np.float32(getattr(found, name))
    assert answer["a"]["tokens"] == ["king"]


def test_the_heat_map_is_the_librarys(explorer, wordnet):
    answer = explorer.heatmap(["king", wordnet.vocab.id("queen")])
    drawn = Heatmap.of(wordnet, ["king", "queen"])
    for row, values in zip(answer["rows"], drawn.values, strict=True):
        np.testing.assert_array_equal(unpacked(row["values"]), values)
    assert [row["label"] for row in answer["rows"]] == ["king", "queen"]
    assert np.float32(answer["limit"]) == np.float32(drawn.limit)


def test_completion(built_in):
    found = built_in.complete("kin", n=3)["tokens"]
    assert [each["token"] for each in found] == ["kin", "king", "kind"]
    assert all(built_in.table.vocab[each["id"]] == each["token"] for each in found)


def test_a_token_is_found_as_it_is_shown(odd):
    for typed in ("'line\\nbreak'", "line\\nb", "'line\\n", "\\x00\\x1b["):
        found = [each["id"] for each in odd.complete(typed)["tokens"]]
        assert found == [3 if typed.startswith("\\x00") else 2]


@pytest.mark.parametrize(
    ("typed", "i"),
    [
        (r"'line\nbreak'", 2),
        (r"'\x00\x1b[31m'", 3),
        (r"'\u202eright to left \u05d0\u05d1'".replace(r"\u05d0\u05d1", "\u05d0\u05d1"), 5),
        ("\ufffd\ufffd", 7),
        ("' '", 10),
    ],
)
def test_what_is_typed_as_it_is_shown_is_that_token(odd, typed, i):
    assert odd.neighbors(typed)["query"]["ids"] == [i]
    assert odd.neighbors(typed)["hits"] == odd.neighbors(i)["hits"]
    assert odd.similarity(typed, typed)["b"]["ids"] == [i]
    assert odd.analogy(typed, "King", "kings")["words"]["a"]["id"] == i
    assert odd.heatmap([typed, "king"])["rows"][0]["id"] == i
    assert odd.complete(typed)["tokens"][0]["id"] == i


def test_a_token_itself_goes_before_what_is_shown_so():
    table = ts.Table(np.eye(4, dtype=np.float32), ts.Vocab([" a", "' a'", "a", "A"], encoding="word"))
    explorer = Explorer(table)
    assert explorer.neighbors("' a'")["query"]["ids"] == [1]
    assert explorer.complete("' a'")["tokens"][0]["id"] == 1
    assert explorer.complete("A")["tokens"][0]["id"] == 3
    for word in ("'a'", '" a"', "' A'"):
        with pytest.raises(VocabError, match="is not one of the 4 tokens"):
            explorer.neighbors(word)


def test_quotes_that_show_no_token_are_composed_of_pieces(minilm):
    answer = Explorer(minilm).neighbors("'king'", k=1)
    assert answer["query"]["tokens"] == ["'", "king", "'"]


def test_of_ids_that_look_alike_the_first_is_taken_and_the_others_are_told(odd):
    first, second = (i for i, token in enumerate(odd.table.vocab) if token == "king")
    for word in ("king", first):
        assert odd.neighbors(word)["query"]["also"] == [second]
    assert odd.similarity("king", "King")["a"]["also"] == [second]
    assert odd.analogy("king", "King", "kings")["words"]["a"] == {
        "token": "king",
        "id": first,
        "also": [second],
    }
    assert [row["also"] for row in odd.heatmap(["king", "King"])["rows"]] == [[second], []]
    tokens = ["\udcff", "a", *["\udcfe"] * 12]
    broken = Explorer(ts.Table(np.ones((14, 2), np.float32), ts.Vocab(tokens, encoding="word")))
    assert broken.neighbors("\ufffd")["query"]["ids"] == [0]
    assert broken.neighbors("\ufffd")["query"]["also"] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert broken.neighbors(r"'\udcfe'")["query"]["ids"] == [2]


def test_numbers_that_leave_float32_are_refused_not_broken_on():
    rows = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32) * np.float32(1e30)
    large = Explorer(ts.Table(rows, ts.Vocab(list("abcdefghi"))))
    for ask in (lambda: large.similarity("a", "b"), lambda: large.neighbors("a")):
        with pytest.raises(TableFormatError, match="its products leave float32: scale the table down"):
            ask()


@pytest.mark.parametrize("i", range(17))
def test_any_token_goes_through_every_question(odd, i):
    token = odd.table.vocab[i]
    for word in (token, i):
        assert as_json(odd.neighbors(word, k=20))
        assert as_json(odd.similarity(word, "king"))
        assert as_json(odd.heatmap([word, word]))
        assert as_json(odd.complete(token))
    assert odd.neighbors(i, k=20)["query"]["ids"] == [i]
    assert len(odd.neighbors(i, k=20)["hits"]) == (15 if i != 16 else 16)  # itself and the nameless row
    if i != 16:
        assert i in [each["id"] for each in odd.complete(token, n=100)["tokens"]]


def test_limits(odd):
    with pytest.raises(VocabError, match="1 to 2,000 characters here, found 2,001"):
        odd.neighbors("x" * 2_001)
    with pytest.raises(VocabError, match="characters"):
        odd.similarity("king", "")
    with pytest.raises(VocabError, match="characters"):
        odd.complete("x" * 2_001)
    with pytest.raises(ShapeError, match=r"^how many \(k\) must be from 1 to 1,000, found 0"):
        odd.neighbors("king", k=0)
    with pytest.raises(ShapeError, match="found 1,001"):
        odd.neighbors("king", k=1_001)
    with pytest.raises(ShapeError, match=r"^top directions removed \(remove\) must be from 0 to 7, found 8"):
        odd.neighbors("king", remove=8)
    with pytest.raises(ShapeError, match="1 to 64 rows"):
        odd.heatmap([])
    with pytest.raises(ShapeError, match="1 to 64 rows"):
        odd.heatmap(["king"] * 65)
    for row in (17, -1):
        with pytest.raises(TokenIdError, match=f"^id must be from 0 to 16, found {row}"):
            odd.neighbors(row)
    with pytest.raises(ShapeError, match=r"dimensions \(dims\) must be 2 or 3, found 4"):
        odd.map(dims=4)
    with pytest.raises(ShapeError, match="seed"):
        odd.map(seed=2**32)
    with pytest.raises(ShapeError, match=r"^projection \(method\) 'mds' is not known; allowed: pca, "):
        odd.map("mds")
    with pytest.raises(ShapeError, match="metric"):
        odd.neighbors("king", metric="manhattan")


def test_the_map_is_the_librarys(odd):
    answer = finished(lambda: odd.map("pca", 3, seed=4))
    made = project(odd.table, "pca", 3, 4)
    points = np.stack([unpacked(axis) for axis in answer["points"]], axis=1)
    np.testing.assert_array_equal(points, made.coordinates)
    assert answer["axes"] == list(made.axes)
    assert (answer["method"], answer["seed"], answer["dims"]) == ("pca", 4, 3)
    assert answer["versions"]
    assert as_json(answer)


def test_many_threads_at_once_get_the_same(odd):
    expected = as_json([odd.neighbors("king", center=True), finished(odd.map)["points"]])
    fresh, found = Explorer(hostile.table()), []

    def ask():
        found.append(as_json([fresh.neighbors("king", center=True), finished(fresh.map)["points"]]))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


@pytest.mark.parametrize("method", ["3cosadd", "3cosmul"])
@pytest.mark.parametrize(
    "switches", [{}, {"center": True}, {"remove": 2}], ids=["raw", "centered", "removed"]
)
def test_analogies_are_the_librarys(explorer, wordnet, method, switches):
    man = wordnet.vocab.id("man")
    answer = explorer.analogy(man, "king", "woman", 3, method, **switches)
    hits = geometry.analogy(wordnet, "man", "king", "woman", 3, method, **switches)
    assert [(hit["id"], np.float32(hit["score"])) for hit in answer["hits"]] == [
        (hit.id, np.float32(hit.score)) for hit in hits
    ]
    assert answer["words"]["a"] == {"token": "man", "id": man, "also": []}
    drawn = Arrows.of(wordnet, "man", "king", "woman", method, **switches)
    for name, point in zip(("a", "b", "c", "d", "target"), drawn.points, strict=True):
        np.testing.assert_array_equal(np.float32(answer["arrows"]["points"][name]), point)
    assert answer["arrows"]["axes"] == list(drawn.axes)
    assert np.float32(answer["arrows"]["plane_share"]) == np.float32(drawn.plane_share)


def test_an_analogy_of_what_is_no_single_token_is_refused(minilm):
    with pytest.raises(VocabError, match="not one token"):
        Explorer(minilm).analogy("king", "tokenspace", "queen")


def test_clusters_are_the_librarys(odd):
    answer = finished(lambda: odd.clusters(3, seed=5))
    made = geometry.clusters(odd.table, 3, 5)
    np.testing.assert_array_equal(unpacked(answer["label"]), made.labels)
    assert unpacked(answer["label"])[16] == -1
    assert [cluster["name"] for cluster in answer["clusters"]] == list(made.names)
    assert [cluster["size"] for cluster in answer["clusters"]] == made.sizes.tolist()
    first = answer["clusters"][0]["tokens"]
    assert [token["id"] for token in first] == [i for i in made.nearest[0].tolist() if i >= 0]
    assert (answer["k"], answer["seed"]) == (3, 5)
    assert as_json(answer)
    with pytest.raises(ShapeError, match=r"clusters \(k\) must be from 1 to 17, found 18"):
        odd.clusters(18)


def test_honesty_is_the_librarys(odd):
    answer = finished(lambda: odd.kept("pca", 2, k=4))
    measured = kept(odd.table, project(odd.table), 4)
    share = unpacked(answer["share"])
    assert share[16] == -1
    np.testing.assert_array_equal(share[:16], measured.share[:16])
    assert np.float32(answer["mean"]) == np.float32(measured.mean)
    assert (answer["k"], answer["measured"]) == (4, 16)
    assert as_json(answer)


def test_honesty_of_several_maps_and_a_files_neighbors_take_one_search(odd, monkeypatch):
    searches = []

    def counted(*args, **kwargs):
        searches.append(kwargs["k"])
        return geometry.nearest(*args, **kwargs)

    monkeypatch.setattr(sys.modules["tokenspace.web.explorer"], "nearest", counted)
    finished(lambda: odd.kept("pca", 2))
    finished(lambda: odd.kept("pca", 3))
    found = odd.nearest(5)
    assert searches == [10]
    np.testing.assert_array_equal(found.ids, geometry.nearest(odd.table, k=5).ids)


def test_a_warm_explorer_has_measured_the_rows_of_the_pages_three_columns(odd, monkeypatch):
    odd.warm()
    for thread in threading.enumerate():
        if thread.name == "tokenspace warm-up":
            thread.join(30)
    assert odd._norms is not None
    monkeypatch.setattr(sys.modules["tokenspace.geometry.transform"], "check_comparable", None)
    for switches in ({}, {"center": True}, {"center": True, "remove": odd.facts()["defaults"]["remove"]}):
        assert odd.neighbors(3, **switches)["hits"]
    broken = Explorer(ts.Table(np.full((2, 2), np.nan, np.float32), ts.Vocab(["a", "b"])))
    broken.warm()  # says nothing; who asks is told
    with pytest.raises(TableFormatError, match="NaN"):
        broken.neighbors("a")


def test_views_are_made_once_and_the_oldest_goes(odd, monkeypatch):
    monkeypatch.setattr(sys.modules["tokenspace.web.views"], "MOST", 2)
    views = Views(odd.table)
    first = views.under()
    second = views.under(True, 0)
    assert views.under() is first
    views.under(False, 1)  # the third: what was asked for longest ago goes
    assert views.under() is first
    assert views.under(True, 0) is not second
    assert views.under(True, 1) is views.under(False, 1)
