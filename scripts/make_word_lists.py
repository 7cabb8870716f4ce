"""The word lists that the built-in table's tests look neighbors up in; neither comes from the table itself.

    python scripts/make_word_lists.py tests/data

``animals.txt``: WordNet's single-word nouns with a sense below "animal, animate being, …" (so it holds
"raccoon", whose most frequent sense is the fur, and also a few words that are rarely meant so).
``number_words.txt``: English cardinals, ordinals, multiples and older forms, and the numerals 0 to 1000.
"""

from __future__ import annotations

import sys
from pathlib import Path

import wordnet

NUMBER_WORDS = """
zero one two three four five six seven eight nine ten eleven twelve
thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety
hundred thousand million billion trillion dozen score threescore fourscore
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth
thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth
twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth
hundredth thousandth millionth
once twice thrice single double triple quadruple twofold threefold fourfold sevenfold tenfold
"""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "animals.txt", animals())
    write(folder / "number_words.txt", number_words())


def animals() -> set[str]:
    entries = list(wordnet.synsets())
    keys = wordnet.below("animal", entries)
    words = {lemma.lower() for entry in entries if entry.key in keys for lemma in entry.lemmas}
    return {word for word in words if word.isalpha()}


def number_words() -> set[str]:
    return {*NUMBER_WORDS.split(), *map(str, range(1001))}


def write(path: Path, words: set[str]) -> None:
    path.write_text("".join(f"{word}\n" for word in sorted(words)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
