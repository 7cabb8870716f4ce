from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from tokenspace.cli.console import echo_json, json_option, shown
from tokenspace.cli.special import special_lines

if TYPE_CHECKING:
    from tokenspace.models.sizes import Model

_HEADS = {True: "tied", False: "own", None: "none"}
_POSITIONS = {
    "learned": "learned, a table of their own",
    "rotary": "rotary, inside attention: no table",
    "ALiBi": "ALiBi, inside attention: no table",
    "relative": "relative, inside attention",
    "none": "none: the layers go through the text in order",
}


@click.command()
@click.argument("model", required=False)
@click.option("--vocab", type=int, metavar="V", help="Rows of a table of your own.")
@click.option("--dim", type=int, metavar="D", help="Its width.")
@click.option("--layers", type=int, metavar="L", help="Layers of a model around it, shaped as GPT-2.")
@click.option("--ffn", type=int, metavar="F", help="The feed-forward's width.  [default: 4·D]")
@click.option("--tied/--untied", default=True, help="Whether the head is the table.  [default: tied]")
@json_option
def params(
    model: str | None,
    vocab: int | None,
    dim: int | None,
    layers: int | None,
    ffn: int | None,
    tied: bool,
    as_json: bool,
) -> None:
    """How many parameters the embedding has, and its share of MODEL.

    MODEL is a name, or a checkpoint's folder, which is counted by its files' headers; or a table, as -t takes
    one elsewhere. The special tokens of a checkpoint or table, rows as any other, are listed with their ids.
    With --vocab and --dim, a size of your own. With neither, a list of the models that are known.
    """
    from tokenspace.models import parameters, sizes

    if (vocab is None) != (dim is None):
        raise click.UsageError("a table of your own needs both --vocab and --dim")
    if model is not None and vocab is not None:
        raise click.UsageError("give a MODEL, or --vocab and --dim, not both")
    if vocab is None and (layers is not None or ffn is not None or not tied):
        raise click.UsageError("--layers, --ffn and --untied go with --vocab and --dim")
    if layers is None and ffn is not None:
        raise click.UsageError("--ffn needs --layers: a table alone has no feed-forward")

    if vocab is not None and dim is not None:
        if layers is None:
            _table_alone(vocab, dim, tied, as_json)
        else:
            _model(parameters.gpt2_shaped(vocab, dim, layers, ffn, tied), as_json)
    elif model is None:
        _list(as_json)
    elif model in sizes.MODELS or not (what := _kind_of_file(model)):
        _model(sizes.find(model), as_json)
    elif what == "table":
        _table(model, as_json)
    else:
        _checkpoint(model, as_json)


def _kind_of_file(name: str) -> Literal["table", "checkpoint"] | None:
    """Return which of the two a file or folder called ``name`` is; None if there is no such file."""
    from tokenspace import formats
    from tokenspace.formats import hub, static_embedding
    from tokenspace.source import archive_of

    place = Path(name)
    if name and place.is_dir():
        return "table" if static_embedding.is_static(place) else "checkpoint"
    if name in formats.BUILT_IN or hub.is_name(name) or place.is_file() or archive_of(place):
        return "table"
    return None


def _list(as_json: bool) -> None:
    from tokenspace.models.sizes import MODELS

    facts = [_facts(model) for model in MODELS.values()]
    if as_json:
        echo_json(facts)
        return
    click.echo(f"{'model':30} {'rows':>8} {'width':>6} {'table':>9} {'model':>9} {'share':>7}  head")
    group = ""
    for model in facts:
        if (family := f"{model['family']} ({model['tokenizer']})") != group:
            click.echo(family)
            group = family
        click.echo(
            f"  {model['name']:28} {model['vocab']:8,} {model['dim']:6,} {_short(model['embedding']):>9} "
            f"{_short(model['total']):>9} {_share(model['fraction']):>7}  {_HEADS[model['tied']]}"
        )


def _model(model: Model, as_json: bool) -> None:
    facts = _facts(model)
    if as_json:
        echo_json(facts)
        return
    total = facts["total"]
    lines = [f"{model.name}: {_headline(facts)}", ""]
    lines += [f"vocabulary    {_rows(model)}", f"sizes         {_sizes(model)}"]
    lines += [f"positions     {_POSITIONS[model.architecture.positions]}", ""]
    about = {
        "embedding": f"{model.vocab:,} × {model.table_width:,}",
        "positions": f"{model.position_rows:,} rows",
        "segments": f"{model.segments:,} rows",
        "head": _head(model),
    }
    for name, numbers in facts["parts"].items():
        if numbers or name == "head":
            lines.append(_row(name.replace("_", " "), numbers, total, about.get(name, "")))
    lines += [f"{'total':13} {total:19,}", ""]
    if model.tied is not None:
        lines.append(_tying(facts))
    flops = facts["flops_per_token"]
    token = "a token in and one out" if model.architecture.encoder_decoder else "a token"
    lines += [
        f"compute       {_short(flops)} operations for {token}: 2 × {_short(flops // 2)}, matrices and head",
        f"twice as wide {_growth(facts)}",
        f"equals        {_equals(model)}",
        f"source        {model.source}",
    ]
    click.echo("\n".join(lines))


def _table_alone(vocab: int, dim: int, tied: bool, as_json: bool) -> None:
    from tokenspace.models.parameters import table_parameters

    numbers = table_parameters(vocab, dim)
    facts = {
        "vocab": vocab,
        "dim": dim,
        "embedding": numbers,
        "head": 0 if tied else numbers,
        "total": None,
        "fraction": None,
        "tied": tied,
        "saving": _saving(numbers),
    }
    if as_json:
        echo_json(facts)
        return
    click.echo(f"a table of {vocab:,} × {dim:,}: {numbers:,} parameters\n")
    click.echo(_tying(facts))
    click.echo("twice as wide embedding × 2; with --layers, also its share of a model shaped as GPT-2")


def _table(source: str, as_json: bool) -> None:
    from tokenspace import formats
    from tokenspace.special_tokens import special_tokens

    table = formats.load(source)
    numbers, rows, dim = table.weight.size, len(table), table.dim
    subwords = None if table.subwords is None else table.subwords.rows.size
    head = 0 if table.output is None else table.output.size
    special = special_tokens(table.vocab, table.tokenizer, Path(source) if Path(source).is_dir() else None)
    if as_json:
        facts = {
            "vocab": rows,
            "dim": dim,
            "embedding": numbers,
            "head": head,
            "total": None,
            "fraction": None,
            "tied": None if table.output is None else False,
            "dtype": str(table.weight.dtype),
            "saving": _saving(numbers),
            "subwords": subwords,
            "special": [token._asdict() for token in special],
        }
        echo_json(facts)
        return
    lines = [
        f"{shown(source)}: a table of {rows:,} × {dim:,} {table.weight.dtype}: {numbers:,} parameters",
        "",
    ]
    if head:
        lines.append(f"{'output':13} {head:19,}  a second matrix over the same tokens: contexts, or a head")
    if subwords:
        lines.append(f"{'subwords':13} {subwords:19,}  rows of n-grams, which compose words")
    lines += special_lines(special, f"{'special':13} ") or [f"{'special':13} no token is marked so"]
    click.echo("\n".join(lines))


def _checkpoint(folder: str, as_json: bool) -> None:
    from tokenspace import checkpoint, models
    from tokenspace.errors import TokenspaceError
    from tokenspace.models.vocabulary import vocabulary
    from tokenspace.special_tokens import special_tokens

    opened = models.open_checkpoint(folder)
    found = checkpoint.count(opened)
    special = None
    with contextlib.suppress(TokenspaceError):  # without a tokenizer parameters are counted all the same
        special = special_tokens(*vocabulary(opened.folder), opened.folder)
    facts = {
        "vocab": found.vocab,
        "dim": found.dim,
        "embedding": found.embedding,
        "head": found.head,
        "total": found.total,
        "fraction": found.fraction,
        "tied": found.tied,
        "family": opened.family.name if opened.family else None,
        "input": found.input.name,
        "dtype": found.input.dtype,
        "saving": _saving(found.embedding),
        "copies": found.copies,
        "buffers": list(found.buffers),
        "special": None if special is None else [token._asdict() for token in special],
    }
    if as_json:
        echo_json(facts)
        return
    own = opened.head
    lines = [f"{shown(folder)}: {_headline(facts)}", ""]
    lines += [
        _row("embedding", found.embedding, found.total, f"{shown(found.input.name)}, {found.input.dtype}"),
        _row("head", found.head, found.total, shown(own.name) if own else "no table of its own here"),
        _row("all others", found.total - found.embedding - found.head, found.total),
        f"{'total':13} {found.total:19,}",
        "",
    ]
    if found.tied is not None:
        lines.append(_tying(facts))
    for copy, original in found.copies.items():
        lines.append(f"left out      {shown(copy)}: the numbers of {shown(original)} again")
    if found.buffers:
        first, more = shown(found.buffers[0]), len(found.buffers) - 1
        also = f" and {more:,} more" if more else ""
        lines.append(f"left out      {first}{also}: no parameters")
    lines += special_lines(special or [], f"{'special':13} ")
    click.echo("\n".join(lines))


def _facts(model: Model) -> dict[str, Any]:
    from dataclasses import asdict

    from tokenspace.models.parameters import count, doubled, flops_per_token

    parts, wide = count(model), doubled(model)
    wider = count(wide)
    return {
        "vocab": model.vocab,
        "dim": model.table_width,
        "embedding": parts.embedding,
        "head": parts.head,
        "total": parts.total,
        "fraction": parts.fraction,
        "tied": model.tied,
        "name": model.name,
        "family": model.family,
        "tokens": model.tokens,
        "tokenizer": model.tokenizer,
        "width": model.width,
        "layers": model.layers,
        "parts": asdict(parts),
        "body": parts.body,
        "saving": _saving(parts.embedding),
        "flops_per_token": flops_per_token(model),
        "doubled": {
            "embedding": wider.embedding,
            "body": wider.body,
            "total": wider.total,
            "flops_per_token": flops_per_token(wide),
        },
        "counted_as": model.architecture.counted_as,
        "source": model.source,
    }


def _saving(numbers: int) -> dict[str, int]:
    return {"parameters": numbers, "fp16_bytes": 2 * numbers, "fp32_bytes": 4 * numbers}


def _headline(facts: dict[str, Any]) -> str:
    tied = {True: ", tied", False: ", untied", None: ""}[facts["tied"]]
    share = _share(facts["fraction"])
    return f"{facts['embedding']:,} of {facts['total']:,} parameters are the embedding ({share}){tied}"


def _row(label: str, numbers: int, total: int, about: str = "") -> str:
    return f"{label:13} {numbers:19,}  {_share(numbers / total):>7}  {about}".rstrip()


def _rows(model: Model) -> str:
    padding = model.vocab - model.tokens
    named = f", {padding:,} of them padding" if padding else ""
    return f"{model.vocab:,} rows{named}; {model.tokenizer}"


def _sizes(model: Model) -> str:
    stacks = "2 × " if model.architecture.encoder_decoder else ""
    sizes = [f"width {model.width:,}", f"{stacks}{model.layers} layers"]
    if not model.architecture.state_space:
        sizes.append(f"feed-forward {model.ffn:,}")
    if model.heads > 1:
        sizes.append(f"{model.heads} heads of {model.head_size}")
    if model.kv_heads:
        sizes.append(f"{model.kv_heads} of keys and values")
    return ", ".join(sizes)


def _head(model: Model) -> str:
    bias = " + a bias" if model.architecture.head_bias else ""
    if model.tied is None:
        return "none: no token is scored"
    return f"the embedding again{bias}" if model.tied else f"{model.vocab:,} × {model.table_width:,}{bias}"


def _tying(facts: dict[str, Any]) -> str:
    saving = facts["saving"]
    verb = "saves" if facts["tied"] else "would save"
    return (
        f"tying         {verb} {saving['parameters']:,} parameters: {_bytes(saving['fp16_bytes'])} in fp16, "
        f"{_bytes(saving['fp32_bytes'])} in fp32"
    )


def _growth(facts: dict[str, Any]) -> str:
    """How each part grows when the width doubles."""
    names = {"embedding": "embedding", "body": "body", "total": "all", "flops_per_token": "compute"}
    return ", ".join(f"{name} × {facts['doubled'][key] / facts[key]:.2f}" for key, name in names.items())


def _equals(model: Model) -> str:
    if model.architecture.counted_as is None:
        return "rounded, the paper's table D.1"
    # transformers makes every T5 tied; the files of those that are not hold a head of their own
    own = ", with a head of its own" if model.architecture.encoder_decoder and not model.tied else ""
    return f"{model.architecture.counted_as} of transformers{own}"


def _share(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _short(number: int, billion: str = "B") -> str:
    """
    >>> _short(999), _short(38_597_376), _short(174_604_259_328), _short(2_500_000_000, "G"), _short(2**63)
    ('999', '38.6 M', '174.6 B', '2.5 G', '9,223,372.0 T')
    """
    for size, letter in ((10**12, "T"), (10**9, billion), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:,.1f} {letter}"
    return str(number)


def _bytes(number: int) -> str:
    """
    >>> _bytes(77_194_752), _bytes(12)
    ('77.2 MB', '12 B')
    """
    short = _short(number, "G")
    return f"{short}B" if number >= 1000 else f"{short} B"
