"""The walk as a terminal shows it: each step named, its shape, a few numbers of each row, as wide as fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from tokenspace.cli.console import shown
from tokenspace.cli.picture import screen
from tokenspace.encoding_notes import changed_words
from tokenspace.reference import SinusoidalPositionalEncoding
from tokenspace.shapes import Array, Float
from tokenspace.shown import one_line
from tokenspace.walk import Candidate, Gradient, MovedRow, Pipeline, Walk
from tokenspace.walk_document import MOST_NAMED

TOKEN_WIDTH = 14  # columns at most; a longer token is cut
NUMBER_WIDTH = 8
ALL_ROWS = 40  # of a longer text the first and last rows are shown


def show(
    pipeline: Pipeline,
    walks: Sequence[Walk],
    predict: bool,
    gradient: bool,
    draw: Callable[[Console], None] | None = None,
) -> None:
    """Print the walk of one text, or of a padded batch, on stdout; all is computed before any is printed.

    ``draw`` prints the steps in another way.
    """
    predictions = [pipeline.predict(walk) for walk in walks] if predict else []
    gradients = [pipeline.gradient(walk) for walk in walks] if gradient else []
    console = screen()
    view = _View(pipeline, console)
    if draw is not None:
        draw(console)
        view.untrained()
    elif len(walks) == 1:
        view.one(walks[0])
        view.untrained()
    else:
        view.batch(walks)
    for walk, predicted in zip(walks, predictions, strict=False):
        view.predictions(walk, predicted)
    for walk, moved in zip(walks, gradients, strict=False):
        view.gradient(walk, moved)


class _View:
    def __init__(self, pipeline: Pipeline, console: Console):
        self._pipeline = pipeline
        self._console = console
        self._token_width = max(4, min(TOKEN_WIDTH, console.width // 3))

    def one(self, walk: Walk) -> None:
        self._tokens(walk)
        above = ""
        for name, rows in walk.steps.items():
            if name == "dropout":
                self._heading(name, "off: it drops numbers only in training")
            elif name == "output" and above in ("normalized", "projected"):
                self._heading(name, "the transformer's input: the vectors above", rows.shape)
            else:
                self._heading(name, meaning(self._pipeline, name), rows.shape)
                self._rows(walk, rows, mark_repeats=name == "lookup")
                above = name

    def untrained(self) -> None:
        """Which rows are none of the table's own."""
        if self._pipeline.untrained:
            drawn = " and ".join(self._pipeline.untrained)
            self._line(
                f"The table has no {drawn} rows of its own: these were drawn at random, untrained.", "dim"
            )

    def batch(self, walks: Sequence[Walk]) -> None:
        length, width = walks[0].output.shape
        self._heading("ids", "one text a line, padded to the longest", (len(walks), length))
        for walk in walks:
            line = Text("  ")
            for token, real in zip(walk.tokens, walk.mask, strict=True):
                line.append(f"{token.id:>7}", "" if real else "dim")
            line.append(f"   {shown(walk.text)}", "dim")
            self._console.print(line, overflow="ellipsis", no_wrap=True)
        steps = " → ".join(name for name in walks[0].steps if name != "dropout")
        self._heading("output", f"{steps}", (len(walks), length, width))
        for walk in walks:
            self._line(f"  {shown(walk.text)}", "dim")
            self._rows(walk, walk.output)

    def predictions(self, walk: Walk, predicted: list[list[Candidate]]) -> None:
        self._heading("predict", scoring(self._pipeline))
        for token, row in zip(walk.tokens[: walk.length], predicted, strict=True):
            line = self._label(token.token)
            for candidate in row:
                line.append(f"  {shown(candidate.token)}")
                line.append(f" {candidate.probability:.1%}", "dim")
            self._console.print(line, overflow="ellipsis", no_wrap=True)
        rows_read = zip(walk.tokens[: walk.length], walk.steps["lookup"], strict=False)
        zeros = dict.fromkeys(token.token for token, row in rows_read if not row.any())
        if zeros:
            named = ", ".join(map(shown, zeros))
            self._line(
                f"  {named}: read as a row of zeros, never trained; its scores say nothing of it", "dim"
            )
        if (untrained := self._pipeline.untrained_rows).size:
            rows = f"{len(untrained):,} {'row' if len(untrained) == 1 else 'rows'} of zeros"
            ids = ", ".join(f"{i:,}" for i in untrained[:MOST_NAMED])
            more = ", …" if len(untrained) > MOST_NAMED else ""
            self._line(f"  left out: {rows}, never trained (id {ids}{more})", "dim")

    def gradient(self, walk: Walk, gradient: Gradient) -> None:
        self._heading(
            "gradient",
            f"one step of descent at rate {gradient.learning_rate:g}; loss {gradient.loss:.4f} nats a token",
        )
        if (reason := self._pipeline.no_head) is not None:
            rows = _scoring_rows(self._pipeline)
            self._line(f"  scored with {rows} in place of a head: {one_line(reason)}", "dim")
        self._line(f"  {loss_compared(gradient)}", "dim")
        tied = gradient.rows_moved_by_head > 0
        head = "the tied head" if self._pipeline.no_head is None else "the table in place of a head"
        columns = ["lookup", "+ head", "= total"] if tied else ["lookup"]
        titles = "".join(f" {column:>9}" for column in columns)
        self._line(f"  {' ' * self._token_width}{titles}   cosine   lengths of the gradients")
        for row in gradient.rows:
            line = self._label(row.token)
            lengths = (row.gradient_lookup, row.gradient_head, row.gradient) if tied else (row.gradient,)
            line.append("".join(f" {length:>9.4g}" for length in lengths))
            cosine = "none" if row.cosine is None else f"{row.cosine:6.4f}"
            line.append(f"   {cosine:>6}", "bold")
            line.append(f"   {self._place(row, walk.length - 1)}", "dim")
            self._console.print(line, soft_wrap=True)
        self._line(
            f"  rows moved through the lookup: {gradient.rows_moved:,} of {gradient.rows_in_table:,}; "
            + (
                f"through {head}: {gradient.rows_moved_by_head:,}, as every token is scored"
                if tied
                else "the head has rows of its own"
            )
        )

    def _place(self, row: MovedRow, last: int) -> str:
        """Say at which positions a row was read, and that the last of a text has no next token."""
        if row.positions == [last]:
            return f"at position {last}, the last: no next token"
        places = ", ".join(map(str, row.positions))
        return f"at position {places}" if len(row.positions) == 1 else f"summed over positions {places}"

    def _tokens(self, walk: Walk) -> None:
        self._line(f"text       {shown(walk.text)}")
        if walk.normalized is not None:
            self._line(f"normalized {shown(walk.normalized)}")
            changed = changed_words(walk.text, walk.normalized)
            if changed:
                pairs = ", ".join(f"{shown(old)} → {shown(new)}" for old, new in changed[:MOST_NAMED])
                more = ", …" if len(changed) > MOST_NAMED else ""
                self._line(f"           {pairs}{more}: changed by the tokenizer before it splits", "dim")
        self._line(f"recipe     {self._pipeline.recipe}")
        self._heading("tokens", "what the tokenizer makes of it, and each token's id", (len(walk.tokens),))
        segmented = any(token.segment for token in walk.tokens)
        for token in walk.tokens:
            line = self._label(token.token)
            line.append(f"  id {token.id:<7}", "cyan")
            line.append(f" position {token.position}", "dim")
            if segmented:
                line.append(f"  segment {token.segment}", "dim")
            self._console.print(line, soft_wrap=True)
        if segmented and self._pipeline.layer.segment is None:
            self._line("This recipe adds no rows for segments.", "dim")

    def _heading(self, name: str, meaning: str, shape: tuple[int, ...] | None = None) -> None:
        line = Text("\n")
        line.append(f"{name:<11}", "bold")
        line.append(meaning)
        if shape is not None:
            line.append(f"   {shape}", "cyan")
        self._console.print(line, soft_wrap=True)

    def _rows(self, walk: Walk, rows: Float[Array, "T D"], mark_repeats: bool = False) -> None:
        first_at: dict[int, int] = {}
        repeats = mark_repeats and len({token.id for token in walk.tokens}) < len(walk.tokens)
        for t, (token, row) in enumerate(zip(walk.tokens, rows, strict=True)):
            if len(rows) > ALL_ROWS and t == ALL_ROWS // 2:
                self._line(f"  … {len(rows) - ALL_ROWS:,} more rows …", "dim")
            if len(rows) > ALL_ROWS and ALL_ROWS // 2 <= t < len(rows) - ALL_ROWS // 2:
                continue
            line = self._label(token.token, "" if walk.mask[t] else "dim")
            add_numbers(line, row, self._console.width - self._token_width - 4 - (30 if repeats else 0))
            seen = first_at.setdefault(token.id, t)
            if mark_repeats and seen != t:
                line.append(f"  the row of position {seen} again", "dim")
            self._console.print(line, overflow="ellipsis", no_wrap=True)

    def _label(self, token: str, style: str = "") -> Text:
        token = shown(token)
        if cell_len(token) > self._token_width:
            token = set_cell_size(token, self._token_width - 1) + "…"
        return Text("  " + set_cell_size(token, self._token_width), style)

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style), soft_wrap=True)


def _scoring_rows(pipeline: Pipeline) -> str:
    """Name the rows that score."""
    return {
        "table": "E.T, the same table",
        "output": "the table's own output rows",
        "head": "the checkpoint's own head",
    }[pipeline.scoring_rows]


def scoring(pipeline: Pipeline) -> str:
    """Say which vectors are scored against which rows."""
    if (model := pipeline.context_model) is not None:
        return f"E[id] @ the table's own output rows, as {model} was trained: no scale, no position"
    rows = _scoring_rows(pipeline)
    if pipeline.no_head is not None:
        rows += f" in place of a head: {one_line(pipeline.no_head)}"
    return f"hidden @ {rows} (no body between: the input itself is the hidden state)"


def loss_compared(gradient: Gradient) -> str:
    """Compare the loss with that of guessing; of a worse one, show the position that costs most."""
    guess = math.log(gradient.rows_in_table)
    compared = f"guessing costs ln {gradient.rows_in_table:,} = {guess:.1f}"
    if gradient.loss <= guess:
        return compared
    most = gradient.costliest
    return (
        f"{compared}; position {most.position} costs most, {most.loss:.4g}: "
        f"{shown(most.best)} is scored {most.margin:.4g} above {shown(most.next)}"
    )


def meaning(pipeline: Pipeline, name: str) -> str:
    """What the step ``name`` does in this pipeline's layer."""
    layer, table = pipeline.layer, pipeline.table
    if name == "lookup":
        return f"E[id]: one row of the table ({len(table):,} × {table.dim:,}) for each token"
    if name == "scaled":
        root = np.isclose(layer.token.scale or 0, table.dim**0.5)
        return f"× √{table.dim} = {layer.token.scale:.4g}" if root else f"× {layer.token.scale:.6g}"
    if name == "position":
        kind = "sinusoidal" if isinstance(layer.position, SinusoidalPositionalEncoding) else "learned"
        return f"+ a row for each position ({kind})"
    if name == "output":
        return "the transformer's input"
    known = {"segment": "+ a row for each segment", "normalized": "LayerNorm of the sum"}
    return known.get(name, "× the projection matrix" if name == "projected" else f"+ a row for each {name}")


def add_numbers(line: Text, row: Float[Array, " D"], columns: int) -> None:
    """As many numbers as ``columns`` hold, at least one: the first ones, and the last behind an ellipsis."""
    style = "{:8.3f}" if np.abs(row).max(initial=0) < 1000 else "{:8.1e}"
    room = max(1, (columns - 2) // NUMBER_WIDTH)
    cut = row if len(row) <= room else row[: max(1, room - 1)]
    for x in cut:
        line.append(style.format(x), "yellow" if x >= 0 else "bright_blue")
    if len(row) > room:
        line.append(" …", "dim")
    if len(row) > room > 1:
        line.append(style.format(row[-1]), "yellow" if row[-1] >= 0 else "bright_blue")
