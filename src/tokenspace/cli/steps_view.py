"""The walk as a drawing: a box for each step, from the text to the transformer's door."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tokenspace.cli.console import shown
from tokenspace.cli.walk_view import add_numbers, meaning
from tokenspace.plots.labels import fitted
from tokenspace.shapes import Array, Float
from tokenspace.walk import Pipeline, Walk

WIDTH = 80  # columns at most
NARROW = 40  # inside a box: below, a name stands on a line of its own
LABEL = 12


def draw(pipeline: Pipeline, walks: Sequence[Walk], pair: str | None, console: Console) -> None:
    """Draw the steps that the recipe has, each with its shape and the first token's numbers."""
    drawing = _Drawing(console)
    first, token = walks[0], walks[0].tokens[0]
    length, width = first.output.shape
    batch = (len(walks),) if len(walks) > 1 else ()

    text = Text(shown(first.text)) if pair is None else Text(f"{shown(first.text)}  +  {shown(pair)}")
    drawing.box("text", f"the first of {len(walks):,}" if batch else "", None, text)
    changed = "" if first.normalized is None else "normalized and "
    drawing.arrow(f"{changed}split by the tokenizer" + (", padded" if batch else ""))
    drawing.box("tokens", "", (*batch, length), Text("  ".join(shown(token.token) for token in first.tokens)))
    drawing.arrow("numbered by the vocabulary")
    drawing.box("ids", "", (*batch, length), Text("  ".join(str(token.id) for token in first.tokens)))
    sources = {"position": f"position {token.position}", "segment": f"segment {token.segment}"}
    for name, rows in first.steps.items():
        drawing.arrow("each selects its row" if name == "lookup" else "")
        if name == "dropout":
            drawing.box(name, "off: it drops numbers only in training", None, None)
        else:
            sample = drawing.sample(sources.get(name, token.token), rows[0])
            drawing.box(name, meaning(pipeline, name), (*batch, length, width), sample)
    drawing.arrow()
    drawing.door("the transformer's first layer")


class _Drawing:
    """Boxes of one width, one below the other, joined in the middle."""

    def __init__(self, console: Console):
        self._console = console
        self._width = max(12, min(WIDTH, console.width))
        self._inner = self._width - 4
        self._joined = False  # whether an arrow comes in from above

    def box(self, name: str, about: str, shape: tuple[int, ...] | None, content: Text | None) -> None:
        """A step: its name, what it does, the shape of what leaves it, and a line of what that is."""
        gap = "" if not about else "\n" if self._inner < NARROW else " " * (11 - len(name))
        lines = list(Text.assemble((name, "bold"), gap, about).wrap(self._console, self._inner))
        if shape is not None:
            label = Text(f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})", "cyan")
            if lines[-1].cell_len + 1 + label.cell_len > self._inner:
                lines.append(Text())
            lines[-1].append(" " * (self._inner - lines[-1].cell_len - label.cell_len)).append_text(label)
        if content is not None:
            lines.append(content)
        self._edge("┌", "┴" if self._joined else "─", "┐")
        for line in lines:
            line.truncate(self._inner, overflow="ellipsis", pad=True)
            self._console.print(Text.assemble(("│ ", "dim"), line, (" │", "dim")), no_wrap=True)
        self._edge("└", "┬", "┘")

    def arrow(self, remark: str = "") -> None:
        """From the box above to what comes next."""
        self._joined = True
        middle = self._width // 2
        line = Text(" " * middle + "▼")
        if remark and middle + 2 + cell_len(remark) <= self._width:
            line.append(f" {remark}", "dim")
        self._console.print(line, no_wrap=True)

    def door(self, text: str) -> None:
        """What the last arrow leads to."""
        self._console.print(Text(text, "bold"), justify="center", width=self._width)

    def sample(self, label: str, row: Float[Array, " D"]) -> Text:
        """The first numbers of one token's row, as many as the box holds."""
        margin = min(LABEL, self._inner // 3)
        line = Text.assemble((fitted(shown(label), margin), "dim"))
        add_numbers(line, row, self._inner - margin)
        return line

    def _edge(self, left: str, joint: str, right: str) -> None:
        before = self._width // 2 - 1
        after = self._width - 3 - before
        self._console.print(Text(left + "─" * before + joint + "─" * after + right, "dim"), no_wrap=True)
