"""The files that tokenizers were kept in before ``tokenizer.json``, read into one.

====================================  =======================================================================
``vocab.txt``                         WordPiece (BERT): a token a line, its id the line's number from 0
``vocab.json`` and ``merges.txt``     byte-level BPE (GPT-2): an object of token to id; after a ``#version``
                                      line, two tokens a line, to be merged in this order
``tokenizer_config.json``             beside them: lower-casing and such
====================================  =======================================================================
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from tokenspace.errors import CheckpointError
from tokenspace.tokenizer_errors import raised_as
from tokenspace.tokenizer_training import UNK, wordpiece

JSON, VOCAB_JSON, MERGES, VOCAB_TXT = "tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"
TOKENIZER_FILES = (JSON, VOCAB_JSON, MERGES, VOCAB_TXT)
MERGES_START = b"#version"
_BERT_LIKE = ("Bert", "DistilBert", "Electra", "MobileBert", "ConvBert", "SqueezeBert", "LayoutLM")
_OTHER_FAMILY = f"save the tokenizer as {JSON} with the library that it is from"


class Description(NamedTuple):
    """The text of a ``tokenizer.json``, the file it comes from, and what had to be assumed to write it."""

    text: str | bytes
    file: Path
    assumed: str | None = None


def read(path: Path) -> Description:
    """The tokenizer that a folder holds or a file names; ``CheckpointError`` if there is none, or it needs
    what these files don't hold.
    """
    if os.path.isdir(path):
        for name in (JSON, MERGES, VOCAB_TXT):
            if os.path.isfile(path / name):
                return read(path / name)
        raise CheckpointError(
            f"no tokenizer at {path}: it has neither {JSON} nor {VOCAB_JSON} with {MERGES} nor {VOCAB_TXT}"
        )
    content = content_of(path)
    start = content[:64].lstrip()
    if path.name == MERGES or start.startswith(MERGES_START):
        return _byte_level(path.with_name(VOCAB_JSON), path)
    if path.name == VOCAB_JSON:
        return _byte_level(path, path.with_name(MERGES))
    if path.suffix == ".txt" and not start.startswith(b"{"):
        return _wordpiece(path)
    return Description(content, path)


def wordpiece_tokens(path: Path) -> list[str]:
    """The tokens of a ``vocab.txt`` in id order."""
    lines = _text(path).removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def _wordpiece(path: Path) -> Description:
    from tokenizers import models

    ids = {token: i for i, token in enumerate(wordpiece_tokens(path))}
    if UNK not in ids:
        raise CheckpointError(
            f"{path} has no line {UNK}, which a WordPiece vocabulary needs: is it a {VOCAB_TXT}?"
        )
    config = _config(path, _BERT_LIKE, "BERT's")
    lowercase = _flag(config, "do_lower_case")
    inner = wordpiece(
        models.WordPiece(ids, unk_token=UNK),
        lowercase is not False,
        _flag(config, "strip_accents"),
        _flag(config, "tokenize_chinese_chars") is not False,
    )
    assumed = None if lowercase is not None else "text is lower-cased, BERT's default: no file says whether"
    return Description(inner.to_str(), path, assumed)


def _byte_level(vocabulary: Path, merges: Path) -> Description:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    ids = _object(vocabulary)
    if not all(type(i) is int and i >= 0 for i in ids.values()) or len(set(ids.values())) < len(ids):
        raise CheckpointError(f"{vocabulary} must give each token an id of its own; it does not")
    config = _config(merges, ("GPT2",), "GPT-2's")
    pairs = _pairs(merges, ids)
    if any(token.endswith("</w>") for token in ids):
        raise CheckpointError(f"{vocabulary} marks the ends of words by </w>: this is no byte-level BPE")
    if not config.get("tokenizer_class") and {"<s>", "</s>", "<mask>"} <= ids.keys():
        raise CheckpointError(f"{vocabulary} has RoBERTa's special tokens; {_OTHER_FAMILY}")
    with raised_as(CheckpointError, f"{merges} does not fit {vocabulary}"):
        inner = Tokenizer(models.BPE(ids, pairs))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(_flag(config, "add_prefix_space")))
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.ByteLevel(trim_offsets=False)
    if "<|endoftext|>" in ids:
        inner.add_special_tokens(["<|endoftext|>"])
    return Description(inner.to_str(), vocabulary)


def _pairs(path: Path, ids: dict[str, int]) -> list[tuple[str, str]]:
    pairs = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if (number == 1 and line.startswith("#version")) or not line.strip():
            continue
        pair = line.removesuffix("\r").split(" ")
        if len(pair) != 2:
            raise CheckpointError(f"{path}, line {number:,}: {line!r} is no pair of tokens")
        missing = next((token for token in (*pair, "".join(pair)) if token not in ids), None)
        if missing is not None:
            raise CheckpointError(f"{path}, line {number:,}: {missing!r} is not in {VOCAB_JSON}")
        pairs.append((pair[0], pair[1]))
    return pairs


def merge_fault(description: bytes) -> str | None:
    """What is wrong with the merges of a ``tokenizer.json``; None if nothing is, or it is no BPE. The library
    takes a merge whose product has no id for granted, and may end the process.

    >>> merge_fault(b'{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}}')
    "merge 1 ('a' and 'b'): their product 'ab' is not in its vocabulary"
    """
    if b'"merges"' not in description:
        return None
    try:
        model = json.loads(description)["model"]
        ids, prefix = model["vocab"], (model.get("continuing_subword_prefix") or "").encode()
        pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"]]
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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # no tokenizer.json: the library says why
    return None


def _config(path: Path, classes: tuple[str, ...], whose: str) -> dict[str, Any]:
    """What ``tokenizer_config.json`` beside ``path`` says, if it is there. Another family's tokenizer may
    keep files of the same names and read them in another way: its class is refused.
    """
    beside = path.with_name("tokenizer_config.json")
    config = _object(beside) if os.path.isfile(beside) else {}
    name = config.get("tokenizer_class")
    if isinstance(name, str) and name.removesuffix("Fast").removesuffix("Tokenizer") not in classes:
        raise CheckpointError(
            f"{beside} names {name}; {path.name} is read in {whose} way alone: {_OTHER_FAMILY}"
        )
    return config


def _flag(config: dict[str, Any], key: str) -> bool | None:
    value = config.get(key)
    if not (value is None or isinstance(value, bool)):
        raise CheckpointError(f"{key} in tokenizer_config.json must be true, false or null, found {value!r}")
    return value


def _object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is a JSON {type(content).__name__}; an object is needed")
    return content


def _text(path: Path) -> str:
    try:
        return content_of(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 at byte {error.start:,}") from None


def content_of(path: Path) -> bytes:
    """The bytes of a file, or a ``CheckpointError`` that names it."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(
            f"no tokenizer at {path}; name a {JSON}, {VOCAB_TXT}, or {VOCAB_JSON} with {MERGES} beside it, "
            "or a folder that holds one"
        ) from None
    except OSError as error:
        raise CheckpointError(f"can't read {path}: {error.strerror}") from None
    except ValueError:
        raise CheckpointError(f"no tokenizer at {str(path)!r}: no file has such a name") from None
