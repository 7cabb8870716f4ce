"""Run as a program: a child that saves one table after another is killed (SIGKILL) at each of its steps.

Every other time it is killed some time after one. Steps place the kills, since a machine may be busy.

Arguments: the format, a folder, how many kills. Prints a JSON line for each. Table n is full of the number n,
and its tokens tell it too, so that what is found after a kill is one of them, whole, or none.
"""

import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from tokenspace.errors import TokenspaceError
from tokenspace.formats import native, npz, numpy, static_embedding, word2vec
from tokenspace.table import Table
from tokenspace.vocab import Vocab

FILE_STEPS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "tempfile.mkdtemp"}
SHAPE = {"static": (300, 8_192)}  # few tokens: its tokenizer takes longer to make than its rows to write
FORMATS = {
    "native": (native.save, native.load, "t.safetensors"),
    "word2vec": (word2vec.save_binary, word2vec.load, "t.bin"),
    "npz": (npz.save, npz.load, "t.npz"),
    "numpy": (numpy.save, numpy.load, "t.npy"),  # two files: the same tokens each time
    "static": (static_embedding.save, static_embedding.load, "t.{}"),  # a new folder for each
}


class Saver:
    def __init__(self, name: str, folder: Path) -> None:
        self._save, self._load, self._file = FORMATS[name]
        self.folder, self._same_tokens = folder, name == "numpy"
        self._shape = SHAPE.get(name, (3_000, 256))

    def place(self, n: int) -> Path:
        return self.folder / self._file.format(n)

    def tokens(self, n: int) -> list[str]:
        return [f"{0 if self._same_tokens else n}.{i}" for i in range(self._shape[0])]

    def table(self, n: int) -> Table:
        return Table(np.full(self._shape, n, np.float32), Vocab(self.tokens(n)))

    def save(self, n: int, table: Table) -> None:
        self._save(table, self.place(n))

    def found(self, n: int) -> int | None:
        """Which table is where table ``n`` would be, every number and token of it; None if there is none."""
        try:
            table = self._load(self.place(n))
        except TokenspaceError:
            return None
        n = int(table.weight[0, 0])
        assert table.weight.shape == self._shape
        assert (np.asarray(table.weight) == n).all()
        assert list(table.vocab) == self.tokens(n)
        return n

    def partials(self) -> int:
        """How many tables, or parts of one, lie there unfinished."""
        return sum(
            name.endswith(".partial") and bool(os.listdir(self.folder / name))
            for name in os.listdir(self.folder)
        )


class Steps:
    """Counts the steps of files in a folder, and kills the process at one of them, or ``delay`` s later."""

    def __init__(self, folder: Path, kill_at: int = 0, delay: float = 0.0) -> None:
        self.count = 0
        self._folder, self._kill_at = str(folder), kill_at
        self._killer = threading.Timer(delay, _kill) if delay else None
        sys.addaudithook(self._hear)

    def _hear(self, name: str, arguments: tuple) -> None:
        if name in FILE_STEPS and str(arguments[0]).startswith(self._folder):
            self.count += 1
            if self.count == self._kill_at:
                if self._killer is None:
                    _kill()
                self._killer.start()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(saver: Saver, first: int, kill_at: int, delay: float) -> tuple[int, int]:
    """How many saves a child began, and how many it ended, from table ``first`` on, until it was killed."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            Steps(saver.folder, kill_at, delay)
            for n in itertools.count(first):
                table = saver.table(n)
                os.write(theirs, b"b")
                saver.save(n, table)
                os.write(theirs, b"e")
        finally:
            os._exit(1)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    return told.count(b"b"), told.count(b"e")


def main(name: str, folder: Path, kills: int) -> None:
    saver, last = Saver(name, folder), 0
    saver.save(last, saver.table(last))
    table = saver.table(last := last + 1)
    steps = Steps(folder)
    begin = time.perf_counter()
    saver.save(last, table)
    whole, count = time.perf_counter() - begin, steps.count
    random.seed(11)
    for n in range(kills):  # at each step in turn, and every other time between it and one of the next
        delay = random.uniform(0, 2 * whole / count) if n // count % 2 else 0.0
        begun, ended = killed(saver, last + 1, 1 + n % count, delay)
        left = saver.partials()
        old, new = last + ended, last + begun
        found = saver.found(new)
        old_there = found == old or (name == "static" and saver.found(old) == old)
        kill = {"in_save": begun > ended, "partials": left, "old": old_there, "new": found == new}
        sys.stdout.write(json.dumps(kill) + "\n")
        if found is None and name == "numpy":  # its tokens are there alone, and are not replaced unasked
            (folder / "t.vocab.txt").unlink(missing_ok=True)
        last = new if found == new else old
    saver.save(last + 1, saver.table(last + 1))
    sys.stdout.write(json.dumps({"partials": saver.partials(), "last": saver.found(last + 1) == last + 1}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
