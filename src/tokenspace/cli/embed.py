from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tokenspace.cli.console import echo_json, json_option, note, shown, table_option, texts

if TYPE_CHECKING:
    from tokenspace.encoding_notes import AnyTokenizer
    from tokenspace.walk import Pipeline, Walk


@click.command()
@click.argument("text", nargs=-1)
@table_option
@click.option("--pair", metavar="TEXT_B", help="A second text: segments 0 and 1.")
@click.option(
    "--recipe",
    type=click.Choice(["original", "bert", "gpt2", "llama"]),
    help="Whose input layer.  [default: original; a checkpoint's own; bert with --pair]",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Draws what a recipe learns and a plain table lacks.",
)
@click.option("--steps", is_flag=True, help="Draw the steps as boxes, with the first token's numbers.")
@click.option(
    "--split",
    "others",
    multiple=True,
    metavar="TOKENIZER",
    help="Show how this tokenizer splits TEXT, beside the table's own: its file or folder, or a table. "
    "Repeatable.",
)
@click.option("--predict", is_flag=True, help="Score every token: hidden @ E.T, without a body between.")
@click.option(
    "--gradient",
    is_flag=True,
    help="Show what one step of gradient descent does to the rows: the lookup's part + the head's.",
)
@json_option
def embed(
    text: tuple[str, ...],
    source: str,
    pair: str | None,
    recipe: str | None,
    seed: int,
    steps: bool,
    others: tuple[str, ...],
    predict: bool,
    gradient: bool,
    as_json: bool,
) -> None:
    """Walk TEXT to the transformer's input, step by step.

    Tokens, ids, the table's rows, × scale, + position, + segment: each step that the recipe has, with its
    shape. With no TEXT, each line of stdin is one; several lines make a padded batch (JSON: one line each).
    """
    from tokenspace import formats
    from tokenspace.cli import splits_view, steps_view, walk_view
    from tokenspace.splits import splits, tokenizer_at
    from tokenspace.walk import Pipeline

    if steps and as_json:
        raise click.UsageError("--steps draws what --json holds already: give one of them")
    lines = list(texts(text, "a TEXT"))
    if pair is not None and len(lines) != 1:
        raise click.UsageError(f"--pair goes with one text, found {len(lines)}")
    if pair is not None and recipe is None and not os.path.isdir(formats.located(source)):
        recipe = "bert"  # the recipe with segments to show
    pipeline = Pipeline.open(source, recipe, seed)
    walks = pipeline.walk(lines, pair)
    named: dict[str, AnyTokenizer] = {source: pipeline.tokenizer}
    named |= {other: tokenizer_at(other) for other in others}
    found = [splits(line, named, pair) for line in lines] if others else []
    for name, tokenizer in named.items():
        if tokenizer.assumed:
            note(f"{name}: {tokenizer.assumed}")
    for word in dict.fromkeys(word for walk in walks for word in walk.unknown):
        note(f"{shown(word)} is not in the vocabulary: its row is the unknown token's")
    for word in dict.fromkeys(word for walk in walks for word in walk.dropped):
        note(f"{shown(word)} is not in the vocabulary, which has no unknown token: left out")
    if not as_json:
        draw = partial(steps_view.draw, pipeline, walks, pair) if steps else None
        walk_view.show(pipeline, walks, predict, gradient, draw)
        for line, each in zip(lines, found, strict=False):
            splits_view.show(line, each)
        return
    described = [_described(pipeline, walk, len(walks) > 1, predict, gradient) for walk in walks]
    for document, each in zip(described, found, strict=False):
        document["splits"] = [split._asdict() for split in each]
    for document in described:
        echo_json(document)


def _described(
    pipeline: Pipeline, walk: Walk, in_batch: bool, predict: bool, gradient: bool
) -> dict[str, Any]:
    from tokenspace.walk_document import (
        gradient_document,
        predictions_document,
        scoring_document,
        walk_document,
    )

    described = walk_document(pipeline, walk, in_batch)
    if predict or gradient:
        described["scoring"] = scoring_document(pipeline)
    if predict:
        described["predictions"] = predictions_document(pipeline, walk)
    if gradient:
        described["gradient"] = gradient_document(pipeline.gradient(walk))
    return described
