"""A corpus on disk: what is read back is what was written, and a damaged one is noticed."""

import json

import numpy as np
import pytest

from tokenspace.errors import CorpusError, OutputError
from tokenspace.tokenizer import Tokenizer
from tokenspace.train.corpus import Corpus, open_corpus, prepare


def made(folder, *files, **settings) -> Corpus:
    choices = {"tokenizer": None, "min_count": 1, "lowercase": True, "threads": 2} | settings
    return prepare(files, folder, **choices)


@pytest.fixture
def corpus(write, tmp_path, rng):
    text = "".join(" ".join(rng.choice(list("abcdefgh"), rng.integers(0, 12))) + "\n" for _ in range(500))
    (tmp_path / "corpus").mkdir()
    return made(tmp_path / "corpus", write("text.txt", text))


def whole(corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    return corpus.piece(0, corpus.sentences)


def test_sentences_are_read_back_in_pieces_and_by_token(corpus):
    ids, offsets = whole(corpus)
    assert ids.dtype == np.int32
    assert offsets.dtype == np.int64
    assert len(ids) == corpus.tokens == corpus.counts.sum()
    assert len(offsets) == corpus.sentences + 1
    piece, starts = corpus.piece(17, 40)
    np.testing.assert_array_equal(piece, ids[offsets[17] : offsets[40]])
    np.testing.assert_array_equal(starts, offsets[17:41] - offsets[17])
    np.testing.assert_array_equal(corpus.ids(100, 250), ids[100:250])
    np.testing.assert_array_equal(corpus.counts, np.bincount(ids, minlength=len(corpus.tokenizer.vocab)))


@pytest.mark.parametrize("tokens", [1, 7, 100, 10_000_000])
@pytest.mark.parametrize("at_once", [3, 1 << 20])
def test_cuts_are_those_of_the_whole_array(corpus, tokens, at_once, monkeypatch):
    monkeypatch.setattr("tokenspace.train.corpus._OFFSETS_AT_ONCE", at_once)
    _, offsets = whole(corpus)
    marks = np.arange(0, offsets[-1], tokens)
    expected = np.unique(np.append(np.searchsorted(offsets, marks), len(offsets) - 1))
    first, before = corpus.cuts(tokens)
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(before, offsets[expected])


def test_a_finished_corpus_is_opened_again_as_it_was(corpus):
    again = open_corpus(corpus.folder)
    assert again.tokenizer.to_json() == corpus.tokenizer.to_json()
    np.testing.assert_array_equal(again.counts, corpus.counts)
    names = ("folder", "tokens", "sentences", "sources", "min_count", "notes")
    assert [getattr(again, name) for name in names] == [getattr(corpus, name) for name in names]


def test_a_folder_without_its_manifest_is_no_corpus(corpus):
    (corpus.folder / "corpus.json").unlink()
    assert open_corpus(corpus.folder) is None


@pytest.mark.parametrize("name", ["ids", "offsets", "counts"])
def test_a_file_that_was_cut_is_named(corpus, name):
    path = corpus.folder / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorpusError, match=rf"{name} has .* bytes where .* were written; delete .*corpus and"):
        open_corpus(corpus.folder)
    if name != "counts":
        with pytest.raises(CorpusError, match=f"{name} was cut since it was written"):
            corpus.piece(0, corpus.sentences)


@pytest.mark.parametrize("name", ["ids", "offsets", "counts", "tokenizer.json"])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_a_bit_turned_in_a_file_is_noticed(corpus, name, place):
    for each in (corpus, open_corpus(corpus.folder)):
        each.check_bytes()
    path = corpus.folder / name
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        CorpusError, match=rf"{name} holds other bytes than were written; delete .*corpus and"
    ):
        corpus.check_bytes()
    path.unlink()
    with pytest.raises(CorpusError, match=rf"can't read .*{name}: No such file"):
        corpus.check_bytes()


def test_a_failed_preparation_leaves_no_corpus_not_even_the_one_before(corpus, write):
    with pytest.raises(CorpusError, match="byte 3 is zero"):
        made(corpus.folder, write("zero.txt", b"a b\0"))
    assert open_corpus(corpus.folder) is None
    assert not list(corpus.folder.iterdir())


def test_the_manifest_is_gone_before_its_files_are_and_written_after_them(corpus, write):
    seen: list[Corpus | None] = []
    made(corpus.folder, write("more.txt", "a b\n"), stop=lambda: seen.append(open_corpus(corpus.folder)))
    assert seen
    assert not any(seen)


def test_what_a_killed_preparation_left_is_removed_by_the_next(write, tmp_path):
    for name in ("numbers.partial", "words-7.partial", "ids"):
        write(name, "rubbish")
    (tmp_path / ".corpus.json.abcdefgh.partial").mkdir()
    write(".corpus.json.abcdefgh.partial/corpus.json", "half")
    made(tmp_path, write("text.txt", "a b\n"))
    assert not list(tmp_path.glob("*.partial"))
    assert (tmp_path / "ids").stat().st_size == 8


def test_a_folder_that_is_not_there_is_named(write, tmp_path):
    with pytest.raises(OutputError, match=r"can't write a corpus in .*nowhere: No such file or directory"):
        made(tmp_path / "nowhere", write("text.txt", "a b\n"))


@pytest.mark.parametrize(
    ("content", "message"),
    [('{"version": 1}', "is of version 1, not 2; remove"), ("{", "can't read .*corpus.json")],
    ids=["of another version", "cut"],
)
def test_a_manifest_that_is_not_ours_is_refused(corpus, content, message):
    (corpus.folder / "corpus.json").write_text(content)
    with pytest.raises(CorpusError, match=message):
        open_corpus(corpus.folder)


def test_a_given_tokenizer_is_kept_as_it_is(write, tmp_path):
    tokenizer = Tokenizer.train_from_iterator(["a b c"])
    corpus = made(tmp_path, write("text.txt", "c b x a\n"), tokenizer=tokenizer, min_count=None)
    assert [corpus.tokenizer.vocab[i] for i in whole(corpus)[0]] == ["c", "b", "a"]
    assert corpus.tokenizer.to_json() == tokenizer.to_json()
    assert corpus.min_count is None
    assert json.loads((tmp_path / "corpus.json").read_text())["tokens"] == 3


def test_words_alone_on_their_lines_are_no_text_to_train_on(write, tmp_path):
    corpus = made(tmp_path, write("list.txt", "a\nb\n"))
    with pytest.raises(CorpusError, match=r"no line of the corpus has two known tokens \(2, each alone"):
        corpus.check_trainable()


@pytest.mark.parametrize("entry", [-1, 1 << 30])
def test_ids_that_no_token_has_are_refused(corpus, entry):
    numbers = np.fromfile(corpus.folder / "ids", "<i4")
    numbers[-1] = entry
    numbers.tofile(corpus.folder / "ids")
    with pytest.raises(CorpusError, match=r"ids holds ids outside 0 … \d+; delete .*corpus and make"):
        whole(corpus)


@pytest.mark.parametrize("place", [0, 7, -1])
def test_offsets_that_do_not_rise_are_refused(corpus, place):
    numbers = np.fromfile(corpus.folder / "offsets", "<i8")
    numbers[place] = numbers[place - 1] + 1000 if place == 7 else 3
    numbers.tofile(corpus.folder / "offsets")
    for ask in (lambda: whole(corpus), lambda: corpus.cuts(100)):
        with pytest.raises(CorpusError, match="offsets that don't rise from 0 to"):
            ask()


def test_a_sentence_longer_than_any_may_be_is_refused(corpus):
    _, offsets = whole(corpus)
    longest = int(np.diff(offsets).max())
    corpus.piece(0, corpus.sentences, longest)
    with pytest.raises(CorpusError, match=rf"a sentence of {longest} tokens, and {longest - 1} are the most"):
        corpus.piece(0, corpus.sentences, longest - 1)


def test_counts_of_another_corpus_are_refused(corpus):
    counts = np.fromfile(corpus.folder / "counts", "<i8")
    counts[-1] += 1
    counts.tofile(corpus.folder / "counts")
    with pytest.raises(CorpusError, match="counts does not count"):
        open_corpus(corpus.folder)
