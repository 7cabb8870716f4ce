"""Token ids that a model's JSON files state, held against the rows of its table.

The files of ``FILES`` name ids under some forty keys: of special tokens, of placeholders for images and
sound, of tokens to force or to suppress; ``tokenizer.json`` those of padding and of the tokens that it puts
around a text. An id past the table is an index error in the lookup, or selects a logit that isn't there;
which of them a program meets first depends on the program, so all are reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenspace.checkpoint.findings import Finding
from tokenspace.errors import CheckpointError
from tokenspace.models.shards import json_object
from tokenspace.shown import shown
from tokenspace.tokenizer_files import JSON

FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
)
_ID_KEY = re.compile(r"(^|_)(token_ids?|token_index)$|^(bos|eos|pad|unk|mask)_index$")  # the latter: XLM's
_LISTS = ("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "force_words_ids")
_PAIRS = ("forced_decoder_ids",)  # [[position, id], ...]
_MAPS = ("lang_to_id", "task_to_id")  # Whisper: {token: id}
_BIASES = "sequence_bias"  # {(ids): bias}, in JSON [[[ids], bias], ...]
_OTHER_TABLES = re.compile(r"^(u_|t2u_|codebook_|codec_)|_codec_")  # ids of units of sound
_OTHER_SECTIONS = re.compile(r"vision|image|visual|video|audio|speech|codec|quantiz|vocoder|talker|t2u")
_PLACEHOLDER = re.compile(r"^(image|video|audio)_token_(id|index)$")
_REPLACED = ("gemma3", "gemma4", "gemma4_unified", "paligemma", "embedding_gemma2")
"""Model types whose placeholder ids may lie past the table: their modeling files put another id in their
place before the lookup (huggingface/transformers 5.24, "if the image token is OOV")."""
_LOOKED_UP = ("decoder_start_token_id",)
_SHOWN = 5


class Stated(NamedTuple):
    """The value of one ``key`` in a file; ``section`` is the path of objects that leads to it."""

    key: str
    section: tuple[str, ...]
    values: list[Any]
    rows: int | None  # of the table that the section states for itself; None: the model's

    @property
    def path(self) -> str:
        return ".".join((*self.section, self.key))


def check_files(folder: Path, config: Mapping[str, Any], rows: int | None) -> list[Finding]:
    """Findings on every id in the folder's JSON files, for a table of ``rows`` rows (None: not known)."""
    findings = []
    for name in FILES:
        try:
            content = config if name == FILES[0] else _read(folder / name)
        except CheckpointError as error:
            message = f"its ids are not checked: {error}"
            findings.append(Finding("json-broken", "warning", message, "save it again, or leave it out"))
            continue
        for stated in _stated(content, rows):
            findings += _check(stated, name, rows, str(config.get("model_type")))
    for stated in _added_around(folder / JSON):
        findings += _check(stated, JSON, rows, "")
    return findings


def _added_around(path: Path) -> list[Stated]:
    """The ids of a ``tokenizer.json``'s padding and post-processor; none of a file that is corrupt, which
    the check of the tokenizer reports.
    """
    try:
        content = _read(path)
    except CheckpointError:
        return []
    found = []
    padding = content.get("padding")
    if isinstance(padding, dict) and "pad_id" in padding:
        found.append(Stated("pad_id", ("padding",), [padding["pad_id"]], None))
    steps = content.get("post_processor")
    if isinstance(steps, dict):
        inner = steps.get("processors")
        for step in inner if isinstance(inner, list) else [steps]:
            found += _around(step) if isinstance(step, dict) else []
    return found


def _around(step: Mapping[str, Any]) -> list[Stated]:
    """The ids that one post-processor adds: a template's tokens, or BERT's and RoBERTa's pairs."""
    section = ("post_processor",)
    pairs = [(key, step[key]) for key in ("sep", "cls") if isinstance(step.get(key), list)]
    found = [Stated(key, section, pair[1:2], None) for key, pair in pairs]
    tokens = step.get("special_tokens")
    for token, each in (tokens if isinstance(tokens, dict) else {}).items():
        if isinstance(each, dict) and isinstance(each.get("ids"), list):
            found.append(Stated(shown(token), section, each["ids"], None))
    return found


def _read(path: Path) -> dict[str, Any]:
    return json_object(path) if path.is_file() else {}


def _stated(
    content: Mapping[str, Any], rows: int | None, section: tuple[str, ...] = (), own: int | None = None
) -> Iterator[Stated]:
    for key, value in content.items():
        if isinstance(value, dict) and key not in (*_MAPS, _BIASES) and not _states_ids(key):
            if key == "added_tokens_decoder":
                continue  # the tokenizer's own, which is checked as a whole
            size = value.get("vocab_size")
            states = type(size) is int and size != rows and key != "text_config"
            if not states and _OTHER_SECTIONS.search(key):
                continue
            yield from _stated(value, rows, (*section, key), size if states else own)
        elif not _OTHER_TABLES.search(key) and (values := _values(key, value)) is not None:
            yield Stated(key, section, values, own)


def _states_ids(key: str) -> bool:
    return _ID_KEY.search(key) is not None or key in (*_LISTS, *_PAIRS)


def _values(key: str, value: Any) -> list[Any] | None:
    """The ids that ``value`` gives for ``key``; None if the key states none."""
    if value is None:
        return None
    if key not in _PAIRS and _states_ids(key):
        return list(_flat(value))
    if key in _PAIRS and not isinstance(value, list):
        return [value]
    if key in _PAIRS:
        pairs = [pair for pair in value if isinstance(pair, list) and len(pair) == 2]
        return [i for _, i in pairs if i is not None]
    if key in _MAPS and isinstance(value, dict):
        return list(value.values())
    if key == _BIASES and isinstance(value, list):
        return [each for pair in value if isinstance(pair, list) and pair for each in _flat(pair[0])]
    return None


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for each in value:
            yield from _flat(each)
    else:
        yield value


def _check(stated: Stated, file: str, rows: int | None, model_type: str) -> list[Finding]:
    limit = rows if stated.rows is None else stated.rows
    where = f"{file}'s {stated.path}"
    wrong = [value for value in stated.values if type(value) is not int]
    ids = [value for value in stated.values if type(value) is int]
    findings = []
    if wrong:
        message = f"{where} is {_listed(wrong)}, which is no token id: an id is a whole number"
        fix = "set it to the token's id, or take it out"
        findings.append(Finding("id-not-whole", "error", message, fix))
    if limit is None:
        return findings
    if past := [i for i in ids if i >= limit]:
        findings.append(_past(stated, where, past, limit, model_type))
    if negative := [i for i in ids if i < 0]:
        findings.append(_negative(stated, where, negative, limit))
    return findings


def _past(stated: Stated, where: str, ids: list[int], rows: int, model_type: str) -> Finding:
    whose = "" if stated.rows is None else ", by its own vocab_size,"
    verb = "has" if len(ids) == 1 else "have"
    message = f"{where} is {_listed(ids)}, which {verb} no row{whose} (valid: 0 to {rows - 1:,})"
    code = "padding-past-rows" if stated.key == "pad_token_id" else "id-past-rows"
    if model_type in _REPLACED and _PLACEHOLDER.search(stated.key):
        fix = "nothing: this model puts another id in its place before the lookup"
        return Finding("placeholder-past-rows", "info", message, fix)
    severity = "error" if stated.rows is None else "warning"
    fix = "set it to the id of the token that is meant, or take it out"
    return Finding(code, severity, message, fix)  # type: ignore[arg-type]


def _negative(stated: Stated, where: str, ids: list[int], rows: int) -> Finding:
    message = f"{where} is {_listed(ids)}: no token's id is negative (valid: 0 to {rows - 1:,})"
    fix = "set it to null if no token is meant, else to the token's id"
    if stated.key in _LISTS:
        fix = "take it out of the list"
    if stated.key == "pad_token_id" and -rows <= ids[0]:
        message += f"; torch.nn.Embedding takes {rows + ids[0]:,}, counted from the end, for padding"
    harmless = stated.rows is not None or (set(ids) == {-1} and stated.key not in _LOOKED_UP)
    return Finding("id-negative", "warning" if harmless else "error", message, fix)


def _listed(values: list[Any]) -> str:
    some = [f"{value:,}" if type(value) is int else shown(repr(value)[:40]) for value in values[:_SHOWN]]
    more = f" and {len(values) - _SHOWN:,} more" if len(values) > _SHOWN else ""
    return ", ".join(some) + more
