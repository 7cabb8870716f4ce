"""What is known of real models' embedding layers, as data: recipes (the numbers) and families (the names).

Every number carries its source. They are defaults: what a checkpoint's ``config.json`` says goes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Recipe:
    """How an embedding layer is put together and drawn, whatever its sizes.

    ``positions``: sinusoidal, learned (``max_positions`` rows), or None where the layer adds none.
    ``token_std``: the standard deviation of new token rows; None is D^-1/2. ``truncated``: draws beyond 2 std
    are drawn again, the std not corrected for it. ``scaled``: looked-up rows are multiplied by sqrt(D).
    ``sources`` says where each number is from.
    """

    name: str
    sources: Mapping[str, str]
    positions: Literal["sinusoidal", "learned"] | None = None
    max_positions: int | None = None
    segments: int = 0
    scaled: bool = False
    layer_norm_eps: float | None = None
    dropout: float = 0.0
    token_std: float | None = None
    position_std: float | None = None
    segment_std: float | None = None
    truncated: bool = False


@dataclass(frozen=True)
class Family:
    """Where a family's checkpoints keep the embedding layer, and what holds where ``config.json`` is silent.

    Tensor names come without ``prefixes``: a file may put any one of those before all of them (the head
    excepted, which stands outside the part that the prefix names). ``layer_norm`` names a pair of tensors,
    ``.weight`` and ``.bias`` (``.gamma`` and ``.beta`` in old files).
    """

    name: str
    model_types: tuple[str, ...]  # config.json's "model_type"
    prefixes: tuple[str, ...]
    token: str
    head: str
    tied: bool
    recipe: Recipe
    source: str
    position: str | None = None
    position_offset: int = 0
    segment: str | None = None
    layer_norm: str | None = None
    layer_norm_eps_key: str | None = None
    dropout_key: str | None = None
    head_bias: str | None = None
    padding_id: int | None = None


_VASWANI = "Vaswani et al. 2017, Attention Is All You Need"
_BERT = "google-research/bert modeling.py"
_GPT2 = "openai/gpt-2 src/model.py"
_LLAMA = "meta-llama/llama llama/model.py"
_TRANSFORMERS = "huggingface/transformers"

ORIGINAL = Recipe(
    name="original",
    positions="sinusoidal",
    scaled=True,
    dropout=0.1,
    sources={
        "positions": f"{_VASWANI}, section 3.5",
        "scaled": f"{_VASWANI}, section 3.4",
        "dropout": f"{_VASWANI}, section 5.4 (base model, on the sum of embeddings and positions)",
        "token_std": "tensorflow/tensor2tensor tensor2tensor/layers/modalities.py, get_weights: D^-1/2",
    },
)

BERT = Recipe(
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

GPT2 = Recipe(
    name="gpt2",
    positions="learned",
    max_positions=1024,
    dropout=0.1,
    token_std=0.02,
    position_std=0.01,
    sources={
        "positions": f"{_GPT2}, model: wpe",
        "max_positions": f"{_GPT2}, default_hparams: n_ctx",
        "dropout": "Radford et al. 2018 (GPT), section 4.1; GPT-2's released code has none",
        "token_std": f"{_GPT2}, model: wte",
        "position_std": f"{_GPT2}, model: wpe",
    },
)

LLAMA = Recipe(
    name="llama",
    token_std=0.02,
    sources={
        "positions": f"{_LLAMA}, Transformer.forward: none added; rotary positions live in its attention",
        "token_std": f"{_TRANSFORMERS} LlamaConfig.initializer_range ({_LLAMA} leaves the rows undrawn)",
    },
)

RECIPES = {recipe.name: recipe for recipe in (ORIGINAL, BERT, GPT2, LLAMA)}

FAMILIES = (
    Family(
        name="bert",
        model_types=("bert",),
        prefixes=("bert.", ""),
        token="embeddings.word_embeddings.weight",
        position="embeddings.position_embeddings.weight",
        segment="embeddings.token_type_embeddings.weight",
        layer_norm="embeddings.LayerNorm",
        layer_norm_eps_key="layer_norm_eps",
        dropout_key="hidden_dropout_prob",
        head="cls.predictions.decoder.weight",
        head_bias="cls.predictions.bias",
        tied=True,
        padding_id=0,
        recipe=BERT,
        source=f"{_BERT}; {_TRANSFORMERS} modeling_bert.py for the tensors' names",
    ),
    Family(
        name="gpt2",
        model_types=("gpt2",),
        prefixes=("transformer.", ""),
        token="wte.weight",
        position="wpe.weight",
        dropout_key="embd_pdrop",
        head="lm_head.weight",
        tied=True,
        recipe=GPT2,
        source=f"{_GPT2}; {_TRANSFORMERS} modeling_gpt2.py for the tensors' names",
    ),
    Family(
        name="llama",
        model_types=("llama",),
        prefixes=("model.", ""),
        token="embed_tokens.weight",
        head="lm_head.weight",
        tied=False,
        recipe=LLAMA,
        source=f"{_LLAMA}; {_TRANSFORMERS} modeling_llama.py for the tensors' names",
    ),
)
