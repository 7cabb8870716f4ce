"""A few hundred mutated files, and proof that a reader which errs is found out."""

import gc
import importlib
import os
import re
import subprocess
import sys
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest

import tokenspace as ts
from tokenspace.errors import MissingExtra, TableFormatError

FILES = 250
SEED = 7


@pytest.fixture(scope="module")
def fuzzing():
    """The module beside this file, which is no package."""
    folder = str(Path(__file__).parent)
    sys.path.insert(0, folder)
    yield importlib.import_module("fuzzing")
    sys.path.remove(folder)


@pytest.fixture(scope="module")
def seeds(fuzzing):
    return importlib.import_module("fuzz_seeds").seeds()


@pytest.fixture(scope="module")
def _measured(seeds):
    """Under a measure of memory; what is there already is not looked at when garbage is collected."""
    tracemalloc.start()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    tracemalloc.stop()


@pytest.fixture
def judged(_measured, fuzzing, seeds, tmp_path):
    """``judged(case, load)``: what the reader makes of the case's files."""

    def judge(case, load=ts.load):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        return fuzzing.judge(load, fuzzing.files_of(case, seeds), folder)

    return judge


def test_what_is_sound_loads_and_what_is_mutated_loads_or_is_refused(fuzzing, seeds, judged):
    for seed in seeds:
        judged(fuzzing.Case(seed, ()))  # what libraries load once is not counted
        verdict = judged(fuzzing.Case(seed, ()))
        assert verdict.kind == "loaded", (seed.name, verdict)
    kinds = []
    for n in range(FILES):
        case = fuzzing.case(seeds, SEED, n)
        verdict = judged(case)
        assert verdict.right, (n, str(case), verdict)
        kinds.append(verdict.kind)
    assert (
        min(kinds.count("loaded"), kinds.count("refused")) > FILES / 20
    )  # damage that is felt, and not too much


def test_a_case_is_the_same_each_time_and_another_for_each_number(fuzzing, seeds):
    cases = [fuzzing.case(seeds, SEED, n) for n in range(50)]
    assert cases == [fuzzing.case(seeds, SEED, n) for n in range(50)]
    assert cases != [fuzzing.case(seeds, SEED + 1, n) for n in range(50)]
    made = [fuzzing.files_of(case, seeds) for case in cases]
    assert made == [fuzzing.files_of(case, seeds) for case in cases]
    sound = [fuzzing.files_of(case._replace(edits=()), seeds) for case in cases]
    assert sum(a != b for a, b in zip(made, sound, strict=True)) > 45


def raising(error):
    def load(path):
        raise error

    return load


def warning(path):
    warnings.warn("stray", DeprecationWarning, stacklevel=1)
    return ts.load(path)


def leaving_open(path):
    (path if path.is_file() else path / "config.json").open("rb")
    return ts.load(path)


def hungry(path):
    np.empty(1 << 27, np.uint8)  # never touched, and gone at once
    return ts.load(path)


def native_memory(path):
    import mmap

    memory = mmap.mmap(-1, 1 << 27)
    memory[::4096] = b"1" * (1 << 15)
    memory.close()
    return ts.load(path)


def sleeping(path):
    time.sleep(9)


def a_row_short(path):
    table = ts.load(path)
    table.vocab = ts.Vocab(list(table.vocab)[1:])
    return table


@pytest.mark.parametrize(
    ("load", "kind"),
    [
        (raising(KeyError("header")), "KeyError"),
        (raising(RecursionError()), "RecursionError"),
        (raising(MissingExtra("it", "torch")), "MissingExtra"),
        (raising(TableFormatError("two\nlines")), "TableFormatError without words"),
        (raising(TableFormatError("")), "TableFormatError without words"),
        (warning, "DeprecationWarning"),
        (leaving_open, "a warning or error that no one catches"),
        (hungry, "took too much memory"),
        (native_memory, "took too much memory"),
        (sleeping, r"took over 0.2 s"),
        (a_row_short, "AssertionError"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_reader_that_errs_is_found_out(load, kind, fuzzing, seeds, judged, monkeypatch):
    if load is sleeping:
        monkeypatch.setattr(fuzzing, "SECONDS", 0.2)
    verdict = judged(fuzzing.Case(seeds[0], ()), load)
    assert verdict.kind.startswith(kind), verdict
    assert not verdict.right


def test_a_refusal_of_another_kind_is_right_for_a_folder_alone(fuzzing, seeds, judged):
    folder = next(seed for seed in seeds if seed.read == ".")
    load = raising(ts.CheckpointError("damaged"))
    assert judged(fuzzing.Case(folder, ()), load).kind == "refused"
    assert judged(fuzzing.Case(seeds[0], ()), load).kind == "CheckpointError"


def test_edits_that_are_not_needed_are_taken_out(fuzzing, seeds):
    case = next(case for n in range(99) if len((case := fuzzing.case(seeds, SEED, n)).edits) == 3)
    kept = case.edits[1]
    assert fuzzing.shrunk(case, lambda fewer: kept in fewer.edits).edits == (kept,)


FATAL = """
import os, tokenspace as ts
calls = 0
def load(path):
    global calls
    calls += 1
    if calls > 45:  # 4 sound files and 40 to warm up, and one that is judged
        os.kill(os.getpid(), 9)
    return ts.load(path)
"""


@pytest.mark.slow
def test_a_reader_that_kills_its_process_is_found_out_and_the_others_go_on(write, tmp_path):
    write("fatal.py", FATAL)
    script = Path(__file__).parent.parent.parent / "benchmarks" / "fuzz_tables.py"
    command = [sys.executable, script, "--files", "5", "--only", "float32", "--load", "fatal:load"]
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [*command, "--keep", tmp_path / "kept"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert run.returncode == 1, run.stderr
    assert re.search(r"^case [23]: numpy, float32.*: the process ended with -9$", run.stdout, re.MULTILINE)
    assert re.search(r"^\| \*\*all\*\* \| 5 \| \d \| \d \| 2 \|", run.stdout, re.MULTILINE)
    (kept,) = (tmp_path / "kept").iterdir()
    assert "the process ended with -9" in (kept / "WHY").read_text()


@pytest.mark.parametrize("content", [r"\udcff", r"\ud800"])
@pytest.mark.parametrize("kind", ["folder, merges.txt", "folder, vocab.txt"])
def test_an_added_token_that_is_half_a_character_is_refused(content, kind, fuzzing, seeds, tmp_path):
    """Found by case 8370 of seed 1."""
    files = next(seed for seed in seeds if seed.name == kind).files
    named = '"tokenizer_class": "GPT2Tokenizer", ' if "merges" in kind else ""
    config = "{" + named + '"added_tokens_decoder": {"5": {"content": "' + content + '"}}}'
    fuzzing.write(files | {"tokenizer_config.json": config.encode()}, tmp_path)
    with pytest.raises(ts.CheckpointError, match="half a character is no token"):
        ts.load(tmp_path)
