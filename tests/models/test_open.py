import json
import os
import time

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer as Inner
from tokenizers.models import WordLevel

from tokenspace.checkpoint import audit
from tokenspace.errors import CheckpointError, TableFormatError
from tokenspace.models.open import load_table, open_checkpoint

WORDS = ("[PAD]", "the", "cat", "sat", "dog")
V, D = len(WORDS), 4


@pytest.fixture
def numbers():
    torch.manual_seed(0)
    return lambda *shape: torch.randn(*shape)


def checkpoint(folder, config, tensors, words=WORDS, file="model.safetensors"):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / file)
    if words:
        inner = Inner(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[PAD]"))
        inner.save(str(folder / "tokenizer.json"))
    return folder


GPT2 = {"model_type": "gpt2", "vocab_size": V, "n_embd": D}
LLAMA = {"model_type": "llama", "vocab_size": V, "hidden_size": D}


def test_minilm_is_bert_with_its_rows_memory_mapped(minilm_folder):
    table = load_table(minilm_folder)
    assert (len(table), table.dim) == (30522, 384)
    assert isinstance(table.weight, np.memmap)
    assert table.output is None
    assert table.tokenizer is not None
    assert table.vocab[30521] == "##～"
    assert table.provenance["family"] == "bert"
    assert open_checkpoint(minilm_folder).tied is True
    norms = np.linalg.norm(table.weight, axis=1)
    assert (norms.min(), np.median(norms), norms.max()) == pytest.approx((0.245, 1.111, 1.694), abs=5e-4)


@pytest.mark.alone
def test_opening_reads_headers_only(minilm_folder):
    open_checkpoint(minilm_folder)
    start = time.perf_counter()
    opened = open_checkpoint(minilm_folder)
    assert time.perf_counter() - start < 0.05
    assert len(opened.tensors) == 104
    assert str(opened).endswith("model', bert, 104 tensors)")


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_gpt2_with_and_without_prefix(tmp_path, numbers, prefix):
    wte = numbers(V, D)
    folder = checkpoint(tmp_path, GPT2, {f"{prefix}wte.weight": wte, f"{prefix}wpe.weight": numbers(8, D)})
    opened = open_checkpoint(folder)
    assert opened.family.name == "gpt2"
    assert opened.tied is True
    assert opened.head is None
    assert opened.find(opened.family.position).shape == (8, D)
    table = load_table(folder)
    np.testing.assert_array_equal(table["cat"], wte[2].numpy())


def test_llama_untied_head_becomes_the_output(tmp_path, numbers):
    embed, head = numbers(V, D), numbers(V, D)
    folder = checkpoint(tmp_path, LLAMA, {"model.embed_tokens.weight": embed, "lm_head.weight": head})
    opened = open_checkpoint(folder)
    assert opened.tied is False
    assert opened.head.name == "lm_head.weight"
    np.testing.assert_array_equal(load_table(folder).output, head.numpy())


@pytest.mark.parametrize(
    ("flag", "tied"),
    [
        ({"tie_word_embeddings": True}, True),
        ({"text_config": {"tie_word_embeddings": True}}, True),
        ({}, False),
    ],
)
def test_without_a_head_the_config_says_whether_it_is_tied(tmp_path, numbers, flag, tied):
    folder = checkpoint(tmp_path, LLAMA | flag, {"model.embed_tokens.weight": numbers(V, D)})
    assert open_checkpoint(folder).tied is tied
    assert load_table(folder).output is None


def test_tensors_decide_over_the_flag(tmp_path, numbers):
    embed = numbers(V, D)
    says_tied = LLAMA | {"tie_word_embeddings": True}
    apart = checkpoint(
        tmp_path / "apart", says_tied, {"embed_tokens.weight": embed, "lm_head.weight": embed + 1}
    )
    assert open_checkpoint(apart).tied is False
    says_untied = LLAMA | {"tie_word_embeddings": False}
    same = checkpoint(
        tmp_path / "same", says_untied, {"embed_tokens.weight": embed, "lm_head.weight": embed.clone()}
    )
    assert open_checkpoint(same).tied is True
    assert load_table(same).output is None


def test_shards_in_bfloat16(tmp_path, numbers):
    embed, head = numbers(V, D).bfloat16(), numbers(V, D).bfloat16()
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    checkpoint(tmp_path, LLAMA, {"model.embed_tokens.weight": embed}, file=one)
    checkpoint(tmp_path, LLAMA, {"lm_head.weight": head}, file=two)
    places = {"model.embed_tokens.weight": one, "lm_head.weight": two}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    table = load_table(tmp_path)
    assert table.weight.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(table["cat"], embed[2].float().numpy())
    np.testing.assert_array_equal(table.output[4].astype(np.float32), head[4].float().numpy())


def test_a_config_without_model_type_is_recognised_by_names(tmp_path, numbers):
    folder = checkpoint(tmp_path, {}, {"bert.embeddings.word_embeddings.weight": numbers(V, D)})
    opened = open_checkpoint(folder)
    assert (opened.family.name, opened.prefix) == ("bert", "bert.")


def test_names_that_several_families_share_tell_none(tmp_path, numbers):
    folder = checkpoint(tmp_path, {"vocab_size": V}, {"model.embed_tokens.weight": numbers(V, D)})
    assert open_checkpoint(folder).family is None


def test_a_model_type_that_is_not_known_is_not_taken_for_another(tmp_path, numbers):
    config = {"model_type": "new", "vocab_size": V}
    folder = checkpoint(tmp_path, config, {"model.embed_tokens.weight": numbers(V, D), "x": numbers(D, V)})
    opened = open_checkpoint(folder)
    assert opened.family is None
    assert opened.tied is None
    assert opened.input_embedding.name == "model.embed_tokens.weight"
    assert load_table(folder).provenance["family"] is None


def test_an_unknown_family_with_two_candidates_lists_them(tmp_path, numbers):
    config = {"model_type": "new", "text_config": {"vocab_size": V}}
    tensors = {"inlet.weight": numbers(V, D), "outlet.weight": numbers(V, D), "bias": numbers(V)}
    folder = checkpoint(tmp_path, config, tensors)
    with pytest.raises(
        CheckpointError, match=r"'new'.*2 tensors have vocab_size = 5.*'inlet.weight', 'outlet.weight'"
    ):
        load_table(folder)
    np.testing.assert_array_equal(load_table(folder, tensor="outlet.weight").weight, tensors["outlet.weight"])
    with pytest.raises(CheckpointError, match=r"no tensor 'x'; it has 'bias', 'inlet.weight'"):
        load_table(folder, tensor="x")


def test_an_unknown_family_without_a_candidate(tmp_path, numbers):
    folder = checkpoint(tmp_path, {"vocab_size": 9}, {"inlet.weight": numbers(V, D)})
    with pytest.raises(CheckpointError, match=r"no tensor has vocab_size = 9 rows; name .*'inlet.weight'"):
        load_table(folder)


def test_rows_past_the_tokenizer_are_named_unused(tmp_path, numbers):
    folder = checkpoint(tmp_path, GPT2, {"wte.weight": numbers(V + 3, D)})
    vocab = load_table(folder).vocab
    assert list(vocab) == [*WORDS, "[unused-row-5]", "[unused-row-6]", "[unused-row-7]"]
    assert vocab.kind(6) == "unused"


def test_ids_without_a_row_are_counted_and_named(tmp_path, numbers):
    folder = checkpoint(tmp_path, GPT2, {"wte.weight": numbers(V - 2, D)})
    with pytest.raises(
        CheckpointError, match=r"2 of the tokenizer's ids have no row .* of 3; the first is 3, token 'sat'"
    ):
        load_table(folder)


def test_a_head_of_another_shape(tmp_path, numbers):
    tensors = {"wte.weight": numbers(V, D), "lm_head.weight": numbers(V + 1, D)}
    with pytest.raises(CheckpointError, match=r"'lm_head.weight' is \[6, 4\], .* \[5, 4\]"):
        load_table(checkpoint(tmp_path, GPT2, tensors))


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (torch.zeros(V, D, dtype=torch.float64), "is F64; a table must be F32, F16 or BF16"),
        (torch.zeros(V), r"has shape \[5\]; an input table is \(V, D\)"),
    ],
)
def test_a_table_that_is_none(tmp_path, tensor, says):
    with pytest.raises(CheckpointError, match=says):
        load_table(checkpoint(tmp_path, GPT2, {"wte.weight": tensor}))


def test_vocab_txt_names_the_rows_where_there_is_no_tokenizer(tmp_path, numbers):
    folder = checkpoint(tmp_path, GPT2, {"wte.weight": numbers(V, D)}, words=None)
    with pytest.raises(CheckpointError, match=r"neither tokenizer.json nor vocab.txt"):
        load_table(folder)
    (folder / "vocab.txt").write_bytes("[PAD]\nthe\na\u2028b\n\nd\r\n".encode())
    table = load_table(folder)
    assert list(table.vocab) == ["[PAD]", "the", "a\u2028b", "", "d"]
    assert table.vocab.special == (0,)
    assert table.tokenizer is None
    (folder / "vocab.txt").write_bytes(b"a\n\xff")
    with pytest.raises(CheckpointError, match=r"not UTF-8 at byte 2"):
        load_table(folder)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "config.json is not JSON"),
        (b"[1]", "is a JSON list"),
        (b"\xff", "not JSON"),
        (b"[" * 99_999, "not JSON"),
    ],
    ids=["cut off", "a list", "no UTF-8", "nested"],
)
def test_a_broken_config(tmp_path, numbers, content, says):
    folder = checkpoint(tmp_path, GPT2, {"wte.weight": numbers(V, D)})
    (folder / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=says) as caught:
        open_checkpoint(folder)
    assert "\n" not in str(caught.value)


def test_what_is_no_checkpoint(tmp_path, numbers):
    with pytest.raises(CheckpointError, match=r"does not exist"):
        open_checkpoint(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"has no config.json"):
        open_checkpoint(tmp_path)
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match=r"config\.json is no regular file"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"is a file; a checkpoint is a folder"):
        open_checkpoint(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match=r"has neither model.safetensors nor"):
        open_checkpoint(tmp_path)
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is no regular file"):
        open_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"weights-only loader can't open .*pytorch_model\.bin"):
        open_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(TableFormatError, match=r"model\.safetensors: the file is empty"):
        open_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(TableFormatError, match=r"too few for a safetensors file"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "shard", ["../secret.safetensors", "/etc/x.safetensors", "..", "", "a\0b", "in/side", "C:x"]
)
def test_an_index_may_not_leave_the_folder(tmp_path, numbers, shard):
    folder = checkpoint(tmp_path / "model", GPT2, {"wte.weight": numbers(V, D)}, file="shard.safetensors")
    checkpoint(tmp_path, GPT2, {"wte.weight": numbers(V, D)}, file="secret.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"wte.weight": shard}}))
    with pytest.raises(CheckpointError, match=r"a shard is a plain file in the same folder"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ({}, "has no weight_map"),
        ({"weight_map": {"wte.weight": 1}}, "has no weight_map"),
        ({"weight_map": {"wte.weight": "gone.safetensors"}}, "has no gone.safetensors, .* download complete"),
        ({"weight_map": {"other": "shard.safetensors"}}, "holds 'other'; it holds 'wte.weight'"),
    ],
)
def test_an_index_that_does_not_fit_its_files(tmp_path, numbers, index, says):
    folder = checkpoint(tmp_path, GPT2, {"wte.weight": numbers(V, D)}, file="shard.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=says):
        list(open_checkpoint(folder).tensors.values())


def two_shards(folder, config, first, second):
    """A checkpoint of two files, and their index."""
    places = dict.fromkeys(first, "one.safetensors") | dict.fromkeys(second, "two.safetensors")
    checkpoint(folder, config, first, file="one.safetensors")
    checkpoint(folder, config, second, file="two.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def test_a_shard_that_holds_nothing_wanted_need_not_be_there(tmp_path, numbers):
    embed = numbers(V, D)
    folder = two_shards(
        tmp_path, LLAMA, {"model.embed_tokens.weight": embed}, {"model.layers.0.mlp.weight": numbers(D, D)}
    )
    for content in (b"junk", None):
        (folder / "two.safetensors").unlink()
        if content:
            (folder / "two.safetensors").write_bytes(content)
        np.testing.assert_array_equal(load_table(folder).weight, embed)
        opened = open_checkpoint(folder)
        assert "model.layers.0.mlp.weight" in opened.tensors
        assert str(opened).endswith("llama, 2 tensors)")
        if content is None:
            with pytest.raises(CheckpointError, match=r"has no two.safetensors, which .*index.json names"):
                audit(opened)


def test_a_missing_shard_that_holds_the_head_is_an_error(tmp_path, numbers):
    folder = two_shards(
        tmp_path, LLAMA, {"model.embed_tokens.weight": numbers(V, D)}, {"lm_head.weight": numbers(V, D)}
    )
    (folder / "two.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"has no two.safetensors"):
        load_table(folder)


@pytest.mark.parametrize("words", [WORDS, WORDS[:2]], ids=["all named", "two named"])
def test_limit_takes_the_first_rows(tmp_path, numbers, words):
    embed, head = numbers(V, D), numbers(V, D)
    tensors = {"model.embed_tokens.weight": embed, "lm_head.weight": head}
    table = load_table(checkpoint(tmp_path, LLAMA, tensors, words), limit=3)
    np.testing.assert_array_equal(table.weight, embed[:3])
    np.testing.assert_array_equal(table.output, head[:3])
    assert list(table.vocab) == [*words[:3], *(["[unused-row-2]"] if len(words) < 3 else [])]
    assert isinstance(table.weight, np.memmap)
    assert (table.tokenizer, table.provenance["rows_taken"]) == (None, 3)
    whole = load_table(tmp_path, limit=99)
    assert len(whole) == V
    assert whole.tokenizer is not None
