"""Training from files to a table: it learns, repeats itself, says what it did, and stops when told."""

import json
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tokenspace.errors import CorpusError, ShapeError
from tokenspace.formats import native
from tokenspace.tokenizer import Tokenizer
from tokenspace.train import skipgram


@pytest.fixture(scope="module")
def two_topics(tmp_path_factory):
    """Sentences of animals and sentences of kitchen things: words of one topic stand together."""
    rng = np.random.default_rng(0)
    topics = (["cat", "dog", "horse", "cow", "sheep"], ["pan", "pot", "knife", "fork", "spoon"])
    lines = [" ".join(rng.choice(topics[n % 2], 6)) + "." for n in range(3000)]
    path = tmp_path_factory.mktemp("corpus") / "topics.txt"
    path.write_text("\n".join(lines))
    return path


def cosine(table, a, b):
    return float(table[a] @ table[b] / np.linalg.norm(table[a]) / np.linalg.norm(table[b]))


def small(files, **settings):
    return skipgram(files, **{"dim": 20, "epochs": 3, "threads": 1, "negative": 3, **settings})


@pytest.mark.parametrize("threads", [1, 3])
def test_words_of_one_topic_end_nearer_than_words_of_two(two_topics, threads):
    table = small(two_topics, threads=threads)
    assert cosine(table, "cat", "dog") > cosine(table, "cat", "pan") + 0.2
    assert cosine(table, "pan", "spoon") > cosine(table, "cow", "spoon") + 0.2
    assert table.weight.dtype == table.output.dtype == np.float32
    assert table.weight.shape == table.output.shape == (len(table.vocab), 20)


def test_rows_that_never_occur_are_zero_and_listed(two_topics):
    table = small(two_topics, epochs=1)
    assert list(table.vocab)[:3] == ["[PAD]", "[UNK]", "[SEP]"]
    assert not table.weight[:3].any()
    assert not table.output[:3].any()
    assert np.abs(table.weight[3:]).max(axis=1).min() > 0
    assert table.provenance["untrained"] == {"rows": 3, "first_ids": [0, 1, 2]}


@pytest.mark.slow
def test_one_thread_writes_the_same_bytes_in_every_process_and_another_seed_does_not(two_topics, tmp_path):
    def run(name, seed):
        code = f"""
            from tokenspace.formats import native
            from tokenspace.train import skipgram
            native.save(skipgram({str(two_topics)!r}, dim=20, threads=1, epochs=2, seed={seed}), {name!r})
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, check=True)
        return (tmp_path / name).read_bytes()

    first = run("first.safetensors", 1)
    assert run("second.safetensors", 1) == first
    assert run("third.safetensors", 2) != first


def test_the_callbacks_change_nothing(two_topics):
    quiet = small(two_topics)
    watched = small(
        two_topics, snapshots=3, on_snapshot=lambda fraction, table: None, progress=lambda _: None
    )
    np.testing.assert_array_equal(watched.weight, quiet.weight)
    assert watched.provenance == quiet.provenance


def test_the_provenance_says_what_made_the_table(two_topics):
    about = small(two_topics, epochs=1, seed=7).provenance
    assert json.loads(json.dumps(about)) == about
    assert about["settings"] == {
        "dim": 20, "epochs": 1, "window": 5, "negative": 3, "sample": 1e-3, "min_count": 1, "lowercase": True,
        "threads": 1, "seed": 7, "alpha": 0.1, "min_alpha": 1e-4, "words": "word", "shuffle": True,
    }  # fmt: skip
    assert about["notes"] == [f"minimum count 1, chosen for {two_topics.stat().st_size:,} bytes of text"]
    assert [file["name"] for file in about["corpus"]] == ["topics.txt"]
    assert about["tokens"] == 3000 * 7
    assert about["vocabulary"] == 3 + 11
    assert set(about["versions"]) == {"numpy", "numba", "tokenizers"}
    assert 0 < about["loss"] < 4 * np.log(2)
    assert str(two_topics.parent) not in json.dumps(about)


def test_the_number_of_epochs_follows_the_corpus_and_is_said(tmp_path):
    path = tmp_path / "tiny.txt"
    path.write_text("the cat sat on the mat\n" * 3)
    heard = []
    about = skipgram(path, dim=4, threads=1, on_note=heard.append).provenance
    assert about["settings"]["epochs"] == 50
    assert about["settings"]["min_count"] == 1
    assert "50 epochs, chosen for 18 tokens" in about["notes"]
    assert heard == about["notes"]


def test_a_given_tokenizer_brings_its_vocabulary(two_topics):
    tokenizer = Tokenizer.train([two_topics], kind="bpe", vocab_size=300)
    table = small(two_topics, tokenizer=tokenizer, epochs=1)
    assert list(table.vocab) == list(tokenizer.vocab)
    assert table.tokenizer is tokenizer
    assert table.provenance["settings"]["min_count"] is None
    assert table.provenance["untrained"]["rows"] > 200  # most bytes of the alphabet
    with pytest.raises(ShapeError, match="give one or the other"):
        small(two_topics, tokenizer=tokenizer, min_count=2)


def test_progress_rises_to_the_end_with_a_falling_loss(two_topics, monkeypatch):
    monkeypatch.setattr(sys.modules["tokenspace.train.training"], "SECONDS_BETWEEN_EVENTS", 0.0)
    events = []
    table = small(two_topics, epochs=6, progress=events.append)
    before = [event for event in events if event.phase != "training"]
    assert {event.phase for event in before} <= {"counting", "encoding"}
    assert before
    assert events[: len(before)] == before
    assert all(event.fraction == event.tokens == 0 and np.isnan(event.loss) for event in before)
    del events[: len(before)]
    assert [event.fraction for event in events] == sorted(event.fraction for event in events)
    assert len(events) >= 12
    last = events[-1]
    assert (last.epoch, last.epochs, last.fraction, last.eta_seconds) == (6, 6, 1.0, 0.0)
    assert last.tokens == 6 * table.provenance["tokens"]
    assert last.tokens_per_second > 0
    assert events[0].loss > last.loss > 0


def test_snapshots_are_evenly_spaced_and_show_the_table_being_learned(two_topics):
    seen = []
    small(
        two_topics,
        epochs=8,
        snapshots=3,
        on_snapshot=lambda fraction, table: seen.append((fraction, cosine(table, "cat", "dog"))),
    )
    assert [fraction for fraction, _ in seen] == [0.25, 0.5, 0.75]
    assert seen[0][1] < seen[-1][1]


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_gives_the_table_as_it_is_and_says_so(two_topics, threads, monkeypatch):
    monkeypatch.setattr(sys.modules["tokenspace.train.training"], "SECONDS_BETWEEN_EVENTS", 0.0)

    def interrupt(event):
        if event.fraction > 0.3:
            raise KeyboardInterrupt

    table = small(two_topics, epochs=60, threads=threads, progress=interrupt)
    assert 0.3 < table.provenance["interrupted_at"] < 1
    assert np.isfinite(table.weight).all()
    assert "interrupted_at" not in small(two_topics, epochs=1).provenance


@pytest.mark.alone
def test_a_real_ctrl_c_is_answered_within_a_second(two_topics):
    code = f"""
        import os, signal, threading, time
        from tokenspace.train import skipgram
        def interrupt_soon(event):
            if not began and event.phase == "training":
                began.append(time.monotonic() + 0.3)
                threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
        began = []
        table = skipgram({str(two_topics)!r}, dim=50, epochs=20_000, threads=2, progress=interrupt_soon)
        assert 0 < table.provenance["interrupted_at"] < 1
        assert time.monotonic() - began[0] < 1
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("setting", "value"),
    [("dim", 0), ("epochs", -1), ("window", 0), ("negative", 0), ("min_count", 0), ("threads", 0),
     ("seed", -1), ("sample", float("nan")), ("alpha", 0.0), ("alpha", float("inf")), ("min_alpha", 0.5),
     ("snapshots", -1)],
)  # fmt: skip
def test_settings_out_of_range_are_refused_before_a_file_is_read(setting, value):
    with pytest.raises(ShapeError, match=rf"^{setting} must be "):
        small("there is no such file", **{setting: value})


def test_a_learning_rate_that_explodes_is_said(two_topics):
    with pytest.raises(ShapeError, match=r"training diverged .* lower alpha"):
        small(two_topics, alpha=10.0, min_alpha=10.0, epochs=200, dim=50)


def test_bad_text_is_refused(tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    with pytest.raises(CorpusError, match="no token"):
        skipgram([empty])
    with pytest.raises(CorpusError, match="is a directory"):
        skipgram([tmp_path])


def test_without_numba_the_room_imports_and_the_call_names_the_extra():
    code = "import sys; sys.modules['numba'] = None; from tokenspace.train import skipgram; skipgram('any')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    named = r"MissingExtra: training needs .* pip install 'numba>=[\d.]+' 'zstandard>=[\d.]+'"
    assert re.search(named, last), done.stderr


def test_importing_the_room_imports_no_numba():
    code = "import sys, tokenspace.train; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_trained_table_survives_its_file(two_topics, tmp_path):
    table = small(two_topics, epochs=1)
    native.save(table, tmp_path / "table.safetensors")
    again = native.load(tmp_path / "table.safetensors")
    np.testing.assert_array_equal(again.output, table.output)
    assert again.provenance == table.provenance
    assert again.tokenizer.pieces("Cat pan") == table.tokenizer.pieces("Cat pan")


def test_a_snapshot_says_that_it_is_one_and_what_can_not_be_is_left_out(two_topics):
    seen, heard = [], []
    table = small(
        two_topics,
        epochs=1,
        snapshots=30,
        on_snapshot=lambda fraction, table: seen.append(table.provenance["snapshot_at"]),
        on_note=heard.append,
    )
    assert seen == sorted(set(seen))
    assert 0 < len(seen) < 30
    assert 0 < seen[0] < seen[-1] < 1
    assert any(note.startswith(f"{len(seen)} snapshots of 30: this run has") for note in heard)
    assert "snapshot_at" not in table.provenance


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("init", "wordnet", "init must be a Table, found 'wordnet'; load it first"),
        ("tokenizer", "bpe", "tokenizer must be a Tokenizer, found 'bpe'; make it first"),
        ("evaluate", None, r"evaluate takes names of files, or \(\) for none; found None"),
        ("evaluate", 3, "evaluate takes names of files"),
        ("lowercase", "no", "lowercase must be True or False, found 'no'"),
        ("sample", "0.1", "sample must be a number from 0 to 1, found '0.1'"),
        ("sample", True, "sample must be a number from 0 to 1, found True"),
    ],
)
def test_settings_of_another_type_are_refused(two_topics, setting, value, message):
    with pytest.raises((ShapeError, CorpusError), match=message):
        small(two_topics, **{setting: value})


@pytest.mark.parametrize("files", [None, 3, b"a.txt", ""], ids=repr)
def test_what_names_no_text_is_refused(files):
    with pytest.raises(CorpusError, match=r"a text file is named by|no text file was named"):
        small(files)
