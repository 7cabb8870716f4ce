"""Faults of a ``tokenizer.json`` that the ``tokenizers`` library would answer with an abort or without end.

The library takes a description at its word: forty normalizers that replace "a" by "aa" make a terabyte of one
letter, in its added tokens while it loads or in a text later. What can grow is tried out here, a step at a
time, on short texts, and refused before the library builds the whole.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

from tokenspace import bounded_json
from tokenspace.errors import TokenspaceError, VocabError
from tokenspace.tokenizer_errors import raised_as

TIMES = 24  # bytes of memory for each of a description's, for its vocabulary as Python's objects
MOST_VALUES = 50_000  # beside tokens and merges: of normalizers, templates and the like
MOST_FIELDS = 16  # of a token or a merge
MOST_STEPS = 256  # normalizers, pre-tokenizers, post-processors, decoders
MOST_GROWTH = 64  # characters for each of a text
MOST_ADDED = 100_000  # tokens that a template adds to a text
_SLACK = 4096  # characters that a short text may grow by
_PART = 4096  # characters tried at once
_LONGEST_STEP = 1 << 24  # characters that one step may make of them
_LONGEST_PIECES = 1 << 19  # bytes of pieces, or of added tokens, that are never too many
_LONGEST_MEAN = 64  # bytes of a piece, on average: each byte becomes a node of a tree
_LISTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}


def fault(description: bytes) -> str | None:
    """Why a ``tokenizer.json`` can't be given to the library; None if it can: what else is wrong with it, the
    library says.

    >>> fault(b'{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}}')
    "merge 1 ('a' and 'b'): their product 'ab' is not in its vocabulary"
    >>> doubled = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    >>> twice = {"normalizer": {"type": "Sequence", "normalizers": [doubled] * 40}}
    >>> fault(json.dumps(twice).encode())
    'its normalizers make more than 64 characters of one: Replace, number 12 of them'
    """
    try:
        content = bounded_json.parse(description, TIMES)
    except bounded_json.TooLargeError as error:
        return str(error)
    except ValueError:
        return None
    if not isinstance(content, dict):
        return f"it is a JSON {type(content).__name__}; an object is needed"
    if found := _shape_fault(content):
        return found
    try:
        for part, within in _LISTS.items():
            if sum(1 for _ in _steps(content.get(part), within)) > MOST_STEPS:
                return f"its {part} has more than {MOST_STEPS} steps"
        return (
            _merge_fault(content.get("model"))
            or _piece_fault(content)
            or _template_fault(content.get("post_processor"))
            or _growth_fault(content)
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        return None  # no tokenizer.json: the library says why


def _shape_fault(content: dict[str, Any]) -> str | None:
    """Lists and objects that no tokenizer has. The library takes hundreds of bytes for each."""
    model, added = content.get("model"), content.get("added_tokens")
    if "model" in content and not isinstance(model, dict):
        return f"its model is a JSON {type(model).__name__}; an object is needed"
    large = {"added_tokens": added}
    if isinstance(model, dict):
        large |= {name: model.get(name) for name in ("vocab", "merges")}
    for name, entries in large.items():
        if not isinstance(entries, dict | list):
            continue
        for entry in entries.values() if isinstance(entries, dict) else entries:
            inner = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ()
            if len(inner) > MOST_FIELDS or any(isinstance(each, dict | list) for each in inner):
                return f"an entry of its {name} holds lists or objects, or more than {MOST_FIELDS} values"
    waiting = [part for name, part in content.items() if name not in ("model", "added_tokens")]
    waiting += [part for name, part in (model or {}).items() if name not in ("vocab", "merges")]
    count = 0
    while waiting:
        part = waiting.pop()
        count += 1
        if isinstance(part, dict | list):
            if count + len(waiting) + len(part) > MOST_VALUES:
                return f"it has more than {MOST_VALUES:,} values beside its tokens and merges"
            waiting += part.values() if isinstance(part, dict) else part
    return None


def _steps(spec: Any, within: str) -> Iterator[dict[str, Any]]:
    """The steps of one part in their order, those of sequences within sequences too."""
    waiting = [spec]
    while waiting:
        step = waiting.pop()
        if isinstance(step, dict):
            if isinstance(step.get(within), list) and step.get("type") == "Sequence":
                waiting += reversed(step[within])
            else:
                yield step


def _merge_fault(model: Any) -> str | None:
    """The library takes a merge whose product has no id for granted, and may end the process."""
    if not isinstance(model, dict) or "merges" not in model:
        return None
    ids, prefix = model["vocab"], (model.get("continuing_subword_prefix") or "").encode()
    pairs = (merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"])
    for number, (left, right) in enumerate(pairs, start=1):
        if left not in ids or right not in ids:
            continue  # the library says so itself
        rest = right.encode()[len(prefix) :].decode("utf-8", "surrogateescape") if prefix else right
        if prefix and len(right.encode()) < len(prefix):
            return f"merge {number:,}: {right!r} is shorter than its prefix {prefix.decode()!r}"
        if (product := left + rest) not in ids:
            return (
                f"merge {number:,} ({left!r} and {right!r}): their product {product!r} "
                "is not in its vocabulary"
            )
    return None


def _piece_fault(content: dict[str, Any]) -> str | None:
    """Unigram's pieces, and any tokenizer's added tokens, become trees of a node for each byte."""
    model = content.get("model")
    pieces = model.get("vocab") if isinstance(model, dict) and isinstance(model.get("vocab"), list) else []
    added = content.get("added_tokens")
    contents = [token.get("content") for token in added or [] if isinstance(token, dict)]
    for what, texts in (
        ("pieces", [piece[0] for piece in pieces or [] if piece]),
        ("added tokens", contents),
    ):
        total = sum(len(text) for text in texts if isinstance(text, str))
        if total > _LONGEST_PIECES and total > _LONGEST_MEAN * len(texts):
            return (
                f"its {len(texts):,} {what} have {total:,} characters together; {_LONGEST_MEAN} on average "
                "are the most"
            )
    return None


def _template_fault(spec: Any) -> str | None:
    """Templates may repeat a text, and each other's output."""
    lengths = {"single": (1, 0), "pair": (2, 0)}  # times a text, and tokens beside
    for step in _steps(spec, "processors"):
        if step.get("type") != "TemplateProcessing":
            continue
        special = {name: len(token["ids"]) for name, token in step["special_tokens"].items()}
        for name, (times, beside) in lengths.items():
            pieces = step[name]
            texts = sum("Sequence" in piece for piece in pieces)
            added = sum(
                special.get(piece["SpecialToken"]["id"], 0) for piece in pieces if "Sequence" not in piece
            )
            lengths[name] = times, beside = times * max(texts, 1), beside * max(texts, 1) + added
            if times > MOST_GROWTH or beside > MOST_ADDED:
                return (
                    f"its post_processor repeats a text {times:,} times and adds {beside:,} tokens; "
                    f"{MOST_GROWTH} times and {MOST_ADDED:,} tokens are the most"
                )
    return None


def _growth_fault(content: dict[str, Any]) -> str | None:
    """The step at which a text, or an added token while the library loads, grows without reason."""
    steps = list(_steps(content.get("normalizer"), "normalizers"))
    if not steps:
        return None
    texts = ["the cat sat", "é\u3000\ufdfa\U0001f600"]
    for step in steps:
        texts += [text for text in (_pattern(step), step.get("content"), step.get("prepend")) if text]
    added = content.get("added_tokens") or []
    texts += _joined(token["content"] for token in added if token.get("normalized") is True)
    built = [_built(step) for step in steps]
    for text in dict.fromkeys(text[:_PART] for text in texts):
        found = text
        for number, (step, normalizer) in enumerate(zip(steps, built, strict=True), start=1):
            kind = step.get("type")
            if len(step.get("prepend") or "") > _SLACK or _longest(step, found) > _LONGEST_STEP:
                return f"its normalizer {kind}, number {number}, makes a text far too long"
            if normalizer is None:
                return None  # the library says what is wrong with it
            try:
                with raised_as(VocabError, "fails on a short text"):
                    found = normalizer.normalize_str(found)
            except TokenspaceError as error:
                return f"its normalizer {kind}, number {number}, {error}"
            if len(found) > MOST_GROWTH * len(text) + _SLACK:
                return (
                    f"its normalizers make more than {MOST_GROWTH} characters of one: {kind}, "
                    f"number {number} of them"
                )
    return None


def _joined(contents: Iterator[str]) -> list[str]:
    """Texts of at most ``_PART`` characters that hold all of ``contents``."""
    text = "\n".join(contents)
    return [text[start : start + _PART] for start in range(0, len(text), _PART)]


def _pattern(step: dict[str, Any]) -> str | None:
    pattern = step.get("pattern")
    return pattern.get("String") if isinstance(pattern, dict) else None


def _longest(step: dict[str, Any], text: str) -> int:
    """A bound on the characters that one step makes of ``text``."""
    if step.get("type") == "Replace":
        pattern = _pattern(step)
        places = len(text) + 1 if pattern is None else text.count(pattern)
        return len(text) + places * len(step["content"])
    if step.get("type") == "Precompiled":
        return len(text) * _longest_replacement(step)
    return 20 * len(text)  # U+FDFA becomes 18 characters


def _longest_replacement(step: dict[str, Any]) -> int:
    """Of a ``precompiled_charsmap``: u32 size of a trie, the trie, then texts that end in NUL."""
    try:
        blob = base64.b64decode(step.get("precompiled_charsmap") or "")
    except (binascii.Error, ValueError):
        return 1
    texts = blob[4 + int.from_bytes(blob[:4], "little") :]
    return max(map(len, texts.split(b"\0")), default=1)


def _built(step: dict[str, Any]) -> Any:
    """The library's normalizer for ``step`` alone; None if it refuses it."""
    from tokenizers import Tokenizer

    described: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": step,
        "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
        **dict.fromkeys(("truncation", "padding", "pre_tokenizer", "post_processor", "decoder")),
    }
    try:
        with raised_as(VocabError, "no normalizer"):
            return Tokenizer.from_str(json.dumps(described)).normalizer
    except TokenspaceError:
        return None
