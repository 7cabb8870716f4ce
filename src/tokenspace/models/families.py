"""What is known of real models' embedding layers, as data; the facts themselves lie in three files, by kind.

``encoders``, ``decoders`` and ``encoder_decoders`` say it of each family; ``family`` says in what terms.
"""

from __future__ import annotations

import difflib

from tokenspace.errors import CheckpointError
from tokenspace.models.decoders import DECODERS, GPT2_RECIPE, LLAMA_RECIPE
from tokenspace.models.encoder_decoders import ENCODER_DECODERS
from tokenspace.models.encoders import BERT_RECIPE, ENCODERS
from tokenspace.models.family import Family as Family
from tokenspace.models.family import Recipe as Recipe

_VASWANI = "Vaswani et al. 2017, Attention Is All You Need"

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

RECIPES = {recipe.name: recipe for recipe in (ORIGINAL, BERT_RECIPE, GPT2_RECIPE, LLAMA_RECIPE)}
"""Those that a plain table can be set under; each family has its own besides: ``Family.recipe``."""

FAMILIES = (*ENCODERS, *DECODERS, *ENCODER_DECODERS)


def find(name: str) -> Family:
    """The family of this name, or of this ``model_type``.

    >>> find("roberta").position_offset, find("xlm-roberta").name
    (2, 'roberta')
    >>> find("blom")
    Traceback (most recent call last):
    ...
    tokenspace.errors.CheckpointError: 'blom' is not a known family; close names: 'bloom'
    """
    for family in FAMILIES:
        if name == family.name or name in family.model_types:
            return family
    known = [family.name for family in FAMILIES]
    close = difflib.get_close_matches(name, known, 3)
    hint = f"close names: {', '.join(map(repr, close))}" if close else f"known: {', '.join(known)}"
    raise CheckpointError(f"{name!r} is not a known family; {hint}")
