from __future__ import annotations

import click

from tokenspace.cli.console import asked, echo_json, json_option, note, number, shown, table_option
from tokenspace.cli.picture import check_page, html_option, screen


@click.command()
@click.argument("word", nargs=-1)
@table_option
@click.option("--text", help="The rows of a text's tokens, in order.")
@html_option
@json_option
def heatmap(word: tuple[str, ...], source: str, text: str | None, page: str | None, as_json: bool) -> None:
    """The rows of WORDs as colors.

    A line for each WORD, a column for each dimension (as many as the terminal holds). Where the table has
    pieces of words (subwords, n-grams), a word that it lacks is composed: the mean of its pieces' rows. With
    no WORD and no --text, each line of stdin is a word.
    """
    from tokenspace import formats
    from tokenspace.encoding_notes import dropped_words, unknown_words
    from tokenspace.geometry import resolve
    from tokenspace.plots import Heatmap, write_page
    from tokenspace.table import tokenizer_of

    if text is not None and word:
        raise click.UsageError("give WORDs or --text, not both")
    if page is not None:
        check_page(page)
    lines = [] if text is not None or word else list(asked((), "a WORD"))
    table = formats.load(source)
    for each in lines:
        with each.told():
            resolve(table, each.text)
    words = word or [each.text for each in lines]
    picture = Heatmap.of(table, words) if text is None else Heatmap.of_text(table, text)
    if text is not None:
        tokenizer = tokenizer_of(table)
        one = tokenizer.encode(text)
        for lost in dict.fromkeys(unknown_words(tokenizer, text, one)):
            note(f"{shown(lost)} is not in the vocabulary: its row is the unknown token's")
        for lost in dict.fromkeys(dropped_words(text, one)):
            note(f"{shown(lost)} is not in the vocabulary, which has no unknown token: left out")
    if page is not None:
        write_page(picture.figure(), page, f"{len(picture.rows):,} rows of {source}")
    if as_json:
        echo_json(
            {
                "tokens": picture.labels,
                "pieces": [row.tokens for row in picture.rows],
                "ids": [row.ids for row in picture.rows],
                "limit": number(picture.limit),
                "values": [[number(x) for x in row] for row in picture.values],
            }
        )
    elif page is not None:
        click.echo(f"{page}: {len(picture.rows):,} rows × {table.dim:,} dimensions")
    else:
        screen().print(picture)
