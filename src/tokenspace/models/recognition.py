"""Which family a model's files are of, and under which name they hold its input table.

``config.json`` names the model type, the files name their tensors. A table that is tied to the head may be
stored under the head's name alone: safetensors' ``save_model`` keeps the first of a tied pair's names in
alphabetical order, and notes the others in the file's metadata, ``{removed name: kept name}``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tokenspace.models.families import FAMILIES
from tokenspace.models.family import Family

_NONE: Mapping[str, str] = {}


def setting(config: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """The value of ``key`` in ``config``, else in its ``text_config`` (models of text and images)."""
    inner = config.get("text_config")
    return config.get(key, inner.get(key, default) if isinstance(inner, dict) else default)


def shared_names(tensors: Collection[str], metadata: Mapping[str, str]) -> dict[str, str]:
    """The stored name of each tensor that a file's ``metadata`` says shares its numbers.

    >>> shared_names({"lm_head.weight"}, {"transformer.wte.weight": "lm_head.weight", "format": "pt"})
    {'transformer.wte.weight': 'lm_head.weight'}
    """
    return {removed: kept for removed, kept in metadata.items() if kept in tensors and removed not in tensors}


def is_tied(config: Mapping[str, Any], family: Family) -> bool:
    """Return whether ``config.json`` ties the head to the table, or, where it is silent, the family does."""
    flag = setting(config, "tie_word_embeddings")
    return flag if isinstance(flag, bool) else family.tied


def recognised(
    config: Mapping[str, Any], tensors: Collection[str], shared: Mapping[str, str] = _NONE
) -> tuple[Family | None, str]:
    """The family of ``config.json``'s model type, if the tensors have its names, with their prefix.

    Without a model type the names must be one family's alone: Gemma's are LLaMA's, yet it scales its rows.
    With one, a tied table may be stored under its other name.
    """
    kind = config.get("model_type")
    possible = [
        (family, prefix)
        for family in FAMILIES
        if kind is None or kind in family.model_types
        for prefix in family.prefixes
    ]
    found = [
        (family, prefix)
        for family, prefix in possible
        if prefix + family.token in tensors or prefix + family.token in shared
    ]
    if not found and kind is not None:
        found = [
            (family, prefix)
            for family, prefix in possible
            if stored_table(config, family, prefix, tensors) is not None and _has(prefix, tensors)
        ]
    return found[0] if len({family.name for family, _ in found}) == 1 else (None, "")


def _has(prefix: str, tensors: Iterable[str]) -> bool:
    """Return whether some name begins with ``prefix``: the head's own name stands outside it."""
    return any(name.startswith(prefix) for name in tensors)


def stored_table(
    config: Mapping[str, Any],
    family: Family | None,
    prefix: str,
    tensors: Collection[str],
    shared: Mapping[str, str] = _NONE,
) -> str | None:
    """The name under which ``tensors`` hold the family's input table; None if they hold none.

    By the family's own name; by the name that the file's metadata gives instead; by a further name of the
    same table; and, where the head is tied, by the head's.
    """
    if family is None:
        return None
    own = prefix + family.token
    if own in tensors:
        return own
    if own in shared:
        return shared[own]
    others = [form for copy in family.token_copies for form in (prefix + copy, copy)]
    if is_tied(config, family):
        others += [prefix + family.head, family.head]
    return next((name for name in others if name in tensors), None)
