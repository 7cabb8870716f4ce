"""Bad input: one line on stderr, status 1 (usage mistakes: 2), nothing on stdout, nothing half-written."""

import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

import tokenspace as ts


@pytest.fixture
def run(commands):
    """``run(*arguments)``: what the command gives in a process of its own."""

    def run(*arguments: str, stdin: str | bytes = b"", cwd=None) -> subprocess.CompletedProcess:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        run = commands.run("-m", "tokenspace", *arguments, stdin=data, cwd=cwd)
        run.out, run.err = run.stdout.decode(), run.stderr.decode()
        return run

    return run


@pytest.fixture
def folder(tmp_path):
    """A place with one of each thing that is not what it should be."""
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "blank.txt").write_text("\n \n\n")
    (tmp_path / "rare.txt").write_text("every word here is different\n")
    (tmp_path / "short.vec").write_text("2 3\na 1 2 3\nb 1 2\n")
    (tmp_path / "junk.bin").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "good.txt").write_text("the cat sat on the mat\n" * 50)
    (tmp_path / "good.x").write_text("the cat sat on the mat\n" * 50)
    (tmp_path / "good.snapshot-1.x").write_text("the cat sat on the mat\n" * 50)
    (tmp_path / "directory").mkdir()
    far = ts.Table(np.full((2, 2), 3e38, np.float32), ts.Vocab(["far", "away"]))
    ts.save(far, tmp_path / "far.safetensors")
    wrong = {
        "weight": np.ones((3, 2), np.float32),
        "tokens.bytes": np.frombuffer(b"ab", np.uint8),
        "tokens.offsets": np.array([0, 1, 2], np.int64),
    }
    about = {"tokenspace": '{"format": 1, "special": [], "encoding": "word", "provenance": {}}'}
    save_file(wrong, tmp_path / "rows.safetensors", about)
    right = wrong | {"weight": np.array([[1, np.nan], [1, 2]], np.float32)}
    save_file(right, tmp_path / "nan.safetensors", about)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["neighbors", "kingg"], "'kingg' is not one of the"),
        (["neighbors", "kingg"], "close spellings: 'king'"),
        (["similarity", "cat", "blorfle"], "'blorfle' is not one of the"),
        (["analogy", "man", "king", "womann"], "'womann' is not one of the"),
        (["neighbors", "king", "-t", "nothing-there"], "there is no table 'nothing-there'"),
        (["neighbors", "king", "-t", "junk.bin"], "junk.bin"),
        (["neighbors", "king", "-t", "directory"], "is an empty folder"),
        (["neighbors", "a", "-t", "nan.safetensors"], "row 0 of the table, token 'a', holds NaN"),
        (["neighbors", "a", "-t", "rows.safetensors"], "weight has 3 rows for a vocabulary of 2 tokens"),
        (["embed", ""], "a text is empty"),
        (["embed", "  \t "], "a text is empty"),
        (["embed", "the", "--pair", ""], "a text is empty"),
        (["embed", "the cat", "-t", "rows.safetensors"], "weight has 3 rows"),
        (["embed", "a b", "-t", "nan.safetensors"], "'lookup' gives NaN or infinity for token 'a'"),
        (["embed", "cat", "--gradient"], "at least two tokens"),
        (["embed", "the " * 600, "--recipe", "bert"], "600 positions are needed"),
        (["embed", "cat", "--split", "nothing"], "no tokenizer at nothing"),
        (["embed", "cat", "--split", "junk.bin"], "junk.bin is no tokenizer.json"),
        (
            ["neighbors", "a", "-t", "short.vec"],
            "short.vec, line 3 (byte 12): a token and 2 numbers, where 3",
        ),
        (["convert", "short.vec", "out"], "short.vec, line 3 (byte 12)"),
        (["convert", "junk.bin", "out"], "junk.bin is no table in a format known here"),
        (["convert", "nothing", "out"], "there is no table 'nothing'"),
        (["convert", "nan.safetensors", "out.npy"], "token 'a', holds NaN"),
        (["convert", "wordnet", "directory"], "it is a directory"),
        (["convert", "wordnet", "no/such/place.vec"], "there is no directory"),
        (["train", "missing.txt", "-o", "out"], "missing.txt"),
        (["train", "empty.txt", "-o", "out"], "empty"),
        (["train", "blank.txt", "-o", "out"], "blank.txt"),
        (["train", "rare.txt", "-o", "out", "--min-count", "5"], "minimum count"),
        (["train", "junk.bin", "-o", "out"], "junk.bin"),
        (["train", "directory", "-o", "out"], "directory"),
        (["train", "good.txt", "-o", "directory"], "it is a directory"),
        (["train", "good.txt", "-o", "no/such/place"], "there is no directory"),
        (["train", "good.x", "-o", "good.x"], "it is the text to learn from"),
        (
            ["train", "good.txt", "-o", "x", "--min-count", "1", "--epochs", "1", "--sample", "1e-9"],
            "thinned all 300 tokens",
        ),
        (
            ["train", "good.snapshot-1.x", "-o", "good.x", "--snapshots", "1"],
            "it is the text to learn from",
        ),
        (["neighbors", "king", "-t", "x" * 5000], "File name too long"),
        (["neighbors", "king", "-t", ""], "no table was named"),
        (["neighbors", "far", "-t", "far.safetensors"], "leave float32"),
        (["train", "good.txt", "-o", "out", "--sample", "nan"], "sample"),
        (["train", "good.txt", "-o", "out", "--tokenizer", "nothing.json"], "no tokenizer at nothing.json"),
        (["train", "good.txt", "-o", "out", "--tokenizer", "junk.bin"], "is no tokenizer.json"),
    ],
    ids=lambda value: " ".join(value)[:50].strip() if isinstance(value, list) else None,
)
def test_one_line_and_status_1(run, folder, arguments, message):
    before = sorted(os.listdir(folder))
    result = run(*arguments, cwd=folder)
    assert result.returncode == 1, result.err
    assert message in result.err
    assert result.err.startswith("Error: ")
    assert result.err.count("\n") == 1
    assert result.out == ""
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["neighbors", "king", "-k", "0"],
        ["neighbors", "king", "--metric", "nearest"],
        ["embed", "a", "--seed", "-1"],
        ["train", "good.txt", "-o", "out", "--dim", "0"],
        ["train", "good.txt", "-o", "out", "--epochs", "-1"],
        ["train", "good.txt", "-o", "out", "--vocab-size", "100"],
        ["train", "good.txt", "-o", "out", "--tokenizer", "own.json", "--keep-case"],
        ["analogy", "man", "king"],
        ["similarity", "one"],
        ["embed", "a", "--recipe", "bret"],
        ["convert", "wordnet"],
        ["convert", "wordnet", "out", "--to", "word2vec"],
        ["train", "good.txt", "-o", "out.npy"],
        ["train", "good.txt"],
        ["train", "-o", "out"],
        ["train", "good.txt", "-o", "out", "--tokenizer", "bpe", "--min-count", "3"],
    ],
    ids=" ".join,
)
def test_usage_mistakes_are_status_2(run, folder, arguments):
    result = run(*arguments, cwd=folder)
    assert result.returncode == 2, result.err
    assert "Usage:" in result.err
    assert "Traceback" not in result.err
    assert not (folder / "out").exists()


def test_bad_stdin(run, folder):
    assert "--pair goes with one text" in run("embed", "--pair", "b", stdin="one\ntwo\n").err
    assert "3 words, found 2" in run("analogy", stdin="man king\n").err
    result = run("neighbors", stdin=b"caf\xe9\xff\n")
    assert (result.returncode, result.err.count("\n")) == (1, 1)
    for verb in ("embed", "neighbors", "analogy", "similarity"):
        result = run(verb, stdin=" \n")
        assert (result.returncode, result.err.count("\n")) == (1, 1)
        assert "stdin is empty" in result.err
    result = run("similarity", stdin="cat dog\ncat\n")
    assert (result.returncode, result.out) == (1, "")
    assert "line 2 of stdin must be A B [C]...: 2 words or more, found 1" in result.err


def test_a_traceback_only_on_request(run):
    assert "Traceback" in run("--debug", "neighbors", "kingg").err
    assert "Traceback" not in run("neighbors", "kingg").err


def test_a_reader_that_stops_early_is_no_error():
    command = f"{sys.executable} -m tokenspace neighbors king -k 20000 | head -1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""


@pytest.mark.parametrize("arguments", ["neighbors king", "embed cat", "embed cat --json", "--help"])
def test_a_full_disk_behind_stdout_is_one_line(arguments):
    command = f"{sys.executable} -m tokenspace {arguments} > /dev/full"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "Error: stdout: No space left on device\n"


def test_a_closed_stderr_does_not_stop_training(folder):
    command = f"NUMBA_CACHE_DIR=cache {sys.executable} -m tokenspace train good.txt -o out 2>&-"
    result = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert (folder / "out").exists()


def test_what_is_typed_can_not_drive_the_terminal(run, tmp_path):
    tokenizer = ts.Tokenizer.train_from_iterator(["a b c"] * 3, kind="bpe", vocab_size=300)
    table = ts.Table(np.ones((len(tokenizer.vocab), 2), np.float32), tokenizer.vocab, tokenizer)
    ts.save(table, tmp_path / "t")
    result = run("neighbors", "k\x1b[31mred\nx", "-t", str(tmp_path / "t"))
    assert result.returncode == 0
    assert "\x1b" not in result.err
    assert result.err.count("\n") == 1


def test_a_file_name_can_not_drive_the_terminal_either(run, tmp_path):
    result = run("train", "no\x1b[31msuch\nfile", "-o", "out", cwd=tmp_path)
    assert result.returncode == 1
    assert "\x1b" not in result.err
    assert "no\\x1b[31msuch" in result.err
    assert result.err.count("\n") == 1


def test_a_byte_order_mark_and_any_encoding_of_the_terminal():
    def run(text: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "tokenspace", "neighbors", "-k", "1"]
        ascii_alone = os.environ | {"PYTHONIOENCODING": "ascii"}
        return subprocess.run(command, input=text.encode(), capture_output=True, env=ascii_alone, check=False)

    assert run("\ufeffthree\n").stdout == b"0.7528  two\n"
    assert "'cafés' is not one of" in run("cafés").stderr.decode()


def test_a_zero_row_is_said_to_have_no_direction(run):
    assert "is all zeros" in run("neighbors", "[PAD]", "-k", "1").err


def test_unwritable_output_is_told_before_training(run, folder):
    ts.save(ts.Table(np.ones((1, 1), np.float32), ts.Vocab(["a"])), folder / "old")
    before = (folder / "old").read_bytes()
    result = run("train", "empty.txt", "-o", "old", cwd=folder)
    assert result.returncode == 1
    assert (folder / "old").read_bytes() == before
