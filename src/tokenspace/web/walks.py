"""The walk as the page draws it: the document of ``embed --json``, and what a picture needs besides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tokenspace.errors import CorpusError, ShapeError, TokenspaceError, VocabError
from tokenspace.models.families import RECIPES
from tokenspace.reference import LearnedPositionalEmbedding, TransformerInput
from tokenspace.shown import number
from tokenspace.table import Table
from tokenspace.walk import Pipeline, Walk
from tokenspace.walk_document import (
    gradient_document,
    predictions_document,
    scoring_document,
    walk_document,
)

LONGEST_TEXT = 4_000  # characters
MOST_TOKENS = 128
MOST_NUMBERS = 600_000  # in all steps: some 6 MB of JSON


class Walks:
    """Texts through one table, under any recipe that it can be set under.

    ``own`` is a checkpoint's layer with its own positions and segments. Without it, ``recipe`` names what the
    table is set under unless another is asked for. ``why_not`` says why no text can walk, where none can.
    """

    def __init__(self, table: Table, own: Pipeline | None = None, recipe: str | None = None, seed: int = 0):
        self.recipe: str | None = None
        self.why_not: str | None = None
        self._table = table
        self._own = own
        self._seed = seed
        self._lock = threading.Lock()  # a layer keeps what its backward needs
        self._pipelines: dict[str, Pipeline] = {}
        try:
            first = own or Pipeline.under(table, recipe or "original", seed)
        except VocabError as error:  # no tokenizer
            self.why_not = str(error)
            return
        self._pipelines[first.recipe] = first
        self.recipe = first.recipe

    @property
    def recipes(self) -> list[dict[str, Any]]:
        """Each recipe's name, and whether it adds rows for segments, which a pair of texts needs."""
        if self.recipe is None:
            return []
        own = self._pipelines[self.recipe]
        others = [known for name, known in RECIPES.items() if name != own.recipe]
        first = {"name": own.recipe, "pairs": own.layer.segment is not None, "own": self._own is not None}
        return [first, *({"name": r.name, "pairs": bool(r.segments), "own": False} for r in others)]

    def document(
        self,
        text: str,
        pair: str | None = None,
        recipe: str | None = None,
        predict: bool = False,
        gradient: bool = False,
    ) -> dict[str, Any]:
        """One text, or a pair, with every step's numbers.

        What can't be told (a head of another width, the gradient of one token) is named in ``left_out``.
        ``VocabError`` if the table has no tokenizer, ``CorpusError`` for a text with no tokens or too many.
        """
        if self.why_not is not None:
            raise VocabError(self.why_not)
        for given in (text, pair):
            if given is not None and len(given) > LONGEST_TEXT:
                raise CorpusError(
                    f"a text may have {LONGEST_TEXT:,} characters here, found {len(given):,}; shorten it, or "
                    "walk it with `tokenspace embed`"
                )
        if recipe is None and pair is not None and self._own is None and self.recipe == "original":
            recipe = "bert"  # the recipe with segments to show
        with self._lock:
            pipeline = self._under(recipe)
            _check_length(pipeline, text, pair)
            (walk,) = pipeline.walk([text], pair)
            document = walk_document(pipeline, walk)
            left_out: dict[str, str] = {}
            if predict or gradient:
                _add(document, "scoring", left_out, lambda: scoring_document(pipeline))
            if predict:
                _add(document, "predictions", left_out, lambda: predictions_document(pipeline, walk))
            if gradient:
                _add(document, "gradient", left_out, lambda: _gradient(pipeline, walk))
            return {**document, **_about(pipeline, walk), "pair": pair, "left_out": left_out}

    def _under(self, recipe: str | None) -> Pipeline:
        name = recipe or self.recipe
        assert name is not None
        if name not in self._pipelines:
            self._pipelines[name] = Pipeline.under(self._table, name, self._seed)
        return self._pipelines[name]


def _check_length(pipeline: Pipeline, text: str, pair: str | None) -> None:
    if not text.strip():
        return  # walk() says it
    length = pipeline.tokenizer.encode(text, pair).ids.size
    most = min(MOST_TOKENS, max(1, MOST_NUMBERS // (8 * pipeline.table.dim)))
    if length > most:
        raise CorpusError(
            f"the page draws {most:,} tokens at most, this text has {length:,}; shorten it, or walk it with "
            "`tokenspace embed`"
        )


def _add(document: dict[str, Any], name: str, left_out: dict[str, str], describe: Callable[[], Any]) -> None:
    try:
        document[name] = describe()
    except TokenspaceError as error:
        left_out[name] = str(error)


def _gradient(pipeline: Pipeline, walk: Walk) -> dict[str, Any]:
    moved = pipeline.gradient(walk)
    parts = {"by_position": moved.by_position, "by_head": moved.by_head}
    return gradient_document(moved) | {
        name: [[number(x) for x in row] for row in part] for name, part in parts.items()
    }


def _about(pipeline: Pipeline, walk: Walk) -> dict[str, Any]:
    layer = pipeline.layer
    head = _head(pipeline)
    return {
        "unknown": walk.unknown,
        "dropped": walk.dropped,
        "normalized": walk.normalized,
        "untrained": list(pipeline.untrained),
        "dropout": None if layer.dropout is None else layer.dropout.rate,
        "tied": None if head is None else head["tied"],
        "head": head,
        "hidden": pipeline.hidden_step,
        "no_head": pipeline.no_head,
        "layer": {
            "position": _positions(layer),
            "segments": None if layer.segment is None else layer.segment.vocabulary_size,
            "norm_eps": None if layer.layer_norm is None else layer.layer_norm.eps,
        },
    }


def _positions(layer: TransformerInput) -> str | None:
    if layer.position is None:
        return None
    return "learned" if isinstance(layer.position, LearnedPositionalEmbedding) else "sinusoidal"


def _head(pipeline: Pipeline) -> dict[str, Any] | None:
    """What the head that scores does besides its product; None where no head fits.

    ``tied``: it scores with the table itself. ``width``: of the hidden states it takes.
    """
    try:
        head = pipeline.head()
    except ShapeError:
        return None
    return {
        "tied": head.embedding is pipeline.layer.token,
        "width": head.weight.shape[1],
        "bias": head.bias is not None,
        "hidden_scale": None if head.hidden_scale == 1 else head.hidden_scale,
        "logit_scale": None if head.logit_scale == 1 else head.logit_scale,
        "soft_cap": head.soft_cap,
    }
