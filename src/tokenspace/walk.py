"""The walk: text to token ids to vectors to the transformer's input, with every step kept to be looked at.

The numbers are ``reference``'s. A table stands under a recipe (a plain table under the original transformer's
unless another is named; a checkpoint under its own, with its own positions and segments), and a text goes
through. Two more steps show what a table is for and how it learns: ``predict`` scores tokens with a head,
and ``gradient`` takes one step of descent. There is no transformer's body here: the input itself stands
in for the hidden state, which is said wherever it matters.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from tokenspace import formats
from tokenspace.encoding_notes import dropped_words, normalized_text, unknown_words
from tokenspace.errors import CheckpointError, CorpusError, TableFormatError
from tokenspace.initializers import Real, Whole, real, whole
from tokenspace.models.open import Checkpoint, load_table, open_checkpoint
from tokenspace.reference import Embedding, LMHead, TransformerInput
from tokenspace.reference import recipes as layers
from tokenspace.shapes import Array, Float, Int
from tokenspace.shown import shown
from tokenspace.table import Table, check_unchanged, tokenizer_of
from tokenspace.text import as_texts, check_text
from tokenspace.tokenizer import Encoded
from tokenspace.walk_gradient import Costliest, Gradient, Inputs, MovedRow, descend
from tokenspace.walk_predictions import Candidate, candidates, zero_rows

__all__ = ["Candidate", "Costliest", "Gradient", "MovedRow", "Pipeline", "Token", "Walk"]

MOST_DROPPED = 5  # words that an error names


class Token(NamedTuple):
    """A token at its place: ``position`` as the position table counts, ``segment`` 0 for the first text."""

    token: str
    id: int
    position: int
    segment: int


@dataclass(frozen=True)
class Walk:
    """One text's way through the layer: each of ``steps`` is (T, D), in order, "output" last.

    ``mask`` is 0 where a position is padding. ``unknown`` are the words that the vocabulary lacks, whose ids
    are the unknown token's; ``dropped`` are those that became no token, where there is no unknown token.
    ``normalized`` is the text as it was split, if the tokenizer changed it first (case, accents).
    """

    text: str
    tokens: list[Token]
    steps: dict[str, Float[Array, "T D"]]
    mask: list[int]
    unknown: list[str]
    dropped: list[str] = field(default_factory=list)
    normalized: str | None = None

    @property
    def length(self) -> int:
        """How many of the positions are tokens; padding follows them."""
        return sum(self.mask)

    @property
    def output(self) -> Float[Array, "T D"]:
        """The transformer's input."""
        return self.steps["output"]


class Pipeline:
    """A table, its tokenizer, and the layer that the table stands in.

    ``recipe`` names the layer; ``untrained`` lists its parts that were drawn at random because a plain table
    has none of its own. ``checkpoint`` is where the layer comes from, if from one: its head scores tokens.
    """

    def __init__(
        self,
        table: Table,
        layer: TransformerInput,
        recipe: str,
        untrained: Sequence[str] = (),
        checkpoint: Checkpoint | None = None,
    ):
        self.table = table
        self.tokenizer = tokenizer_of(table)
        self.layer = layer
        self.recipe = recipe
        self.untrained = tuple(untrained)
        self._checkpoint = checkpoint

    @classmethod
    def open(
        cls, source: str | os.PathLike[str] = "wordnet", recipe: str | None = None, seed: int = 0
    ) -> Pipeline:
        """Open a table (see ``formats.load``) and set it under ``recipe``.

        With no recipe, a checkpoint's folder keeps its own layer and a plain table gets "original". ``seed``
        draws the position and segment tables that a recipe learns and a plain table lacks.

        >>> pipeline = Pipeline.open("wordnet")
        >>> walk, = pipeline.walk(["The cat sat"])
        >>> [token.token for token in walk.tokens], list(walk.steps), walk.output.shape
        (['the', 'cat', 'sat'], ['lookup', 'scaled', 'position', 'dropout', 'output'], (3, 100))
        """
        place = formats.located(source)
        if recipe is None and os.path.isdir(place) and formats.sniff(place) == "checkpoint":
            checkpoint = open_checkpoint(place)
            family = layers.known_family(checkpoint)
            layer = layers.from_checkpoint(checkpoint)
            return cls(load_table(place), layer, family.name, checkpoint=checkpoint)
        table = formats.load(place)
        return cls.under(table, recipe or "original", seed)

    @classmethod
    def under(cls, table: Table, recipe: str = "original", seed: int = 0) -> Pipeline:
        """Set ``table`` under ``recipe``; see ``open``."""
        layer = layers.from_table(table, recipe, np.random.default_rng(seed))
        parts = {"position": layer.position, "segment": layer.segment}
        drawn = [name for name, part in parts.items() if isinstance(part, Embedding)]
        return cls(table, layer, recipe, drawn)

    def walk(self, texts: str | Iterable[str], pair: str | None = None) -> list[Walk]:
        """Take ``texts`` through the layer as one batch, padded to its longest; or one text and its ``pair``.
        A ``str`` is one text.

        ``CorpusError`` if a text is not a ``str`` or holds no token, ``TableFormatError`` if a number is NaN
        or infinite.
        """
        check_unchanged(self.table)
        texts = as_texts(texts)
        if pair is not None:
            check_text(pair, "pair")
        for text in [*texts, *([] if pair is None else [pair])]:
            if not text.strip():
                raise CorpusError("a text is empty, so it has no tokens; give at least one word")
        if pair is None:
            encoded = self.tokenizer.encode_batch(texts)
        else:
            encoded = [self.tokenizer.encode(text, pair) for text in texts]
        if not encoded:
            raise CorpusError("the text has no tokens; give at least one word")
        for text, one in zip(texts, encoded, strict=True):
            if not one.mask.any():
                raise CorpusError(self._without_tokens(text, one))
        ids = np.stack([one.ids for one in encoded])
        mask = np.stack([one.mask for one in encoded])
        segments = np.stack([one.segments for one in encoded])
        if self.layer.position is None:
            positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        else:
            positions = self.layer.position_ids(ids, attention_mask=mask)
        if self.layer.segment is not None and self.layer.segment.vocabulary_size == 1:
            segments = np.zeros_like(segments)  # RoBERTa: one row, whatever the tokenizer counts
        steps = self.layer.steps(
            ids,
            segment_ids=None if self.layer.segment is None else segments,
            position_ids=positions,
            attention_mask=mask,
            extra_ids=self._extra_ids(ids),
        )
        self._check_finite(ids, steps)
        return [
            Walk(
                text,
                [
                    Token(token, *row)
                    for token, *row in zip(
                        one.tokens,
                        ids[b].tolist(),
                        positions[b].tolist(),
                        segments[b].tolist(),
                        strict=True,
                    )
                ],
                {name: values[b] for name, values in steps.items()},
                mask[b].tolist(),
                self._unknown(text, pair, one),
                self._dropped(text, pair, one),
                normalized_text(self.tokenizer, text),
            )
            for b, (text, one) in enumerate(zip(texts, encoded, strict=True))
        ]

    def _extra_ids(self, ids: Int[Array, "B T"]) -> dict[str, Int[Array, "B T"]]:
        """The first row of each further table (XLM: the first language): text alone doesn't say which."""
        return {name: np.zeros_like(ids) for name in self.layer.extras}

    def _check_finite(self, ids: Int[Array, "B T"], steps: dict[str, Float[Array, "B T D"]]) -> None:
        """``TableFormatError`` at the first step with a number that is none."""
        for name, values in steps.items():
            if not np.isfinite(values).all():
                b, t = (int(axis[0]) for axis in np.nonzero(~np.isfinite(values).all(axis=-1)))
                raise TableFormatError(
                    f"the step {name!r} gives NaN or infinity for token {self.table.vocab[int(ids[b, t])]!r} "
                    f"at batch {b}, position {t}; the rows that it reads are damaged or too large"
                )

    def _unknown(self, text: str, pair: str | None, one: Encoded) -> list[str]:
        unknown = unknown_words(self.tokenizer, text, one)
        return unknown if pair is None else unknown + unknown_words(self.tokenizer, pair, one, segment=1)

    def _dropped(self, text: str, pair: str | None, one: Encoded) -> list[str]:
        dropped = dropped_words(text, one)
        return dropped if pair is None else dropped + dropped_words(pair, one, segment=1)

    def _without_tokens(self, text: str, one: Encoded) -> str:
        dropped = list(dict.fromkeys(dropped_words(text, one)))
        named = ", ".join(shown(word) for word in dropped[:MOST_DROPPED])
        more = ", …" if len(dropped) > MOST_DROPPED else ""
        if not named:
            return "a text has no tokens; give at least one word"
        return f"no word of a text is in the vocabulary: {named}{more}; give at least one that is"

    def head(self) -> LMHead:
        """The head that scores: a checkpoint's own, else one over the table's output rows if it has them
        (skip-gram's contexts), else one tied to the table; see ``no_head`` for a checkpoint without one.
        """
        if self._checkpoint is not None:
            with contextlib.suppress(CheckpointError):  # ``no_head`` says so
                return layers.head_from_checkpoint(self._checkpoint, self.layer.token)
        return LMHead(self.layer.token) if self.table.output is None else LMHead.untied(self.table.output)

    @cached_property
    def no_head(self) -> str | None:
        """The reason why this checkpoint's head can't be used and another one stands in; None if it can be,
        or the table comes from no checkpoint.
        """
        if self._checkpoint is None:
            return _head_not_loaded(self.table)
        try:
            layers.head_from_checkpoint(self._checkpoint, self.layer.token)
        except CheckpointError as error:
            return str(error)
        return None

    @property
    def hidden_step(self) -> Literal["lookup", "output"]:
        """The step whose vectors are scored. The context rows of skip-gram were trained against the looked-up
        rows themselves, so for them that is "lookup"; else it is "output", the transformer's input.
        """
        return "output" if self.context_model is None else "lookup"

    @property
    def context_model(self) -> str | None:
        """The model that the table's provenance names as the one that trained its output rows against the
        looked-up rows: "skip-gram" or "cbow". None where it names none: output rows are then taken for a
        language model's head.
        """
        return None if self._checkpoint is not None else _context_model(self.table)

    @property
    def scoring_rows(self) -> Literal["table", "output", "head"]:
        """Which rows the head scores with: the table's own, its output rows, or the checkpoint's head."""
        if self.head().embedding is self.layer.token:
            return "table"
        return "output" if self._checkpoint is None or self.no_head else "head"

    @cached_property
    def untrained_rows(self) -> Int[Array, " rows"]:
        """The ids of the head's rows of zeros: never trained, so ``predict`` leaves them out."""
        return zero_rows(self.head().weight)

    def predict(self, walk: Walk, k: Whole = 5) -> list[list[Candidate]]:
        """For each token, the ``k`` tokens that the head scores highest: hidden @ E.T, then softmax.

        The vectors of ``hidden_step`` are scored; ``untrained_rows`` have no share. Padding predicts nothing.
        ``ShapeError`` if ``k`` is not an integer, 1 or more, or the head takes another width than the layer
        gives, for want of a body; ``TableFormatError`` if a score is NaN or infinite, or no row was trained.
        """
        check_unchanged(self.table)
        k = whole("k", k, 1)
        hidden = walk.steps[self.hidden_step][: walk.length].astype(np.float64)
        return candidates(self.head(), hidden, self.table.vocab, k, self.untrained_rows)

    def gradient(self, walk: Walk, learning_rate: Real = 0.1) -> Gradient:
        """One step of plain gradient descent on the table, so that each token better predicts the next.

        A tied table has two gradients, which add up: from the rows that were read and from the rows that were
        scored. The vectors of ``hidden_step`` are scored. ``CorpusError`` for a text of one token, which has
        no next one; ``ShapeError`` unless ``learning_rate`` is a finite number; otherwise the errors of
        ``predict``.

        >>> pipeline = Pipeline.open("wordnet")
        >>> the, cat, sat = pipeline.gradient(pipeline.walk("The cat sat the cat")[0]).rows
        >>> cat.token, round(cat.gradient_lookup, 2), round(cat.gradient_head, 2), round(cat.gradient, 2)
        ('cat', 13.14, 12.83, 24.14)
        """
        check_unchanged(self.table)
        learning_rate = real("learning_rate", learning_rate)
        if walk.length < 2:
            raise CorpusError("a gradient needs a next token to predict; give a text of at least two tokens")
        ids, positions, segments = (
            np.array([[getattr(token, name) for token in walk.tokens[: walk.length]]])
            for name in ("id", "position", "segment")
        )
        layer = self.layer
        if self.hidden_step == "lookup":
            token = layer.token
            layer = TransformerInput(Embedding.from_weight(token.weight, padding_id=token.padding_id))
        extras = {name: np.zeros_like(ids) for name in layer.extras}
        inputs = Inputs(ids, positions, None if layer.segment is None else segments, extras)
        return descend(layer, self.head(), inputs, self.table.vocab, learning_rate)


def _head_not_loaded(table: Table) -> str | None:
    """Say that the checkpoint that ``table`` was read from has an untied head, which it came without."""
    made = table.provenance
    if made.get("made_by") != "a model's checkpoint" or made.get("tied") is not False or made.get("head"):
        return None
    if "left_out" in made:
        return f"the head was left out: {made['left_out']}"
    return f"{made.get('folder')} holds no head, and is not tied; was it saved without one?"


def _context_model(table: Table) -> str | None:
    """Return the model that trained the output rows against the looked-up rows: "skip-gram" or "cbow".

    The provenance has to name it (``train``'s objective, or a fastText file's model); None where it doesn't,
    since the output rows of a file of tensors are a language model's head.
    """
    objective, read_from = (table.provenance.get(key) for key in ("objective", "read_from"))
    if table.output is None:
        return None
    if isinstance(objective, str):
        return "skip-gram" if objective.startswith("skip-gram") else None
    if isinstance(read_from, dict) and read_from.get("format") == "fasttext":
        return "cbow" if read_from.get("model") == "cbow" else "skip-gram"
    return None
