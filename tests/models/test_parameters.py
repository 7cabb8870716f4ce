"""Counts from sizes are held to transformers' modules, built on the meta device, and to published figures."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from tokenspace.errors import ShapeError
from tokenspace.models.parameters import count, doubled, flops_per_token, gpt2_shaped, table_parameters
from tokenspace.models.sizes import MODELS, Model


def gpt2(m: Model) -> dict[str, Any]:
    return {"n_embd": m.width, "n_layer": m.layers, "n_head": m.heads, "n_inner": m.ffn} | (
        {"n_positions": m.position_rows} if m.position_rows else {}
    )


def hidden(m: Model) -> dict[str, Any]:
    return {
        "hidden_size": m.width,
        "num_hidden_layers": m.layers,
        "num_attention_heads": m.heads,
        "intermediate_size": m.ffn,
    }


def bert(m: Model) -> dict[str, Any]:
    rows = {"max_position_embeddings": m.position_rows, "type_vocab_size": m.segments}
    return hidden(m) | rows | {"embedding_size": m.table_width}


def grouped(m: Model) -> dict[str, Any]:
    return hidden(m) | {"num_key_value_heads": m.kv_heads or m.heads, "head_dim": m.head_size}


def t5(m: Model) -> dict[str, Any]:
    gated = {"feed_forward_proj": "gated-gelu" if m.architecture.gated else "relu"}
    sizes = {"d_model": m.width, "num_layers": m.layers, "num_heads": m.heads, "d_ff": m.ffn}
    return sizes | gated | {"d_kv": m.head_size}


def falcon(m: Model) -> dict[str, Any]:
    return hidden(m) | {
        "ffn_hidden_size": m.ffn,
        "num_kv_heads": m.kv_heads,
        "new_decoder_architecture": m.kv_heads != 1,
        "multi_query": True,
        "parallel_attn": True,
        "bias": False,
        "alibi": False,
    }


# Each model's sizes under transformers' names; what is not given is transformers' own default.
SETTINGS: dict[str, Callable[[Model], dict[str, Any]]] = {
    "GPT2": gpt2,
    "GPTJ": gpt2,
    "GPTNeoX": hidden,
    "OPT": lambda m: {
        "hidden_size": m.width,
        "num_hidden_layers": m.layers,
        "num_attention_heads": m.heads,
        "ffn_dim": m.ffn,
        "max_position_embeddings": m.position_rows - 2,
        "word_embed_proj_dim": m.table_width,
        "do_layer_norm_before": m.name != "opt-350m",
    },
    "Bloom": lambda m: {"hidden_size": m.width, "n_layer": m.layers, "n_head": m.heads},
    "Bert": bert,
    "Roberta": bert,
    "XLMRoberta": bert,
    "Albert": bert,
    "Electra": bert,
    "DistilBert": lambda m: {
        "dim": m.width,
        "n_layers": m.layers,
        "n_heads": m.heads,
        "hidden_dim": m.ffn,
        "max_position_embeddings": m.position_rows,
    },
    "DebertaV2": lambda m: (
        hidden(m)
        | {
            "relative_attention": True,
            "position_buckets": 256,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
            "type_vocab_size": 0,
        }
    ),
    "T5": t5,
    "MT5": t5,
    "Llama": grouped,
    "Mistral": grouped,
    "Phi": hidden,
    "Phi3": grouped,
    "Qwen2": grouped,
    "Qwen3": grouped,
    "Gemma": grouped,
    "Gemma2": grouped,
    "Gemma3": grouped,
    "Falcon": falcon,
    "Mpt": lambda m: {
        "d_model": m.width,
        "n_layers": m.layers,
        "n_heads": m.heads,
        "expansion_ratio": m.ffn // m.width,
    },
    "Mamba": lambda m: {"hidden_size": m.width, "num_hidden_layers": m.layers},
}
COUNTED = [model for model in MODELS.values() if model.architecture.counted_as]


def in_torch(model: Model, device: str) -> torch.nn.Module:
    """The class that ``model`` is counted as, in its sizes; on the meta device it takes no memory."""
    kind = getattr(transformers, model.architecture.counted_as)
    settings = SETTINGS[kind.__name__.split("For")[0].removesuffix("LMHeadModel")](model)
    config = kind.config_class(**settings, vocab_size=model.vocab)
    is_t5 = model.architecture.encoder_decoder
    if not is_t5:
        config.tie_word_embeddings = model.tied is not False
    with torch.device(device):
        module = kind(config)
        if is_t5 and not model.tied:
            # Made from sizes, transformers' T5 and mT5 are tied whatever the configuration says. The files of
            # v1.1, Flan and mT5 hold a head of their own (released_checkpoints.md: "no parameter sharing").
            assert module.lm_head.weight is module.shared.weight
            module.lm_head.weight = torch.nn.Parameter(torch.empty(module.shared.weight.shape))
    return module


def in_transformers(model: Model) -> int:
    """The parameters of transformers' module; tied ones once."""
    return sum(parameter.numel() for parameter in in_torch(model, "meta").parameters())


@pytest.mark.parametrize("model", COUNTED, ids=lambda model: model.name)
def test_equals_transformers(model):
    assert count(model).total == in_transformers(model)


@pytest.mark.parametrize("model", COUNTED, ids=lambda model: model.name)
def test_the_table_and_the_head_are_transformers_own(model):
    """The embedding's share is right, not only the sum: the same model, one row larger."""
    larger = replace(model, vocab=model.vocab + 1)
    parts, more = count(model), count(larger)
    assert parts.embedding == model.vocab * model.table_width
    assert more.total - parts.total == in_transformers(larger) - in_transformers(model)
    assert more.embedding - parts.embedding == model.table_width
    assert more.body == parts.body


def test_only_gpt3_is_not_in_transformers():
    assert {model.family for model in MODELS.values() if model not in COUNTED} == {"GPT-3"}


# Brown et al. 2020, table D.1: millions of parameters, rounded there to three digits or so.
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("gpt3-small", 125),
        ("gpt3-medium", 356),
        ("gpt3-large", 760),
        ("gpt3-xl", 1320),
        ("gpt3-2.7b", 2650),
        ("gpt3-6.7b", 6660),
        ("gpt3-13b", 12850),
        ("gpt3", 174600),
    ],
)
def test_gpt3_is_its_papers_figure_rounded(name, millions):
    assert count(MODELS[name]).total / 1e6 == pytest.approx(millions, rel=0.004)


# Sizes come from papers; these totals do too, each from the same source's text or another of the authors'.
@pytest.mark.parametrize(
    ("name", "without_tables"),
    [  # Biderman et al. 2023, table 1: non-embedding parameters
        ("pythia-70m", 18_915_328),
        ("pythia-160m", 85_056_000),
        ("pythia-410m", 302_311_424),
        ("pythia-1b", 805_736_448),
        ("pythia-1.4b", 1_208_602_624),
        ("pythia-2.8b", 2_517_652_480),
        ("pythia-6.9b", 6_444_163_072),
        ("pythia-12b", 11_327_027_200),
        # Gemma Team 2024, table 2; Gemma 2, table 2
        ("gemma-2b", 1_981_884_416),
        ("gemma-7b", 7_751_248_896),
        ("gemma-2-2b", 2_024_517_888),
        ("gemma-2-9b", 8_324_201_984),
        ("gemma-2-27b", 26_047_480_320),
    ],
)
def test_the_bodies_are_those_of_the_papers(name, without_tables):
    parts = count(MODELS[name])
    assert parts.total - parts.embedding - parts.head == without_tables


@pytest.mark.parametrize(
    ("name", "billions", "digits"),
    [
        ("llama-7b", 6.7, 1),  # Touvron et al. 2023, table 2
        ("llama-13b", 13.0, 1),
        ("llama-33b", 32.5, 1),
        ("llama-65b", 65.2, 1),
        ("bloom-560m", 0.559, 3),  # BigScience Workshop 2022, table 3
        ("bloom-1b1", 1.065, 3),
        ("bloom-1b7", 1.722, 3),
        ("bloom-3b", 3.003, 3),
        ("bloom-7b1", 7.069, 3),
        ("bloom", 176.247, 3),
        ("mt5-small", 0.30, 2),  # Xue et al. 2021, section 3.2: what untied heads make of them
        ("mt5-base", 0.58, 2),
        ("mt5-large", 1.2, 1),
        ("mt5-xl", 3.7, 1),
        ("mt5-xxl", 13, 0),
    ],
)
def test_the_totals_are_those_of_the_papers(name, billions, digits):
    assert count(MODELS[name]).total / 1e9 == pytest.approx(billions, abs=10**-digits)  # some round, some cut


def test_gpt2():
    parts = count(MODELS["gpt2"])
    assert (parts.embedding, parts.total) == (38_597_376, 124_439_808)
    assert f"{parts.fraction:.1%}" == "31.0%"
    assert parts.head == 0
    assert parts.positions == 1024 * 768


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_the_parts_add_up_and_a_tied_head_costs_nothing(model):
    parts = count(model)
    assert parts.total == parts.embedding + parts.positions + parts.segments + parts.body + parts.head
    untied = count(replace(model, tied=False))
    if model.tied:
        assert untied.total - parts.total == model.vocab * model.table_width


@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b", "gpt3", "falcon-7b", "mamba-130m"])
def test_twice_the_width_is_twice_the_table_and_four_times_the_matrices(name):
    model = MODELS[name]
    parts, wide = count(model), count(doubled(model))
    assert wide.embedding == 2 * parts.embedding
    assert wide.head == 2 * parts.head
    assert 3.85 < wide.body / parts.body <= 4
    if not model.architecture.qkv_bias:
        assert (wide.attention, wide.feed_forward) == (4 * parts.attention, 4 * parts.feed_forward)
    assert 2 < flops_per_token(doubled(model)) / flops_per_token(model) < 4


@pytest.mark.parametrize("model", COUNTED[::4], ids=lambda model: model.name)
def test_twice_the_width_equals_transformers_too(model):
    assert count(doubled(model)).total == in_transformers(doubled(model))


FLOPS = "gpt2 bert-base-cased albert-base-v2 electra-small-discriminator opt-350m llama-3-8b phi-2 falcon-7b"


@pytest.mark.parametrize("name", [*FLOPS.split(), "qwen3-8b", "t5-base", "t5-v1.1-base"])
def test_flops_are_those_that_torch_counts(name):
    """Torch's own counter on a small model, one token: attention's scores are then two products a head."""
    narrow = {"own_table_width": 32} if MODELS[name].projected else {}
    grouped = {"kv_heads": min(2, MODELS[name].kv_heads)} if MODELS[name].kv_heads else {}
    sizes = {"width": 64, "layers": 3, "heads": 4, "ffn": 96, "vocab": 1000, "head_dim": 16}
    model = replace(MODELS[name], **sizes, **narrow, **grouped)
    module = in_torch(model, "cpu").eval()
    ids = torch.zeros((1, 1), dtype=torch.long)
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if model.architecture.encoder_decoder else {})
    module.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(**inputs)
    attentions = 3 if model.architecture.encoder_decoder else 1
    scores = attentions * 2 * 2 * model.layers * model.inner  # query · key, and weight · value
    assert counter.get_total_flops() == flops_per_token(model) + scores


@pytest.mark.parametrize(
    ("dim", "parameters"),
    [(64, 3_200_000), (128, 6_400_000), (768, 38_400_000), (1280, 64_000_000), (12288, 614_400_000)],
)
def test_tables_of_50000_rows(dim, parameters):
    assert table_parameters(50_000, dim) == parameters


@pytest.mark.parametrize(
    ("vocab", "dim", "layers", "ffn", "tied"), [(1000, 64, 2, 100, True), (7, 32, 3, 128, False)]
)
def test_an_own_size_is_shaped_as_gpt2(vocab, dim, layers, ffn, tied):
    model = gpt2_shaped(vocab, dim, layers, ffn, tied)
    assert count(model).total == in_transformers(model)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 8, 1), "vocab is 0; it must be at least 1"),
        ((8, -3, 1), "dim is -3; it must be at least 1"),
        ((8, 8, 0), "layers is 0"),
        ((8, 8, 1, 0), "ffn is 0"),
        ((10**30, 8, 1), r"vocab is too large to index \(31 digits\)"),
        ((10**12, 10**12, 1), "a table of 1,000,000,000,000 × 1,000,000,000,000 numbers can't be indexed"),
        ((8, 8, 10**18), "a model of .* parameters can't be indexed"),
    ],
)
def test_sizes_that_no_model_has(sizes, message):
    with pytest.raises(ShapeError, match=message):
        gpt2_shaped(*sizes)


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (-1, 5), (2**62, 4)])
def test_sizes_that_no_table_has(sizes):
    with pytest.raises(ShapeError):
        table_parameters(*sizes)


def test_numpys_integers_do_not_overflow():
    sizes = [np.int32(50257), np.int32(12288), np.int32(96)]
    assert count(gpt2_shaped(*sizes)) == count(gpt2_shaped(50257, 12288, 96))
    assert count(gpt2_shaped(*sizes, ffn=np.int32(49152))).total == count(gpt2_shaped(50257, 12288, 96)).total
    assert table_parameters(np.int32(250_000), np.int32(12_288)) == 250_000 * 12_288
    assert table_parameters(np.uint8(255), np.uint8(255)) == 255 * 255
