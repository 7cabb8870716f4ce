"""A trained decoder as a folder that ``transformers`` loads: ``GPT2LMHeadModel`` and ``AutoTokenizer``.

===========================  ================================================================================
``config.json``              sizes and special tokens; ``tie_word_embeddings``: the head is the token table
``generation_config.json``   the same special tokens, for ``generate``
``model.safetensors``        float32; GPT-2's names. Its Conv1D keeps (in, out) where torch's Linear has
                             (out, in), so the four matrices of a layer are transposed; no ``lm_head.weight``
``tokenizer.json``           the tokenizer, but that it puts nothing around a text, as when the model learned
``tokenizer_config.json``    the class that reads it, and which tokens begin, end, pad and are unknown text
===========================  ================================================================================
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tokenspace import atomic
from tokenspace.errors import OutputError
from tokenspace.shown import shown
from tokenspace.tokenizer import Tokenizer
from tokenspace.train.checkpoint_folder import WEIGHTS, checked
from tokenspace.train.decoder import STD, Decoder

_NAMES = {  # of the parts of one of torch's layers: GPT-2's, and whether it is transposed
    "norm1.weight": ("ln_1.weight", False),
    "norm1.bias": ("ln_1.bias", False),
    "self_attn.in_proj_weight": ("attn.c_attn.weight", True),
    "self_attn.in_proj_bias": ("attn.c_attn.bias", False),
    "self_attn.out_proj.weight": ("attn.c_proj.weight", True),
    "self_attn.out_proj.bias": ("attn.c_proj.bias", False),
    "norm2.weight": ("ln_2.weight", False),
    "norm2.bias": ("ln_2.bias", False),
    "linear1.weight": ("mlp.c_fc.weight", True),
    "linear1.bias": ("mlp.c_fc.bias", False),
    "linear2.weight": ("mlp.c_proj.weight", True),
    "linear2.bias": ("mlp.c_proj.bias", False),
}
_OUTSIDE = {
    "input.token.weight": "transformer.wte.weight",
    "input.position.weight": "transformer.wpe.weight",
    "body.norm.weight": "transformer.ln_f.weight",
    "body.norm.bias": "transformer.ln_f.bias",
}
_LAYER = re.compile(r"body\.layers\.(\d+)\.(.+)")


def save(model: Decoder, tokenizer: Tokenizer, end: int, folder: str | os.PathLike[str]) -> None:
    """Write the files above into ``folder``, which is made if it isn't there; ``end``: the id between texts.

    Each file is the old or the new one, never half. Weights that lie there are removed before anything else
    is replaced, and the new ones come last: there are never weights beside another model's tokenizer.
    ``OutputError`` if the files can't be written, or others lie there that ``transformers`` would read too.
    """
    place = checked(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"can't make the folder {shown(str(place))}: {error.strerror}") from None
    weights = place / WEIGHTS
    with atomic.replacing(weights) as fresh:
        save_file(tensors(model), fresh, metadata={"format": "pt"})  # if the disk is full, all is as it was
        weights.resolve().unlink(missing_ok=True)
        for name, description in _descriptions(model, tokenizer, end).items():
            with atomic.replacing(place / name) as path:
                path.write_text(description, encoding="utf-8")


def tensors(model: Decoder) -> dict[str, Tensor]:
    """The parameters under GPT-2's names and in its layout, float32."""
    found = {}
    for name, value in model.state_dict().items():
        value = value.detach().to("cpu", torch.float32)
        if layer := _LAYER.fullmatch(name):
            theirs, transposed = _NAMES[layer[2]]
            name, value = f"transformer.h.{layer[1]}.{theirs}", value.T if transposed else value
        else:
            name = _OUTSIDE[name]
        found[name] = value.contiguous()
    return found


def config(model: Decoder, tokenizer: Tokenizer, end: int) -> dict[str, Any]:
    """What ``GPT2Config`` takes, as plain values."""
    layers = model.body.layers
    first: Any = layers[0]
    rows, dim = model.head.weight.shape
    dropout = 0.0 if model.input.dropout is None else model.input.dropout.p
    position: Any = model.input.position
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": rows,
        "n_embd": dim,
        "n_layer": len(layers),
        "n_head": first.self_attn.num_heads,
        "n_positions": len(position.weight),
        "n_inner": first.linear1.out_features,
        "activation_function": "gelu_new",
        "embd_pdrop": dropout,
        "attn_pdrop": dropout,
        "resid_pdrop": dropout,
        "layer_norm_epsilon": first.norm1.eps,
        "initializer_range": STD,
        "tie_word_embeddings": True,
        "dtype": "float32",
        **_special(tokenizer, end),
    }


def _special(tokenizer: Tokenizer, end: int) -> dict[str, int]:
    padding = end if tokenizer.pad_id is None else tokenizer.pad_id
    return {"bos_token_id": end, "eos_token_id": end, "pad_token_id": padding}


def _descriptions(model: Decoder, tokenizer: Tokenizer, end: int) -> dict[str, str]:
    special = _special(tokenizer, end)
    tokens = {name.removesuffix("_id"): tokenizer.vocab[i] for name, i in special.items()}
    if tokenizer.unk_id is not None:
        tokens["unk_token"] = tokenizer.vocab[tokenizer.unk_id]
    reader = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config(model, tokenizer, end)["n_positions"],
        "clean_up_tokenization_spaces": False,
        **tokens,
    }
    return {
        "config.json": _json(config(model, tokenizer, end)),
        "generation_config.json": _json(special),
        "tokenizer.json": _unframed(tokenizer),
        "tokenizer_config.json": _json(reader),
    }


def _unframed(tokenizer: Tokenizer) -> str:
    return _json(json.loads(tokenizer.to_json()) | {"post_processor": None})


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"
