"""What a checkpoint's files hold around its vocabulary, and where they contradict each other.

Told from the headers, ``config.json`` and the tokenizer; numbers are read only to see whether two tensors
are equal. A family that is not known is reported by the shapes of its tensors.
"""

from __future__ import annotations

import contextlib

from tokenspace.checkpoint.findings import Audit, Finding, TensorRole, by_severity
from tokenspace.checkpoint.head import check_head, tying_of
from tokenspace.checkpoint.parameters import count
from tokenspace.checkpoint.token_ids import check_files
from tokenspace.errors import CheckpointError, TokenspaceError
from tokenspace.models.families import FAMILIES
from tokenspace.models.open import Checkpoint
from tokenspace.models.roles import may_be_head
from tokenspace.models.safetensors import TensorInfo, listed
from tokenspace.models.shards import Shards
from tokenspace.models.vocabulary import first, tokenizer_in, vocabulary, without_row
from tokenspace.reference.recipes import from_checkpoint
from tokenspace.shown import shown
from tokenspace.special_tokens import SpecialToken, special_tokens
from tokenspace.tokenizer import Tokenizer
from tokenspace.tokenizer_files import added_tokens
from tokenspace.vocab import Vocab, placeholder


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
    table, parameters = None, None
    try:
        table = checkpoint.input_embedding
        parameters = None if absent else count(checkpoint)
    except CheckpointError as error:
        findings.append(_not_told(error, table, missing=not absent and _known_type(checkpoint)))
    if checkpoint.family is None and not any(finding.code == "table-missing" for finding in findings):
        message = f"{checkpoint.why_unknown}: roles are told by shape and by common names"
        fix = (
            "check the roles that are listed; load(path, tensor=...) or convert --tensor NAME names the table"
        )
        findings.append(Finding("family-unknown", "warning", message, fix))
    tensors = _roles(checkpoint, table, parameters.copies if parameters else {})
    unknown = [tensor.name for tensor in tensors if tensor.role == "unknown"]
    if unknown:
        message = f"{len(unknown)} with a vocabulary's dimension and no known role: {listed(unknown)}"
        fix = "before changing the vocabulary, check whether these must change too"
        findings.append(Finding("role-unknown", "warning", message, fix))
    tying = tying_of(checkpoint, table)
    findings += check_files(checkpoint.folder, checkpoint.config, _rows(checkpoint, table))
    largest_id = None
    special: list[SpecialToken] = []
    try:
        vocab, tokenizer = vocabulary(checkpoint.folder)
        if table is not None and not without_row(vocab, table.shape[0], tokenizer):
            vocab = first(vocab, min(len(vocab), table.shape[0]))
        largest_id = _largest(vocab)
        with contextlib.suppress(CheckpointError):  # settings that can't be read give no roles
            special = special_tokens(vocab, tokenizer, checkpoint.folder)
        if table is not None and table.shape[0]:
            findings += _ids(vocab, tokenizer, largest_id, table)
    except TokenspaceError as error:
        largest_id, doubts = _without_vocab(checkpoint, table, error)
        findings += doubts
    if table is not None and 0 in table.shape:
        message = f"{table.name!r} is {list(table.shape)}: it holds no numbers, and no token id has a row"
        findings.append(Finding("no-rows", "error", message, "take the files from where they are whole"))
    elif table is not None:
        findings += _config(checkpoint, table)
        findings += _layer(checkpoint) if not any(f.code == "padding-past-rows" for f in findings) else []
        findings += check_head(checkpoint, table, tying)
    return Audit(
        family=checkpoint.family.name if checkpoint.family else None,
        tensors=tensors,
        tied=checkpoint.tied if table is not None else None,
        tying=tying,
        rows=table.shape[0] if table is not None else None,
        largest_id=largest_id,
        parameters=parameters,
        findings=by_severity(findings),
        special=special,
    )


def _known_type(checkpoint: Checkpoint) -> bool:
    kind = checkpoint.config.get("model_type")
    return any(kind in family.model_types for family in FAMILIES)


def _not_told(error: CheckpointError, table: TensorInfo | None, missing: bool) -> Finding:
    if table is not None:
        return Finding("not-counted", "warning", str(error), "nothing for the vocabulary's sake")
    if missing:
        message = f"the input table is missing, and a reload would draw it at random: {error}"
        fix = "take the files from where they are whole"
        return Finding("table-missing", "error", message, fix)
    fix = "get the file that holds the table, or name it: load(path, tensor=...) or convert --tensor NAME"
    return Finding("input-unknown", "warning", str(error), fix)


def _rows(checkpoint: Checkpoint, table: TensorInfo | None) -> int | None:
    """The rows that ids are held against: the table's, else what ``config.json`` says; None for neither."""
    said = checkpoint.setting("vocab_size")
    rows = table.shape[0] if table is not None else said if type(said) is int else 0
    return rows or None


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
            (checkpoint.head_bias_name, "head-bias"),
        ]
        for name, role in named:
            if found := checkpoint.find(name):
                roles.setdefault(found.name, role)
        if checkpoint.head_bias_name == family.untied_head_bias and (
            spare := checkpoint.find(family.head_bias)
        ):
            roles.setdefault(spare.name, "unused-head-bias")  # stored, and read by no untied head
    elif stored := checkpoint.stored_head:
        roles.setdefault(stored.name, "head")
    said = checkpoint.setting("vocab_size")
    sizes = {size for size in (said, table.shape[0] if table is not None else None) if type(size) is int}
    for name, tensor in checkpoint.tensors.items():
        may_be = table is None and len(tensor.shape) == 2 and may_be_head(name)
        if name not in roles and (may_be or sizes.intersection(tensor.shape)):
            original = copies.get(name)
            roles[name] = f"{roles[original]}-copy" if original in roles else "unknown"
    return [
        TensorRole(name, role, tensor.shape, tensor.dtype, tensor.path.name)
        for name, role in roles.items()
        if (tensor := checkpoint.tensors[name])
    ]


def _largest(vocab: Vocab) -> int | None:
    return next((i for i in range(len(vocab) - 1, -1, -1) if vocab[i] != placeholder(i)), None)


def _ids(vocab: Vocab, tokenizer: Tokenizer | None, largest: int | None, table: TensorInfo) -> list[Finding]:
    rows = table.shape[0]
    if outside := without_row(vocab, rows, tokenizer):
        return [
            Finding(
                "ids-past-rows",
                "error",
                f"{len(outside):,} of the tokenizer's ids have no row: the first is {outside[0]:,}, token "
                f"{shown(vocab[outside[0]])}; the table has {rows:,} rows (valid: 0 to {rows - 1:,})",
                "add rows for them to the table, the head and its bias, as resize_token_embeddings does, or "
                "use the tokenizer that the model was trained with",
            )
        ]
    spare = rows - 1 - (-1 if largest is None else largest)
    if not spare:
        return []
    count = "1 row" if spare == 1 else f"{spare:,} rows"
    which = "it" if spare == 1 else "them"
    message = f"{count} past the tokenizer's largest id, {rows - spare - 1:,}: no text reads {which}"
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
    rows, said = table.shape[0], checkpoint.setting("vocab_size")
    if said is None or said == rows:
        return []
    message = f"config.json says vocab_size {said!r}; {table.name!r} has {rows:,} rows"
    nested = "" if "vocab_size" in checkpoint.config else "'s text_config"
    fix = f"set vocab_size to {rows} in config.json{nested}"
    if checkpoint.head is not None and checkpoint.head.shape[0] != rows:
        fix = "take config.json from the model that the tensors are of: table and head have other rows"
    return [Finding("vocab-size", "warning", message, fix)]


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
