"""Some seven million words of English from Debian: wordnet-base, dict-gcide, bible-kjv (and bible-kjv-text).

    python benchmarks/english.py FILE

One sentence a line, words in lower case with one space between them, as gensim's ``corpus_file`` wants them:
the King James text, a verse a line; WordNet's entries, a synset a line; the Collaborative International
Dictionary of English, a paragraph a line. The same packages give the same bytes.
"""

from __future__ import annotations

import gzip
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

import wordnet
import wordnet_corpus

GCIDE = Path("/usr/share/dictd/gcide.dict.dz")
SEED = 1
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
# Of a dictionary's entry: the spoken form, and who wrote it.
_APPARATUS = re.compile(r"\\[^\\\n]*\\|\[(?:1913 Webster|PJC|WordNet 1\.5|Webster 1913 Suppl\.|AS)\]")


def sentences() -> Iterator[str]:
    """Every sentence, shuffled: none of the three texts is read last."""
    chance = random.Random(SEED)
    lines = sorted((chance.random(), " ".join(_WORD.findall(text.lower()))) for text in texts())
    return (line for _, line in lines if " " in line)


def texts() -> Iterator[str]:
    yield from wordnet_corpus.verses()
    yield from wordnet_corpus.glosses(list(wordnet.synsets()))
    yield from paragraphs()


def paragraphs() -> Iterator[str]:
    """The dictionary's paragraphs: what stands between two empty lines."""
    with gzip.open(GCIDE, "rt", encoding="utf-8", errors="replace") as file:  # a few bytes are Windows's
        text = file.read()
    yield from re.split(r"\n\s*\n", _APPARATUS.sub("", text))


def write(path: Path) -> int:
    """Write the corpus to ``path``; returns how many words it has."""
    words = 0
    with path.open("w", encoding="ascii", newline="\n") as file:
        for sentence in sentences():
            words += sentence.count(" ") + 1
            file.write(f"{sentence}\n")
    return words


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/english.py FILE")
    print(f"{write(Path(sys.argv[1])):,} words")
