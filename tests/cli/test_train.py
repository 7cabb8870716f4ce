import json
import os
import pty
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

import tokenspace as ts
from tokenspace import formats
from tokenspace.cli import main

from .conftest import run_here

TEXT = "the cat chased the mouse .\nthe dog chased the mouse .\nThe king ruled the land .\n" * 400


def train(folder, *arguments: str) -> subprocess.CompletedProcess:
    return run_here(folder, "train", *arguments)


def on_terminal(commands, folder, *arguments: str, stdout: int, **environment: str) -> bytes:
    """All that a run that succeeds writes to stderr, a pseudo-terminal."""
    ours, theirs = pty.openpty()
    with open(os.devnull) as nothing:
        process = commands.start(
            *("-m", "tokenspace", "train", *arguments),
            stdin=nothing.fileno(),
            stdout=stdout,
            stderr=theirs,
            cwd=folder,
            env=os.environ | environment,
        )
    os.close(theirs)
    seen = sent_to(ours)
    assert process.wait() == 0
    return seen


def sent_to(terminal: int) -> bytes:
    """All that a process writes to a pseudo-terminal until it ends."""
    seen = b""
    try:
        while block := os.read(terminal, 4096):
            seen += block
    except OSError:  # the terminal is gone when the process is
        pass
    os.close(terminal)
    return seen


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


def test_one_command_and_no_flags_but_o(folder):
    result = train(folder, "text.txt", "-o", "table.safetensors")
    assert result.returncode == 0, result.stderr
    assert "table.safetensors: 12 tokens × 100, of which special: [PAD] [UNK] [SEP]\n" in result.stdout
    assert "minimum count" in result.stderr
    assert "tokens/s, loss" in result.stderr
    table = ts.load(folder / "table.safetensors")
    assert {"the", "cat", "mouse", "."} <= set(table.vocab)
    assert np.abs(table["cat"]).max() > 0.01


def test_a_rerun_with_one_thread_gives_the_same_bytes(folder):
    for name in ("a", "b"):
        assert train(folder, "text.txt", "-o", name, "--threads", "1", "--seed", "1").returncode == 0
    assert train(folder, "text.txt", "-o", "c", "--threads", "1", "--seed", "2").returncode == 0
    first, second, other = ((folder / name).read_bytes() for name in "abc")
    assert first == second
    assert first != other


@pytest.mark.slow
def test_a_megabyte_of_plain_text(tmp_path):
    rng = np.random.default_rng(0)
    words = np.char.add("w", rng.zipf(1.2, 260_000).clip(max=30_000).astype(str)).reshape(-1, 20)
    (tmp_path / "text.txt").write_text("\n".join(" ".join(line) for line in words))
    assert (tmp_path / "text.txt").stat().st_size > 1_000_000
    assert train(tmp_path, "text.txt", "-o", "t").returncode == 0
    for name in ("a", "b"):
        once = ("--threads", "1", "--seed", "1", "--epochs", "1")
        assert train(tmp_path, "text.txt", "-o", name, *once).returncode == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_json_holds_the_run(folder):
    result = train(folder, "text.txt", "-o", "t", "--json", "--epochs", "3", "--dim", "8")
    run = json.loads(result.stdout)
    assert set(run) == {
        "tokens", "vocabulary", "epochs", "seconds", "tokens_per_second", "loss", "output",
    }  # fmt: skip
    assert (run["tokens"], run["vocabulary"], run["epochs"]) == (3 * 7200, 9 + 3, 3)
    assert run["loss"] > 0
    assert run["output"] == "t"


def test_snapshots_lie_beside_the_table(folder):
    assert train(folder, "text.txt", "-o", "t.safetensors", "--snapshots", "2").returncode == 0
    assert sorted(os.listdir(folder)) == [
        "t.loss.jsonl", "t.safetensors", "t.snapshot-1.safetensors", "t.snapshot-2.safetensors", "text.txt",
    ]  # fmt: skip
    early, late = (ts.load(folder / f"t.snapshot-{n}.safetensors") for n in (1, 2))
    assert np.linalg.norm(early["cat"]) < np.linalg.norm(late["cat"])


def test_tokenizers(folder):
    assert train(folder, "text.txt", "-o", "kept", "--keep-case").returncode == 0
    assert {"The", "the"} <= set(ts.load(folder / "kept").vocab)
    assert train(folder, "text.txt", "-o", "bpe", "--tokenizer", "bpe", "--vocab-size", "270").returncode == 0
    bpe = ts.load(folder / "bpe")
    assert bpe.vocab.encoding == "byte-level"
    (folder / "tokenizer.json").write_text(bpe.tokenizer.to_json())
    assert train(folder, "text.txt", "-o", "own", "--tokenizer", "tokenizer.json").returncode == 0
    assert list(ts.load(folder / "own").vocab) == list(bpe.vocab)


@pytest.mark.parametrize(("kind", "encoding"), [("wordpiece", "wordpiece"), ("unigram", "sentencepiece")])
def test_pieces_are_learned_and_trained_and_a_rerun_gives_the_same_bytes(folder, kind, encoding):
    for out in ("one", "two"):
        learned = train(
            folder, "text.txt", "-o", out, "--tokenizer", kind, "--vocab-size", "60", "--threads", "1"
        )
        assert learned.returncode == 0, learned.stderr
    table = ts.load(folder / "one")
    assert (table.tokenizer.kind, table.vocab.encoding) == (kind, encoding)
    assert (folder / "one").read_bytes() == (folder / "two").read_bytes()


def test_a_name_in_another_format_is_a_usage_mistake(folder):
    result = train(folder, "text.txt", "-o", "t.vec")
    assert result.returncode == 2
    assert "names the format word2vec-text, which can't hold all of a trained table" in result.stderr
    assert not (folder / "t.vec").exists()


def test_a_table_trained_from_several_files(folder):
    (folder / "more.txt").write_text("zebra crossing\n" * 50)
    assert train(folder, "text.txt", "more.txt", "-o", "t").returncode == 0
    assert "zebra" in ts.load(folder / "t").vocab


def start_long_training(folder, *arguments: str) -> subprocess.Popen:
    (folder / "long.txt").write_text(TEXT * 60)
    command = [sys.executable, "-m", "tokenspace", "train", "long.txt", "-o", "t", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_what_there_is(folder, number):
    process = start_long_training(folder, "--epochs", "1000", "--snapshots", "1000", "--json")
    while "snapshot 1 of" not in process.stderr.readline():
        pass
    process.send_signal(number)
    output, messages = process.communicate(timeout=60)
    assert process.returncode == 130, messages
    assert "interrupted after" in messages
    assert "Traceback" not in messages
    table = ts.load(folder / "t")
    assert 0 < table.provenance["interrupted_at"] < 1
    run = json.loads(output)
    assert run["interrupted_at"] == table.provenance["interrupted_at"]
    assert 0 < run["tokens"] < 1000 * 60 * 7200


# What Python says, not we, to Ctrl-C before it runs our code, or amid the lock of an import.
PYTHON_STARTS = ("init_import_site", "Could not import runpy module", "_get_module_lock")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.05, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5])
def test_ctrl_c_at_any_moment_ends_it(folder, seconds):
    process = start_long_training(folder, "--epochs", "1000")
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    try:
        _, messages = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:  # Python swallows what hits it between two imports; people press again
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=60)
    if any(part in messages for part in PYTHON_STARTS):
        return
    assert process.returncode in (130, -signal.SIGINT), messages  # the latter before Python runs our code
    assert "Exception ignored" not in messages
    left = {path.name for path in folder.iterdir()} - {"text.txt", "long.txt"}
    if (folder / "t").exists():
        assert {"t", "t.training"} <= left <= {"t", "t.loss.jsonl", "t.training"}
        assert 0 <= ts.load(folder / "t").provenance["interrupted_at"] < 1  # rounded: a first step is 0
    elif process.returncode == 130:
        assert left <= {"t.loss.jsonl", "t.training"}
        assert ("t.training" in left) == ("--resume goes on" in messages)


def test_the_first_ctrl_c_lets_a_save_finish(folder, monkeypatch):
    save = formats.save

    def slow_save(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        save(*arguments)

    monkeypatch.setattr(formats, "save", slow_save)
    arguments = ["train", str(folder / "text.txt"), "-o", str(folder / "t"), "--epochs", "1"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert len(ts.load(folder / "t")) == 12


def test_the_loss_said_is_the_runs_not_the_clocks(folder):
    runs = [train(folder, "text.txt", "-o", "t", "--threads", "1", "--json").stdout for _ in range(2)]
    losses = {json.loads(run)["loss"] for run in runs}
    assert losses == {ts.load(folder / "t").provenance["loss"]}


def test_a_terminal_sees_progress(commands, folder):
    with open(os.devnull, "wb") as stdout:
        seen = on_terminal(
            commands, folder, "text.txt", "-o", "t", "--epochs", "1000", stdout=stdout.fileno()
        )
    for part in (b"epoch ", b"/1000", b"tokens/s", b"loss ", b" left"):
        assert part in seen


@pytest.mark.parametrize("json_too", [[], ["--json"]], ids=["plain", "json"])
def test_a_terminal_sees_the_loss_curve_at_the_end(commands, folder, json_too):
    arguments = ("text.txt", "-o", "t", "--snapshots", "3", *json_too)
    with (folder / "stdout").open("wb") as stdout:
        seen = on_terminal(commands, folder, *arguments, stdout=stdout.fileno(), COLUMNS="60", NO_COLOR="1")
    stdout = (folder / "stdout").read_text()
    curve = seen.decode().split("loss\r\n")[-1]
    assert any("⠀" < glyph <= "⣿" for glyph in curve)
    assert "tokens, epoch 50 of 50" in curve
    assert "│" not in stdout
    assert stdout.count("\n") == 1


def test_a_pipe_sees_no_curve(folder):
    result = train(folder, "text.txt", "-o", "t", "--snapshots", "3")
    assert "│" not in result.stderr + result.stdout
    assert "75%: snapshot 3 of" in result.stderr
