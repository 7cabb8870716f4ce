"""How one text splits under several tokenizers, as a terminal shows it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from tokenspace.cli.console import shown
from tokenspace.cli.picture import screen
from tokenspace.splits import Split

NAME_WIDTH = 24  # columns; of a longer name the end is shown


def show(text: str, splits: Sequence[Split]) -> None:
    """Print each split on stdout: whose, how many tokens, which it added, and the tokens."""
    console = screen()
    console.print(Text(f"\nsplits     {shown(text)}, as each tokenizer splits it"))
    width = min(NAME_WIDTH, max(cell_len(shown(split.name)) for split in splits))
    for split in splits:
        name = shown(split.name)
        if cell_len(name) > width:
            name = "…" + name[1 - width :]
        adds = " ".join(map(shown, split.added)) or "nothing"
        count = f"{len(split.tokens)} token{'s' * (len(split.tokens) != 1)}"
        console.print(Text(f"  {set_cell_size(name, width)}  {split.kind:<9}  {count}, adds {adds}"))
        console.print(Text(f"    {' '.join(map(shown, split.tokens))}"))
