from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tokenspace.cli.console import echo_json, json_option, shown
from tokenspace.cli.special import special_lines

if TYPE_CHECKING:
    from tokenspace.checkpoint import Audit

_TIED = {True: "tied", False: "untied", None: "not known"}
_FLAG = {True: "tied", False: "untied", None: "nothing"}


@click.command()
@click.argument("checkpoint")
@json_option
@click.pass_context
def inspect(ctx: click.Context, checkpoint: str, as_json: bool) -> None:
    """Show what a model's files hold around its vocabulary, and its faults.

    CHECKPOINT is a folder with config.json and safetensors files (or pytorch_model.bin), a GGUF file (any of
    a model's several), or hf:org/name, of which only the files that hold the table are fetched, and looked
    at. Its special tokens are listed with their ids and roles. The status is 1 if any finding is an error: a
    token id without a row in the table, or a table or head that a program loading the model would draw at
    random.
    """
    found = _audit(checkpoint)
    if as_json:
        echo_json(_facts(found))
    else:
        click.echo("\n".join(_lines(checkpoint, found)))
    if found.failed:
        ctx.exit(1)


def _audit(checkpoint: str) -> Audit:
    from tokenspace import formats
    from tokenspace.checkpoint import audit, audit_gguf
    from tokenspace.errors import CheckpointError
    from tokenspace.formats import gguf, gguf_split, hub, static_embedding
    from tokenspace.models import open_checkpoint
    from tokenspace.source import Source, exists

    place, fetched = formats.located(checkpoint), hub.is_name(checkpoint)
    if fetched and place.is_file() and hub.parsed(checkpoint).file is None and place.suffix != ".gguf":
        place = place.parent  # the one shard with the table, of a family that is not known
    if not place.is_dir() and exists(place):
        kind = formats.sniff(place)
        if kind == gguf.NAME:
            return audit_gguf(gguf_split.open_model(Source(place)))
        if kind == "tensors":
            raise CheckpointError(
                f"{checkpoint} is one file of tensors; inspect looks at a model's folder, with its "
                f"config.json: tokenspace inspect {place.parent}"
            )
        raise CheckpointError(
            f"{checkpoint} is a table ({kind}), not a model: inspect looks at a model's folder or GGUF file; "
            "for a table: tokenspace neighbors TOKEN -t, tokenspace norms -t"
        )
    static_embedding.check_checkpoint(place, checkpoint)
    return audit(open_checkpoint(place), partial=fetched)


def _facts(found: Audit) -> dict[str, Any]:
    counted = found.parameters
    return {
        "family": found.family,
        "tensors": [tensor._asdict() for tensor in found.tensors],
        "tied": found.tied,
        "parameters": {
            "embedding": counted.embedding if counted else None,
            "total": counted.total if counted else None,
            "fraction": counted.fraction if counted else None,
        },
        "findings": [finding._asdict() for finding in found.findings],
        "tying": found.tying._asdict(),
        "rows": found.rows,
        "largest_id": found.largest_id,
        "special": [token._asdict() for token in found.special],
    }


def _lines(checkpoint: str, found: Audit) -> list[str]:
    lines = [f"{shown(checkpoint)}: {found.family or 'no known family'}", ""]
    names = [shown(tensor.name) for tensor in found.tensors]
    width = max(map(len, names), default=0)
    role = max((len(tensor.role) for tensor in found.tensors), default=0)
    for tensor, name in zip(found.tensors, names, strict=True):
        shape = " × ".join(f"{size:,}" for size in tensor.shape)
        lines.append(
            f"{tensor.role:{role}}  {name:{width}}  {shape:>16}  {tensor.dtype}  {shown(tensor.shard)}"
        )
    lines += ["", f"head      {_head(found)}"]
    if found.rows is not None:
        broken = any(finding.code == "tokenizer-broken" for finding in found.findings)
        last = "the tokenizer here can't be read" if broken else "no tokenizer here"
        if found.largest_id is not None:
            last = f"largest token id {found.largest_id:,}"
        lines.append(f"rows      {found.rows:,}; {last}")
    lines += special_lines(found.special, "special   ")
    if counted := found.parameters:
        share = f"{100 * counted.fraction:.1f} %"
        lines.append(
            f"share     {counted.embedding:,} of {counted.total:,} parameters are the embedding ({share})"
        )
    lines.append("")
    for finding in found.findings:
        lines += [f"{finding.severity:8}  {finding.message} ({finding.code})", f"          → {finding.fix}"]
    if not found.findings:
        lines.append("nothing to remark")
    return lines


def _head(found: Audit) -> str:
    """The head in one sentence, which agrees with the list of tensors."""
    from tokenspace.models.roles import is_head, may_be_head

    tying = found.tying
    table = next((tensor.name for tensor in found.tensors if tensor.role == "input"), None)
    unsure = [
        tensor.name for tensor in found.tensors if tensor.role == "unknown" and may_be_head(tensor.name)
    ]
    if tying.stored:
        equal = {True: ", equal to the table", False: ", not equal to the table", None: ""}[tying.equal]
        stored = f"{shown(tying.stored)} is stored{equal}"
    elif table is not None and is_head(table):
        stored = f"{shown(table)} is stored, and is the table too"
    elif unsure:
        be = "a head" if len(unsure) == 1 else "heads"
        stored = f"{', '.join(map(shown, unsure))} may be {be}"
    else:
        stored = "no head is stored"
    said = f"config.json says {_FLAG[tying.flag]}; " if found.has_config else ""
    custom = ", as is the family's custom" if found.tied and tying.flag is None and not tying.stored else ""
    return f"{_TIED[found.tied]}: {said}{stored}{custom}"
