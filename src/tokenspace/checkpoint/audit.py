"""What a checkpoint's files hold around its vocabulary, and where they contradict each other.

Told from the headers, ``config.json`` and the tokenizer; numbers are read only to see whether two tensors
are equal. A family that is not known is reported by the shapes of its tensors.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tokenspace.checkpoint.parameters import CheckpointParameters, count
from tokenspace.errors import CheckpointError, TokenspaceError
from tokenspace.models.family import Family
from tokenspace.models.open import Checkpoint, same_bits
from tokenspace.models.safetensors import TensorInfo, listed
from tokenspace.models.shards import Shards
from tokenspace.models.vocabulary import tokenizer_in, vocabulary, without_row
from tokenspace.reference.recipes import from_checkpoint
from tokenspace.shown import shown
from tokenspace.special_tokens import SpecialToken, special_tokens
from tokenspace.tokenizer_files import added_tokens
from tokenspace.vocab import Vocab, placeholder


class TensorRole(NamedTuple):
    """A tensor of the embedding layer or head, or any other with a vocabulary's dimension ("unknown")."""

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    shard: str


class Finding(NamedTuple):
    """What is wrong (``error``: ids pass the table), doubtful, or worth knowing; and what to do about it."""

    code: str
    severity: Literal["error", "warning", "info"]
    message: str
    fix: str


class Tying(NamedTuple):
    """The three witnesses: ``config.json``'s flag, a head's own tensor in the files, and equality of bits."""

    flag: bool | None
    stored: str | None
    equal: bool | None


@dataclass(frozen=True)
class Audit:
    """What ``audit`` found. ``rows`` and ``parameters`` are None where the input table is not known,
    ``parameters`` too where not all files are there, ``largest_id`` where the folder has no tokenizer, whose
    ``special`` tokens are then unknown, too.
    """

    family: str | None
    tensors: list[TensorRole]
    tied: bool | None
    tying: Tying
    rows: int | None
    largest_id: int | None
    parameters: CheckpointParameters | None
    findings: list[Finding]
    special: list[SpecialToken]

    @property
    def failed(self) -> bool:
        """Whether any finding is an error."""
        return any(finding.severity == "error" for finding in self.findings)


def audit(checkpoint: Checkpoint, partial: bool = False) -> Audit:
    """Look at ``checkpoint`` as a whole. Doubts become findings; only files that are not there or can't be
    read raise. ``partial``: some of its shards may be left out on purpose; what is there is looked at.
    """
    findings: list[Finding] = []
    absent: list[str] = []
    if partial and isinstance(checkpoint.tensors, Shards):
        there, absent = checkpoint.tensors.there()
        checkpoint = Checkpoint(checkpoint.folder, checkpoint.config, there)
    if absent:
        findings.append(_not_looked_at(absent))
    list(checkpoint.tensors.values())  # opens every shard: one that is missing is no doubt
    if checkpoint.family is None:
        kind = checkpoint.config.get("model_type")
        findings.append(
            Finding(
                "family-unknown",
                "warning",
                f"model type {kind!r} with these tensors is not a known family: roles are told by shape",
                "check the roles that are listed; load(path, tensor=...) or convert --tensor NAME names the "
                "table",
            )
        )
    table, parameters = None, None
    try:
        table = checkpoint.input_embedding
        parameters = None if absent else count(checkpoint)
    except CheckpointError as error:
        code = "input-unknown" if table is None else "not-counted"
        findings.append(Finding(code, "warning", str(error), "nothing, if that is as it should be"))
    tensors = _roles(checkpoint, table, parameters.copies if parameters else {})
    unknown = [tensor.name for tensor in tensors if tensor.role == "unknown"]
    if unknown:
        message = f"{len(unknown)} with a vocabulary's dimension and no known role: {listed(unknown)}"
        fix = "whoever changes the vocabulary must see whether they change too"
        findings.append(Finding("role-unknown", "warning", message, fix))
    tying = _tying(checkpoint, table)
    largest_id = None
    special: list[SpecialToken] = []
    try:
        vocab, tokenizer = vocabulary(checkpoint.folder)
        largest_id = _largest(vocab)
        with contextlib.suppress(CheckpointError):  # settings that can't be read give no roles
            special = special_tokens(vocab, tokenizer, checkpoint.folder)
        if table is not None and table.shape[0]:
            findings += _ids(vocab, largest_id, table)
    except TokenspaceError as error:
        largest_id, doubts = _without_vocab(checkpoint, table, error)
        findings += doubts
    if table is not None and 0 in table.shape:
        message = f"{table.name!r} is {list(table.shape)}: it holds no numbers, and no token id has a row"
        findings.append(Finding("no-rows", "error", message, "take the files from where they are whole"))
    elif table is not None:
        findings += _config(checkpoint, table)
        findings += _layer(checkpoint) if not any(f.code == "padding-past-rows" for f in findings) else []
        findings += _head(checkpoint, table, tying)
    return Audit(
        family=checkpoint.family.name if checkpoint.family else None,
        tensors=tensors,
        tied=checkpoint.tied if table is not None else None,
        tying=tying,
        rows=table.shape[0] if table is not None else None,
        largest_id=largest_id,
        parameters=parameters,
        findings=sorted(findings, key=lambda finding: ("error", "warning", "info").index(finding.severity)),
        special=special,
    )


def _not_looked_at(shards: list[str]) -> Finding:
    message = f"{len(shards):,} of the model's files were not fetched, nor looked at: {listed(shards)}"
    fix = "nothing for the vocabulary's sake; parameters are counted where all files are there"
    return Finding("not-fetched", "info", message, fix)


def _roles(checkpoint: Checkpoint, table: TensorInfo | None, copies: dict[str, str]) -> list[TensorRole]:
    """The layer's tensors in the order of the walk, then the others that have a vocabulary's dimension."""
    roles: dict[str, str] = {} if table is None else {table.name: "input"}
    family = checkpoint.family
    if family:
        norm, projection = family.layer_norm, family.projection
        named = [
            (family.position, "position"),
            (family.segment, "segment"),
            *((extra.tensor, role) for role, extra in (family.extras or {}).items()),
            *((f"{norm}.{part}", "layer-norm") for part in ("weight", "bias", "gamma", "beta") if norm),
            *((f"{projection}.{part}", "projection") for part in ("weight", "bias") if projection),
            (family.head, "head"),
            (family.head_bias, "head-bias"),
        ]
        for name, role in named:
            if found := checkpoint.find(name):
                roles.setdefault(found.name, role)
    said = checkpoint.setting("vocab_size")
    sizes = {size for size in (said, table.shape[0] if table is not None else None) if type(size) is int}
    for name, tensor in checkpoint.tensors.items():
        if name not in roles and sizes.intersection(tensor.shape):
            original = copies.get(name)
            roles[name] = f"{roles[original]}-copy" if original in roles else "unknown"
    return [
        TensorRole(name, role, tensor.shape, tensor.dtype, tensor.path.name)
        for name, role in roles.items()
        if (tensor := checkpoint.tensors[name])
    ]


def _tying(checkpoint: Checkpoint, table: TensorInfo | None) -> Tying:
    flag = checkpoint.setting("tie_word_embeddings")
    stored = checkpoint.find(checkpoint.family.head) if checkpoint.family else None
    return Tying(
        flag if isinstance(flag, bool) else None,
        stored.name if stored else None,
        same_bits(stored, table) if stored and table is not None else None,
    )


def _largest(vocab: Vocab) -> int | None:
    return next((i for i in range(len(vocab) - 1, -1, -1) if vocab[i] != placeholder(i)), None)


def _ids(vocab: Vocab, largest: int | None, table: TensorInfo) -> list[Finding]:
    rows = table.shape[0]
    if outside := without_row(vocab, rows):
        return [
            Finding(
                "ids-past-rows",
                "error",
                f"{len(outside):,} of the tokenizer's ids have no row: the first is {outside[0]:,}, token "
                f"{shown(vocab[outside[0]])}; the table has {rows:,} rows (valid: 0 to {rows - 1:,})",
                "add rows for them, or use the tokenizer that the model was trained with",
            )
        ]
    spare = rows - 1 - (-1 if largest is None else largest)
    if not spare:
        return []
    message = f"{spare:,} rows past the tokenizer's largest id, {rows - spare - 1:,}: no text reads them"
    return [Finding("spare-rows", "info", message, "nothing; new tokens may use them before rows are added")]


def _without_vocab(
    checkpoint: Checkpoint, table: TensorInfo | None, error: TokenspaceError
) -> tuple[int | None, list[Finding]]:
    """The largest added id and what is to be said where the tokenizer as a whole can't be had."""
    try:
        added = added_tokens(checkpoint.folder)
    except CheckpointError:
        added = {}
    largest = max(added, default=None)
    if largest is None or table is None or largest < table.shape[0]:
        message = f"ids are not checked: {error}"
        if largest is None and not tokenizer_in(checkpoint.folder):
            return largest, [Finding("tokenizer-unknown", "info", message, "add the tokenizer's files")]
        fix = "save the tokenizer again, or take its files from where they are whole"
        return largest, [Finding("tokenizer-broken", "warning", message, fix)]
    rows = table.shape[0]
    message = (
        f"the added token {shown(added[largest].content)} has id {largest:,}, which has no row (valid: 0 to "
        f"{rows - 1:,}); and the tokenizer can't be read: {error}"
    )
    return largest, [Finding("ids-past-rows", "error", message, "add rows for it, and save both again")]


def _config(checkpoint: Checkpoint, table: TensorInfo) -> list[Finding]:
    findings = []
    rows, said, pad = table.shape[0], checkpoint.setting("vocab_size"), checkpoint.setting("pad_token_id")
    if said is not None and said != rows:
        message = f"config.json says vocab_size {said!r}; {table.name!r} has {rows:,} rows"
        findings.append(Finding("vocab-size", "warning", message, f"set vocab_size to {rows} in config.json"))
    if type(pad) is int and pad >= rows:
        message = f"config.json's pad_token_id is {pad:,}, which has no row (valid: 0 to {rows - 1:,})"
        findings.append(Finding("padding-past-rows", "error", message, "set it to the padding token's id"))
    return findings


def _layer(checkpoint: Checkpoint) -> list[Finding]:
    """Why a known family's input layer can't be made of the files, if it can't."""
    if checkpoint.family is None:
        return []
    try:
        from_checkpoint(checkpoint)
    except TokenspaceError as error:
        message = f"the input layer can't be made of these files: {error}"
        fix = "correct that, or take the files from where they are whole"
        return [Finding("layer", "warning", message, fix)]
    return []


def _head(checkpoint: Checkpoint, table: TensorInfo, tying: Tying) -> list[Finding]:
    findings = []
    own, rows = checkpoint.head, table.shape[0]
    if own is not None and tying.flag:
        message = f"config.json says that {own.name!r} is tied to {table.name!r}, but they differ"
        fix = "set tie_word_embeddings to false, or a reload that ties them again loses one"
        findings.append(Finding("tie-flag", "warning", message, fix))
    if own is not None and own.shape[:1] != (rows,):
        message = f"{own.name!r} scores {own.shape[0]:,} tokens, the table has {rows:,} rows"
        findings.append(Finding("head-rows", "warning", message, "give both the same rows"))
    if tying.equal:
        message = f"{tying.stored!r} repeats the table, bit by bit"
        findings.append(Finding("head-copy", "info", message, "nothing; leave it out to save its bytes"))
    if checkpoint.family and tying.stored is None and not checkpoint.tied:
        message = f"no head is stored ({checkpoint.family.head!r}), and none is tied"
        findings.append(Finding("no-head", "info", message, "nothing, if the model scores no tokens"))
    bias = checkpoint.find(checkpoint.family.head_bias) if checkpoint.family else None
    findings += (
        _missing_bias(checkpoint.family, tying, checkpoint.tied) if bias is None and checkpoint.family else []
    )
    scored = own.shape[0] if own is not None else rows
    if bias is not None and bias.shape[-1:] != (scored,):
        message = f"{bias.name!r} has {list(bias.shape)} numbers for a head of {scored:,} rows"
        fix = "give it one number for each row: the model can't be loaded as it is"
        findings.append(Finding("head-bias-rows", "warning", message, fix))
    return findings


def _missing_bias(family: Family, tying: Tying, tied: bool | None) -> list[Finding]:
    """What is to be said of a head whose bias the files lack, though the family has one."""
    if family.head_bias is None or family.head_bias_from_zero:
        return []
    if tying.stored:
        message = f"{tying.stored!r} is stored without its bias, {family.head_bias!r}"
        return [Finding("head-bias-missing", "warning", message, "add it: the head can't be loaded as it is")]
    if not tied:
        return []  # said already: no-head
    message = f"no head is stored, nor its bias ({family.head_bias!r}): the model was saved without one"
    return [Finding("no-head", "info", message, "nothing, if the model scores no tokens")]
