import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Inner
from tokenizers.models import WordLevel

from tokenspace.checkpoint import audit, count
from tokenspace.errors import CheckpointError
from tokenspace.models.open import open_checkpoint

V, D = 60, 16  # of the small checkpoints


@pytest.fixture
def changed(small_checkpoint, tmp_path):
    """A small checkpoint's audit after changes: tensors added or (None) removed, settings, tokens."""

    def change(name, tensors=None, tokens=V, **settings):
        folder = tmp_path / name
        shutil.copytree(small_checkpoint(name).folder, folder)
        held = load_file(folder / "model.safetensors") | (tensors or {})
        held = {key: tensor for key, tensor in held.items() if tensor is not None}
        save_file(held, folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text()) | settings
        (folder / "config.json").write_text(json.dumps(config))
        if tokens:
            words = {f"w{i}": i for i in range(tokens)}
            Inner(WordLevel(words, unk_token="w0")).save(str(folder / "tokenizer.json"))
        return audit(open_checkpoint(folder))

    return change


@pytest.fixture
def with_added(small_checkpoint, tmp_path):
    """The audit of a small BERT with a vocab.txt and an added_tokens.json."""

    def audited(added):
        shutil.copytree(small_checkpoint("bert").folder, tmp_path / "added")
        names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(5, V))]
        (tmp_path / "added" / "vocab.txt").write_text("\n".join(names) + "\n")
        (tmp_path / "added" / "added_tokens.json").write_text(json.dumps(added))
        return audit(open_checkpoint(tmp_path / "added"))

    return audited


def codes(found):
    return [(finding.severity, finding.code) for finding in found.findings]


def roles(found):
    return {tensor.name: tensor.role for tensor in found.tensors}


def test_a_sound_checkpoint(changed):
    found = changed("bert")
    assert found.findings == []
    assert not found.failed
    assert (found.family, found.tied, found.rows, found.largest_id) == ("bert", True, V, V - 1)
    assert found.tying == (True, None, None)
    assert roles(found) == {
        "bert.embeddings.word_embeddings.weight": "input",
        "bert.embeddings.position_embeddings.weight": "position",
        "bert.embeddings.token_type_embeddings.weight": "segment",
        "bert.embeddings.LayerNorm.weight": "layer-norm",
        "bert.embeddings.LayerNorm.bias": "layer-norm",
        "cls.predictions.bias": "head-bias",
    }
    assert found.tensors[0][2:] == ((V, D), "F32", "model.safetensors")
    assert found.parameters.embedding == V * D


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("llama", {"model.embed_tokens.weight": "input", "lm_head.weight": "head"}),
        ("t5-untied", {"shared.weight": "input", "lm_head.weight": "head"}),
        ("gptj", {"lm_head.weight": "head", "lm_head.bias": "head-bias"}),
        ("xlm", {"transformer.lang_embeddings.weight": "language", "pred_layer.proj.bias": "head-bias"}),
        ("opt-projected", {"model.decoder.project_in.weight": "projection"}),
        ("bart", {"final_logits_bias": "head-bias", "model.encoder.embed_positions.weight": "position"}),
    ],
)
def test_each_tensor_has_its_role(changed, name, role):
    found = changed(name)
    assert role.items() <= roles(found).items()
    assert "unknown" not in roles(found).values()


def test_an_untied_head_says_so_three_times(changed):
    found = changed("llama")
    assert (found.tied, found.tying) == (False, (False, "lm_head.weight", False))
    assert found.findings == []


def test_ids_past_the_table_are_an_error(changed):
    found = changed("gpt2", tokens=V + 3)
    assert codes(found) == [("error", "ids-past-rows")]
    assert found.failed
    assert "3 of the tokenizer's ids have no row: the first is 60, token w60" in found.findings[0].message
    assert found.largest_id == V + 2


@pytest.mark.parametrize(("i", "largest"), [(V, V), (V + 5, V + 5)], ids=["next", "after a gap"])
def test_added_ids_past_the_table_are_an_error(i, largest, with_added):
    found = with_added({"<x>": i})
    assert codes(found) == [("error", "ids-past-rows")]
    assert "<x>" in found.findings[0].message
    assert found.largest_id == largest
    assert found.failed


def test_an_added_id_that_clashes_is_a_doubt(with_added):
    found = with_added({"<x>": 3})
    assert codes(found) == [("warning", "tokenizer-broken")]
    assert "'<x>' has id 3" in found.findings[0].message


def test_a_padding_id_past_the_table_is_an_error(changed):
    assert codes(changed("gpt2", pad_token_id=V)) == [("error", "padding-past-rows")]


def test_rows_past_the_tokenizer_are_worth_knowing(changed):
    found = changed("gpt2", tokens=V - 5)
    assert codes(found) == [("info", "spare-rows")]
    assert found.findings[0].message.startswith("5 rows past the tokenizer's largest id, 54")
    assert not found.failed


def test_without_a_tokenizer_ids_are_not_checked(changed):
    found = changed("gpt2", tokens=None)
    assert codes(found) == [("info", "tokenizer-unknown")]
    assert found.largest_id is None


def test_a_vocab_size_that_is_another(changed):
    assert codes(changed("gpt2", vocab_size=V + 1)) == [("warning", "vocab-size")]


def test_a_vocab_size_that_is_no_number(changed):
    assert codes(changed("gpt2", vocab_size=[V])) == [("warning", "vocab-size")]


def test_a_damaged_tokenizer_is_a_doubt_of_its_own(small_checkpoint, tmp_path):
    shutil.copytree(small_checkpoint("gpt2").folder, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("{")
    (found,) = audit(open_checkpoint(tmp_path / "model")).findings
    assert found[:2] == ("tokenizer-broken", "warning")
    assert "tokenizer.json is no tokenizer.json" in found.message
    (tmp_path / "model" / "tokenizer.json").unlink()
    os.mkfifo(tmp_path / "model" / "tokenizer.json")
    (found,) = audit(open_checkpoint(tmp_path / "model")).findings
    assert found.code == "tokenizer-broken"
    assert "tokenizer.json is no regular file" in found.message


def test_shards_that_were_left_out_on_purpose_are_named(small_checkpoint, tmp_path):
    shutil.copytree(small_checkpoint("llama").folder, tmp_path / "model")
    held = load_file(tmp_path / "model" / "model.safetensors")
    where = {name: "two" if ".layers." in name else "one" for name in held}
    for shard in ("one", "two"):
        tensors = {name: held[name] for name in held if where[name] == shard}
        save_file(tensors, tmp_path / "model" / f"{shard}.safetensors")
    index = {"weight_map": {name: f"{shard}.safetensors" for name, shard in where.items()}}
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model" / "model.safetensors").unlink()
    whole = audit(open_checkpoint(tmp_path / "model"), partial=True)
    assert codes(whole) == [("info", "tokenizer-unknown")]
    (tmp_path / "model" / "two.safetensors").unlink()
    found = audit(open_checkpoint(tmp_path / "model"), partial=True)
    assert codes(found) == [("info", "not-fetched"), ("info", "tokenizer-unknown")]
    assert (
        "1 of the model's files were not fetched, nor looked at: 'two.safetensors'"
        in found.findings[0].message
    )
    assert (found.family, found.tied, found.rows, found.tensors) == ("llama", False, V, whole.tensors)
    assert (found.parameters, whole.parameters is None) == (None, False)
    with pytest.raises(CheckpointError, match=r"has no two\.safetensors, which .* is the download complete"):
        audit(open_checkpoint(tmp_path / "model"))


def test_a_flag_that_would_lose_a_head(changed):
    found = changed("gpt2", {"lm_head.weight": torch.ones(V, D)})
    assert (found.tied, found.tying) == (False, (True, "lm_head.weight", False))
    assert codes(found) == [("warning", "tie-flag")]


def test_a_head_that_repeats_the_table(changed, small_checkpoint):
    table = small_checkpoint("gpt2").module.transformer.wte.weight.detach().clone()
    found = changed("gpt2", {"lm_head.weight": table})
    assert (found.tied, found.tying) == (True, (True, "lm_head.weight", True))
    assert codes(found) == [("info", "head-copy")]


BERT = "bert.embeddings."
LAYER_FAULTS = {
    "no norm": ({f"{BERT}LayerNorm.weight": None, f"{BERT}LayerNorm.bias": None}, "LayerNorm.weight"),
    "other width": ({f"{BERT}position_embeddings.weight": torch.ones(40, D + 1)}, str(D + 1)),
}


@pytest.mark.parametrize(("tensors", "said"), LAYER_FAULTS.values(), ids=LAYER_FAULTS)
def test_an_input_layer_that_cant_be_made(changed, tensors, said):
    found = changed("bert", tensors)
    assert codes(found) == [("warning", "layer")]
    assert said in found.findings[0].message


def test_a_table_without_rows_is_an_error(changed):
    found = changed("bert", {f"{BERT}word_embeddings.weight": torch.ones(0, D)})
    assert codes(found)[0] == ("error", "no-rows")
    assert "vocab-size" not in {code for _, code in codes(found)}


def test_a_padding_id_without_a_row_is_said_once(changed):
    assert codes(changed("bert", pad_token_id=V)) == [("error", "padding-past-rows")]


def test_a_vocab_size_in_words_finds_no_table(changed):
    found = changed("bert", model_type="new", vocab_size="60")
    (finding,) = (finding for finding in found.findings if finding.code == "input-unknown")
    assert "vocab_size is '60', no whole number" in finding.message


def test_a_model_without_head(changed):
    found = changed("llama", {"lm_head.weight": None})
    assert (found.tied, codes(found)) == (False, [("error", "no-head")])
    assert "LlamaForCausalLM scores tokens" in found.findings[0].message


def test_a_tied_head_without_its_bias_was_saved_without_one(changed):
    found = changed("bert", {"cls.predictions.bias": None}, architectures=["BertModel"])
    assert (found.tied, codes(found)) == (True, [("info", "no-head")])
    assert "'cls.predictions.bias'" in found.findings[0].message


def test_a_head_that_lacks_its_bias_is_doubted_where_it_scores_tokens(changed):
    found = changed("bert", {"cls.predictions.bias": None})
    assert codes(found) == [("warning", "head-bias-missing")]


def test_a_bias_that_is_zero_unless_stored_is_not_missed(changed):
    assert codes(changed("bart", {"final_logits_bias": None})) == []


def test_a_stored_head_without_its_bias(changed):
    found = changed("gptj", {"lm_head.bias": None})
    assert codes(found) == [("warning", "head-bias-missing")]


def test_a_head_and_a_bias_of_other_lengths(changed):
    found = changed("gptj", {"lm_head.weight": torch.ones(V + 2, D)})
    assert codes(found) == [("warning", "head-rows"), ("warning", "head-bias-rows")]


def test_a_second_copy_and_an_unknown_tensor_are_shown(changed, small_checkpoint):
    table = small_checkpoint("t5").module.shared.weight.detach()
    extra = {"encoder.embed_tokens.weight": table.clone(), "adapter.weight": torch.ones(3, V)}
    found = changed("t5", extra)
    assert roles(found)["encoder.embed_tokens.weight"] == "input-copy"
    assert roles(found)["adapter.weight"] == "unknown"
    assert codes(found) == [("warning", "role-unknown")]


def test_a_family_that_is_not_known_is_told_by_shape(changed):
    found = changed("gpt2", model_type="new")
    assert (found.family, found.rows, found.tied) == (None, V, True)
    assert roles(found) == {"transformer.wte.weight": "input"}
    assert codes(found) == [("warning", "family-unknown")]

    two = changed("llama", model_type="new")
    assert (two.rows, two.tied, two.tying) == (V, False, (False, "lm_head.weight", False))
    assert roles(two) == {"lm_head.weight": "head", "model.embed_tokens.weight": "input"}
    assert codes(two) == [("warning", "family-unknown")]


def test_a_missing_head_of_a_family_that_is_not_known_is_an_error_too(changed):
    found = changed("llama", {"lm_head.weight": None}, model_type="new")
    assert codes(found) == [("error", "no-head"), ("warning", "family-unknown")]


HEADS = ["proj_out.weight", "lm_loss.weight", "model.decoder.output_projection.weight"]


@pytest.mark.parametrize("head", HEADS)
def test_a_head_of_another_program_is_listed_as_one(changed, small_checkpoint, head):
    weight = small_checkpoint("llama").module.lm_head.weight.detach().clone()
    found = changed("llama", {"lm_head.weight": None, head: weight}, model_type="new")
    assert (found.tied, found.tying) == (False, (False, head, False))
    assert roles(found)[head] == "head"
    assert codes(found) == [("warning", "family-unknown")]


@pytest.mark.parametrize("head", ["lm_head.weight", *HEADS])
def test_heads_are_no_candidates_for_the_table(changed, small_checkpoint, head):
    weight = small_checkpoint("llama").module.lm_head.weight.detach().clone()
    tensors = {"lm_head.weight": None, "b.emb.weight": weight.clone(), head: weight}
    found = changed("llama", tensors, model_type="new")
    (finding,) = (finding for finding in found.findings if finding.code == "input-unknown")
    assert f"'b.emb.weight', 'model.embed_tokens.weight' (heads by their names: '{head}')" in finding.message


def test_without_a_table_a_head_is_listed_all_the_same(changed, small_checkpoint):
    head = "model.decoder.output_projection.weight"
    weight = small_checkpoint("llama").module.lm_head.weight.detach().clone()
    tensors = {"lm_head.weight": None, "model.embed_tokens.weight": None, head: weight}
    found = changed("llama", tensors, model_type="new", vocab_size=None)
    assert roles(found)[head] == "unknown"


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "t5", "bart"])
def test_a_known_family_whose_table_is_missing_is_no_unknown_family(changed, small_checkpoint, name):
    opened = open_checkpoint(small_checkpoint(name).folder)
    table = opened.input_embedding.name
    found = changed(name, {table: None})
    assert ("error", "table-missing") in codes(found)
    assert not [code for _, code in codes(found) if code == "family-unknown"]


def test_quantized_weights_are_shown_and_not_counted(changed):
    found = changed("gpt2", {"transformer.h.0.mlp.c_fc.qweight": torch.ones(4, 2, dtype=torch.int32)})
    assert (found.rows, found.parameters) == (V, None)
    assert codes(found) == [("warning", "not-counted")]


ALL = [
    "bert",
    "roberta",
    "camembert",
    "distilbert",
    "albert",
    "electra",
    "electra-projected",
    "deberta-v3",
    "modernbert",
    "xlm",
    "gpt2",
    "gptj",
    "gpt_neox",
    "opt",
    "opt-projected",
    "bloom",
    "t5",
    "t5-untied",
    "mt5",
    "bart",
    "mbart",
    "llama",
    "llama-tied",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma-bf16",
    "gemma2",
    "gemma3",
    "gemma3-images",
    "falcon",
    "mpt",
    "phi",
    "mamba",
    "granite",
    "cohere",
]


@pytest.mark.parametrize("name", ALL)
def test_every_family_counts_as_the_module_that_wrote_it(small_checkpoint, name):
    small = small_checkpoint(name)
    found = count(open_checkpoint(small.folder))
    assert found.total == sum(parameter.numel() for parameter in small.module.parameters())
    own = small.module.get_output_embeddings().weight is not small.module.get_input_embeddings().weight
    assert found.tied is not own
