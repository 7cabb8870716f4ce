"""Encoder-decoders: T5 and BART. One table serves both stacks; the layer here is the encoder's."""

from __future__ import annotations

from dataclasses import replace

from tokenspace.models.family import Family, Recipe

_TRANSFORMERS = "huggingface/transformers 5.24"
_STACKS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")  # each holds the shared table

T5 = Family(
    name="t5",
    model_types=("t5",),
    prefixes=("",),
    token="shared.weight",
    token_copies=_STACKS,
    dropout_key="dropout_rate",
    head="lm_head.weight",
    tied=True,
    padding_id=0,
    hidden_scale_keys=("scale_decoder_outputs", "tie_word_embeddings"),
    recipe=Recipe(
        name="t5",
        dropout=0.1,
        token_std=1.0,
        sources={
            "positions": f"{_TRANSFORMERS} modeling_t5.py: relative, in attention; none added",
            "dropout": f"{_TRANSFORMERS} configuration_t5.py, dropout_rate",
            "token_std": f"{_TRANSFORMERS} modeling_t5.py, _init_weights: initializer_factor × 1.0",
        },
    ),
    source=f"{_TRANSFORMERS} modeling_t5.py; a head of its own takes unscaled hidden states (version 1.1)",
)

MT5 = replace(
    T5,
    name="mt5",
    model_types=("mt5",),
    tied=False,
    hidden_scale_keys=(),
    recipe=replace(
        T5.recipe,
        name="mt5",
        sources={name: source.replace("_t5", "_mt5") for name, source in T5.recipe.sources.items()},
    ),
    source=f"{_TRANSFORMERS} modeling_mt5.py",
)

BART = Family(
    name="bart",
    model_types=("bart",),
    prefixes=("model.", ""),
    token="shared.weight",
    token_copies=_STACKS,
    scale_key="scale_embedding",
    position="encoder.embed_positions.weight",
    position_offset=2,
    layer_norm="encoder.layernorm_embedding",
    dropout_key="dropout",
    head="lm_head.weight",
    head_bias="final_logits_bias",
    head_bias_from_zero=True,
    tied=True,
    padding_id=1,
    recipe=Recipe(
        name="bart",
        positions="learned",
        max_positions=1024,
        layer_norm_eps=1e-5,
        dropout=0.1,
        token_std=0.02,
        position_std=0.02,
        padding_zeroed=True,
        sources={
            "positions": f"{_TRANSFORMERS} modeling_bart.py, BartLearnedPositionalEmbedding",
            "max_positions": f"{_TRANSFORMERS} configuration_bart.py, max_position_embeddings",
            "layer_norm_eps": f"{_TRANSFORMERS} modeling_bart.py: torch.nn.LayerNorm's default",
            "dropout": f"{_TRANSFORMERS} configuration_bart.py, dropout",
            "token_std": f"{_TRANSFORMERS} configuration_bart.py, init_std",
            "position_std": f"{_TRANSFORMERS} configuration_bart.py, init_std",
            "padding_zeroed": f"{_TRANSFORMERS} modeling_bart.py: the table's padding_idx",
        },
    ),
    source=f"{_TRANSFORMERS} modeling_bart.py",
)

MBART = replace(
    BART,
    name="mbart",
    model_types=("mbart",),
    recipe=replace(
        BART.recipe,
        name="mbart",
        sources={name: source.replace("_bart", "_mbart") for name, source in BART.recipe.sources.items()},
    ),
    source=f"{_TRANSFORMERS} modeling_mbart.py",
)

ENCODER_DECODERS = (T5, MT5, BART, MBART)
