"""skipgram(output=…): what lies beside a table, what goes on, and what is refused."""

import gzip
import json
import os
import re
import shutil
import sys

import numpy as np
import pytest

from tokenspace import formats
from tokenspace.errors import CorpusError, OutputError, ShapeError, TableFormatError
from tokenspace.tokenizer import Tokenizer
from tokenspace.train import skipgram, training

LINES = ["the cat chased the mouse .", "the dog chased the mouse .", "the king ruled the land ."]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(LINES * 1500))
    return tmp_path


def train(folder, name="t.safetensors", files="text.txt", **settings):
    defaults = {"dim": 12, "epochs": 6, "threads": 1, "negative": 3}
    return skipgram(folder / files, output=folder / name, **(defaults | settings))


def after(pieces: int):
    """A ``stop`` that says so when that many pieces of training are done."""
    done = 0

    def progress(event):
        nonlocal done
        done += event.phase == "training"

    return {"progress": progress, "stop": lambda: done >= pieces}


@pytest.fixture
def broken_off(folder, monkeypatch):
    """A run that was ended after 7 of its 18 pieces."""
    monkeypatch.setattr(training, "SECONDS_BETWEEN_EVENTS", 0.0)
    table = train(folder, **after(7))
    assert 0.3 < table.provenance["interrupted_at"] < 0.5
    monkeypatch.undo()
    return folder


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def losses(path):
    timed = ("seconds", "tokens_per_second")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in timed} for line in lines]


def test_the_table_and_its_losses_are_all_that_stays(folder):
    table = train(folder)
    assert sorted(os.listdir(folder)) == ["t.loss.jsonl", "t.safetensors", "text.txt"]
    saved = formats.load(folder / "t.safetensors")
    np.testing.assert_array_equal(saved.weight, table.weight)
    np.testing.assert_array_equal(saved.output, table.output)
    assert saved.provenance == table.provenance


def test_without_an_output_nothing_is_written(folder, monkeypatch):
    monkeypatch.chdir(folder)
    table = skipgram("text.txt", dim=12, epochs=6, threads=1, negative=3)
    assert os.listdir(folder) == ["text.txt"]
    np.testing.assert_array_equal(table.weight, train(folder).weight)


def test_losses_cover_the_plan_whatever_the_clock_says(folder):
    train(folder, "a")
    train(folder, "b", checkpoint_minutes=0.0)
    lines = losses(folder / "a.loss.jsonl")
    assert lines == losses(folder / "b.loss.jsonl")
    assert [line["tokens"] for line in lines][-1] == 6 * 1500 * 18
    assert len(lines) == 18
    assert [line["epoch"] for line in lines] == sorted([1, 2, 3, 4, 5, 6] * 3)
    assert lines[0]["loss"] > lines[-1]["loss"] > 0
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()


def test_a_long_plan_has_a_thousand_losses_at_most(folder, monkeypatch):
    monkeypatch.setattr(training, "MOST_LOSSES", 4)
    train(folder)
    pieces = [line["tokens"] for line in losses(folder / "t.loss.jsonl")]
    assert len(pieces) == 4
    assert pieces[-1] == 6 * 1500 * 18


@pytest.mark.parametrize("pieces", [1, 7, 16])
def test_an_interrupted_run_goes_on_to_the_bits_of_one_that_was_not(folder, monkeypatch, pieces):
    with monkeypatch.context() as patch:
        patch.setattr(training, "SECONDS_BETWEEN_EVENTS", 0.0)
        train(folder, **after(pieces))
    heard = []
    train(folder, resume=True, on_note=heard.append)
    assert "going on where" in heard[-1]
    train(folder, "whole.safetensors")
    assert (folder / "t.safetensors").read_bytes() == (folder / "whole.safetensors").read_bytes()
    assert losses(folder / "t.loss.jsonl") == losses(folder / "whole.loss.jsonl")
    assert not (folder / "t.training").exists()


def test_an_interrupted_run_leaves_a_table_that_says_so_and_its_folder(broken_off):
    assert formats.load(broken_off / "t.safetensors").provenance["interrupted_at"] < 0.5
    assert sorted(os.listdir(broken_off / "t.training")) == [
        "corpus", "lock", "loss.jsonl", "settings.json", "state.safetensors",
    ]  # fmt: skip


def test_two_threads_go_on_too(folder, monkeypatch):
    monkeypatch.setattr(training, "SECONDS_BETWEEN_EVENTS", 0.0)
    settings = {"threads": 2, "epochs": 60}
    first = train(folder, **settings, **after(3))
    assert 0 < first.provenance["interrupted_at"] < 1
    second = train(folder, **settings, resume=True, checkpoint_minutes=0.0)
    assert "interrupted_at" not in second.provenance
    tokens = [line["tokens"] for line in losses(folder / "t.loss.jsonl")]
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 180
    assert tokens[-1] == 60 * 1500 * 18


def test_snapshots_and_scores_from_before_are_not_asked_for_again(folder, monkeypatch):
    (folder / "pairs.tsv").write_text("cat dog 3\nking land 2\nmouse king 1\n")
    monkeypatch.setattr(training, "SECONDS_BETWEEN_EVENTS", 0.0)
    seen = []
    extra = {
        "evaluate": [folder / "pairs.tsv"],
        "snapshots": 5,
        "on_snapshot": lambda fraction, table: seen.append(round(6 * fraction)),
    }
    train(folder, **extra, **after(11))
    assert seen == [1, 2, 3]
    train(folder, **extra, resume=True)
    assert seen == [1, 2, 3, 4, 5]
    scored = [line for line in losses(folder / "t.loss.jsonl") if "scores" in line]
    assert [line["epoch"] for line in scored] == [1, 2, 3, 4, 5, 6]
    assert formats.load(folder / "t.safetensors").provenance["scores"] == scored[-1]["scores"]


def test_an_unfinished_run_is_not_overwritten(broken_off):
    before = contents(broken_off)
    with pytest.raises(
        OutputError, match=r"t.training holds an unfinished run; .*--resume.*delete that folder"
    ):
        train(broken_off)
    assert contents(broken_off) == before


@pytest.mark.parametrize(
    "changed", [{"seed": 2}, {"dim": 13}, {"threads": 2}, {"words": "whitespace"}, {"epochs": 7}]
)
def test_other_settings_are_refused(broken_off, changed):
    before = contents(broken_off)
    (name,) = changed
    with pytest.raises(OutputError, match=rf"other settings \({name} .* then, .* now\)"):
        train(broken_off, resume=True, **changed)
    assert contents(broken_off) == before


def test_a_run_begun_before_pieces_were_shuffled_goes_on_in_order_alone(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(training, "SECONDS_BETWEEN_EVENTS", 0.0)
        train(folder, shuffle=False, **after(7))
    assert "shuffle" not in json.loads((folder / "t.training" / "settings.json").read_text())["settings"]
    with pytest.raises(OutputError, match=r"other settings \(shuffle false then, true now\)"):
        train(folder, resume=True)
    train(folder, resume=True, shuffle=False)
    train(folder, "whole.safetensors", shuffle=False)
    assert (folder / "t.safetensors").read_bytes() == (folder / "whole.safetensors").read_bytes()
    with pytest.raises(OutputError, match="made with other settings: shuffle False, not True"):
        train(folder, resume=True)


def test_a_table_of_shuffled_pieces_is_not_what_a_run_in_order_would_make(folder):
    assert train(folder).provenance["settings"]["shuffle"] is True
    with pytest.raises(OutputError, match="made with other settings: shuffle True, not False"):
        train(folder, resume=True, shuffle=False)


@pytest.mark.parametrize("change", ["longer", "same length", "gone", "another name", "one more"])
def test_other_text_is_refused(broken_off, change):
    text = broken_off / "text.txt"
    content = text.read_text()
    files = "*.txt"
    if change == "longer":
        text.write_text(content + "\nmore")
    elif change == "same length":
        text.write_text(content.replace("cat", "cow"))
    elif change == "gone":
        text.unlink()
        files = "text.txt"
    elif change == "another name":
        text.rename(broken_off / "other.txt")
    else:
        (broken_off / "more.txt").write_text("more text")
    before = contents(broken_off)
    with pytest.raises(CorpusError, match="the text has changed since this run began"):
        train(broken_off, files=files, resume=True)
    assert contents(broken_off) == before
    if change == "same length":
        text.write_text(content)
        assert "interrupted_at" not in train(broken_off, resume=True).provenance


def test_a_finished_output_is_given_as_it_is(folder):
    table = train(folder)
    before, heard = contents(folder), []
    again = train(folder, resume=True, on_note=heard.append)
    assert heard == [
        f"{folder / 't.safetensors'} is finished: there is nothing to resume, nothing was changed"
    ]
    assert contents(folder) == before
    np.testing.assert_array_equal(again.weight, table.weight)


def test_an_output_that_this_run_would_not_make_is_refused(folder):
    train(folder)
    before = contents(folder)
    with pytest.raises(OutputError, match=r"no run to resume, and .* other settings: dim 12, not 13"):
        train(folder, resume=True, dim=13)
    (folder / "text.txt").write_text("another text\n" * 100)
    with pytest.raises(CorpusError, match="the text has changed"):
        train(folder, resume=True)
    (folder / "u.safetensors").write_bytes(formats.BUILT_IN["wordnet"].read_bytes())
    with pytest.raises(OutputError, match="other settings"):
        train(folder, "u.safetensors", resume=True)
    del before["text.txt"]
    assert before.items() <= contents(folder).items()


def test_an_interrupted_output_without_its_folder_can_not_be_resumed(broken_off):
    shutil.rmtree(broken_off / "t.training")
    with pytest.raises(OutputError, match=r"was interrupted when \d+% was done, and the folder .* is gone"):
        train(broken_off, resume=True)


def test_resume_with_nothing_there_begins(folder):
    assert train(folder, resume=True).provenance["tokens"] == 1500 * 18
    with pytest.raises(ShapeError, match="resume goes on with the run that lies beside an output"):
        skipgram(folder / "text.txt", resume=True)


def test_a_run_that_can_not_succeed_leaves_nothing(folder):
    (folder / "list.txt").write_text("cat\ndog\n")
    for settings, error in (
        ({"files": "missing.txt"}, CorpusError),
        ({"files": "list.txt"}, CorpusError),
        ({"min_count": 10_000}, CorpusError),
        ({"sample": 1e-12, "epochs": 1}, CorpusError),
        ({"alpha": 10.0, "min_alpha": 10.0, "epochs": 200, "checkpoint_minutes": 0.001}, ShapeError),
    ):
        with pytest.raises(error):
            train(folder, **settings)
        assert set(os.listdir(folder)) <= {"list.txt", "text.txt", "t.loss.jsonl"}, settings


def test_an_interrupt_while_the_text_is_read_leaves_nothing(folder):
    def interrupt(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(folder, progress=interrupt)
    assert os.listdir(folder) == ["text.txt"]


def test_a_callback_that_fails_leaves_the_last_checkpoint(folder, monkeypatch):
    monkeypatch.setattr(training, "SECONDS_BETWEEN_EVENTS", 0.0)
    events = 0

    def fail(event):
        nonlocal events
        events += event.phase == "training"
        if events == 9:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(folder, progress=fail, checkpoint_minutes=0.0)
    train(folder, resume=True)
    train(folder, "whole.safetensors")
    assert (folder / "t.safetensors").read_bytes() == (folder / "whole.safetensors").read_bytes()


@pytest.mark.parametrize("minutes", [0.0, 10.0])
def test_ctrl_c_between_checkpoints_leaves_the_last_one(folder, monkeypatch, minutes):
    """The matrices are further than the pieces known to be done: they are given, and not gone on from."""
    monkeypatch.setattr(training, "SECONDS_BETWEEN_EVENTS", 0.0)
    trained = 0

    def interrupt(event):
        nonlocal trained
        trained = event.tokens
        if event.fraction > 0.45:
            raise KeyboardInterrupt

    table = train(folder, progress=interrupt, checkpoint_minutes=minutes)
    assert table.provenance["interrupted_at"] == round(trained / (6 * 1500 * 18), 4) > 0.45
    assert (folder / "t.training" / "state.safetensors").exists() == (minutes == 0)
    train(folder, resume=True)
    train(folder, "whole.safetensors")
    assert (folder / "t.safetensors").read_bytes() == (folder / "whole.safetensors").read_bytes()


@pytest.mark.parametrize("pieces", [4, 5, 16])
def test_how_many_pieces_a_call_of_the_pool_gets_changes_nothing(folder, monkeypatch, pieces):
    """Of the 11 pieces of an epoch."""
    (folder / "text.txt").write_text("\n".join(LINES * 6000))
    expected = train(folder, "whole.safetensors")
    monkeypatch.setattr(training, "PIECES_A_CALL", pieces)
    table = train(folder)
    np.testing.assert_array_equal(table.weight, expected.weight)
    np.testing.assert_array_equal(table.output, expected.output)


def test_a_compressed_text_is_compared_as_it_lies_there(folder, monkeypatch):
    monkeypatch.setattr(training, "SECONDS_BETWEEN_EVENTS", 0.0)
    (folder / "text.gz").write_bytes(gzip.compress((folder / "text.txt").read_bytes(), mtime=0))
    train(folder, files="text.gz", **after(3))
    assert "interrupted_at" not in train(folder, files="text.gz", resume=True).provenance


def test_provenance_of_another_version_is_not_mixed(broken_off, monkeypatch):
    monkeypatch.setattr(sys.modules["tokenspace"], "__version__", "9.9")
    with pytest.raises(OutputError, match=re.escape("made_by")):
        train(broken_off, resume=True)


def test_names_that_are_no_utf8_are_trained_saved_and_resumed(folder, monkeypatch):
    text, pairs = (folder / os.fsdecode(name) for name in (b"t\xe9xt.txt", b"p\xe4irs.tsv"))
    (folder / "text.txt").rename(text)
    pairs.write_text("cat dog 3\nking land 2\nmouse king 1\n")
    with monkeypatch.context() as patch:
        patch.setattr(training, "SECONDS_BETWEEN_EVENTS", 0.0)
        train(folder, files=text.name, evaluate=pairs, **after(4))
    made = train(folder, files=text.name, evaluate=pairs, resume=True).provenance
    assert made["corpus"][0]["name"] == "t\\xe9xt.txt"
    assert made["scores"][0]["file"] == "p\\xe4irs.tsv"
    assert formats.load(folder / "t.safetensors").provenance == made
    assert train(folder, files=text.name, resume=True).provenance == made


def test_an_interrupt_before_anything_is_learned_keeps_the_text(folder):
    def interrupt(note):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(folder, on_note=interrupt)
    assert (folder / "t.training" / "corpus" / "corpus.json").exists()
    train(folder, resume=True)
    train(folder, "whole.safetensors")
    assert (folder / "t.safetensors").read_bytes() == (folder / "whole.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("name", "entry"), [("ids", -5), ("ids", 1 << 20), ("ids", None), ("offsets", 1 << 40)]
)
def test_a_corpus_that_was_damaged_is_refused(broken_off, name, entry):
    path = broken_off / "t.training" / "corpus" / name
    numbers = np.fromfile(path, "<i4" if name == "ids" else "<i8")
    middle = len(numbers) // 2
    numbers[middle] = numbers[middle] ^ 1 if entry is None else entry  # one that is an id, too
    numbers.tofile(path)
    with pytest.raises(CorpusError, match=rf"corpus/{name} holds other bytes .*; delete .*t\.training and"):
        train(broken_off, resume=True)


def test_a_state_that_was_damaged_is_refused(broken_off):
    path = broken_off / "t.training" / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1  # a number, and as good a one as before
    path.write_bytes(content)
    with pytest.raises(TableFormatError, match=r"can't go on from it; delete .*t\.training to begin anew"):
        train(broken_off, resume=True)


def test_a_state_of_another_run_is_refused(broken_off, monkeypatch):
    (broken_off / "other.txt").write_text("some other words are here\n" * 2000)
    monkeypatch.setattr(training, "SECONDS_BETWEEN_EVENTS", 0.0)
    train(broken_off, "v.safetensors", "other.txt", epochs=60, **after(5))
    state = (broken_off / "v.training" / "state.safetensors").read_bytes()
    (broken_off / "t.training" / "state.safetensors").write_bytes(state)
    with pytest.raises(TableFormatError, match=r"can't go on from it .*; delete .*t\.training to begin anew"):
        train(broken_off, resume=True)


def test_changed_text_is_told_with_what_helps(broken_off):
    (broken_off / "text.txt").write_text("other\n")
    with pytest.raises(CorpusError, match=r"or delete .*t\.training to begin anew"):
        train(broken_off, resume=True)


def test_a_finished_output_of_another_beginning_is_refused(folder):
    table = train(folder)
    with pytest.raises(OutputError, match=r"was made with another init: none, not [0-9a-f]{12};"):
        train(folder, resume=True, init=table)
    train(folder, "u.safetensors", tokenizer=table.tokenizer)
    assert train(folder, "u.safetensors", resume=True, tokenizer=table.tokenizer).dim == 12
    other = Tokenizer.train_from_iterator(LINES, "whitespace")
    with pytest.raises(OutputError, match=r"was made with another tokenizer: \w{12}, not \w{12};"):
        train(folder, "u.safetensors", resume=True, tokenizer=other)


def test_a_finished_output_is_neither_evaluated_nor_snapshotted(folder):
    train(folder)
    heard = []
    train(folder, resume=True, snapshots=2, on_note=heard.append)
    assert heard[-1] == "so nothing was evaluated, and no snapshot was made"
