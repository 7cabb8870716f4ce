"""The files that tokenizers were kept in before ``tokenizer.json``, read into one.

====================================  =======================================================================
``vocab.txt``                         WordPiece (BERT): a token a line, its id the line's number from 0
``vocab.json`` and ``merges.txt``     byte-level BPE (GPT-2): an object of token to id; after a ``#version``
                                      line, two tokens a line, to be merged in this order
``tokenizer_config.json``             beside them: lower-casing and such, special tokens, and tokens that were
                                      added (``tokenizer_special``)
``added_tokens.json``                 where that names none: an object of added token to id
====================================  =======================================================================
"""

from __future__ import annotations

import operator
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenspace import (
    bounded_json,
    tokenizer_classes,
    tokenizer_file_limits,
    tokenizer_limits,
    tokenizer_special,
)
from tokenspace.errors import CheckpointError, TableFormatError
from tokenspace.tokenizer_errors import raised_as
from tokenspace.tokenizer_file_limits import MOST_HOLES
from tokenspace.tokenizer_limits import TIMES
from tokenspace.tokenizer_training import UNK, around_pieces
from tokenspace.vocab import Vocab

if TYPE_CHECKING:
    import tokenizers

JSON, VOCAB_JSON, MERGES, VOCAB_TXT = "tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"
TOKENIZER_FILES = (JSON, VOCAB_JSON, MERGES, VOCAB_TXT)
CONFIG, ADDED, SPECIAL = "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"
MODEL = "config.json"
MERGES_START = b"#version"
_ROLES = {
    "bos_token": "begin",
    "eos_token": "end",
    "unk_token": "unknown",
    "sep_token": "separator",
    "pad_token": "padding",
    "cls_token": "classification",
    "mask_token": "mask",
}
_OTHER_FAMILY = f"save the tokenizer as {JSON} with the library that it is from"


class Description(NamedTuple):
    """The text of a ``tokenizer.json``, the file it comes from, and what had to be assumed to write it.

    ``unnamed``: tokens past the vocabulary that no file names; the tokenizer's class adds them.
    """

    text: str | bytes
    file: Path
    assumed: str | None = None
    unnamed: frozenset[str] = frozenset()


class Added(NamedTuple):
    """A token that was added to a tokenizer after its training, with the library's settings for it."""

    content: str
    special: bool = False
    normalized: bool = True
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


def read(path: Path) -> Description:
    """The tokenizer that a folder holds or a file names; ``CheckpointError`` if there is none, or it needs
    what these files don't hold.
    """
    if os.path.isdir(path):
        for name in (JSON, MERGES, VOCAB_TXT):
            if os.path.isfile(path / name):
                description = _with_added(_file(path / name), path)
                return (_as_class_reads if name == JSON else _with_special)(description, path)
        raise CheckpointError(
            f"no tokenizer at {path}: it has neither {JSON} nor {VOCAB_JSON} with {MERGES} nor {VOCAB_TXT}"
        )
    description = _file(path)
    return description if isinstance(description.text, bytes) else _with_special(description, path.parent)


def _file(path: Path) -> Description:
    """One file's tokenizer, without what its folder's settings say of special tokens: the bytes of a
    ``tokenizer.json``, or the text of one made from older files.
    """
    content = content_of(path)
    start = content[:64].lstrip()
    if path.name == MERGES or start.startswith(MERGES_START):
        return _byte_level(path.with_name(VOCAB_JSON), path)
    if path.name == VOCAB_JSON:
        return _byte_level(path, path.with_name(MERGES))
    if path.suffix == ".txt" and not start.startswith(b"{"):
        return _wordpiece(path)
    return Description(content, path)


def wordpiece_tokens(path: Path, rows: int | None = None) -> list[str]:
    """Return the tokens of a ``vocab.txt`` in id order; ``rows`` are those of the table, if it is known.

    ``CheckpointError`` if the lines are far more than the rows, or than the tokens.
    """
    content = content_of(path)
    tokenizer_file_limits.check_vocabulary(path, content, rows)
    lines = _text(path, content).removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def added_tokens(folder: Path) -> dict[int, Added]:
    """The tokens that a folder's files add to its tokenizer, by id in rising order; empty if there are none.

    As transformers reads them: ``added_tokens_decoder`` in ``tokenizer_config.json``, else
    ``added_tokens.json``. ``CheckpointError`` if they can't be read, or name a token or an id twice.
    """
    config = _object_if_there(folder / CONFIG)
    if "added_tokens_decoder" in config:
        file, entries = folder / CONFIG, config["added_tokens_decoder"]
        found = [_added(file, key, value) for key, value in entries.items()] if _is_object(entries) else None
    else:
        file, entries = folder / ADDED, _object_if_there(folder / ADDED)
        special = _special_names(_settings(folder)) if entries else set()
        found = [(i, Added(token, token in special, token not in special)) for token, i in entries.items()]
    if found is None or not all(type(i) is int and i >= 0 for i, _ in found):
        raise CheckpointError(f"{file} must give each added token an id, a whole number from 0; it does not")
    added = dict(sorted(found))
    if len(added) < len(found) or len({token.content for token in added.values()}) < len(found):
        raise CheckpointError(f"{file} adds a token twice, or two with one id; each needs an id of its own")
    for i, token in added.items():
        if any("\ud800" <= character <= "\udfff" for character in token.content):
            raise CheckpointError(f"{file} adds {token.content!r} as id {i:,}: half a character is no token")
    return added


def with_added_names(tokens: list[str], added: dict[int, Added], folder: Path) -> list[str]:
    """``tokens`` in id order, then those added past them; ``CheckpointError`` for a clash or a gap."""
    named = list(tokens)
    ids = {token: i for i, token in enumerate(tokens)}
    for i, token in added.items():
        _check_place(folder, token, i, ids.get(token.content, len(named)))
        if i == len(named):
            named.append(token.content)
    return named


def _settings(folder: Path) -> dict[str, Any]:
    """What a folder's settings say of special tokens."""
    return tokenizer_special.merged(_object_if_there(folder / CONFIG), _object_if_there(folder / SPECIAL))


def _with_special(description: Description, folder: Path) -> Description:
    """The description, made of older files, with the special tokens that the folder's settings name and
    those that BERT's or GPT-2's class adds, put where they say.
    """
    from tokenizers import Tokenizer, models

    settings = _settings(folder)
    tokenizer_special.check_readable(settings, folder / CONFIG)
    inner = Tokenizer.from_str(str(description.text))
    name = {models.WordPiece: "Bert", models.BPE: "GPT2"}[type(inner.model)]
    full = {**tokenizer_classes.defaults(name), **settings}
    unnamed = _add_special(inner, full, settings)
    if parts := tokenizer_classes.frame(name):
        tokenizer_special.frame(inner, full, parts)
    else:
        tokenizer_special.frame_by_flags(inner, full)
    return description._replace(text=inner.to_str(), unnamed=unnamed)


def _add_special(
    inner: tokenizers.Tokenizer, full: dict[str, Any], settings: dict[str, Any]
) -> frozenset[str]:
    """Make the special tokens of ``full`` those of ``inner``; return the new ones that ``settings`` don't
    name.
    """
    unnamed = tokenizer_special.named(full).keys() - tokenizer_special.named(settings).keys()
    new = frozenset(token for token in unnamed if inner.token_to_id(token) is None)
    tokenizer_special.add_named(inner, full)
    return new


def _as_class_reads(description: Description, folder: Path) -> Description:
    """A folder's ``tokenizer.json`` with the special tokens that its settings name and those that its class
    adds; as it was if it has them already, and the class keeps what the file puts around a text.
    """
    config, settings = _object_if_there(folder / CONFIG), _settings(folder)
    tokenizer_special.check_readable(settings, folder / CONFIG)
    model = _object_if_there(folder / MODEL)
    if not (config or settings or model):
        return description
    content = _as_bytes(description.text)
    try:
        described = bounded_json.parse(content, TIMES)
        held = {entry["content"] for entry in described["added_tokens"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return description  # the library says what is wrong with it
    name = tokenizer_classes.class_name(config, model, described)
    full = {**tokenizer_classes.defaults(name), **settings}
    parts = tokenizer_classes.frame(name)
    if parts is None and tokenizer_special.named(full).keys() <= held:
        return description
    if tokenizer_limits.fault(content):
        return description
    from tokenizers import Tokenizer

    with raised_as(TableFormatError, f"{description.file} is no {JSON}"):
        inner = Tokenizer.from_buffer(content)
    check_holes(inner.get_vocab(with_added_tokens=True), description.file)
    before, own = _around(inner), inner.post_processor
    unnamed = _add_special(inner, full, settings)
    if parts is not None:
        tokenizer_special.frame(inner, full, parts)
        if _around(inner) != before:
            return description._replace(text=inner.to_str(), unnamed=unnamed)
        inner.post_processor = own  # it says the same, and how offsets are trimmed
    if tokenizer_special.named(full).keys() <= held:
        return description
    return description._replace(text=inner.to_str(), unnamed=unnamed)


def _around(inner: tokenizers.Tokenizer) -> list[tuple[list[int], list[int]]]:
    """The ids and segments that are put around an empty text and an empty pair."""
    truncation, padding = inner.truncation, inner.padding
    inner.no_truncation()
    inner.no_padding()
    found = [(each.ids, each.type_ids) for each in (inner.encode(""), inner.encode("", ""))]
    if truncation is not None:
        inner.enable_truncation(**truncation)
    if padding is not None:
        inner.enable_padding(**padding)
    return found


def _with_added(description: Description, folder: Path) -> Description:
    """The description with the folder's added tokens in it; as it was if it has them already."""
    added = added_tokens(folder)
    if not added or _has(description.text, added) or tokenizer_limits.fault(_as_bytes(description.text)):
        return description
    from tokenizers import AddedToken, Tokenizer

    with raised_as(TableFormatError, f"{description.file} is no {JSON}"):
        inner = Tokenizer.from_buffer(_as_bytes(description.text))
    check_holes(inner.get_vocab(with_added_tokens=True), description.file)
    held = inner.get_added_tokens_decoder()
    new = {
        i: token
        for i, token in added.items()  # added_tokens.json doesn't tell which are special
        if not (i in held and held[i].content == token.content and held[i].special and not token.special)
    }
    settings = [token._asdict() for token in new.values()]
    # All at once: for each call the library builds its search for added tokens again.
    inner.add_tokens([AddedToken(each.pop("content"), **each) for each in settings])
    for i, token in new.items():
        _check_place(folder, token, i, inner.token_to_id(token.content))
    return description._replace(text=inner.to_str())


def check_holes(ids: dict[str, int], file: Path | str) -> None:
    """``TableFormatError`` if an id is far beyond the tokens: the library walks all ids up to the largest."""
    token, largest = max(ids.items(), key=operator.itemgetter(1), default=("", -1))
    if largest + 1 > 2 * len(ids) + MOST_HOLES:
        raise TableFormatError(
            f"{file} gives id {largest:,} to {token!r}, far beyond its {len(ids):,} tokens"
        )


def _has(text: str | bytes, added: dict[int, Added]) -> bool:
    try:
        entries = bounded_json.parse(_as_bytes(text), TIMES)["added_tokens"]
        held = {entry["id"]: Added(*(entry[field] for field in Added._fields)) for entry in entries}
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return all(held.get(i) == token for i, token in added.items())


def _check_place(folder: Path, token: Added, said: int, place: int | None) -> None:
    if place != said:
        where = "the tokenizer gives it none" if place is None else f"the tokenizer gives it id {place:,}"
        raise CheckpointError(
            f"{folder}: the added token {token.content!r} has id {said:,} in {CONFIG} or {ADDED}, "
            f"but {where}; which of the two is right? {_OTHER_FAMILY}"
        )


def _added(file: Path, key: str, value: Any) -> tuple[int, Added]:
    fields = {name: value[name] for name in Added._fields if name in value} if _is_object(value) else {}
    content = fields.get("content")
    if not (
        key.isascii() and key.isdigit() and len(key) < 20 and isinstance(content, str) and content
    ) or not all(isinstance(flag, bool) for name, flag in fields.items() if name != "content"):
        raise CheckpointError(
            f"{file}: added_tokens_decoder has {key!r}: {value!r}; an id with an object of content and flags "
            "is needed"
        )
    return int(key), Added(**{"normalized": not fields.get("special", False), **fields})


def _special_names(settings: dict[str, Any]) -> set[str]:
    """The tokens that a tokenizer's settings name as special ones."""
    values = [value for key, value in settings.items() if key.endswith("_token")]
    for key in ("extra_special_tokens", "additional_special_tokens"):
        values += settings[key] if isinstance(settings.get(key), list) else []
    names = [value.get("content") if _is_object(value) else value for value in values]
    return {name for name in names if isinstance(name, str)}


def named_special_tokens(folder: Path) -> dict[str, list[str]]:
    """Return the special tokens that a folder's settings name, each with its roles: ``cls_token`` is
    "classification", a setting of another name (``image_token``) gives its own. Empty without such files;
    ``CheckpointError`` if they can't be read.
    """
    settings = {**_object_if_there(folder / CONFIG), **_object_if_there(folder / SPECIAL)}
    own = settings.get("extra_special_tokens")  # transformers 5: an object of a model's own, or a list
    named = {**settings, **own} if isinstance(own, dict) else settings
    roles: dict[str, list[str]] = {}
    for key, value in named.items():
        name = value.get("content") if _is_object(value) else value
        if key.endswith("_token") and isinstance(name, str):
            role = _ROLES.get(key, key.removesuffix("_token").replace("_", " "))
            roles.setdefault(name, []).append(role)
    for name in _special_names(settings):
        roles.setdefault(name, [])
    return roles


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _wordpiece(path: Path) -> Description:
    from tokenizers import models

    tokens = wordpiece_tokens(path)
    ids = {token: i for i, token in enumerate(tokens)}
    settings = _settings(path.parent)
    unk = tokenizer_special.content(settings.get("unk_token", UNK)) or UNK
    if path.name != VOCAB_TXT and unk not in ids and _are_words(tokens):
        from tokenspace.formats.word_tokenizer import word_tokenizer  # here, since it imports this module

        text = _as_bytes(word_tokenizer(tokens, path))  # no model's: it gets no special tokens
        return Description(text, path, "a list of words: a text is split into them, and others are left out")
    if unk not in ids:
        raise CheckpointError(
            f"{path} has no line {unk}, which a WordPiece vocabulary needs: is it a {VOCAB_TXT}?"
        )
    config = _config(path, tokenizer_classes.BERT[:7], tokenizer_classes.BERT_TYPES, "BERT's")
    lowercase = _flag(config, "do_lower_case")
    inner = around_pieces(
        models.WordPiece(ids, unk_token=unk),
        lowercase is not False,
        _flag(config, "strip_accents"),
        _flag(config, "tokenize_chinese_chars") is not False,
    )
    assumed = None if lowercase is not None else "text is lower-cased, BERT's default: no file says whether"
    return Description(inner.to_str(), path, assumed)


def _are_words(tokens: list[str]) -> bool:
    """Return whether ``tokens`` are words, each once, rather than a tokenizer's pieces or a table's rows."""
    clean = all(token and token == token.strip() for token in tokens)
    rows = sum(_ends_in_a_number(token) for token in tokens)
    return (
        clean
        and 2 * rows <= len(tokens)
        and len(set(tokens)) == len(tokens)
        and Vocab(tokens).encoding == "word"
    )


def _ends_in_a_number(line: str) -> bool:
    """Return whether a line is a token and a number behind a space or a tab, as a text table's rows are."""
    fields = line.split()
    try:
        return len(fields) > 1 and float(fields[-1]) is not None
    except ValueError:
        return False


def _byte_level(vocabulary: Path, merges: Path) -> Description:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    ids = _object(vocabulary)
    if not all(type(i) is int and i >= 0 for i in ids.values()) or len(set(ids.values())) < len(ids):
        raise CheckpointError(f"{vocabulary} must give each token an id of its own; it does not")
    check_holes(ids, vocabulary)
    config = _config(merges, ("GPT2",), tokenizer_classes.GPT2_TYPES, "GPT-2's")
    pairs = _pairs(merges, ids)
    if any(token.endswith("</w>") for token in ids):
        raise CheckpointError(f"{vocabulary} marks the ends of words by </w>: this is no byte-level BPE")
    if not _says_family(merges) and {"<s>", "</s>", "<mask>"} <= ids.keys():
        raise CheckpointError(f"{vocabulary} has RoBERTa's special tokens; {_OTHER_FAMILY}")
    with raised_as(CheckpointError, f"{merges} does not fit {vocabulary}"):
        inner = Tokenizer(models.BPE(ids, pairs))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(_flag(config, "add_prefix_space")))
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.ByteLevel(trim_offsets=False)
    return Description(inner.to_str(), vocabulary)


def _pairs(path: Path, ids: dict[str, int]) -> list[tuple[str, str]]:
    pairs = []
    content = content_of(path)
    tokenizer_file_limits.check_merges(path, content, ids)
    for number, line in enumerate(_text(path, content).split("\n"), start=1):
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


def _config(path: Path, classes: tuple[str, ...], types: tuple[str, ...], whose: str) -> dict[str, Any]:
    """What ``tokenizer_config.json`` beside ``path`` says, if it is there. Another family's tokenizer may
    keep files of the same names and read them in another way: its class is refused, and where no file names
    a class, a model's type that is not one of ``types``.
    """
    config, model = _object_if_there(path.with_name(CONFIG)), _object_if_there(path.with_name(MODEL))
    said = next(
        ((each, name) for each in (config, model) if isinstance(name := each.get("tokenizer_class"), str)),
        None,
    )
    kind = model.get("model_type")
    fault = None
    if said is not None:
        beside, name = CONFIG if said[0] is config else MODEL, said[1]
        if name.removesuffix("Fast").removesuffix("Tokenizer") not in classes:
            fault = f"{path.with_name(beside)} names {name}"
    elif isinstance(kind, str) and kind not in types:
        fault = f"{path.with_name(MODEL)} is of a model of type {kind!r}"
    if fault:
        raise CheckpointError(f"{fault}; {path.name} is read in {whose} way alone: {_OTHER_FAMILY}")
    return config


def _says_family(path: Path) -> bool:
    """True if a file beside ``path`` names the tokenizer's class or the model's type."""
    config, model = _object_if_there(path.with_name(CONFIG)), _object_if_there(path.with_name(MODEL))
    return bool(config.get("tokenizer_class") or model.get("tokenizer_class") or model.get("model_type"))


def _flag(config: dict[str, Any], key: str) -> bool | None:
    value = config.get(key)
    if not (value is None or isinstance(value, bool)):
        raise CheckpointError(f"{key} in tokenizer_config.json must be true, false or null, found {value!r}")
    return value


def _object_if_there(path: Path) -> dict[str, Any]:
    return _object(path) if os.path.isfile(path) else {}


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8") if isinstance(text, str) else text


def _object(path: Path) -> dict[str, Any]:
    is_vocabulary = path.name == VOCAB_JSON
    text = content_of(path)
    if is_vocabulary:
        tokenizer_file_limits.check_ids(path, text)
    else:
        tokenizer_file_limits.check_settings_size(path, text)
    try:
        if is_vocabulary:
            content = bounded_json.parse(text, TIMES)
        else:
            content = bounded_json.parse(text, free=tokenizer_file_limits.FREE)
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON that can be read: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is a JSON {type(content).__name__}; an object is needed")
    if not is_vocabulary:
        tokenizer_file_limits.check_settings(path, content)
    return content


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8")
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
