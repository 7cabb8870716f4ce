"""What both objectives do with the names they are given: outputs checked, stdin kept, tokenizers learned."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenspace import text
from tokenspace.atomic import check_writable
from tokenspace.cli.console import note
from tokenspace.errors import OutputError
from tokenspace.shown import shown
from tokenspace.tokenizer import Tokenizer
from tokenspace.tokenizer_training import KINDS
from tokenspace.train.corpus import open_corpus
from tokenspace.train.places import folder_beside
from tokenspace.train.run import Run


def check_places(outputs: Sequence[Path], files: Sequence[str], evaluated: Sequence[str] = ()) -> None:
    """``OutputError`` now for a place that can't be written, or that a text to be read lies at.

    ``evaluated`` are the files that the table will be asked.
    """
    read = [(path, "the text to learn from") for name in files if name != "-" for path in text.find(name)]
    read += [(Path(name), "a file to evaluate with") for name in evaluated]
    for output in outputs:
        check_writable(output)
        for path, what in read:
            if output.exists() and path.exists() and output.samefile(path):
                raise OutputError(f"can't write {shown(str(output))}: it is {what}; choose another name")


@contextlib.contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """After an interrupt at once, a word about what can still be gone on with."""
    try:
        yield
    except KeyboardInterrupt:
        if Run.lies_in(folder):
            note("interrupted: --resume goes on from what was saved last")
        raise


@contextlib.contextmanager
def readable_twice(files: Sequence[str], twice: bool) -> Iterator[list[str]]:
    """``files``; if they are read ``twice``, first to learn pieces, stdin is a file for as long as needed."""
    if "-" not in files or not twice:
        yield list(files)
        return
    with tempfile.TemporaryDirectory(prefix="tokenspace-") as folder:
        copy = Path(folder) / "stdin"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield [str(copy) if name == "-" else name for name in files]


def text_is_kept(output: str) -> bool:
    """Whether a run for ``output`` has its text already, so that stdin isn't asked for again."""
    return Path(output).exists() or open_corpus(folder_beside(output) / "corpus") is not None


def tokenizer_of(source: str, files: Sequence[str], vocab_size: int, lowercase: bool) -> Tokenizer:
    """Learned from the files if ``source`` is a kind of tokenizer, else the one that lies there."""
    if source in KINDS:
        return Tokenizer.train(files, source, vocab_size, lowercase=lowercase)
    tokenizer = Tokenizer.load(source)
    if tokenizer.assumed:
        note(f"{source}: {tokenizer.assumed}")
    return tokenizer
