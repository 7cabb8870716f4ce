from __future__ import annotations

import click

from tokenspace.cli.console import echo_json, json_option, note, shown

FORMATS = ["native", "word2vec-text", "word2vec-binary", "glove", "numpy"]
GENSIM_READS = {"word2vec-text", "word2vec-binary", "glove"}
PARTS = {
    "rows": "some rows",
    "dtype": "the width of its numbers (written as float32: the same values)",
    "tokenizer": "the tokenizer",
    "output": "the output matrix",
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
    ".npy numpy, else native]",
)
@click.option("--allow-loss", is_flag=True, help="Leave out the rows whose tokens OUT's format can't hold.")
@json_option
def convert(source: str, path: str, name: str | None, allow_loss: bool, as_json: bool) -> None:
    """Write the table IN to OUT in another format, and read it back.

    IN is a table's file of any of these formats, a checkpoint's folder, or a built-in table's name. Tokens
    and values must come back equal, to the last bit of float32; a token that the format can't hold is an
    error. What else the format has no place for is named.
    """
    from tokenspace import formats
    from tokenspace.formats.tokens import counted, short

    done = formats.convert(source, path, name, allow_loss)
    if as_json:
        echo_json(done._asdict())
    else:
        files, rows = ", ".join(map(shown, done.files)), counted(done.rows, "row")
        click.echo(f"{files}: {rows} × {done.dim:,}, {done.format}; read back: tokens and values equal")
    if done.left_out:
        some = ", ".join(map(short, done.left_out[:5]))
        note(f"left out {counted(len(done.left_out), 'row')} that {done.format} can't hold: {some}")
    if done.repeated:
        verb = "repeats" if done.repeated == 1 else "repeat"
        others = ", gensim reads the first" if done.format in GENSIM_READS else ""
        note(f"{counted(done.repeated, 'token')} {verb} an earlier one; each keeps its row here{others}")
    if not as_json:
        for part in done.lost:
            if part != "rows":
                note(f"{done.format} has no place for {PARTS[part]}")
