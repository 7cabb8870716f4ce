from __future__ import annotations

import sys
from typing import Any

import click
from click.core import ParameterSource

from tokenspace.cli.console import json_option

_AT_LEAST_1 = click.IntRange(min=1)
_ONLY = {
    "skipgram": ("window", "negative", "min_count", "sample", "alpha", "shuffle", "snapshots"),
    "lm": ("layers", "heads", "context", "minutes", "checkpoint"),
}


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option("-o", "--output", required=True, metavar="OUT", help="Where the table goes (.safetensors).")
@click.option(
    "--objective",
    default="skipgram",
    type=click.Choice(["skipgram", "lm"]),
    show_default=True,
    help="What rows learn to predict: the words around, or a small transformer's next token (lm).",
)
@click.option(
    "--dim",
    type=click.IntRange(1, 65_536),
    help="Width D: numbers in a row.  [default: 100; lm: 256; --init's own]",
)
@click.option(
    "--epochs",
    type=click.IntRange(1, 100_000),
    help="Passes over the text.  [default: 5, more if the text is small; lm: 1, or more]",
)
@click.option(
    "--threads", type=click.IntRange(1, 1024), help="[default: all; with 1, a rerun gives the same bytes]"
)
@click.option(
    "--seed",
    default=1,
    type=click.IntRange(0, 2**63 - 1),
    metavar="N",
    show_default=True,
    help="For every random choice.",
)
@click.option(
    "--tokenizer",
    "tokenizer_source",
    metavar="word|whitespace|bpe|wordpiece|unigram|FILE",
    help="How text is split: words and punctuation, words between white space, pieces learned from FILES, or "
    "a tokenizer's file or folder.  [default: word; lm: bpe]",
)
@click.option("--vocab-size", type=_AT_LEAST_1, help="The most pieces to learn.  [default: 30000; lm: 4096]")
@click.option(
    "--lowercase/--keep-case",
    default=None,
    help="Whether The is the.  [default: lowercase; lm: keep-case]",
)
@click.option("--init", metavar="TABLE", help="Start from the rows that this table has.")
@click.option(
    "--evaluate",
    multiple=True,
    metavar="FILE",
    help="Word pairs or analogies to ask after each epoch (lm: at the end). Repeatable.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with a run that was broken off; tokens and seconds are told of what is done now.",
)
@click.option(
    "--checkpoint-minutes",
    default=10.0,
    type=click.FloatRange(min=0),
    show_default=True,
    metavar="N",
    help="Save, every N minutes, what --resume needs.",
)
@click.option(
    "--window",
    default=5,
    type=click.IntRange(1, 512),
    show_default=True,
    help="skipgram: words on each side that count as context.",
)
@click.option(
    "--negative",
    default=5,
    type=click.IntRange(1, 100),
    show_default=True,
    help="skipgram: random words set against each context.",
)
@click.option(
    "--min-count",
    type=click.IntRange(1, 2**31 - 1),
    metavar="N",
    help="skipgram: leave out rarer words.  [default: 1 to 5, by the text's size]",
)
@click.option(
    "--sample",
    default=1e-3,
    type=click.FloatRange(0, 1),
    show_default=True,
    help="skipgram: frequent words above this share are thinned.",
)
@click.option(
    "--alpha",
    type=click.FloatRange(1e-9, 10),
    metavar="RATE",
    help="skipgram: learning rate to begin with.  [default: 0.025; more below 5 epochs, 0.1 for one]",
)
@click.option(
    "--shuffle/--in-order",
    default=True,
    show_default=True,
    help="skipgram: read pieces of the text in an order of its own each epoch, or from front to back.",
)
@click.option(
    "--snapshots",
    default=0,
    type=click.IntRange(0, 10_000),
    help="skipgram: also save so many tables along the way, beside OUT.",
)
@click.option("--layers", default=4, type=_AT_LEAST_1, show_default=True, help="lm: the transformer's depth.")
@click.option("--heads", default=4, type=_AT_LEAST_1, show_default=True, help="lm: attention heads.")
@click.option("--context", default=128, type=_AT_LEAST_1, show_default=True, help="lm: tokens read at once.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="lm: train so long at most.")
@click.option(
    "--checkpoint", metavar="FOLDER", help="lm: save the whole model there, for transformers to load."
)
@json_option
@click.pass_context
def train(
    ctx: click.Context,
    files: tuple[str, ...],
    output: str,
    objective: str,
    tokenizer_source: str | None,
    vocab_size: int | None,
    lowercase: bool | None,
    **options: Any,
) -> None:
    """Learn a table from text FILES.

    FILES are UTF-8, one sentence or paragraph a line: names, patterns, - for stdin; .gz and .zst are read as
    they are. Beside OUT lie its losses (see `tokenspace loss`) and, until all is done, a folder with what
    --resume needs. Ctrl-C ends early and saves the table as it is by then.
    """
    from tokenspace import formats

    if (format := formats.format_for(output)) != "native":
        raise click.UsageError(
            f"-o {output} names the format {format}, which can't hold all of a trained table; "
            "train to a .safetensors, then `tokenspace convert` it"
        )
    given = {name for name in options if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT}
    _check_objective(objective, given)
    source = tokenizer_source or ("bpe" if objective == "lm" else "word")
    _check_tokenizer(source, objective, vocab_size, lowercase, options["min_count"])
    if "-" in files and (sys.stdin is None or sys.stdin.isatty()) and not _may_do_without(output, options):
        raise click.UsageError("- means text from stdin, and nothing is piped there")
    other = "skipgram" if objective == "lm" else "lm"
    kept = {name: value for name, value in options.items() if name not in _ONLY[other]}
    if objective == "lm":
        from tokenspace.cli import train_lm

        train_lm.learn(files, output, source, vocab_size, lowercase, **kept)
    else:
        from tokenspace.cli import train_skipgram

        train_skipgram.learn(files, output, source, vocab_size, lowercase, **kept)


def _may_do_without(output: str, options: dict[str, Any]) -> bool:
    """Whether a run that is resumed has read its stdin to the end."""
    from tokenspace.cli.train_texts import text_is_kept

    return options["resume"] and text_is_kept(output)


def _check_objective(objective: str, given: set[str]) -> None:
    """A usage error for an option that this objective would not heed."""
    for other, names in _ONLY.items():
        for name in names:
            if other != objective and name in given:
                option = "--" + name.replace("_", "-")
                raise click.UsageError(f"{option} is for --objective {other}, and this is {objective}")


def _check_tokenizer(
    tokenizer: str, objective: str, vocab_size: int | None, lowercase: bool | None, min_count: int | None
) -> None:
    """A usage error for an option that this tokenizer would not heed."""
    from tokenspace.tokenizer_training import KINDS, WHOLE_WORDS

    learned = tokenizer in KINDS
    if tokenizer in WHOLE_WORDS and objective == "skipgram" and vocab_size is not None:
        raise click.UsageError("--vocab-size bounds learned pieces; whole words are bounded by --min-count")
    if tokenizer not in WHOLE_WORDS and min_count is not None:
        raise click.UsageError("--min-count chooses whole words; it does not go with this --tokenizer")
    if not learned and vocab_size is not None:
        raise click.UsageError("--vocab-size is for pieces learned here; this tokenizer has its vocabulary")
    if not learned and lowercase is not None:
        raise click.UsageError(
            "--lowercase/--keep-case is for a tokenizer learned here; this one has its own way"
        )
