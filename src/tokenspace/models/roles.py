"""Roles that a tensor's name tells, whatever family it is of.

Shapes alone can't tell a table from an output head, which has as many rows of the same width, nor from
positions or a layer's matrix. Of an unknown layout a tensor is taken as the table only where its name says so
(``names_table``), unless the caller names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenspace.models.families import FAMILIES

HEADS = frozenset(family.head for family in FAMILIES) | {"embed_out.weight", "output.weight"}
"""Names of output heads: those of the known families, GPT-NeoX's on disk, and Meta's own LLaMA files'."""

_HEADS_WITHIN = tuple(f".{head}" for head in HEADS)
_TABLES = {
    each.token: {family.head for family in FAMILIES if family.token == each.token} for each in FAMILIES
}
_TABLES_WITHIN = tuple(f".{table}" for table in _TABLES)
_LAYER = re.compile(r"(^|\.)(layers?|h|blocks?|blk)\.\d+\.")

_HEAD_LIKE = re.compile(
    r"(^|[._])(lm_|mlm_|word_|prediction_|output_)?heads?(\.\w+)*$"
    r"|(^|\.)(proj_out|lm_loss|output_projection|output_layer|out_proj|fc_out|ff_out|logits|cls|output|decoder"
    r"|embed_out|unembed(ding)?s?|vocab_projector)(\.(weight|kernel|linear|proj|W_U))*$"
    r"|(^|\.)generator(\.\w+)*$"
    r"|(^|[._])(out(put)?|un)_?embed(d(ings?)?)?s?(\.\w+)*$|(^|[._])embed(d(ings?)?)?_out(\.\w+)*$|(^|\.)W_U$"
)
"""Names of heads in programs of other families: such a tensor is no table, and may be a head."""

_TABLE = re.compile(
    r"emb(ed|d)?(?![a-z])|embed|wte|word|tok(en)?s?(?![a-z])|vocab|vector|shared|lookup|syn0|glove|w2v"
    r"|(^|\.)w\.weight$"  # CTRL
    r"|^(weights?|rows|matrix|table|tensor|array|E|W)$",
    re.IGNORECASE,
)
"""Names that say "a table of tokens" (embed, emb, wte, word, tok, vectors …), or nothing but "a matrix"."""

_OTHERS = {
    "a table of positions": re.compile(
        r"(^|[._])(wpe|embed_positions?|pos(ition(s|al)?)?_?(emb|embd|embeddings?|embed))(\.weight)?$"
        r"|(^|\.)W_pos$"
    ),
    "a table of segments": re.compile(
        r"(^|\.)(token_types?|token_type_embeddings|segment_embeddings?)(\.weight)?$"
    ),
    "a table of languages": re.compile(r"(^|\.)lang_embeddings(\.weight)?$"),
    "a table of something else than tokens": re.compile(
        r"(^|[._])(rel(ative)?|patch|time(step)?|class|label|image|visual|vision|video|audio|speech|speaker"
        r"|task|entity|age|row|col(umn)?|[xyhw]_position|codebook)_(\w+_)?(emb|embd|embed|embeddings?)(\.weight)?$"
        r"|(^|\.)relative_attention_bias(\.weight)?$"
    ),
    "a classifier": re.compile(r"(^|\.)(classifier|score|qa_outputs|pooler)(\.\w+)*\.weight$"),
    "a layer's matrix": _LAYER,
}


def is_head(name: str) -> bool:
    """Return whether ``name`` ends as some family calls its output head.

    >>> is_head("lm_head.weight"), is_head("model.embed_tokens.weight")
    (True, False)
    """
    return name.endswith(_HEADS_WITHIN) or name in HEADS


def may_be_head(name: str) -> bool:
    """Return whether ``name`` is one of an output head in any program, of a known family or not.

    >>> may_be_head("proj_out.weight"), may_be_head("unembed.W_U"), may_be_head("model.shared.weight")
    (True, True, False)
    """
    if name.endswith("bias") or _LAYER.search(name):
        return False
    return is_head(name) or _HEAD_LIKE.search(name) is not None


def names_table(name: str) -> bool:
    """Return whether ``name`` says that the tensor is a table of tokens.

    >>> names_table("encoder.tok_emb.weight"), names_table("weight"), names_table("generator.weight")
    (True, True, False)
    """
    return other_role(name) is None and _TABLE.search(name) is not None


def other_role(name: str) -> str | None:
    """Return what a tensor of this name is where it can't be the input table, in words; None if it can be.

    >>> other_role("lm_head.weight"), other_role("transformer.wpe.weight"), other_role("emb.weight")
    ('an output head', 'a table of positions', None)
    """
    if may_be_head(name):
        return "an output head"
    return next((role for role, pattern in _OTHERS.items() if pattern.search(name)), None)


def bearing_family_names(names: Iterable[str]) -> dict[str, set[str]]:
    """The ``names`` that end as some family calls its input table, with those families' heads.

    >>> bearing_family_names(["module.transformer.wte.weight", "module.transformer.h.0.ln_1.weight"])
    {'module.transformer.wte.weight': {'lm_head.weight'}}
    """
    found: dict[str, set[str]] = {}
    for name in names:
        if name.endswith(_TABLES_WITHIN) or name in _TABLES:
            heads = [of for table, of in _TABLES.items() if name == table or name.endswith(f".{table}")]
            found[name] = set().union(*heads)
    return found
