"""`tokenspace train` over more than one process, from stdin and patterns, with scores; `tokenspace loss`."""

import gzip
import json
import os
import pty
import signal
import subprocess
import sys

import numpy as np
import pytest

import tokenspace as ts

from .conftest import run_here

TEXT = "the cat chased the mouse .\nthe dog chased the mouse .\nThe king ruled the land .\n" * 400


def train(folder, *arguments: str, stdin: str | None = None):
    return run_here(folder, "train", *arguments, stdin=stdin)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


@pytest.fixture
def killed(folder):
    """A run that was killed (SIGKILL) once it had told of its first checkpoint."""
    (folder / "long.txt").write_text(TEXT * 20)
    command = [sys.executable, "-m", "tokenspace", "train", *LONG]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE)
    while not (folder / "t.training" / "state.safetensors").exists():
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (folder / "t").exists()
    return folder


LONG = (
    "long.txt",
    "-o",
    "t",
    "--threads",
    "1",
    "--epochs",
    "80",
    "--checkpoint-minutes",
    "0.001",
    "--dim",
    "8",
)


def test_a_killed_run_goes_on_with_resume_and_not_without(killed):
    refused = train(killed, *LONG)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        "Error: t.training holds an unfinished run; go on with it (--resume, resume=True), "
        "or delete that folder to begin anew\n"
    )
    other = train(killed, *LONG, "--resume", "--seed", "3")
    assert (other.returncode, other.stderr.count("\n")) == (1, 1)
    assert "other settings (seed 1 then, 3 now)" in other.stderr

    resumed = train(killed, *LONG, "--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert "going on where" in resumed.stderr
    told = json.loads(resumed.stdout)  # of what this process did
    assert 0 < told["tokens"] < 80 * 20 * 7200
    assert told["tokens_per_second"] == pytest.approx(told["tokens"] / told["seconds"], rel=0.01)
    assert not (killed / "t.training").exists()

    whole = train(killed, *("u" if argument == "t" else argument for argument in LONG))
    assert whole.returncode == 0
    assert (killed / "t").read_bytes() == (killed / "u").read_bytes()


def test_a_finished_output_is_said_to_be_and_not_touched(folder):
    assert train(folder, "text.txt", "-o", "t", "--epochs", "2").returncode == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = train(folder, "text.txt", "-o", "t", "--epochs", "2", "--resume")
    assert again.returncode == 0
    assert again.stderr == "t is finished: there is nothing to resume, nothing was changed\n"
    assert again.stdout == "t: 12 tokens × 100, of which special: [PAD] [UNK] [SEP]\n"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    told = json.loads(train(folder, "text.txt", "-o", "t", "--epochs", "2", "--resume", "--json").stdout)
    assert (told["tokens"], told["tokens_per_second"]) == (0, None)


def test_text_from_stdin_patterns_and_compressed_files(folder):
    (folder / "more.gz").write_bytes(gzip.compress(b"zebra crossing\n" * 50))
    words = train(folder, "-", "more.gz", "-o", "stdin", stdin=TEXT)
    assert words.returncode == 0, words.stderr
    assert {"cat", "zebra"} <= set(ts.load(folder / "stdin").vocab)
    names = [file["name"] for file in ts.load(folder / "stdin").provenance["corpus"]]
    assert names == ["stdin", "more.gz"]
    assert train(folder, "*.txt", "m?re.gz", "-o", "glob").returncode == 0
    assert {"cat", "zebra"} <= set(ts.load(folder / "glob").vocab)
    pieces = train(folder, "-", "-o", "pieces", "--tokenizer", "bpe", "--vocab-size", "270", stdin=TEXT)
    assert pieces.returncode == 0, pieces.stderr
    assert ts.load(folder / "pieces").vocab.encoding == "byte-level"


def test_words_between_white_space(folder):
    (folder / "text.txt").write_text("don't stop. don't stop. now!\n" * 30)
    assert (
        train(folder, "text.txt", "-o", "t", "--tokenizer", "whitespace", "--min-count", "2").returncode == 0
    )
    table = ts.load(folder / "t")
    assert set(table.vocab) == {"[PAD]", "[UNK]", "[SEP]", "don't", "stop.", "now!"}
    assert table.provenance["settings"]["words"] == "whitespace"


def test_pretrained_rows_and_scores(folder):
    (folder / "pairs.tsv").write_text("cat dog 9\ncat land 1\nking land 5\n")
    (folder / "questions.txt").write_text(": section\ncat dog king land\n")
    arguments = (
        "--init",
        "wordnet",
        "--evaluate",
        "pairs.tsv",
        "--evaluate",
        "questions.txt",
        "--epochs",
        "2",
    )
    result = train(folder, "text.txt", "-o", "t", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    assert "9 of 9 tokens start from pretrained rows" in result.stderr
    assert "epoch 2/2: pairs.tsv: ρ " in result.stderr
    scores = json.loads(result.stdout)["scores"]
    assert [score["file"] for score in scores] == ["pairs.tsv", "questions.txt"]
    table = ts.load(folder / "t")
    assert table.provenance["scores"] == scores
    assert table.provenance["init"]["matched"] == 9
    lines = [json.loads(line) for line in (folder / "t.loss.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if "scores" in line] == [1, 2]


def test_a_table_from_a_language_model(folder):
    arguments = ("--objective", "lm", "--dim", "16", "--layers", "1", "--heads", "2", "--context", "16")
    files = ("text.txt", "-o", "t", "--vocab-size", "270", "--epochs", "1", "--threads", "1")
    result = train(folder, *files, *arguments, "--checkpoint", "model", "--json")
    assert result.returncode == 0, result.stderr
    about = json.loads(result.stdout)
    assert about["perplexity"] == pytest.approx(np.exp(about["loss"]), rel=1e-3)
    assert "perplexity" in result.stderr
    table = ts.load(folder / "t")
    assert table.dim == 16
    assert table.provenance["objective"].startswith("next token")
    assert (folder / "model" / "config.json").exists()
    assert sorted(os.listdir(folder)) == ["model", "t", "t.loss.jsonl", "text.txt"]
    before = (folder / "t").read_bytes()
    again = train(folder, *files, *arguments, "--resume")
    assert again.stderr == "t is finished: there is nothing to resume, nothing was changed\n"
    other = train(folder, *files, *arguments, "--resume", "--seed", "2")
    assert (other.returncode, other.stderr.count("\n")) == (1, 1)
    assert "other settings: seed 1, not 2" in other.stderr
    assert (folder / "t").read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "model"), [("word", "WordLevel"), ("whitespace", "WordLevel"), ("wordpiece", "WordPiece")]
)
def test_a_language_model_of_other_tokens_than_byte_pairs(folder, kind, model):
    sizes = ("--dim", "8", "--layers", "1", "--heads", "1", "--context", "16", "--vocab-size", "40")
    arguments = ("-", "-o", "t", "--objective", "lm", *sizes, "--epochs", "1", "--tokenizer", kind)
    assert train(folder, *arguments, stdin=TEXT).returncode == 0
    table = ts.load(folder / "t")
    assert table.provenance["tokenizer"]["model"] == model
    assert table.tokenizer.kind == kind
    assert len(table) <= 40


def test_a_full_disk_is_one_line_and_what_was_learned_stays(folder):
    """A limit on the size of files, which the table is larger than, stands for a full disk."""
    (folder / "wide.txt").write_text("\n".join(f"{n} {n + 1} {n + 2}" for n in range(3000)))
    arguments = ("wide.txt", "-o", "t", "--dim", "300", "--min-count", "1", "--epochs", "1")
    limited = [
        "bash",
        "-c",
        'ulimit -f 2000; exec "$@"',
        "-",
        sys.executable,
        "-m",
        "tokenspace",
        "train",
        *arguments,
    ]
    full = subprocess.run(limited, cwd=folder, capture_output=True, text=True, check=False)
    assert (full.returncode, full.stdout) == (1, "")
    last = full.stderr.splitlines()[-1]
    assert last.startswith("Error: can't write t: ")
    assert last.endswith("mend that, then go on with --resume (resume=True)")
    assert not (folder / "t").exists()
    assert train(folder, *arguments, "--resume").returncode == 0
    assert len(ts.load(folder / "t")) == 3005


@pytest.mark.slow
def test_a_killed_language_model_goes_on_to_the_same_bits_and_needs_no_stdin(torch_forks, folder):
    sizes = ("--dim", "16", "--layers", "1", "--heads", "2", "--context", "16", "--vocab-size", "270")
    arguments = ("-", "--objective", "lm", *sizes, "--epochs", "2", "--threads", "1")
    assert train(folder, *arguments, "-o", "whole", stdin=TEXT).returncode == 0
    command = ("-m", "tokenspace", "train", *arguments, "-o", "t")
    with (folder / "text.txt").open() as stdin:
        running = torch_forks.start(
            *(*command, "--checkpoint-minutes", "0.001"), stdin=stdin.fileno(), stdout=1, stderr=2, cwd=folder
        )
    while not (folder / "t.training" / "state.safetensors").exists():
        os.kill(running.pid, 0)  # it runs
    os.kill(running.pid, signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    ours, theirs = pty.openpty()  # a terminal, where nobody types
    with (folder / "stderr").open("wb") as stderr:
        resumed = torch_forks.start(
            *(*command, "--resume"), stdin=theirs, stdout=1, stderr=stderr.fileno(), cwd=folder
        )
        status = resumed.wait()
    os.close(ours)
    os.close(theirs)
    messages = (folder / "stderr").read_text()
    assert status == 0, messages
    assert "going on where" in messages
    assert (folder / "t").read_bytes() == (folder / "whole").read_bytes()
    assert not (folder / "t.training").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["text.txt", "-o", "t", "--window", "3", "--objective", "lm"],
            "--window is for --objective skipgram",
        ),
        (["text.txt", "-o", "t", "--heads", "3"], "--heads is for --objective lm, and this is skipgram"),
        (["text.txt", "-o", "t", "--tokenizer", "whitespace", "--vocab-size", "9"], "bounded by --min-count"),
        (["text.txt", "-o", "t", "--checkpoint-minutes", "-1"], "--checkpoint-minutes"),
        (["text.txt", "-o", "t", "--snapshots", "99999999999999"], "0<=x<=10000"),
    ],
)
def test_usage_mistakes(folder, arguments, message):
    result = train(folder, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert os.listdir(folder) == ["text.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["text.txt", "-o", "t", "--init", "nothing"], "there is no table 'nothing'"),
        (["text.txt", "-o", "t", "--init", "wordnet", "--dim", "7"], "has width 100, and dim is 7"),
        (["text.txt", "-o", "t", "--evaluate", "nothing"], "there is no file nothing"),
        (["text.txt", "-o", "t", "--evaluate", "text.txt"], "text.txt, line 1"),
        (["no*.txt", "-o", "t"], "no file matches no*.txt"),
        (["-", "-o", "t"], "no token"),
        (["text.txt", "t.loss.jsonl", "-o", "t"], "it is the text to learn from"),
        (["text.txt", "-o", "t", "--evaluate", "t.loss.jsonl"], "it is a file to evaluate with"),
        (["text.txt", "-o", "."], "it is a directory"),
        (["text.txt", "-o", "t", "--objective", "lm", "--checkpoint", "text.txt"], "a model takes a folder"),
    ],
)
def test_what_can_not_be_is_one_line(folder, arguments, message):
    (folder / "t.loss.jsonl").write_text("some text")
    result = train(folder, *arguments, stdin="")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert message in result.stderr
    assert sorted(os.listdir(folder)) == ["t.loss.jsonl", "text.txt"]
    assert (folder / "t.loss.jsonl").read_text() == "some text"


def test_the_curve_of_a_run(folder):
    assert train(folder, "text.txt", "-o", "t", "--epochs", "9", "--threads", "1").returncode == 0
    drawn = run_here(folder, "loss", "t.loss.jsonl")
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert "64,800 tokens, epoch 9 of 9" in drawn.stdout
    document = json.loads(run_here(folder, "loss", "t.loss.jsonl", "--json").stdout)
    assert document["tokens"] == [7200 * n for n in range(1, 10)]
    assert document["losses"][0] > document["losses"][-1]
    page = run_here(folder, "loss", "t.loss.jsonl", "-o", "curve.html")
    assert page.stdout == "curve.html: 9 losses until 64,800 tokens, epoch 9 of 9\n"
    assert '"y":' in (folder / "curve.html").read_text()
    wrong = run_here(folder, "loss", "text.txt")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
    assert "text.txt, line 1 is no loss" in wrong.stderr
