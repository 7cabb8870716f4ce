"""Two dictionaries of English from Debian, 9 million words: dict-gcide, then dict-wn, an entry a line.

    python benchmarks/dictionaries.py FILE [--shuffled]

A text in two halves of different kinds: GCIDE's long entries with quotations, then WordNet's short ones.
Entries come in the order of their file, as its index bounds them; words are in lower case with one space
between them, as gensim's ``corpus_file`` wants them. With ``--shuffled`` the same lines come in random order.
The same packages give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
import string
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("/usr/share/dictd")
NAMES = ("gcide", "wn")
SEED = 1
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
_DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"


def lines() -> Iterator[str]:
    """Every entry that has a word, in order."""
    for name in NAMES:
        with gzip.open(FOLDER / f"{name}.dict.dz") as file:
            text = file.read()
        for begin, length in places(FOLDER / f"{name}.index"):
            entry = text[begin : begin + length].decode("utf-8", "replace")
            if line := " ".join(_WORD.findall(entry.lower())):
                yield line


def places(index: Path) -> list[tuple[int, int]]:
    """Where entries lie, as (first byte, bytes), each once; index lines: headword, tab, place, tab, size."""
    fields = [line.split("\t") for line in index.read_text("utf-8", "replace").split("\n") if line]
    entries = [numbers for headword, *numbers in fields if not headword.startswith("00-")]
    return sorted({(number(begin), number(length)) for begin, length, *_ in entries})


def number(digits: str) -> int:
    """A number as dictd writes it: base 64, the most significant digit first."""
    found = 0
    for digit in digits:
        found = 64 * found + _DIGITS.index(digit)
    return found


def write(path: Path, shuffled: bool = False) -> int:
    """Write the corpus to ``path``; returns how many words it has."""
    found = list(lines())
    if shuffled:
        random.Random(SEED).shuffle(found)
    path.write_text("\n".join(found) + "\n", encoding="ascii", newline="\n")
    return sum(line.count(" ") + 1 for line in found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--shuffled", action="store_true")
    arguments = parser.parse_args()
    print(f"{write(arguments.file, arguments.shuffled):,} words")
