"""examples/toy.py: short, it learns, and what it prints is what docs/learning.md shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import tokenspace as ts

ROOT = Path(__file__).parent.parent
EXAMPLE, TOY = ROOT / "examples" / "toy.py", ROOT / "examples" / "toy.vec"


def test_the_table_is_the_one_of_the_page():
    table = ts.load(TOY)
    assert list(table.vocab) == ["a", "cat", "sat", "on", "mat"]
    assert np.array_equal(table.weight, (np.arange(1, 21).reshape(5, 4) / 10).astype(np.float32))
    printf = re.search(r"printf '(5 4.*)' > toy.vec", (ROOT / "docs" / "learning.md").read_text())
    assert printf is not None
    assert printf[1].replace("\\n", "\n") == TOY.read_text()


def test_it_prints_what_the_page_shows_and_learns_each_next_word():
    assert len(EXAMPLE.read_text().splitlines()) < 40
    printed = subprocess.run(
        [sys.executable, EXAMPLE, TOY],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1"},
    ).stdout
    page = (ROOT / "docs" / "learning.md").read_text()
    shown = re.search(
        r"^\$ python examples/toy.py examples/toy.vec\n(.*?)```", page, re.MULTILINE | re.DOTALL
    )
    assert shown is not None
    assert printed == shown[1]
    losses = [float(number) for number in re.findall(r"loss ([\d.]+)", printed)]
    assert losses == sorted(losses, reverse=True)
    assert printed.endswith("after a, cat, sat, on: cat sat on mat\n")
