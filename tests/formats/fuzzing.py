"""Mutated files, and what a reader makes of each: a table that holds together, or a refusal. Nothing else is
right: no other error, no warning, no crash, no hang past ``SECONDS``, no more memory than ``allowed``.

Case ``n`` of seed ``s`` is a function of these two numbers. ``benchmarks/fuzz_tables.py`` runs many of them,
``test_fuzz.py`` a few.
"""

from __future__ import annotations

import gc
import json
import random
import re
import signal
import sys
import time
import traceback
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import mutations
import numpy as np
from fuzz_seeds import Seed, pack

from tokenspace.errors import CheckpointError, TableFormatError
from tokenspace.table import Table

SECONDS = 5.0
MEGABYTES = 64
Load = Callable[[Path], Table]


class Edit(NamedTuple):
    """One change: to the file ``file`` before it is packed, or to what was packed; by which function."""

    file: str
    inside: bool
    how: str
    seed: int


class Case(NamedTuple):
    """A seed and the edits made to it, one after the other."""

    seed: Seed
    edits: tuple[Edit, ...]

    def __str__(self) -> str:
        return f"{self.seed.name}: " + "; ".join(f"{edit.how} {edit.file}" for edit in self.edits)


class Made(NamedTuple):
    """A case's files by name, which of them is read, and the bytes of all, and of what is packed in them."""

    files: dict[str, bytes]
    read: str
    size: int


class Verdict(NamedTuple):
    """``kind``: "loaded", "refused", or what was wrong; ``words``: the error's; ``grown``: bytes taken."""

    kind: str
    words: str
    seconds: float
    grown: int

    @property
    def right(self) -> bool:
        return self.kind in ("loaded", "refused")


class HungError(BaseException):
    """Raised by the alarm; no reader catches it."""


def case(seeds: list[Seed], seed: int, n: int) -> Case:
    """Case ``n``: one to three edits of the seed whose turn it is."""
    rng = random.Random(f"{seed} {n}")
    chosen = seeds[n % len(seeds)]
    edits = []
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3))):
        inside = not chosen.packed or rng.random() < 0.75
        file = rng.choice(list(chosen.files) + [chosen.read] * (chosen.read in chosen.files))
        data = chosen.files[file] if inside else next(iter(pack(chosen, chosen.files)[0].values()))
        how = rng.choice(mutations.edits_for(data)).__name__
        edits.append(Edit(file, inside, how, rng.randrange(2**32)))
    return Case(chosen, tuple(sorted(edits, key=lambda edit: not edit.inside)))


def files_of(made: Case, seeds: list[Seed]) -> Made:
    """What the case puts on disk; to make it takes seconds where an archive has 21,000 members."""
    inside = dict(made.seed.files)
    for edit in made.edits:
        if edit.inside:
            inside[edit.file] = _edited(edit, inside[edit.file], seeds)
    packed, read = pack(made.seed, inside)
    name = read.split("/")[0]
    within = dict(inside)
    for edit in made.edits:
        if not edit.inside:
            packed[name] = _edited(edit, packed[name], seeds)
            if made.seed.read in within:  # what lengthens a packed file may lengthen what is in it
                within[made.seed.read] = _edited(edit, within[made.seed.read], seeds)
    return Made(packed, read, max(sum(map(len, packed.values())), sum(map(len, within.values()))))


def _edited(edit: Edit, data: bytes, seeds: list[Seed]) -> bytes:
    rng = random.Random(edit.seed)
    other = rng.choice(list(rng.choice(seeds).files.values()))
    return getattr(mutations, edit.how)(rng, data, other) if data else data


def shrunk(made: Case, fails: Callable[[Case], bool]) -> Case:
    """The case with as few of its edits as still fail."""
    for edit in made.edits:
        fewer = made._replace(edits=tuple(each for each in made.edits if each != edit))
        if fails(fewer):
            made = fewer
    return made


def write(files: dict[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def judge(load: Load, made: Made, folder: Path) -> Verdict:
    """Write the files into ``folder``, load the table and use it, under a clock and a measure of memory.

    ``tracemalloc`` must be tracing: it sees what Python and NumPy take, touched or not; the process's own
    peaks (resident and mapped) what other libraries do.
    """
    write(made.files, folder)
    path = folder / made.read
    allowed = (TableFormatError, CheckpointError) if path.is_dir() else (TableFormatError,)
    unraised: list[str] = []
    memory = _Memory()
    start = time.perf_counter()
    table = None
    try:
        with _clock(), _unraisable_into(unraised), warnings.catch_warnings():
            warnings.simplefilter("error")
            table = load(path)
            grown = memory.grown()
            check(table)
            kind, words = "loaded", ""
            del table
            gc.collect()
    except allowed as error:
        kind, words, grown = "refused", str(error), memory.grown()
        if not words or "\n" in words:
            kind = f"{type(error).__name__} without words, or with more than a line of them"
    except HungError:
        kind, words, grown = f"took over {SECONDS} s", traceback.format_exc(limit=-8), memory.grown()
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        kind, words, grown = type(error).__name__, traceback.format_exc(limit=-8), memory.grown()
    seconds = time.perf_counter() - start
    if kind in ("loaded", "refused"):
        if unraised:
            kind, words = "a warning or error that no one catches", unraised[0]
        elif grown > 4 * made.size + (MEGABYTES << 20):
            kind, words = "took too much memory", f"{grown >> 20:,} MB for {made.size:,} bytes; {words}"
    return Verdict(kind, words, seconds, grown)


def check(table: Table) -> None:
    """``AssertionError`` if the parts of a loaded table don't hold together."""
    rows, dim = table.weight.shape
    assert rows == len(table) == len(table.vocab), "rows and tokens"
    assert dim == table.dim, "width"
    assert table.output is None or table.output.shape == (rows, dim), "output"
    tokens = list(table.vocab)
    assert len(tokens) == rows, "tokens"
    assert all(isinstance(token, str) for token in tokens), "text"
    assert "".join(tokens).encode("utf-8", "surrogateescape") == table.vocab.data.tobytes(), "bytes of tokens"
    for matrix in (table.weight, table.output):
        assert matrix is None or np.asarray(matrix, np.float32).shape == (rows, dim), "numbers"
    assert table.lookup([0, rows - 1]).shape == (2, dim), "lookup"
    assert table.vocab[rows - 1] == tokens[-1], "last token"
    json.dumps(table.provenance)
    repr(table)
    if table.tokenizer is not None:
        table.tokenizer.encode("the cat é")


@contextmanager
def _clock() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _unraisable_into(kept: list[str]) -> Iterator[None]:
    """What is raised where no one can catch it, such as a file's that was left open."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda found: kept.append(repr(found.exc_value))
    try:
        yield
    finally:
        sys.unraisablehook = before


class _Memory:
    """How much the process takes from now on: the largest of what tracemalloc and the kernel's peaks say."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak of what is resident begins anew
        tracemalloc.reset_peak()
        self._traced = tracemalloc.get_traced_memory()[0]
        self._before = _status()

    def grown(self) -> int:
        now = _status()
        traced = tracemalloc.get_traced_memory()[1] - self._traced
        resident = now["VmHWM"] - self._before["VmRSS"]
        mapped = now["VmPeak"] - self._before["VmSize"] if now["VmPeak"] > self._before["VmPeak"] else 0
        return max(traced, resident, mapped)


def _status() -> dict[str, int]:
    found = re.findall(r"^(Vm\w+):\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return {name: int(kilobytes) << 10 for name, kilobytes in found}
