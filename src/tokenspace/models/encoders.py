"""Encoders: BERT and those after it, which read a text in both directions and predict masked tokens."""

from __future__ import annotations

from dataclasses import replace

from tokenspace.models.family import Extra, Family, Recipe

_BERT = "google-research/bert modeling.py"
_TRANSFORMERS = "huggingface/transformers 5.24"
_DRAWN = f"{_TRANSFORMERS} PreTrainedModel._init_weights: normal, std initializer_range, padding rows zeroed"

BERT_RECIPE = Recipe(
    name="bert",
    positions="learned",
    max_positions=512,
    segments=2,
    layer_norm_eps=1e-12,
    dropout=0.1,
    token_std=0.02,
    position_std=0.02,
    segment_std=0.02,
    truncated=True,
    sources={
        "positions": "Devlin et al. 2019, BERT, section 3 and figure 2",
        "max_positions": f"{_BERT}, BertConfig.max_position_embeddings",
        "segments": "Devlin et al. 2019, BERT, section 3 (sentence A and B)",
        "layer_norm_eps": f"{_BERT}, layer_norm: the default of tf.contrib.layers.layer_norm",
        "dropout": f"{_BERT}, BertConfig.hidden_dropout_prob",
        "token_std": f"{_BERT}, BertConfig.initializer_range",
        "position_std": f"{_BERT}, embedding_postprocessor",
        "segment_std": f"{_BERT}, embedding_postprocessor",
        "truncated": f"{_BERT}, create_initializer: tf.truncated_normal_initializer (true std 0.0176)",
    },
)


def _like_bert(name: str, config: str, **numbers: object) -> Recipe:
    """BERT's recipe as transformers draws it, with ``numbers`` that are ``config``'s."""
    source = f"{_TRANSFORMERS} {config}"
    sources = dict.fromkeys((*BERT_RECIPE.sources, *numbers), source)
    sources |= dict.fromkeys(("token_std", "position_std", "segment_std", "padding_zeroed"), _DRAWN)
    del sources["truncated"]
    changed: dict[str, object] = {"truncated": False, "padding_zeroed": True} | numbers
    return replace(BERT_RECIPE, name=name, sources=sources, **changed)  # type: ignore[arg-type]


BERT = Family(
    name="bert",
    model_types=("bert",),
    prefixes=("bert.", ""),
    token="embeddings.word_embeddings.weight",
    position="embeddings.position_embeddings.weight",
    position_setting=("position_embedding_type", "absolute"),
    segment="embeddings.token_type_embeddings.weight",
    layer_norm="embeddings.LayerNorm",
    layer_norm_eps_key="layer_norm_eps",
    dropout_key="hidden_dropout_prob",
    head="cls.predictions.decoder.weight",
    head_bias="cls.predictions.bias",
    untied_head_bias="cls.predictions.decoder.bias",
    tied=True,
    padding_id=0,
    recipe=BERT_RECIPE,
    source=f"{_BERT}; {_TRANSFORMERS} modeling_bert.py for the tensors' names",
)

ROBERTA = replace(
    BERT,
    name="roberta",
    model_types=("roberta", "xlm-roberta", "camembert"),
    prefixes=("roberta.", ""),
    position_offset=2,
    position_padding="ids",
    head="lm_head.decoder.weight",
    head_bias="lm_head.bias",
    untied_head_bias="lm_head.decoder.bias",
    padding_id=1,
    recipe=_like_bert(
        "roberta",
        "configuration_roberta.py; FacebookAI/roberta-base config.json: 514 rows, eps 1e-5, 1 segment",
        layer_norm_eps=1e-5,
        segments=1,
    ),
    source=f"{_TRANSFORMERS} modeling_roberta.py; fairseq's positions begin at the padding id + 1",
)

DISTILBERT = replace(
    BERT,
    name="distilbert",
    model_types=("distilbert",),
    prefixes=("distilbert.", ""),
    position_setting=None,
    segment=None,
    layer_norm_eps_key=None,
    dropout_key="dropout",
    head="vocab_projector.weight",
    head_bias="vocab_projector.bias",
    untied_head_bias=None,
    recipe=_like_bert("distilbert", "modeling_distilbert.py, Embeddings", segments=0, segment_std=None),
    source=f"{_TRANSFORMERS} modeling_distilbert.py",
)

ALBERT = replace(
    BERT,
    name="albert",
    model_types=("albert",),
    prefixes=("albert.", ""),
    position_setting=None,
    projection="encoder.embedding_hidden_mapping_in",
    head="predictions.decoder.weight",
    head_bias="predictions.bias",
    untied_head_bias="predictions.decoder.bias",
    recipe=_like_bert("albert", "configuration_albert.py", dropout=0.0),
    source=f"{_TRANSFORMERS} modeling_albert.py",
)

ELECTRA = replace(
    BERT,
    name="electra",
    model_types=("electra",),
    prefixes=("electra.", ""),
    position_setting=None,
    projection="embeddings_project",
    head="generator_lm_head.weight",
    head_bias="generator_lm_head.bias",
    untied_head_bias=None,
    recipe=_like_bert("electra", "configuration_electra.py"),
    source=f"{_TRANSFORMERS} modeling_electra.py",
)

DEBERTA = replace(
    BERT,
    name="deberta-v3",
    model_types=("deberta-v2",),  # version 3's too
    prefixes=("deberta.", ""),
    position_setting=("position_biased_input", True),
    projection="embeddings.embed_proj",
    projection_bias=False,
    recipe=_like_bert(
        "deberta-v3",
        "configuration_deberta_v2.py; microsoft/deberta-v3-base config.json: relative positions alone",
        positions=None,
        max_positions=None,
        position_std=None,
        segments=0,
        segment_std=None,
        layer_norm_eps=1e-7,
    ),
    source=f"{_TRANSFORMERS} modeling_deberta_v2.py (it sets padded positions to zero afterwards)",
)

MODERNBERT = Family(
    name="modernbert",
    model_types=("modernbert",),
    prefixes=("model.", ""),
    token="embeddings.tok_embeddings.weight",
    layer_norm="embeddings.norm",
    layer_norm_bias=False,
    layer_norm_eps_key="norm_eps",
    dropout_key="embedding_dropout",
    head="decoder.weight",
    head_bias="decoder.bias",
    tied=True,
    padding_id=50283,
    recipe=Recipe(
        name="modernbert",
        layer_norm_eps=1e-5,
        token_std=0.02,
        sources={
            "positions": f"{_TRANSFORMERS} modeling_modernbert.py: rotary, none added",
            "layer_norm_eps": f"{_TRANSFORMERS} configuration_modernbert.py, norm_eps",
            "token_std": f"{_TRANSFORMERS} configuration_modernbert.py, initializer_range",
            "truncated": f"{_TRANSFORMERS} modeling_modernbert.py cuts at 3 std, which 0.3 % of draws pass; "
            "here none is cut",
        },
    ),
    source=f"{_TRANSFORMERS} modeling_modernbert.py",
)

XLM = Family(
    name="xlm",
    model_types=("xlm",),
    prefixes=("transformer.", ""),
    token="embeddings.weight",
    position="position_embeddings.weight",  # sinusoidal ones are stored as well
    extras={"language": Extra("lang_embeddings.weight", "n_langs", "use_lang_emb")},
    layer_norm="layer_norm_emb",
    layer_norm_eps_key="layer_norm_eps",
    dropout_key="dropout",
    head="pred_layer.proj.weight",
    head_bias="pred_layer.proj.bias",
    tied=True,
    padding_id=2,
    recipe=Recipe(
        name="xlm",
        positions="learned",
        max_positions=512,
        layer_norm_eps=1e-12,
        dropout=0.1,
        token_std=2048**-0.5,
        position_std=2048**-0.5,
        padding_zeroed=True,
        sources={
            "positions": f"{_TRANSFORMERS} configuration_xlm.py, sinusoidal_embeddings: false",
            "max_positions": f"{_TRANSFORMERS} configuration_xlm.py, max_position_embeddings",
            "layer_norm_eps": f"{_TRANSFORMERS} configuration_xlm.py, layer_norm_eps",
            "dropout": f"{_TRANSFORMERS} configuration_xlm.py, dropout",
            "token_std": f"{_TRANSFORMERS} configuration_xlm.py, embed_init_std",
            "position_std": f"{_TRANSFORMERS} modeling_xlm.py, _init_weights: every table alike",
            "padding_zeroed": f"{_TRANSFORMERS} modeling_xlm.py, _init_weights",
        },
    ),
    source=f"{_TRANSFORMERS} modeling_xlm.py (it sets padded positions to zero afterwards)",
)

ENCODERS = (BERT, ROBERTA, DISTILBERT, ALBERT, ELECTRA, DEBERTA, MODERNBERT, XLM)
