"""The stream: every sentence once, in order, an end after each; apart what is held out."""

from itertools import groupby, pairwise

import numpy as np
import pytest

from tokenspace.tokenizer import Tokenizer
from tokenspace.train import token_stream
from tokenspace.train.corpus import prepare

END = 2


@pytest.fixture(scope="module")
def lines():
    """Sentence n begins with w<n>, which no other has, and has 1 to 9 tokens."""
    rng = np.random.default_rng(0)
    return [" ".join([f"w{n}", *["the"] * rng.integers(0, 9)]) for n in range(600)]


@pytest.fixture
def corpus_of(tmp_path):
    """``corpus_of(lines)``: a corpus, its tokens split at spaces."""

    def made(lines):
        (tmp_path / "text").write_text("\n".join(lines))
        (tmp_path / "corpus").mkdir(exist_ok=True)
        return prepare(
            [tmp_path / "text"],
            tmp_path / "corpus",
            tokenizer=None,
            words="whitespace",
            min_count=1,
            lowercase=False,
            longest=None,
            threads=1,
        )

    return made


def sentences(corpus, stream):
    """The stream's texts, taken apart at their ends."""
    ids = stream.windows(np.array([0]), stream.tokens)[0]
    assert ids[0] == ids[-1] == END
    texts = [list(part) for is_end, part in groupby(ids, lambda id: id == END) if not is_end]
    assert (ids == END).sum() == len(texts) + 1  # one before the first, one after each
    return [" ".join(corpus.tokenizer.vocab[id] for id in text) for text in texts]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.25, 0.5])
def test_each_sentence_is_in_one_stream_in_order_with_an_end_after_it(lines, corpus_of, tmp_path, share):
    corpus = corpus_of(lines)
    streams = token_stream.write(corpus, END, share, tmp_path)
    training = sentences(corpus, streams.training)
    held_out = sentences(corpus, streams.held_out) if streams.held_out else []
    number = {line: n for n, line in enumerate(lines)}
    for part in (training, held_out):
        assert [number[line] for line in part] == sorted(number[line] for line in part)
    assert set(training) | set(held_out) == set(lines)
    assert not set(training) & set(held_out)
    share_found = sum(len(line.split()) for line in held_out) / corpus.tokens
    assert share_found == pytest.approx(share, rel=0.25)
    streams.close()


def test_the_held_out_part_comes_from_all_over_the_text(lines, corpus_of, tmp_path):
    corpus = corpus_of(lines)
    streams = token_stream.write(corpus, END, 0.2, tmp_path)
    held_out = sentences(corpus, streams.held_out)
    places = [lines.index(line) * 10 // len(lines) for line in held_out]
    assert set(places) == set(range(10))
    neighbors = sum(after - before == 1 for before, after in pairwise(map(lines.index, held_out)))
    assert neighbors > len(held_out) / 2  # runs of sentences, not single ones
    streams.close()


def test_no_more_is_held_out_than_it_takes_to_measure(lines, corpus_of, tmp_path, monkeypatch):
    monkeypatch.setattr(token_stream, "MOST_HELD_OUT", 100)
    streams = token_stream.write(corpus_of(lines), END, 0.5, tmp_path)
    assert 50 < streams.held_out.tokens < 200
    streams.close()


def test_windows_are_read_from_where_they_begin(lines, corpus_of, tmp_path):
    streams = token_stream.write(corpus_of(lines), END, 0.0, tmp_path)
    stream = streams.training
    whole = np.fromfile(tmp_path / "training.ids", "<i4")
    assert stream.tokens == len(whole)
    starts = np.array([0, 7, 7, len(whole) - 5])
    np.testing.assert_array_equal(stream.windows(starts, 5), [whole[s : s + 5] for s in starts])
    streams.close()


def test_streams_that_lie_there_are_taken_as_they_are(lines, corpus_of, tmp_path):
    corpus = corpus_of(lines)
    token_stream.write(corpus, END, 0.1, tmp_path).close()
    files = [tmp_path / name for name in ("training.ids", "held_out.ids")]
    before = [file.stat() for file in files]
    token_stream.write(corpus, END, 0.1, tmp_path).close()
    for file, was in zip(files, before, strict=True):  # to be read is no change, so atime does not count
        now = file.stat()
        assert (now.st_ino, now.st_size, now.st_mtime_ns) == (was.st_ino, was.st_size, was.st_mtime_ns)
    (tmp_path / "held_out.ids").unlink()  # as after a crash between the two
    streams = token_stream.write(corpus, END, 0.1, tmp_path)
    assert streams.held_out.tokens * 4 == before[1].st_size
    streams.close()


def test_an_end_takes_the_place_of_the_newline_that_byte_pairs_have_a_token_for(tmp_path):
    (tmp_path / "text").write_text("the cat\n\n\na dog  \n\nthe end")
    tokenizer = Tokenizer.train_from_iterator(["the cat", "a dog"], "bpe", 300)
    corpus = prepare(
        tmp_path / "text",
        tmp_path,
        tokenizer=tokenizer,
        min_count=None,
        lowercase=False,
        longest=None,
        threads=1,
    )
    stream = token_stream.write(corpus, 1, 0.0, tmp_path).training
    ids = stream.windows(np.array([0]), stream.tokens)[0]
    parts = [tokenizer.decode(part[part != 1]) for part in np.split(ids, np.flatnonzero(ids == 1) + 1)]
    assert parts == ["", "the cat", "a dog  ", "the end", ""]
    stream.close()


@pytest.mark.parametrize(("count", "share"), [(1, 0.02), (3, 0.02), (20, 0.02), (1, 0.9)])
def test_of_too_few_sentences_nothing_is_held_out(lines, corpus_of, tmp_path, count, share):
    corpus = corpus_of(lines[:count])
    for _ in range(2):
        streams = token_stream.write(corpus, END, share, tmp_path)
        assert streams.held_out is None
        assert sentences(corpus, streams.training) == lines[:count]
        streams.close()


@pytest.mark.parametrize("name", ["training.ids", "held_out.ids", "streams.json"])
def test_streams_that_were_cut_or_changed_are_made_again(lines, corpus_of, tmp_path, name):
    corpus = corpus_of(lines)
    token_stream.write(corpus, END, 0.1, tmp_path).close()
    whole = (tmp_path / name).read_bytes()
    turned = bytes([*whole[:-5], whole[-5] ^ 1, *whole[-4:]])
    for damaged in (whole[: len(whole) // 2], turned):
        (tmp_path / name).write_bytes(damaged)
        token_stream.write(corpus, END, 0.1, tmp_path).close()
        assert (tmp_path / name).read_bytes() == whole


def test_another_share_held_out_is_another_split(lines, corpus_of, tmp_path):
    corpus = corpus_of(lines)
    token_stream.write(corpus, END, 0.1, tmp_path).close()
    streams = token_stream.write(corpus, END, 0.3, tmp_path)
    assert streams.held_out.tokens > corpus.tokens * 0.2
    streams.close()


def test_it_stops_when_told(lines, corpus_of, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        token_stream.write(corpus_of(lines), END, 0.02, tmp_path, stop=lambda: True)
    assert not (tmp_path / "training.ids").exists()
