import json

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from tokenspace.errors import CheckpointError, ShapeError
from tokenspace.initializers import TRUNCATED_STD
from tokenspace.models.open import load_table, open_checkpoint
from tokenspace.reference import LearnedPositionalEmbedding, SinusoidalPositionalEncoding
from tokenspace.reference.recipes import from_checkpoint, from_table
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.vocab import Vocab

V, D = 30, 8


@pytest.fixture
def ids(rng):
    return rng.integers(0, V, (2, 5))


@pytest.fixture
def table(rng):
    return Table(rng.normal(size=(V, D)).astype(np.float32), Vocab([f"w{i}" for i in range(V)]))


def checkpoint(folder, config, tensors):
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return open_checkpoint(folder)


def bert_tensors(prefix="bert.", norm=("weight", "bias")):
    torch.manual_seed(0)
    return {
        f"{prefix}embeddings.word_embeddings.weight": torch.randn(V, D),
        f"{prefix}embeddings.position_embeddings.weight": torch.randn(16, D),
        f"{prefix}embeddings.token_type_embeddings.weight": torch.randn(2, D),
        f"{prefix}embeddings.LayerNorm.{norm[0]}": torch.randn(D),
        f"{prefix}embeddings.LayerNorm.{norm[1]}": torch.randn(D),
    }


def torch_bert(tensors, ids, segments, eps, prefix="", norm=("weight", "bias")):
    """BERT's input as torch computes it, from the file's tensors."""
    part = {name.removeprefix(f"{prefix}embeddings."): tensor for name, tensor in tensors.items()}
    total = (
        F.embedding(torch.as_tensor(ids), part["word_embeddings.weight"])
        + part["position_embeddings.weight"][: ids.shape[1]]
        + F.embedding(torch.as_tensor(segments), part["token_type_embeddings.weight"])
    )
    weight, bias = part[f"LayerNorm.{norm[0]}"], part[f"LayerNorm.{norm[1]}"]
    return F.layer_norm(total, total.shape[-1:], weight, bias, eps).numpy()


def test_minilms_input_is_torchs(minilm_folder):
    tokenizer = Tokenizer.load(minilm_folder)
    texts = [("The cat sat on the mat.", "Where is the dog?"), ("Unhappiness", "is a mood of people")]
    encoded = [tokenizer.encode(a, b) for a, b in texts]
    length = min(one.ids.size for one in encoded)
    ids = np.stack([one.ids[:length] for one in encoded])
    segments = np.stack([one.segments[:length] for one in encoded])
    assert segments.any()
    layer = from_checkpoint(open_checkpoint(minilm_folder))
    expected = torch_bert(load_file(minilm_folder / "model.safetensors"), ids, segments, eps=1e-12)
    np.testing.assert_allclose(layer.forward(ids, segments), expected, atol=1e-6)


def test_minilms_parts_are_memory_mapped(minilm_folder):
    layer = from_checkpoint(open_checkpoint(minilm_folder))
    assert not layer.token.weight.flags.owndata
    assert not layer.token.weight.flags.writeable
    assert layer.token.padding_id == 0
    assert layer.position.usable_length == 512


@pytest.mark.parametrize("norm", [("weight", "bias"), ("gamma", "beta")])
def test_bert_with_its_own_eps_and_either_name_of_layer_norm(tmp_path, ids, rng, norm):
    tensors = bert_tensors(norm=norm)
    segments = rng.integers(0, 2, ids.shape)
    opened = checkpoint(tmp_path, {"model_type": "bert", "layer_norm_eps": 0.1}, tensors)
    expected = torch_bert(tensors, ids, segments, 0.1, "bert.", norm)
    np.testing.assert_allclose(from_checkpoint(opened).forward(ids, segments), expected, atol=1e-5)


def test_bert_without_absolute_positions_adds_none(tmp_path):
    config = {"model_type": "bert", "position_embedding_type": "relative_key"}
    assert from_checkpoint(checkpoint(tmp_path, config, bert_tensors())).position is None


def test_gpt2_adds_rows_and_positions_alone(tmp_path, ids):
    torch.manual_seed(0)
    wte, wpe = torch.randn(V, D), torch.randn(16, D)
    opened = checkpoint(tmp_path, {"model_type": "gpt2"}, {"wte.weight": wte, "wpe.weight": wpe})
    layer = from_checkpoint(opened)
    assert list(layer.steps(ids)) == ["lookup", "position", "output"]
    np.testing.assert_array_equal(
        layer.forward(ids), (F.embedding(torch.as_tensor(ids), wte) + wpe[:5]).numpy()
    )


def test_llama_is_a_lookup_alone_and_bfloat16_stays(tmp_path, ids):
    torch.manual_seed(0)
    embed = torch.randn(V, D).bfloat16()
    opened = checkpoint(
        tmp_path, {"model_type": "llama", "pad_token_id": -1}, {"model.embed_tokens.weight": embed}
    )
    layer = from_checkpoint(opened)
    assert layer.token.weight.dtype == ml_dtypes.bfloat16
    assert layer.token.padding_id is None
    assert list(layer.steps(ids)) == ["lookup", "output"]
    np.testing.assert_array_equal(layer.forward(ids), embed.float()[torch.as_tensor(ids)].numpy())


def test_dropout_comes_with_a_generator_at_the_rate_of_the_config(tmp_path, rng):
    opened = checkpoint(tmp_path, {"model_type": "bert", "hidden_dropout_prob": 0.25}, bert_tensors())
    assert from_checkpoint(opened).dropout is None
    assert from_checkpoint(opened, rng).dropout.rate == 0.25


def test_a_missing_part_is_named(tmp_path):
    tensors = bert_tensors()
    del tensors["bert.embeddings.LayerNorm.bias"]
    opened = checkpoint(tmp_path, {"model_type": "bert"}, tensors)
    with pytest.raises(
        CheckpointError, match=r"no tensor 'bert.embeddings.LayerNorm.bias', which its family"
    ):
        from_checkpoint(opened)


def test_an_unknown_family_is_not_guessed(tmp_path):
    opened = checkpoint(tmp_path, {"model_type": "new"}, {"model.embed_tokens.weight": torch.zeros(V, D)})
    with pytest.raises(CheckpointError, match="'new' with these tensors is not a known family"):
        from_checkpoint(opened)


@pytest.mark.parametrize("eps", ["tiny", True, None])
def test_an_eps_that_is_no_number(tmp_path, eps):
    opened = checkpoint(tmp_path, {"model_type": "bert", "layer_norm_eps": eps}, bert_tensors())
    with pytest.raises(CheckpointError, match="layer_norm_eps must be a number, found"):
        from_checkpoint(opened)


def test_original_scales_by_the_root_of_the_width_and_adds_sines(table, rng, ids):
    layer = from_table(table, "original", rng)
    position = SinusoidalPositionalEncoding(D).forward(np.arange(5))
    np.testing.assert_allclose(layer.forward(ids), table.lookup(ids) * np.sqrt(D) + position, rtol=1e-6)
    assert layer.dropout.rate == 0.1


@pytest.mark.parametrize(
    ("recipe", "rows", "std"), [("bert", 512, 0.02 * TRUNCATED_STD), ("gpt2", 1024, 0.01)]
)
def test_drawn_positions_have_the_recipes_std(table, rng, recipe, rows, std):
    layer = from_table(table, recipe, rng)
    assert isinstance(layer.position, LearnedPositionalEmbedding)
    assert layer.position.weight.shape == (rows, D)
    assert layer.position.weight.std() == pytest.approx(std, rel=0.05)
    assert abs(layer.position.weight).max() <= (0.04 if recipe == "bert" else 1)


def test_recipes_have_the_steps_that_they_should(table, rng, ids):
    steps = {
        name: list(from_table(table, name, rng).steps(ids)) for name in ("original", "bert", "gpt2", "llama")
    }
    assert steps == {
        "original": ["lookup", "scaled", "position", "dropout", "output"],
        "bert": ["lookup", "position", "segment", "normalized", "dropout", "output"],
        "gpt2": ["lookup", "position", "dropout", "output"],
        "llama": ["lookup", "output"],
    }


def test_the_generator_decides_what_is_drawn(table):
    one, same, other = (
        from_table(table, "bert", np.random.default_rng(seed)).segment.weight for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_rows_are_the_tables_own(table, rng):
    assert from_table(table, "llama", rng).token.weight is table.weight


def test_the_tokenizers_padding_row_has_no_gradient(rng):
    tokenizer = Tokenizer.train_from_iterator(["a cat"])
    weight = rng.normal(size=(len(tokenizer.vocab), D)).astype(np.float32)
    layer = from_table(Table(weight, tokenizer.vocab, tokenizer), "llama", rng)
    assert layer.token.padding_id == tokenizer.pad_id == 0


def test_a_recipe_that_is_not_known(table, rng):
    with pytest.raises(CheckpointError, match="'bort' is not known; allowed: original, bert, gpt2, llama"):
        from_table(table, "bort", rng)


def test_minilm_as_a_plain_table_under_another_recipe(minilm_folder, rng):
    layer = from_table(load_table(minilm_folder), "original", rng)
    assert layer.forward([[101, 102]]).shape == (1, 2, 384)


def test_draws_need_a_generator(table, tmp_path):
    made = checkpoint(tmp_path, {"model_type": "bert"}, bert_tensors())
    for make in (lambda: from_table(table, "llama", 0), lambda: from_checkpoint(made, 0)):
        with pytest.raises(ShapeError, match=r"Generator; found 0: make one"):
            make()
