"""Heads by a checkpoint's files; that they equal transformers' is in tests/models."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tokenspace.errors import CheckpointError, ShapeError
from tokenspace.models.open import open_checkpoint
from tokenspace.reference.recipes import from_checkpoint, head_from_checkpoint

V, D = 30, 8


@pytest.fixture
def made(tmp_path):
    def make(kind, names, **settings):
        torch.manual_seed(0)
        shapes = names if isinstance(names, dict) else dict.fromkeys(names, (V, D))
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind} | settings))
        save_file(
            {name: torch.randn(shape) for name, shape in shapes.items()}, tmp_path / "model.safetensors"
        )
        return open_checkpoint(tmp_path)

    return make


T5, TABLE = {"shared.weight": (V, D)}, "model.embed_tokens.weight"


def test_a_head_that_is_neither_stored_nor_tied(made):
    with pytest.raises(
        CheckpointError, match=r"holds no head: it has no tensor 'lm_head.weight', and is not"
    ):
        head_from_checkpoint(made("llama", [TABLE]))


def test_a_head_whose_bias_is_missing(made):
    bert = made("bert", ["bert.embeddings.word_embeddings.weight"])
    with pytest.raises(CheckpointError, match=r"holds no head: it has no tensor 'bert.cls.predictions.bias'"):
        head_from_checkpoint(bert)


def test_barts_bias_may_be_left_out(made):
    assert head_from_checkpoint(made("bart", ["model.shared.weight"])).bias is None
    found = made("bart", {"model.shared.weight": (V, D), "final_logits_bias": (1, V)})
    assert head_from_checkpoint(found).bias.shape == (V,)


def test_an_unknown_family_has_no_known_head(made):
    with pytest.raises(CheckpointError, match="'new' with these tensors is not a known family"):
        head_from_checkpoint(made("new", [TABLE], vocab_size=V))


def test_a_known_familys_table_that_is_missing_is_said_to_be(made):
    with pytest.raises(CheckpointError, match=r"no tensor has the name of llama's input table.*missing"):
        from_checkpoint(made("llama", ["lm_head.weight"], vocab_size=V))


def test_a_tied_head_is_the_layers_own_table(made):
    found = made("llama", [TABLE], tie_word_embeddings=True)
    layer = from_checkpoint(found)
    assert head_from_checkpoint(found, layer.token).weight is layer.token.weight
    assert not np.shares_memory(
        head_from_checkpoint(made("llama", [TABLE, "lm_head.weight"]), layer.token).weight, layer.token.weight
    )


@pytest.mark.parametrize(
    ("settings", "scaled"),
    [
        ({}, True),
        ({"tie_word_embeddings": True}, True),
        ({"tie_word_embeddings": False}, False),
        ({"scale_decoder_outputs": False, "tie_word_embeddings": True}, False),
        ({"scale_decoder_outputs": True, "tie_word_embeddings": False}, True),
    ],
)
def test_t5_scales_hidden_states_unless_its_settings_say_no(made, settings, scaled):
    head = head_from_checkpoint(made("t5", T5 | {"lm_head.weight": (V, D)}, **settings))
    assert head.hidden_scale == (D**-0.5 if scaled else 1.0)


@pytest.mark.parametrize(
    ("kind", "settings", "cap"),
    [
        ("gemma2", {}, 30.0),
        ("gemma2", {"final_logit_softcapping": 5.0}, 5.0),
        ("gemma2", {"final_logit_softcapping": None}, None),
        ("gemma3", {}, None),
        ("gemma3", {"text_config": {"final_logit_softcapping": 7.0}}, 7.0),
        ("llama", {"tie_word_embeddings": True, "final_logit_softcapping": 7.0}, None),
    ],
)
def test_the_soft_cap_is_the_configs(made, kind, settings, cap):
    assert head_from_checkpoint(made(kind, [TABLE], **settings)).soft_cap == cap


def test_logits_are_multiplied_or_divided(made):
    assert head_from_checkpoint(made("cohere", [TABLE])).logit_scale == 0.0625
    assert head_from_checkpoint(made("cohere", [TABLE], logit_scale=0.5)).logit_scale == 0.5
    granite = made("granite", [TABLE], logits_scaling=8, tie_word_embeddings=True)
    assert head_from_checkpoint(granite).logit_scale == 0.125


@pytest.mark.parametrize("divisor", [0, "eight", True])
def test_a_divisor_that_is_none(made, divisor):
    granite = made("granite", [TABLE], logits_scaling=divisor, tie_word_embeddings=True)
    with pytest.raises(CheckpointError, match=r"config.json: logits_scaling must be a "):
        head_from_checkpoint(granite)


@pytest.mark.parametrize(
    ("kind", "settings", "scale"),
    [
        ("bart", {"scale_embedding": True}, D**0.5),
        ("bart", {"scale_embedding": False}, None),
        ("bart", {}, None),
        ("granite", {"embedding_multiplier": 12}, 12.0),
        ("granite", {}, None),
    ],
)
def test_the_rows_scale_is_the_configs(made, kind, settings, scale):
    names = {TABLE: (V, D)}
    if kind == "bart":
        names = {"model.shared.weight": (V, D), "model.encoder.embed_positions.weight": (10, D)}
        names |= {f"model.encoder.layernorm_embedding.{part}": (D,) for part in ("weight", "bias")}
    assert from_checkpoint(made(kind, names, **settings)).token.scale == scale


def test_a_scale_that_is_no_number(made):
    with pytest.raises(CheckpointError, match="embedding_multiplier must be a number, found 'twelve'"):
        from_checkpoint(made("granite", [TABLE], embedding_multiplier="twelve"))


OPT = {"model.decoder.embed_tokens.weight": (V, 4), "model.decoder.embed_positions.weight": (10, D)}


def test_a_projection_that_is_missing_is_named(made):
    with pytest.raises(
        CheckpointError, match=r"no tensor 'model.decoder.project_in.weight', which its family"
    ):
        from_checkpoint(made("opt", OPT, hidden_size=D))
    with pytest.raises(ShapeError, match="position has width 8 where tokens have 4"):
        from_checkpoint(made("opt", OPT))  # the widths tell, even where config.json is silent


def test_xlms_languages_come_with_more_than_one(made):
    names = {"transformer.embeddings.weight": (V, D), "transformer.position_embeddings.weight": (10, D)}
    names |= {f"transformer.layer_norm_emb.{part}": (D,) for part in ("weight", "bias")}
    assert from_checkpoint(made("xlm", names, n_langs=1)).extras == {}
    with pytest.raises(CheckpointError, match=r"no tensor 'transformer.lang_embeddings.weight'"):
        from_checkpoint(made("xlm", names, n_langs=2))
    assert from_checkpoint(made("xlm", names, n_langs=2, use_lang_emb=False)).extras == {}
    languages = from_checkpoint(made("xlm", names | {"transformer.lang_embeddings.weight": (2, D)}))
    assert languages.extras["language"].vocabulary_size == 2
