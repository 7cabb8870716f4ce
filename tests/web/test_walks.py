import numpy as np
import pytest

import tokenspace as ts
from tokenspace.errors import CheckpointError, CorpusError, VocabError
from tokenspace.reference import LMHead
from tokenspace.walk import Pipeline
from tokenspace.walk_document import (
    gradient_document,
    predictions_document,
    scoring_document,
    walk_document,
)
from tokenspace.web.walks import Walks

from . import hostile


@pytest.fixture
def table():
    return hostile.walking_table()


def test_the_document_is_that_of_embed(table):
    walks = Walks(table, seed=3)
    for recipe in ("original", "bert", "gpt2", "llama"):
        pipeline = Pipeline.under(table, recipe, 3)
        (walk,) = pipeline.walk(["the cat the"])
        found = walks.document("the cat the", recipe=recipe, predict=True, gradient=True)
        expected = walk_document(pipeline, walk)
        assert {name: found[name] for name in expected} == expected
        assert found["predictions"] == predictions_document(pipeline, walk)
        gradient = gradient_document(pipeline.gradient(walk))
        assert {name: found["gradient"][name] for name in gradient} == gradient
        assert found["left_out"] == {}
        assert np.shape(found["gradient"]["by_position"]) == (3, 6)
        assert np.shape(found["gradient"]["by_head"]) == (2, 6)
        assert found["scoring"] == scoring_document(pipeline)


def test_what_a_layer_has_is_said(table):
    walks = Walks(table)
    original, bert = walks.document("the cat"), walks.document("the cat", recipe="bert")
    assert original["layer"] == {"position": "sinusoidal", "segments": None, "norm_eps": None}
    assert bert["layer"] == {"position": "learned", "segments": 2, "norm_eps": 1e-12}
    assert (original["untrained"], bert["untrained"]) == ([], ["position", "segment"])
    assert (original["dropout"], original["tied"]) == (0.1, True)
    assert walks.document("the zebra")["unknown"] == ["zebra"]
    assert (original["dropped"], original["normalized"]) == ([], None)
    assert walks.document("The cat")["normalized"] == "the cat"
    assert (original["hidden"], original["no_head"]) == ("output", None)


def test_what_a_head_does_besides_its_product_is_said(table):
    pipeline = Pipeline.under(table)
    walks = Walks(table, pipeline)
    plain = walks.document("the cat")["head"]
    assert plain == {
        "tied": True,
        "width": 6,
        "bias": False,
        "hidden_scale": None,
        "logit_scale": None,
        "soft_cap": None,
    }
    rows = np.zeros(len(table), np.float32)
    head = LMHead(pipeline.layer.token, bias=rows, hidden_scale="rsqrt", logit_scale=0.5, soft_cap=30)
    pipeline.head = lambda: head
    found = walks.document("the cat")["head"]
    assert found == {**plain, "bias": True, "hidden_scale": 6**-0.5, "logit_scale": 0.5, "soft_cap": 30}


def test_an_untied_head_is_said(table):
    untied = ts.Table(table.weight, table.vocab, table.tokenizer, output=table.weight + 1)
    found = Walks(untied).document("the cat", gradient=True)
    assert (found["tied"], found["hidden"]) == (False, "output")
    assert found["scoring"]["rows"] == "output"
    untied.provenance = {"objective": "skip-gram with negative sampling"}
    assert Walks(untied).document("the cat")["hidden"] == "lookup"


def test_a_pair_gets_the_recipe_that_has_segments(table):
    found = Walks(table).document("the cat", pair="the dog")
    assert (found["recipe"], found["pair"]) == ("bert", "the dog")
    assert [token["segment"] for token in found["tokens"]] == [0, 0, 0, 1, 1, 1]
    assert Walks(table).document("the cat", pair="the dog", recipe="gpt2")["recipe"] == "gpt2"


def test_a_checkpoint_keeps_its_own_recipe_and_offers_the_others(minilm_folder):
    own = Pipeline.open(minilm_folder)
    walks = Walks(own.table, own)
    assert [recipe["name"] for recipe in walks.recipes] == ["bert", "original", "gpt2", "llama"]
    assert walks.recipes[0] == {"name": "bert", "pairs": True, "own": True}
    found = walks.document("the cat")
    assert found["recipe"] == "bert"
    assert found["untrained"] == []
    assert walks.document("the cat", recipe="original")["layer"]["position"] == "sinusoidal"


def test_what_cant_be_told_is_named_and_the_rest_is_there(table):
    found = Walks(table).document("cat", gradient=True)
    assert "at least two tokens" in found["left_out"]["gradient"]
    assert "gradient" not in found
    assert found["steps"]["output"]


def test_texts_without_tokens_or_with_too_many_are_refused(table):
    walks = Walks(table)
    with pytest.raises(CorpusError, match="empty"):
        walks.document(" ")
    with pytest.raises(CorpusError, match=r"4,000 characters here, found 4,001"):
        walks.document("a" * 4_001)
    with pytest.raises(CorpusError, match=r"4,000 characters"):
        walks.document("a", pair="a" * 4_001)
    with pytest.raises(CorpusError, match=r"128 tokens at most, this text has 129"):
        walks.document("the " * 129)
    assert len(walks.document("the " * 128)["tokens"]) == 128
    with pytest.raises(CheckpointError, match="recipe 'elmo' is not known"):
        walks.document("the", recipe="elmo")


def test_a_wide_table_walks_fewer_tokens(table):
    wide = ts.Table(np.ones((len(table), 7_500), np.float32), table.vocab, table.tokenizer)
    with pytest.raises(CorpusError, match="10 tokens at most"):
        Walks(wide).document("the " * 11)


def test_a_table_without_a_tokenizer_has_no_walk():
    walks = Walks(hostile.pieces())
    assert walks.recipes == []
    with pytest.raises(VocabError, match="no tokenizer"):
        walks.document("king")
