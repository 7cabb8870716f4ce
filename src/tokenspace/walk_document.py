"""A walk as JSON: what ``tokenspace embed --json`` prints and the page of ``tokenspace explore`` draws."""

from __future__ import annotations

from typing import Any

from tokenspace.shown import number
from tokenspace.walk import Gradient, Pipeline, Walk

MOST_NAMED = 5  # untrained rows


def walk_document(pipeline: Pipeline, walk: Walk, in_batch: bool = False) -> dict[str, Any]:
    """A text's tokens, and the numbers of each step by name, in order; in a batch also which are padding."""
    document: dict[str, Any] = {
        "text": walk.text,
        "recipe": pipeline.recipe,
        "d_model": walk.output.shape[1],
        "scale": pipeline.layer.token.scale,
        "tokens": [token._asdict() for token in walk.tokens],
        "steps": {name: [[number(x) for x in row] for row in step] for name, step in walk.steps.items()},
    }
    if in_batch:
        document["attention_mask"] = walk.mask
    return document


def predictions_document(pipeline: Pipeline, walk: Walk) -> list[list[dict[str, Any]]]:
    """For each token, what the head scores highest."""
    return [
        [{**c._asdict(), "logit": number(c.logit), "probability": number(c.probability)} for c in candidates]
        for candidates in pipeline.predict(walk)
    ]


def scoring_document(pipeline: Pipeline) -> dict[str, Any]:
    """How tokens are scored: which vectors, against which rows, why not by the checkpoint's own head (None
    where they are), and which rows have no share in predictions.
    """
    untrained = pipeline.untrained_rows
    return {
        "hidden": pipeline.hidden_step,
        "rows": pipeline.scoring_rows,
        "no_head": pipeline.no_head,
        "untrained": {
            "rows": len(untrained),
            "first": [pipeline.table.vocab[i] for i in untrained[:MOST_NAMED]],
        },
    }


def gradient_document(gradient: Gradient) -> dict[str, Any]:
    """One step of descent: its loss, and the rows that it moves."""
    lengths = ("gradient_lookup", "gradient_head", "gradient", "cosine")
    rows = [
        {
            name: number(value) if name in lengths and value is not None else value
            for name, value in row._asdict().items()
        }
        for row in gradient.rows
    ]
    costliest = gradient.costliest
    return {
        "loss": number(gradient.loss),
        "costliest": {
            **costliest._asdict(),
            "loss": number(costliest.loss),
            "margin": number(costliest.margin),
        },
        "learning_rate": gradient.learning_rate,
        "rows": rows,
        "rows_moved": gradient.rows_moved,
        "rows_moved_by_head": gradient.rows_moved_by_head,
        "rows_in_table": gradient.rows_in_table,
    }
