"""A folder that encodes sentences: sentence-transformers' StaticEmbedding, and model2vec's StaticModel.

=====================  =====================================================================================
file                   holds
=====================  =====================================================================================
``modules.json``       a list; the ``type`` of its first entry ends in ``StaticEmbedding``, its ``path`` is
                       the folder of the next two: ``""``, ``"."`` or ``"0_StaticEmbedding"``; a later
                       entry ``Normalize`` scales sentences' vectors. model2vec can do without this file
``model.safetensors``  ``embeddings`` (model2vec) or ``embedding.weight``, (R, D); and model2vec's
                       ``mapping``, the row of each token id, and ``weights``, its factor
``tokenizer.json``     the tokens, by id
``config.json``        model2vec's: ``normalize``, ``max_length``, and in older ones ``model_type``
=====================  =====================================================================================

A sentence's vector is the mean of its tokens' rows, ``embeddings[mapping[id]] * weights[id]``, scaled to
length 1 with ``normalize``. Both packages load the folder that ``save`` writes. Under one more key of
``config.json``, ``tokenspace``, it keeps the special ids, the encoding and the provenance, and how many
tokens no text gives.
(https://github.com/MinishLab/model2vec, https://sbert.net)
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, get_args

import numpy as np

from tokenspace import bounded_json
from tokenspace.atomic import replacing_folder
from tokenspace.errors import CheckpointError, ShapeError, TableFormatError, TokenIdError, VocabError
from tokenspace.formats.static_rows import TABLES, WEIGHTS, rows_of, tensors_of
from tokenspace.formats.tokens import READ_FROM, Errors, Verify, check_writable, is_utf8, json_text, short
from tokenspace.formats.word_tokenizer import split_words, tokens_of, word_tokenizer
from tokenspace.models.safetensors import open_file
from tokenspace.shapes import Array
from tokenspace.source import Source
from tokenspace.table import Table, check_finite
from tokenspace.tokenizer import Tokenizer
from tokenspace.vocab import Encoding, Vocab, placeholder

NAME = "static-embedding"
KEY = "tokenspace"
FORMAT = 1
MODULES, CONFIG, TOKENIZER = "modules.json", "config.json", "tokenizer.json"
_KEPT = (np.dtype(np.float32), np.dtype(np.float16))
_ROWS_AT_ONCE = 16_384


def is_static(folder: str | os.PathLike[str]) -> bool:
    """Whether ``folder`` is one of these; whatever else it is, or holds, is no error."""
    place = Path(folder)
    try:
        if (place / MODULES).is_file():
            return bool(_modules(place))
        kind = _config(place).get("model_type") if (place / CONFIG).is_file() else None
        if kind is not None:
            return kind == "model2vec"
        if not (place / TOKENIZER).is_file():
            return False
        return any(name in open_file(place / WEIGHTS).tensors for name in TABLES)
    except (TableFormatError, OSError, ValueError):
        return False


def check_checkpoint(folder: Path, name: str) -> None:
    """``CheckpointError``, with what to do instead, if ``folder``, asked for as ``name``, is one of these: a
    table and its tokenizer, with no model around them to be looked at or counted.
    """
    if folder.is_dir() and is_static(folder):
        table = load(folder)
        rows, dim = len(table), table.dim
        raise CheckpointError(
            f"{name} is no model's checkpoint but a static embedding: a table of {rows:,} rows × {dim:,}, "
            f"one for each id of its tokenizer, and nothing around it; norms looks at its rows, and params "
            f"--vocab {rows} --dim {dim} counts them"
        )


def load(
    folder: str | os.PathLike[str] | Source, errors: Errors = "strict", limit: int | None = None
) -> Table:
    """The table in a folder: a row for each token id, mapped from the file where it holds such rows.

    With a ``mapping`` or ``weights`` the rows are computed, as float32; so are int8 and float64 numbers.
    ``provenance`` says that; whether the folder's model scales a sentence's vector to length 1, and after how
    many tokens it cuts one; and what it does besides, which is left out. JSON's tokens are text: ``errors``
    has nothing to decide. ``TableFormatError`` if anything is not what it should be.

    Where ``limit`` leaves tokens without rows, the table has no tokenizer. Nor has one that was saved
    without: the folder's was made for the packages, and drops silently what is no word of the table.
    """
    place = folder.path if isinstance(folder, Source) else Path(folder)
    config = _config(place) if (place / CONFIG).is_file() else {}
    modules = _modules(place) if (place / MODULES).is_file() else []
    inner = _inside(place, modules[0].path) if modules else place
    about = _about(place, config)
    tensors = tensors_of(inner)
    tokenizer = _tokenizer(inner / TOKENIZER)
    weight, notes = rows_of(inner, tensors, len(tokenizer.vocab), limit)
    read_from = {"file": place.name, "format": NAME, "dtype": notes.pop("dtype"), **notes}
    later = [module.kind for module in modules[1:]]
    if config.get("normalize") or "Normalize" in later:
        read_from["normalize"] = True
    if type(longest := config.get("max_length")) is int and longest > 0:
        read_from["max_length"] = longest
    if left_out := [kind for kind in later if kind != "Normalize"]:
        read_from["modules_left_out"] = left_out
    return _table(place, weight, tokenizer, about, read_from)


def _table(
    place: Path, weight: Array, tokenizer: Tokenizer, about: dict[str, Any] | None, read_from: dict[str, Any]
) -> Table:
    rows = len(weight)
    if about is None:
        named, special, encoding = list(tokenizer.vocab), tokenizer.vocab.special, tokenizer.vocab.encoding
        added, provenance = list(tokenizer.vocab.added), {READ_FROM: read_from}
    else:
        named = list(tokenizer.vocab) if about["tokenizer"] else tokens_of(tokenizer)
        special, encoding, provenance = about["special"], about["encoding"], about["provenance"]
        added = list(tokenizer.vocab.added) if about["tokenizer"] else []
        if lost := about.get("unreachable"):
            before = provenance.get(READ_FROM)
            counted = (before if isinstance(before, dict) else {}) | {"unreachable_tokens": lost}
            provenance = provenance | {READ_FROM: counted}
    whole = rows >= len(named)
    named = named[:rows] + [placeholder(i) for i in range(len(named), rows)]
    kept = tokenizer if whole and (about is None or about["tokenizer"]) else None
    try:
        kept_ids = ([i for i in ids if i < rows or whole] for ids in (special, added))
        vocab = Vocab(named, next(kept_ids), encoding, next(kept_ids))
        return Table(weight, vocab, kept, provenance=provenance)
    except (ShapeError, TokenIdError, VocabError) as error:
        raise TableFormatError(f"{place}: {error}") from None


# ── what the files hold ───────────────────────────────────────────────────────────────────────────────────


def _json(path: Path) -> Any:
    try:
        return bounded_json.parse(path.read_bytes())
    except OSError as error:
        raise TableFormatError(f"can't read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise TableFormatError(f"{path} is not JSON that can be read: {error}") from None


def _config(place: Path) -> dict[str, Any]:
    config = _json(place / CONFIG)
    if not isinstance(config, dict):
        raise TableFormatError(f"{place / CONFIG} is a JSON {type(config).__name__}; an object is needed")
    return config


class _Module(NamedTuple):
    kind: str
    path: str


def _modules(place: Path) -> list[_Module]:
    """What ``modules.json`` lists, by the last part of its type; none if the first is no StaticEmbedding."""
    listed = _json(place / MODULES)
    found = []
    for module in listed if isinstance(listed, list) else []:
        kind, path = (module.get("type"), module.get("path", "")) if isinstance(module, dict) else (0, 0)
        if not isinstance(kind, str) or not isinstance(path, str):
            return []
        found.append(_Module(kind.split(".")[-1], path))
    return found if found and found[0].kind == "StaticEmbedding" else []


def _inside(place: Path, name: str) -> Path:
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts or any(sign in name for sign in "\\\0:"):
        raise TableFormatError(f"{place / MODULES} names {name!r}; a module lies in the folder itself")
    return place / parts


def _about(place: Path, config: dict[str, Any]) -> dict[str, Any] | None:
    """What ``save`` kept of a table; None if another program wrote the folder."""
    about = config.get(KEY)
    if about is None:
        return None
    kinds = {"format": int, "tokenizer": bool, "special": list, "encoding": str, "provenance": dict}
    known = isinstance(about, dict) and all(type(about.get(name)) is kind for name, kind in kinds.items())
    known = known and all(type(i) is int for i in about["special"])
    known = known and type(about.get("unreachable", 0)) is int
    if not known or about["encoding"] not in get_args(Encoding):
        raise TableFormatError(f"{place / CONFIG}: {KEY!r} is not what tokenspace writes there")
    if about["format"] != FORMAT:
        raise TableFormatError(
            f"{place} is a table of format {about['format']}; this version reads format {FORMAT}: a newer "
            "tokenspace may have written it"
        )
    return about


def _tokenizer(path: Path) -> Tokenizer:
    try:
        description = path.read_bytes()
    except OSError as error:
        raise TableFormatError(f"can't read {path}: {error.strerror or error}") from None
    tokenizer = Tokenizer.from_json(description, str(path))
    if not len(tokenizer.vocab):
        raise TableFormatError(f"{path} names no token")
    return tokenizer


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────


def refusal(token: bytes) -> str | None:
    """Why a token can't be written; None if it can."""
    if not token:
        return "it is empty; numpy and native can hold it"
    return None if is_utf8(token) else "it is not UTF-8; native can hold it"


def save(table: Table, folder: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write a folder that sentence-transformers, model2vec and ``load`` read; it appears whole or not at all.

    The table's tokenizer goes with it. A table without one gets a tokenizer of its own words
    (``word_tokenizer``): a text is lower-cased if no word of the table has a capital, and what is no word of
    the table is left out; ``unreachable`` counts the words that no text gives. float32 and float16 are kept,
    bfloat16 becomes float32. ``VocabError`` if a token would not be read back at its id, ``TableFormatError``
    for NaN or infinity, ``OutputError`` if ``folder`` can't be written: it must not exist, or be empty.
    """
    check_writable(table.vocab, refusal, NAME, folder)
    description = _described(table, folder)
    kept = table.weight.dtype if table.weight.dtype in _KEPT else np.dtype(np.float32)
    for start in range(0, len(table), _ROWS_AT_ONCE):
        check_finite(table, np.asarray(table.weight[start : start + _ROWS_AT_ONCE], np.float32), start)
    tensors = {"embeddings": np.ascontiguousarray(table.weight, kept)}
    inner = table.tokenizer.inner if table.tokenizer else None
    if inner and inner.get_vocab_size(with_added_tokens=True) != len(table):  # model2vec must be told then
        tensors["mapping"] = np.arange(len(table), dtype=np.int64)
    normalize = _read_from(table).get("normalize") is True
    lost = 0 if table.tokenizer else len(split_words(list(table.vocab), json.loads(description)))
    files = {
        TOKENIZER: description,
        CONFIG: _config_text(table, kept, normalize, lost),
        MODULES: _modules_text(normalize),
    }
    _write(folder, tensors, files, verify)


def unreachable(table: Table) -> int:
    """How many of the tokens no text gives, not even one that is the token alone, where ``save`` has to make
    the tokenizer: those that begin or end with white space. 0 for a table with its own tokenizer.
    """
    if table.tokenizer is not None:
        return 0
    words = list(table.vocab)
    return len(split_words(words, json.loads(word_tokenizer(words, NAME))))


def _read_from(table: Table) -> dict[str, Any]:
    read_from = table.provenance.get(READ_FROM)
    return read_from if isinstance(read_from, dict) else {}


def _write(
    folder: str | os.PathLike[str], tensors: dict[str, Array], files: dict[str, str], verify: Verify | None
) -> None:
    from safetensors.numpy import save_file

    with replacing_folder(folder) as fresh:
        save_file(tensors, str(fresh / WEIGHTS))
        for name, text in files.items():
            (fresh / name).write_bytes(text.encode("utf-8"))
        if verify:
            verify(partial(load, fresh))


def _described(table: Table, folder: str | os.PathLike[str]) -> str:
    """The text of ``tokenizer.json``."""
    if table.tokenizer is None:
        return word_tokenizer(list(table.vocab), folder)
    named = table.tokenizer.vocab
    if len(named) > len(table):
        raise VocabError(
            f"can't write {folder}: the table's tokenizer has {len(named):,} tokens, the table "
            f"{len(table):,} rows; each token needs one"
        )
    for i, token in enumerate(table.vocab):
        expected = named[i] if i < len(named) else placeholder(i)
        if token != expected:
            raise VocabError(
                f"can't write {folder} as {NAME}: id {i:,} is {short(token)} in the table and "
                f"{short(expected)} in its tokenizer; native can hold both"
            )
    return table.tokenizer.to_json()


def _config_text(table: Table, kept: np.dtype, normalize: bool, lost: int) -> str:
    longest = _read_from(table).get("max_length")
    about = {
        "format": FORMAT,
        "tokenizer": table.tokenizer is not None,
        "special": list(table.vocab.special),
        "encoding": table.vocab.encoding,
        "provenance": table.provenance,
        **({"unreachable": lost} if lost else {}),
    }
    config = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "hidden_dim": table.dim,
        "embedding_dtype": kept.name,
        "max_length": longest if type(longest) is int else None,  # None: no text is cut
        "normalize": normalize,
        KEY: about,
    }
    return json_text(config, indent=1)


def _modules_text(normalize: bool) -> str:
    kinds = ["StaticEmbedding", *(["Normalize"] if normalize else [])]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{kind}" if i else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    return json.dumps(modules, indent=1)
