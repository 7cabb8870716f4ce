import json
import shutil

import numpy as np
import pytest
import torch

import tokenspace as ts
from tokenspace.errors import CheckpointError, CorpusError, ShapeError, TableFormatError, VocabError
from tokenspace.models.open import open_checkpoint
from tokenspace.reference import recipes
from tokenspace.tokenizer import Tokenizer
from tokenspace.walk import Pipeline
from tokenspace.walk_document import gradient_document, scoring_document


@pytest.fixture
def table(rng) -> ts.Table:
    tokenizer = Tokenizer.train_from_iterator(["the cat and the dog sat"])
    weight = rng.normal(0, 0.5, (len(tokenizer.vocab), 6)).astype(np.float32)
    return ts.Table(weight, tokenizer.vocab, tokenizer)


@pytest.fixture
def saved(table, tmp_path):
    ts.save(table, tmp_path / "t.safetensors")
    return tmp_path / "t.safetensors"


def test_the_original_recipe_adds_sines_to_scaled_rows(saved, table):
    (walk,) = Pipeline.open(saved).walk(["the cat the"])
    rows = table.lookup([[table.vocab.id(t) for t in ("the", "cat", "the")]])[0]
    assert list(walk.steps) == ["lookup", "scaled", "position", "dropout", "output"]
    np.testing.assert_array_equal(walk.steps["lookup"], rows)
    np.testing.assert_allclose(walk.steps["scaled"], rows * np.sqrt(6), rtol=1e-6)
    angles = np.arange(3)[:, None] / 10_000 ** (np.arange(0, 6, 2) / 6)
    np.testing.assert_allclose(walk.steps["position"][:, 0::2], np.sin(angles), rtol=1e-6)
    np.testing.assert_allclose(walk.output, walk.steps["scaled"] + walk.steps["position"], rtol=1e-6)
    assert [token.position for token in walk.tokens] == [0, 1, 2]


def test_a_pair_has_two_segments_under_bert(saved):
    pipeline = Pipeline.open(saved, "bert")
    (walk,) = pipeline.walk(["the cat"], pair="the dog")
    assert [token.segment for token in walk.tokens] == [0, 0, 0, 1, 1, 1]
    assert pipeline.untrained == ("position", "segment")
    segment = walk.steps["segment"]
    assert (segment[0] == segment[2]).all()
    assert (segment[0] != segment[3]).any()


def test_drawn_tables_depend_on_the_seed_alone(saved):
    one, again, other = (Pipeline.open(saved, "gpt2", seed).walk(["the cat"])[0].output for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_a_batch_is_padded_and_each_text_is_what_it_is_alone(saved):
    pipeline = Pipeline.open(saved)
    long, short = pipeline.walk(["the cat and the dog", "the dog"])
    assert short.output.shape == long.output.shape == (5, 6)
    assert short.mask == [1, 1, 0, 0, 0]
    (alone,) = pipeline.walk(["the dog"])
    np.testing.assert_array_equal(short.output[:2], alone.output)


def test_a_checkpoint_walks_through_its_own_layer(minilm_folder, minilm):
    pipeline = Pipeline.open(minilm_folder)
    (walk,) = pipeline.walk(["The cat sat"], pair="a dog")
    assert pipeline.recipe == "bert"
    assert pipeline.untrained == ()
    assert [t.token for t in walk.tokens] == ["[CLS]", "the", "cat", "sat", "[SEP]", "a", "dog", "[SEP]"]
    norms = walk.output.std(axis=1)
    assert (norms > 0.1).all()
    assert list(walk.steps) == ["lookup", "position", "segment", "normalized", "output"]


def test_unknown_words_are_named(saved):
    (walk,) = Pipeline.open(saved, "bert").walk(["the Zebra sat"], pair="a cat")
    assert walk.unknown == ["Zebra", "a"]


def test_predictions_are_the_softmax_of_hidden_times_the_table(saved, table):
    pipeline = Pipeline.open(saved)
    (walk,) = pipeline.walk(["the cat sat"])
    logits = torch.tensor(walk.output) @ torch.tensor(table.weight).T
    top = logits.softmax(-1).topk(3)
    predicted = pipeline.predict(walk, k=3)
    assert [[c.id for c in row] for row in predicted] == top.indices.tolist()
    np.testing.assert_allclose(
        [[c.probability for c in row] for row in predicted], top.values.numpy(), rtol=1e-5
    )


CONTEXTS = {
    "skip-gram": {"objective": "skip-gram with negative sampling"},
    "skip-gram, in a GGUF file": {
        "objective": "skip-gram with negative sampling",
        "read_from": {"format": "gguf"},
    },
    "of a fastText model": {"read_from": {"format": "fasttext", "model": "sg"}},
    "of a fastText model of words around": {"read_from": {"format": "fasttext", "model": "cbow"}},
}
HEADS = {
    "said by nobody": {},
    **{
        f"of a file: {name}": {"read_from": {"format": name, "head": "lm_head.weight"}}
        for name in ("safetensors", "torch", "hub")
    },
    "of an archive that keeps no provenance": {"read_from": {"format": "npz", "array": "weight"}},
    "of provenance that is damaged": {"read_from": "fasttext", "objective": 3},
    "a language model's": {"objective": "next token, in a decoder"},
    "of a GGUF file": {"read_from": {"format": "gguf"}},
    "of a checkpoint": {"made_by": "a model's checkpoint"},
}


@pytest.mark.parametrize("made", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("recipe", ["original", "bert", "gpt2", "llama"])
def test_context_rows_score_the_looked_up_row(made, recipe, table):
    table.output, table.provenance = -table.weight, made
    pipeline = Pipeline.under(table, recipe)
    (walk,) = pipeline.walk("cat cat")
    logits = torch.tensor(table["cat"]) @ torch.tensor(table.output).T
    top = logits.softmax(-1).topk(3)
    for row in pipeline.predict(walk, k=3)[:2]:
        assert [one.id for one in row] == top.indices.tolist()
        np.testing.assert_allclose([one.probability for one in row], top.values.numpy(), rtol=1e-5)
    assert (pipeline.hidden_step, pipeline.scoring_rows) == ("lookup", "output")
    moved = pipeline.gradient(walk)
    assert moved.rows_moved_by_head == 0
    labels = torch.tensor([token.id for token in walk.tokens[1:]])
    E = torch.tensor(table.weight, dtype=torch.float64, requires_grad=True)
    hidden = torch.nn.functional.embedding(torch.tensor([token.id for token in walk.tokens]), E)
    torch.nn.functional.cross_entropy(hidden[:-1] @ -E.detach().T, labels).backward()
    assert moved.rows[0].gradient == pytest.approx(E.grad[moved.rows[0].id].norm().item(), rel=1e-6)


@pytest.mark.parametrize("made", HEADS.values(), ids=HEADS)
def test_a_heads_own_rows_score_the_input(made, table):
    table.output, table.provenance = -table.weight, made
    pipeline = Pipeline.under(table)
    (walk,) = pipeline.walk("cat cat")
    worst = walk.output[0] @ table.weight.T
    assert pipeline.predict(walk, k=1)[0][0].id == int(worst.argmin())
    assert (pipeline.hidden_step, pipeline.scoring_rows) == ("output", "output")


@pytest.fixture(scope="module")
def untied_llama(tmp_path_factory):
    """The folder of a small Llama whose head has rows of its own, with a tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = Tokenizer.train_from_iterator(["the cat and the dog sat"])
    torch.manual_seed(1)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer.vocab), tie_word_embeddings=False, **sizes)
    model = LlamaForCausalLM(config)
    torch.nn.init.normal_(model.model.embed_tokens.weight)
    torch.nn.init.normal_(model.lm_head.weight)
    folder = tmp_path_factory.mktemp("llama")
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer.to_json())
    names = ("model.embed_tokens.weight", "lm_head.weight")
    torch.save({name: model.state_dict()[name] for name in names}, folder / "two.pt")
    return folder


@pytest.mark.parametrize("name", ["model.safetensors", "two.pt"])
@pytest.mark.parametrize("copy", [None, "native.safetensors", "copy.npz", "copy.gguf"])
def test_the_head_of_a_models_file_scores_the_input_also_in_a_copy(name, copy, untied_llama, tmp_path):
    table = ts.load(untied_llama / name)
    table.tokenizer = Tokenizer.load(untied_llama)
    rows = table.output
    if copy is not None:
        ts.save(table, tmp_path / copy)
        tokenizer, table = table.tokenizer, ts.load(tmp_path / copy)
        table.tokenizer = tokenizer
    pipeline = Pipeline.under(table)
    (walk,) = pipeline.walk("the cat")
    logits = torch.tensor(walk.output) @ torch.tensor(np.asarray(rows, np.float32)).T
    assert pipeline.predict(walk, k=1)[0][0].id == int(logits[0].argmax())
    labels = torch.tensor([walk.tokens[1].id])
    loss = torch.nn.functional.cross_entropy(logits[:1], labels).item()
    assert pipeline.gradient(walk).loss == pytest.approx(loss, rel=1e-5)
    assert pipeline.context_model is None


@pytest.mark.parametrize("recipe", [None, "gpt2"])
def test_an_untied_model_without_its_head_says_so_under_any_recipe(recipe, untied_llama, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "copy"
    shutil.copytree(untied_llama, folder, ignore=shutil.ignore_patterns("two.pt"))
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors")
    pipeline = Pipeline.open(folder, recipe)
    assert "holds no head" in pipeline.no_head
    assert "holds no head" in scoring_document(pipeline)["no_head"]
    assert Pipeline.open(untied_llama, recipe).no_head is None


def test_the_costliest_position_is_torchs(saved, table):
    pipeline = Pipeline.open(saved)
    (walk,) = pipeline.walk("the cat and the dog sat")
    logits = torch.tensor(walk.output[:-1], dtype=torch.float64) @ torch.tensor(table.weight).double().T
    labels = torch.tensor([token.id for token in walk.tokens[1:]])
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    most = int(losses.argmax())
    found = pipeline.gradient(walk).costliest
    assert (found.position, found.next) == (most, walk.tokens[most + 1].token)
    assert found.loss == pytest.approx(losses[most].item(), rel=1e-5)
    assert found.best == table.vocab[int(logits[most].argmax())]
    assert found.margin == pytest.approx((logits[most].max() - logits[most, labels[most]]).item(), rel=1e-5)


def test_a_row_of_zeros_has_no_cosine(table):
    table.weight[table.vocab.id("[UNK]")] = 0
    pipeline = Pipeline.under(table)
    (walk,) = pipeline.walk("the zebra")
    cosines = {row.token: row.cosine for row in pipeline.gradient(walk).rows}
    assert cosines["[UNK]"] is None
    assert -1 <= cosines["the"] <= 1
    rows = gradient_document(pipeline.gradient(walk))["rows"]
    assert [row["cosine"] is None for row in rows] == [row["token"] == "[UNK]" for row in rows]


@pytest.mark.parametrize("tied", [True, False])
def test_rows_of_zeros_are_never_proposed(tied, table):
    table.weight[:3] = 0
    table.weight[3:] = -np.abs(table.weight[3:])
    if not tied:
        table.weight, table.output = -table.weight, table.weight
    pipeline = Pipeline.under(table, "llama")
    assert pipeline.untrained_rows.tolist() == [0, 1, 2]
    (walk,) = pipeline.walk("the cat")
    weight = torch.tensor(table.weight if tied else table.output)
    hidden = -torch.tensor(walk.output) if tied else torch.tensor(walk.output)
    walk.steps["output"] = walk.steps["lookup"] = hidden.numpy()  # so that each real score is negative
    logits = (hidden @ weight.T)[:, 3:]
    assert (logits < 0).all()
    shares, ids = logits.softmax(-1).sort(descending=True)
    for row, expected, order in zip(pipeline.predict(walk, k=99), shares, ids, strict=True):
        assert [one.id for one in row] == (order + 3).tolist()
        np.testing.assert_allclose([one.probability for one in row], expected.numpy(), rtol=1e-5)


def test_a_table_of_zeros_predicts_nothing(table):
    table.weight[:] = 0
    pipeline = Pipeline.under(table)
    with pytest.raises(TableFormatError, match="each of the 8 rows that score is zero"):
        pipeline.predict(pipeline.walk("the cat")[0])


def test_words_that_follow_are_proposed_by_a_table_that_train_made(tmp_path):
    pytest.importorskip("numba")
    text = tmp_path / "n.txt"
    text.write_text("red cat purrs\nblue dog barks\n" * 300)
    table = ts.train.skipgram([text], dim=16, epochs=20, threads=1, seed=1, min_count=1, sample=0)
    pipeline = Pipeline.under(table)
    assert [table.vocab[i] for i in pipeline.untrained_rows] == ["[PAD]", "[UNK]", "[SEP]"]
    (walk,) = pipeline.walk("cat dog")
    contexts = [{one.token for one in row} for row in pipeline.predict(walk, k=2)]
    assert contexts == [{"red", "purrs"}, {"blue", "barks"}]


def test_a_checkpoint_without_its_head_says_what_scores(small_checkpoint, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(small_checkpoint("gpt2").folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    tokenizer = Tokenizer.train_from_iterator(["the cat and the dog sat"])
    (folder / "tokenizer.json").write_text(tokenizer.to_json())
    pipeline = Pipeline.open(folder)
    assert pipeline.scoring_rows == "table"
    assert "holds no head" in pipeline.no_head
    (walk,) = pipeline.walk("the cat")
    logits = walk.output @ np.asarray(pipeline.table.weight, np.float32).T
    assert [row[0].id for row in pipeline.predict(walk)] == logits.argmax(axis=1).tolist()


def test_a_gradient_is_only_shown(saved):
    pipeline = Pipeline.open(saved)
    (walk,) = pipeline.walk(["the cat and the dog"])
    moved = pipeline.gradient(walk, learning_rate=0.5)
    assert moved.rows_moved == 3  # the, cat, and; the last token predicts nothing
    assert next(row.positions for row in moved.rows if row.token == "the") == [0, 3]
    np.testing.assert_array_equal(pipeline.walk(["the cat and the dog"])[0].output, walk.output)


def test_one_str_is_one_text(saved):
    pipeline = Pipeline.open(saved)
    (walk,) = pipeline.walk("the cat")
    assert walk.tokens == pipeline.walk(["the cat"])[0].tokens
    assert [one.tokens for one in pipeline.tokenizer.encode_batch("the cat")] == [["the", "cat"]]
    assert [walk.text for walk in pipeline.walk(text for text in ("the", "cat"))] == ["the", "cat"]
    for texts, found in ((b"the cat", "bytes"), (3, "int"), (["the", 3], "at place 1 is int")):
        with pytest.raises(CorpusError, match=found):
            pipeline.walk(texts)
    assert "cat" in Tokenizer.train_from_iterator("the cat").vocab
    with pytest.raises(VocabError, match="a list of tokens, found str"):
        ts.Vocab("the")


@pytest.mark.parametrize("texts", [[""], ["the", " \n"], []])
def test_texts_without_tokens_are_refused(saved, texts):
    with pytest.raises(CorpusError, match=r"empty|no tokens"):
        Pipeline.open(saved).walk(texts)


def test_what_can_not_be_walked(saved, table, tmp_path):
    with pytest.raises(CheckpointError, match="original, bert, gpt2, llama"):
        Pipeline.open(saved, "bret")
    with pytest.raises(ShapeError, match="513 positions are needed"):
        Pipeline.open(saved, "bert").walk(["the " * 513])
    pipeline = Pipeline.open(saved)
    (walk,) = pipeline.walk(["cat"])
    with pytest.raises(CorpusError, match="at least two tokens"):
        pipeline.gradient(walk)
    tokens = [f"##{token}" for token in table.vocab]
    ts.save(ts.Table(table.weight, ts.Vocab(tokens, encoding="wordpiece")), tmp_path / "bare")
    with pytest.raises(VocabError, match=r"wordpiece pieces.*; ask for words \(neighbors.*Tokenizer\.load"):
        Pipeline.open(tmp_path / "bare")
    unnamed = ts.Vocab([f"[unused-row-{i}]" for i in range(len(table))])
    with pytest.raises(VocabError, match=r"no tokenizer, and its rows have no tokens"):
        Pipeline.under(ts.Table(table.weight, unnamed))


def test_padding_has_no_part_in_predictions_and_gradients(saved):
    pipeline = Pipeline.open(saved)
    short, _ = pipeline.walk(["the cat", "the dog and the cat sat"])
    (alone,) = pipeline.walk(["the cat"])
    assert pipeline.gradient(short) == pipeline.gradient(alone)
    assert pipeline.predict(short) == pipeline.predict(alone)
    one, _ = pipeline.walk(["cat", "the dog"])
    with pytest.raises(CorpusError, match="at least two tokens"):
        pipeline.gradient(one)


def test_numbers_that_are_none_are_named(table):
    table.weight[table.vocab.id("dog"), 1] = np.nan
    layer = recipes.from_table(table, "original", np.random.default_rng(0))
    pipeline = Pipeline(table, layer, "original")
    with pytest.raises(
        TableFormatError, match=r"'lookup' gives NaN or infinity for token 'dog' at batch 0, position 1"
    ):
        pipeline.walk(["the dog"])
    (walk,) = pipeline.walk(["the cat"])
    with pytest.raises(TableFormatError, match="the head's scores hold NaN"):
        pipeline.predict(walk)


NAMES = ["gpt2", "bert", "roberta", "roberta-padding-3", "xlm", "gemma", "t5", "bart"]


@pytest.mark.parametrize("name", NAMES)
def test_checkpoints_of_many_families_walk_and_predict(name, small_checkpoint, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(small_checkpoint(name).folder, folder)
    tokenizer = Tokenizer.train_from_iterator(["the cat and the dog sat"])
    (folder / "tokenizer.json").write_text(tokenizer.to_json())
    pipeline = Pipeline.open(folder)
    (walk,) = pipeline.walk(["the cat"], pair="the dog")
    assert pipeline.untrained == ()
    predicted = pipeline.predict(walk, k=2)
    logits = recipes.head_from_checkpoint(open_checkpoint(folder)).forward(walk.output)
    assert [row[0].id for row in predicted] == logits.argmax(axis=-1).tolist()
    assert pipeline.gradient(walk).loss > 0


def test_a_rows_gradient_is_the_sum_of_what_its_positions_hand_it(saved):
    for recipe in ("original", "bert", "gpt2", "llama"):
        pipeline = Pipeline.open(saved, recipe)
        (walk,) = pipeline.walk(["the cat sat on the mat the"])
        moved = pipeline.gradient(walk)
        assert moved.by_position.shape == walk.output.shape
        assert max(len(row.positions) for row in moved.rows) > 1
        for row in moved.rows:
            summed = moved.by_position[row.positions].sum(axis=0)
            assert np.linalg.norm(summed) == pytest.approx(row.gradient_lookup, rel=1e-5, abs=1e-9)
        assert pipeline.gradient(walk) == moved
        left = pipeline.layer.gradients().values()
        assert not any(gradient.any() for gradient in left)  # nothing of it stays in the layer


def test_padding_hands_its_row_nothing(saved):
    pipeline = Pipeline.open(saved)
    (walk,) = pipeline.walk(["the cat [PAD] sat"])
    padding = [t for t, token in enumerate(walk.tokens) if token.id == pipeline.layer.token.padding_id]
    assert padding
    assert not pipeline.gradient(walk).by_position[padding].any()
