"""The walk: text to token ids to vectors to the transformer's input, with every step kept to be looked at.

The numbers are ``reference``'s. A table stands under a recipe (a plain table under the original transformer's
unless another is named; a checkpoint under its own, with its own positions and segments), and a text goes
through. Two more steps show what a table is for and how it learns: ``predict`` scores tokens with a head,
and ``gradient`` takes one step of descent. There is no transformer's body here: the input itself stands
in for the hidden state, which is said wherever it matters.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tokenspace import formats
from tokenspace.errors import CheckpointError, CorpusError, TableFormatError, VocabError
from tokenspace.geometry import cosine
from tokenspace.models.open import Checkpoint, load_table, open_checkpoint
from tokenspace.reference import Embedding, LMHead, TransformerInput
from tokenspace.reference import recipes as layers
from tokenspace.shapes import Array, Float, Int
from tokenspace.table import Table, check_unchanged, tokenizer_of
from tokenspace.tokenizer import Encoded, Tokenizer


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
    are the unknown token's.
    """

    text: str
    tokens: list[Token]
    steps: dict[str, Float[Array, "T D"]]
    mask: list[int]
    unknown: list[str]

    @property
    def length(self) -> int:
        """How many of the positions are tokens; padding follows them."""
        return sum(self.mask)

    @property
    def output(self) -> Float[Array, "T D"]:
        """The transformer's input."""
        return self.steps["output"]


class Candidate(NamedTuple):
    """A token that a head proposes, with its logit and its share of the softmax."""

    token: str
    id: int
    logit: float
    probability: float


class MovedRow(NamedTuple):
    """What one step of descent does to a row that the text used, through the lookup.

    ``gradient`` is the Euclidean length of the row's gradient, summed over ``positions``; ``cosine`` compares
    the row before and after the step.
    """

    token: str
    id: int
    positions: list[int]
    gradient: float
    cosine: float


@dataclass(frozen=True)
class Gradient:
    """One step of descent on the mean cross entropy (nats) of each next token.

    ``rows_moved`` of ``rows_in_table`` moved through the lookup: the tokens used. ``rows_moved_by_head`` is
    how many the same step moves through a tied head, where every token is scored. ``by_position`` (T, D) is
    what each position hands to its token's row: a row's gradient is their sum. Padding hands nothing.
    """

    loss: float
    learning_rate: float
    rows: list[MovedRow]
    rows_moved: int
    rows_moved_by_head: int
    rows_in_table: int
    by_position: Float[Array, "T D"] = field(compare=False, repr=False)


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
        self.tokenizer: Tokenizer = tokenizer_of(table)
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
        if table.tokenizer is None and formats.sniff(place) == "static-embedding":
            raise VocabError(
                f"{place} was saved without a tokenizer: the one in it, made for other programs, drops what "
                "is no word of the table; to use that all the same: "
                f'table.tokenizer = ts.Tokenizer.load({str(place)!r}); ts.save(table, "with.safetensors")'
            )
        return cls.under(table, recipe or "original", seed)

    @classmethod
    def under(cls, table: Table, recipe: str = "original", seed: int = 0) -> Pipeline:
        """Set ``table`` under ``recipe``; see ``open``."""
        layer = layers.from_table(table, recipe, np.random.default_rng(seed))
        parts = {"position": layer.position, "segment": layer.segment}
        drawn = [name for name, part in parts.items() if isinstance(part, Embedding)]
        return cls(table, layer, recipe, drawn)

    def walk(self, texts: Sequence[str], pair: str | None = None) -> list[Walk]:
        """Take ``texts`` through the layer as one batch, padded to its longest; or one text and its ``pair``.

        ``CorpusError`` if a text holds no token, ``TableFormatError`` if a number is NaN or infinite.
        """
        check_unchanged(self.table)
        for text in [*texts, *([] if pair is None else [pair])]:
            if not text.strip():
                raise CorpusError("a text is empty, so it has no tokens; give at least one word")
        if pair is None:
            encoded = self.tokenizer.encode_batch(texts)
        else:
            encoded = [self.tokenizer.encode(text, pair) for text in texts]
        if not encoded or not encoded[0].ids.size:
            raise CorpusError("the text has no tokens; give at least one word")
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
                    Token(*row)
                    for row in zip(
                        one.tokens, ids[b].tolist(), positions[b].tolist(), segments[b].tolist(), strict=True
                    )
                ],
                {name: values[b] for name, values in steps.items()},
                mask[b].tolist(),
                self._unknown(text, pair, one),
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
        words = []
        for i, segment, (start, end) in zip(one.ids, one.segments, one.spans, strict=True):
            if i == self.tokenizer.unk_id and end > start:
                words.append((pair if pair is not None and segment else text)[start:end])
        return words

    def head(self) -> LMHead:
        """A checkpoint's own head; else over the table's output rows if it has them (skip-gram's contexts),
        else tied. ``ShapeError`` if the head takes another width than the layer gives, for want of a body.
        """
        if self._checkpoint is not None:
            with contextlib.suppress(CheckpointError):  # saved without its head, or parts of it
                return layers.head_from_checkpoint(self._checkpoint, self.layer.token)
        return LMHead(self.layer.token) if self.table.output is None else LMHead.untied(self.table.output)

    def predict(self, walk: Walk, k: int = 5) -> list[list[Candidate]]:
        """For each token, the ``k`` tokens that the head scores highest: hidden @ E.T, then softmax.

        Padding predicts nothing. ``TableFormatError`` if a score is NaN or infinite.
        """
        head = self.head()
        return [self._best(head.forward(hidden), k) for hidden in walk.output[: walk.length]]

    def _best(self, logits: Float[Array, " V"], k: int) -> list[Candidate]:
        if not np.isfinite(logits).all():
            raise TableFormatError("the head's scores hold NaN or infinity: its rows do, or are too large")
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        kth = np.partition(logits, -k)[-k] if k < logits.size else -np.inf
        ids = np.flatnonzero(logits >= kth)  # all that tie for the last place, so that the id decides
        best = ids[np.argsort(-logits[ids], kind="stable")][:k].tolist()
        return [Candidate(self.table.vocab[i], i, float(logits[i]), float(shares[i])) for i in best]

    def gradient(self, walk: Walk, learning_rate: float = 0.1) -> Gradient:
        """One step of plain gradient descent on the table, so that each token better predicts the next.

        ``CorpusError`` for a text of one token, which has no next one.
        """
        if walk.length < 2:
            raise CorpusError("a gradient needs a next token to predict; give a text of at least two tokens")
        tokens = walk.tokens[: walk.length]
        ids, positions, segments = (
            np.array([[getattr(token, name) for token in tokens]]) for name in ("id", "position", "segment")
        )
        output = self.layer.forward(
            ids,
            segment_ids=None if self.layer.segment is None else segments,
            position_ids=positions,
            extra_ids=self._extra_ids(ids),
        )
        labels = np.append(ids[:, 1:], [[-100]], axis=1)  # the last token has no next one: ignored

        head = self.head()
        self.layer.zero_gradient()
        loss = head.loss(output, labels)
        d_output = head.backward()
        scored = _rows_moved(self.layer.gradients().get("token.weight"))  # tied: the head's part
        self.layer.zero_gradient()
        self.layer.backward(d_output)
        d_weight = self.layer.gradients()["token.weight"]
        self.layer.zero_gradient()
        used = list(dict.fromkeys(ids[0].tolist()))
        before = self.table.lookup(used)
        after = before - learning_rate * d_weight[used]
        rows = [
            MovedRow(
                self.table.vocab[i],
                i,
                np.flatnonzero(ids[0] == i).tolist(),
                float(np.linalg.norm(d_weight[i])),
                float(cosine(before[n], after[n])),
            )
            for n, i in enumerate(used)
        ]
        by_position = self._by_position(ids, positions, segments, d_output)
        return Gradient(
            float(loss), learning_rate, rows, _rows_moved(d_weight), scored, len(self.table), by_position
        )

    def _by_position(
        self,
        ids: Int[Array, "1 T"],
        positions: Int[Array, "1 T"],
        segments: Int[Array, "1 T"],
        d_output: Float[Array, "1 T D"],
    ) -> Float[Array, "T D"]:
        """The gradient (1, T, D) back through a copy of the layer whose table has a row for each position, so
        that none is summed with another.
        """
        token = self.layer.token
        apart = copy.copy(self.layer)
        apart.token = Embedding.from_weight(self.table.lookup(ids[0]), scale=token.scale)
        apart.zero_gradient()
        apart.forward(
            np.arange(ids.shape[1])[None],
            segment_ids=None if self.layer.segment is None else segments,
            position_ids=positions,
            extra_ids=self._extra_ids(ids),
        )
        apart.backward(d_output)
        rows = apart.gradients()["token.weight"]
        apart.zero_gradient()  # the other parts are the layer's own
        return np.where((ids[0] == token.padding_id)[:, None], np.float32(0), rows)


def _rows_moved(gradient: Float[Array, "V D"] | None) -> int:
    return 0 if gradient is None else int((gradient != 0).any(axis=1).sum())
