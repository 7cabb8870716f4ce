from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tokenspace.cli.console import echo_json, json_option, note, shown

if TYPE_CHECKING:
    from tokenspace.formats import Conversion

FORMATS = [
    "native",
    "word2vec-text",
    "word2vec-binary",
    "glove",
    "numpy",
    "npz",
    "gguf",
    "static-embedding",
]
GENSIM_READS = {"word2vec-text", "word2vec-binary", "glove"}
PARTS = {
    "tokenizer": "the tokenizer",
    "output": "the output matrix",
    "subwords": "the n-grams of unknown words",
    "special": "which tokens are special",
    "provenance": "the provenance",
}


@click.command()
@click.argument("source", metavar="IN")
@click.argument("path", metavar="OUT")
@click.option(
    "--to",
    "name",
    type=click.Choice(FORMATS),
    help="OUT's format.  [default: by its suffix: .vec word2vec-text, .bin word2vec-binary, .txt glove, "
    ".npy numpy, .npz npz, .gguf gguf, a / at its end static-embedding, else native]",
)
@click.option("--limit", type=click.IntRange(min=1), help="Read IN's first so many rows, and no further.")
@click.option(
    "--errors",
    type=click.Choice(["strict", "replace", "surrogateescape"]),
    default="strict",
    show_default=True,
    help="A token that is no UTF-8: an error, read with U+FFFD in it, or kept byte by byte.",
)
@click.option("--tensor", metavar="NAME", help="The table among the tensors of a model's files.")
@click.option(
    "--vocab",
    metavar="FILE",
    help="The tokens of a file of tensors, a .npy or .npz that has none: a token a line, or a tokenizer's "
    "file or folder.",
)
@click.option("--allow-loss", is_flag=True, help="Leave out the rows whose tokens OUT's format can't hold.")
@json_option
def convert(
    source: str, path: str, name: str | None, allow_loss: bool, as_json: bool, **reading: Any
) -> None:
    """Write the table IN to OUT in another format, and read it back.

    IN is whatever -t takes: a table's file of any format, a model's folder, hf:org/name, or a built-in
    table's name. Tokens and values must come back equal, to the last bit of float32; a token that the format
    can't hold is an error. What else the format has no place for is named.
    """
    from tokenspace import formats

    done = formats.convert(source, path, name, allow_loss, **reading)
    if as_json:
        echo_json(done._asdict())
    else:
        click.echo(_summary(done))
    for remark in _remarks(done, everything=not as_json):
        note(remark)


def _summary(done: Conversion) -> str:
    from tokenspace.formats.tokens import counted

    files, rows = ", ".join(map(shown, done.files)), counted(done.rows, "row")
    return (
        f"{files}: {rows} × {done.dim:,}, {done.read_as} to {done.format}; read back: tokens and values equal"
    )


def _remarks(done: Conversion, everything: bool) -> list[str]:
    """What is not as it was; ``everything``: also what the format merely has no place for."""
    from tokenspace.formats.tokens import counted, short

    remarks = []
    if done.replaced:
        remarks.append(f"{counted(done.replaced, 'token')} held bytes that are no UTF-8, now U+FFFD")
    if done.rounded:
        rounded = counted(done.rounded, "row")
        remarks.append(f"{rounded} of {done.dtypes[0]} rounded: a table's numbers are float32 at most")
    if done.left_out:
        some = ", ".join(map(short, done.left_out[:5]))
        left_out = counted(len(done.left_out), "row")
        which = f" ({done.as_first:,} for being the first alone)" if done.as_first else ""
        remarks.append(
            f"left out {left_out} that {done.format} can't hold{which}, ids after them move up: {some}"
        )
    if done.not_read:
        remarks.append(f"not read: {', '.join(map(short, done.not_read))}")
    if done.unreachable:
        unreachable = counted(done.unreachable, "token")
        remarks.append(f"{unreachable} begin or end with white space: its tokenizer finds them in no text")
    if done.repeated:
        verb = "repeats" if done.repeated == 1 else "repeat"
        others = ", gensim reads the first" if done.format in GENSIM_READS else ""
        remarks.append(
            f"{counted(done.repeated, 'token')} {verb} an earlier one; each keeps its row here{others}"
        )
    if everything and done.dtypes[0] != done.dtypes[1] and not done.rounded:
        remarks.append(f"{done.dtypes[0]} is written as {done.dtypes[1]}: the same values")
    if everything:
        remarks += [f"{done.format} has no place for {PARTS[part]}" for part in done.lost if part in PARTS]
    return remarks
