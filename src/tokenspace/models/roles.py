"""Roles that a tensor's name tells, whatever family it is of: what such a tensor is, it is not the table.

Shapes alone can't tell a table from an output head, which has as many rows of the same width, nor from
positions or a layer's matrix. A name in this list is never taken as the table unless the caller names it.
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

_OTHERS = {
    "a table of positions": re.compile(
        r"(^|[._])(wpe|embed_positions?|pos(ition(s|al)?)?_?(emb|embd|embeddings?|embed))(\.weight)?$"
    ),
    "a table of segments": re.compile(
        r"(^|\.)(token_types?|token_type_embeddings|segment_embeddings?)(\.weight)?$"
    ),
    "a table of languages": re.compile(r"(^|\.)lang_embeddings(\.weight)?$"),
    "a classifier": re.compile(r"(^|\.)(classifier|score|qa_outputs|pooler)(\.\w+)*\.weight$"),
    "a layer's matrix": re.compile(r"(^|\.)(layers?|h|blocks?|blk)\.\d+\."),
}


def is_head(name: str) -> bool:
    """Return whether ``name`` ends as some family calls its output head.

    >>> is_head("lm_head.weight"), is_head("model.embed_tokens.weight")
    (True, False)
    """
    return name.endswith(_HEADS_WITHIN) or name in HEADS


def other_role(name: str) -> str | None:
    """Return what a tensor of this name is where it can't be the input table, in words; None if it can be.

    >>> other_role("lm_head.weight"), other_role("transformer.wpe.weight"), other_role("emb.weight")
    ('an output head', 'a table of positions', None)
    """
    if is_head(name):
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
