"""The audit of a GGUF model: the same questions as to a checkpoint's folder, answered from its headers.

llama.cpp needs one token for each row of the table, and takes the table for the head where the files hold no
``output.weight``. Sizes of quantized tensors are known, so parameters are counted for these too.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np

from tokenspace.checkpoint.findings import Audit, Finding, TensorRole, Tying, by_severity
from tokenspace.checkpoint.parameters import CheckpointParameters
from tokenspace.errors import TableFormatError
from tokenspace.formats.gguf import ARCHITECTURE, OUTPUT, SPECIAL, TOKEN_TYPES, TOKENS, WEIGHT, same_numbers
from tokenspace.formats.gguf_header import ARRAY, NUMBERS, Header, Tensor
from tokenspace.formats.gguf_split import Model
from tokenspace.models.safetensors import TensorInfo
from tokenspace.shown import shown
from tokenspace.special_tokens import SpecialToken, with_roles

_ROLES = {
    WEIGHT: "input",
    "position_embd.weight": "position",
    "token_types.weight": "segment",
    "token_embd_norm.weight": "layer-norm",
    "token_embd_norm.bias": "layer-norm",
    OUTPUT: "head",
    "output.bias": "head-bias",
}
_NO_HEAD = ("bert", "nomic-bert", "jina-bert", "t5encoder", "clip", "wavtokenizer")  # parts of their names
_IDS = ("_token_id", "_token_ids")
_SPECIAL_ROLES = {
    "bos": "begin",
    "eos": "end",
    "cls": "classification",
    "seperator": "separator",  # as the gguf package spells the key
    "eot": "end of turn",
    "eom": "end of message",
    "eog": "end of generation",
}
_BUFFERS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


def audit_gguf(model: Model) -> Audit:
    """Look at a model in GGUF as a whole; doubts become findings.

    ``TableFormatError`` if a key that is needed is of another kind than the format says.
    """
    first = model.first
    tensors = {name: (part, tensor) for part in model.parts for name, tensor in part.tensors.items()}
    table = tensors.get(WEIGHT)
    usable = table is not None and len(table[1].shape) == 2 and 0 not in table[1].shape
    rows, dim = table[1].shape if table is not None and usable else (None, None)
    findings: list[Finding] = []
    if table is None or not usable:
        what = "is missing" if table is None else f"has shape {list(table[1].shape)}, where a table is (V, D)"
        message = f"the input table, {WEIGHT!r}, {what}"
        findings.append(
            Finding("table-missing", "error", message, "take the files from where they are whole")
        )
    architecture = first.text(ARCHITECTURE)
    tokens = _count(first, TOKENS)
    head = tensors.get(OUTPUT)
    equal = None
    if head is not None and table is not None and usable:
        equal = head[1].shape == table[1].shape and same_numbers(table, head, table[1].shape[0])
    tied = equal if head is not None else None
    if head is None and usable and not any(each in (architecture or "") for each in _NO_HEAD):
        tied = True
    if rows is not None and dim is not None:
        findings += _tokens(first, tokens, rows)
        findings += _sizes(first, architecture, rows, dim)
        findings += _head(table, head, equal)
    findings += _ids(first, rows if rows is not None else tokens)
    found = _roles(tensors, rows, tokens)
    if unknown := [each.name for each in found if each.role == "unknown"]:
        message = f"{len(unknown)} with a vocabulary's dimension and no known role: {', '.join(unknown[:6])}"
        fix = "before changing the vocabulary, check whether these must change too"
        findings.append(Finding("role-unknown", "warning", message, fix))
    return Audit(
        family=architecture,
        tensors=found,
        tied=tied,
        tying=Tying(None, OUTPUT if head is not None else None, equal),
        rows=rows,
        largest_id=None if not tokens else tokens - 1,
        parameters=None if rows is None or table is None else _parameters(tensors, table, tied, equal),
        findings=by_severity(findings),
        special=_special(first, tokens or 0),
        has_config=False,
    )


def _roles(
    tensors: dict[str, tuple[Header, Tensor]], rows: int | None, tokens: int | None
) -> list[TensorRole]:
    sizes = {size for size in (rows, tokens) if size}
    named = [name for name in _ROLES if name in tensors]
    others = [name for name in tensors if name not in _ROLES and sizes.intersection(tensors[name][1].shape)]
    return [
        TensorRole(name, _ROLES.get(name, "unknown"), tensor.shape, _type(tensor), part.source.path.name)
        for name in (*named, *others)
        for part, tensor in [tensors[name]]
    ]


def _type(tensor: Tensor) -> str:
    return tensor.type.name if tensor.type else f"type {tensor.number}"


def _parameters(
    tensors: dict[str, tuple[Header, Tensor]],
    table: tuple[Header, Tensor],
    tied: bool | None,
    equal: bool | None,
) -> CheckpointParameters:
    counted = {
        name: math.prod(tensor.shape)
        for name, (_, tensor) in tensors.items()
        if name not in _BUFFERS and not (name == OUTPUT and equal)
    }
    part, own = table
    return CheckpointParameters(
        input=TensorInfo(WEIGHT, _type(own), own.shape, part.source.path, own.start, own.end),
        vocab=own.shape[0],
        dim=own.shape[1],
        embedding=counted[WEIGHT],
        head=counted.get(OUTPUT, 0) + counted.get("output.bias", 0),
        total=sum(counted.values()),
        tied=tied,
        copies={OUTPUT: WEIGHT} if equal else {},
        buffers=tuple(name for name in _BUFFERS if name in tensors),
    )


def _count(header: Header, key: str) -> int | None:
    """The length of the array that ``key`` holds; None if there is none."""
    found = header.metadata.get(key)
    return found.length if found is not None and found.kind == ARRAY else None


def _tokens(header: Header, tokens: int | None, rows: int) -> list[Finding]:
    if tokens is None:
        message = f"the file has no {TOKENS!r}: ids are not checked"
        return [Finding("tokenizer-unknown", "info", message, "convert the model again, with its tokenizer")]
    findings = []
    if tokens > rows:
        strings = header.strings(TOKENS, rows + 1)
        assert strings is not None
        data, offsets, _ = strings
        name = data[offsets[rows] : offsets[rows + 1]].tobytes().decode("utf-8", "replace")
        message = (
            f"{tokens - rows:,} of the tokenizer's ids have no row: the first is {rows:,}, token "
            f"{shown(name)}; the table has {rows:,} rows (valid: 0 to {rows - 1:,})"
        )
        fix = "convert the model again with its own tokenizer, after its table was resized"
        findings.append(Finding("ids-past-rows", "error", message, fix))
    elif tokens < rows:
        message = f"{rows - tokens:,} rows past the last token, {tokens - 1:,}: no text reads them"
        fix = "nothing here; llama.cpp wants a token for each row: convert the model again for it"
        findings.append(Finding("spare-rows", "info", message, fix))
    kinds = _count(header, TOKEN_TYPES)
    if kinds is not None and kinds != tokens:
        message = f"{kinds:,} token types for {tokens:,} tokens; each needs its own"
        fix = "convert the model again: which tokens are special is not known"
        findings.append(Finding("token-types", "warning", message, fix))
    return findings


def _sizes(header: Header, architecture: str | None, rows: int, dim: int) -> list[Finding]:
    """Where the sizes that the architecture's keys state are not the table's."""
    findings = []
    for key, size in ((f"{architecture}.vocab_size", rows), (f"{architecture}.embedding_length", dim)):
        said = _number(header, key)
        if said is not None and said != size:
            code = "vocab-size" if key.endswith("vocab_size") else "width"
            message = f"{key} is {said:,}; {WEIGHT!r} is {rows:,} × {dim:,}"
            fix = "convert the model again: the key is of another version of the model"
            findings.append(Finding(code, "warning", message, fix))
    return findings


def _head(
    table: tuple[Header, Tensor] | None, head: tuple[Header, Tensor] | None, equal: bool | None
) -> list[Finding]:
    if table is None or head is None:
        return []
    if head[1].shape != table[1].shape:
        message = f"{OUTPUT!r} is {list(head[1].shape)}, the table {WEIGHT!r} {list(table[1].shape)}"
        fix = f"convert the model again; for the table alone: convert --tensor {WEIGHT}"
        return [Finding("head-rows", "warning", message, fix)]
    if equal:
        message = f"{OUTPUT!r} repeats the table, bit by bit"
        fix = "nothing; llama.cpp takes the table where it is left out"
        return [Finding("head-copy", "info", message, fix)]
    return []


def _ids(header: Header, rows: int | None) -> list[Finding]:
    """The ids of special tokens, held against the rows."""
    findings = []
    for key in header.metadata:
        if not (key.startswith("tokenizer.") and key.endswith(_IDS)):
            continue
        try:
            found = header.numbers(key)
        except TableFormatError:
            message = f"{key} is no token id: an id is a whole number"
            findings.append(Finding("id-not-whole", "error", message, "convert the model again"))
            continue
        past = [] if found is None or rows is None else [i for i in found.tolist() if not 0 <= i < rows]
        if past and rows is not None:
            code = "padding-past-rows" if "padding" in key else "id-past-rows"
            some = ", ".join(f"{i:,}" for i in past[:5])
            message = f"{key} is {some}, which has no row (valid: 0 to {rows - 1:,})"
            fix = "convert the model again with the ids of its own tokenizer"
            findings.append(Finding(code, "error", message, fix))
    return findings


def _special(header: Header, tokens: int) -> list[SpecialToken]:
    """The unknown and control tokens, and those whose ids the header's keys state; keys give the roles."""
    named: dict[int, list[str]] = {}
    if _count(header, TOKEN_TYPES) == tokens:
        with contextlib.suppress(TableFormatError):
            kinds = header.numbers(TOKEN_TYPES)
            named = {} if kinds is None else {i: [] for i in np.flatnonzero(np.isin(kinds, SPECIAL)).tolist()}
    for key in header.metadata:
        if key.startswith("tokenizer.") and key.endswith(_IDS):
            name = key.rsplit(".", 1)[-1].removesuffix("s").removesuffix("_token_id")
            with contextlib.suppress(TableFormatError):  # ``_ids`` reports it
                found = header.numbers(key)
                for i in [] if found is None else found.tolist():
                    roles = named.setdefault(i, []) if 0 <= i < tokens else []
                    roles.append(_SPECIAL_ROLES.get(name, name.replace("_", " ")))
    strings = header.strings(TOKENS, max(named, default=-1) + 1) if named else None
    if strings is None:
        return []
    data, offsets, _ = strings
    return with_roles(named, lambda i: data[offsets[i] : offsets[i + 1]].tobytes().decode("utf-8", "replace"))


def _number(header: Header, key: str) -> int | None:
    """The whole number that ``key`` holds; None if it is absent or something else."""
    found = header.metadata.get(key)
    if found is None or found.kind == ARRAY or (dtype := NUMBERS.get(found.kind)) is None:
        return None
    return int(header.content[found.start : found.end].view(dtype)[0]) if dtype.kind in "iu" else None
