"""Text files as ids: what the fast ways give is what the tokenizer gives line by line."""

import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenspace import text
from tokenspace.errors import CorpusError, ShapeError, VocabError
from tokenspace.tokenizer import Tokenizer
from tokenspace.train import corpus_words, vocabulary
from tokenspace.train.corpus import prepare
from tokenspace.train.corpus_encoding import Sentences, splits_at_spaces

CHOICES = {"tokenizer": None, "min_count": 1, "lowercase": True, "threads": 2}
PARTS = [
    *"aAbéßΣσςİı1٣²中ｶ👍.,'’[]-_ \t\n\r",
    *["\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u0301", "\u200b", "\u200d", "\u2028", "\u3000", "\ufeff"],
    *["[PAD]", "[UNK]", "[SEP]", "e\u0301", "don't", "\r\n", "the cat ", "The"],
]
texts = st.lists(st.sampled_from(PARTS), max_size=60).map("".join)
NASTY = "The cat’s CAFÉ, cafe\u0301! 12a[PAD]b [UNK]\r\n\r\rx\x0by z\u3000中文 don't\t[SEP].\n" * 3


def expected(content: str, tokenizer: Tokenizer, longest: int) -> list[list[int]]:
    """The sentences as they are defined, one line at a time."""
    found = []
    for line in re.split(r"\r\n|\n|\r", content.removeprefix("\ufeff")):
        ids = [i for i in tokenizer.inner.encode(line, add_special_tokens=False).ids if i != tokenizer.unk_id]
        parts = -(-len(ids) // longest)
        found += [ids[len(ids) * k // parts : len(ids) * (k + 1) // parts] for k in range(parts)]
    return found


def sentences(corpus) -> list[list[int]]:
    ids, offsets = corpus.piece(0, corpus.sentences)
    return [part.tolist() for part in np.split(ids, offsets[1:-1])]


def learn(content: str, kind: str = "word", min_count: int = 1, lowercase: bool = True) -> Tokenizer:
    lines = re.split(r"\r\n|\n|\r", content.removeprefix("\ufeff"))
    return Tokenizer.train_from_iterator(lines, kind, 1 << 30, min_count, lowercase)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "corpus").mkdir()
    return tmp_path / "corpus"


@pytest.mark.parametrize("lowercase", [True, False], ids=["folded", "as written"])
@pytest.mark.parametrize("kind", ["word", "whitespace"])
def test_learned_words_and_their_ids_are_the_librarys(kind, lowercase, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    path = folder / "text.txt"

    @settings(deadline=None, max_examples=80)
    @given(content=texts, min_count=st.integers(1, 3))
    @example(content=NASTY, min_count=1)
    @example(content="ΟΔΟΣ οδος İI ǅ ẞ ﬁ ΟΔΟΣ.", min_count=1)  # folded letter by letter, not as Python does
    def check(content, min_count):
        path.write_bytes(content.encode())
        wanted = learn(content, kind, min_count, lowercase)
        choices = CHOICES | {"min_count": min_count, "lowercase": lowercase, "words": kind}
        try:
            corpus = prepare(path, folder, longest=5, **choices)
        except CorpusError:
            assert expected(content, wanted, 5) == [] or len(wanted.vocab) == len(wanted.vocab.special)
            return
        assert corpus.tokenizer.to_json() == wanted.to_json()
        assert sentences(corpus) == expected(content, wanted, 5)

    check()


GIVEN = {
    "word": "The cat sat. CAFÉ cafe\u0301 [UNK] don't 12a b\n中文 x y z",
    "whitespace": "The cat's CAFÉ, x\x0by 中文",
    "wordpiece": "The cat sat. CAFÉ 12a b\n中文 xylophone z don't",
    "bpe": "The cat sat. CAFÉ café 12a b\n中文",
    "unigram": "The cat sat on the mat. The cats sat. CAFÉ café 12a b 中文",
}


@pytest.mark.parametrize("kind", GIVEN)
def test_a_given_tokenizer_says_what_the_ids_are(kind, tmp_path_factory):
    size = 300 if kind == "bpe" else 40
    tokenizer = Tokenizer.train_from_iterator(GIVEN[kind].split("\n"), kind, size, lowercase=True)
    assert splits_at_spaces(tokenizer) == (kind in ("word", "whitespace", "wordpiece"))
    folder = tmp_path_factory.mktemp("corpus")
    path = folder / "text.txt"

    @settings(deadline=None, max_examples=40)
    @given(content=texts)
    @example(content=NASTY)
    def check(content):
        path.write_bytes(content.encode())
        lines = [f"{line}\n" for line in re.split(r"\r\n|\n|\r", content.removeprefix("\ufeff"))]
        lines[-1] = lines[-1][:-1]
        encoded = [tokenizer.inner.encode(line, add_special_tokens=False).ids for line in lines]
        wanted = [[i for i in ids if i != tokenizer.unk_id] for ids in encoded]
        if not any(wanted):
            with pytest.raises(CorpusError, match="no token that the vocabulary knows"):
                prepare(path, folder, **CHOICES | {"tokenizer": tokenizer})
            return
        corpus = prepare(path, folder, longest=None, **CHOICES | {"tokenizer": tokenizer})
        assert sentences(corpus) == [ids for ids in wanted if ids]

    check()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("block", [1, 2, 7, 64, 1000])
def test_neither_threads_nor_blocks_nor_bounds_change_anything(
    write, folder, monkeypatch, rng, threads, block
):
    words = ["the", "cat,", "sat", "on", "(a)", "mat.", "é" * 60, *(f"w{n}" for n in range(300))]
    ends = [" ", " ", "\t", "\n", "\r\n", "\r"]
    content = "".join(str(rng.choice(words)) + str(rng.choice(ends)) for _ in range(600))
    wanted = learn(content, min_count=2)
    path = write("text.txt", content)
    monkeypatch.setattr(text, "BLOCK", max(block, 121))
    monkeypatch.setattr(corpus_words, "MOST_CHUNKS", block)
    monkeypatch.setattr(corpus_words, "_FEWEST_CHUNKS", block)
    monkeypatch.setattr(corpus_words, "_CHUNKS_AT_ONCE", 10 + block)
    monkeypatch.setattr(vocabulary, "_CHUNKS_AT_ONCE", 3)
    monkeypatch.setattr(vocabulary, "MOST_IN_MEMORY", 3 * block)
    monkeypatch.setattr(vocabulary, "_RUNS_AT_ONCE", 3)
    corpus = prepare(path, folder, longest=4, **CHOICES | {"min_count": 2, "threads": threads})
    assert corpus.tokenizer.to_json() == wanted.to_json()
    assert sentences(corpus) == expected(content, wanted, 4)
    assert sorted(path.name for path in folder.iterdir()) == [
        "corpus.json", "counts", "ids", "offsets", "tokenizer.json",
    ]  # fmt: skip


def test_lines_end_with_their_files_and_marks_are_dropped(write, folder):
    files = [write("a.txt", b"\xef\xbb\xbfone two"), write("b.txt", "three\n\n"), write("c.txt", "one")]
    corpus = prepare(files, folder, **CHOICES)
    names = [[corpus.tokenizer.vocab[i] for i in sentence] for sentence in sentences(corpus)]
    assert names == [["one", "two"], ["three"], ["one"]]
    assert [source.path for source in corpus.sources] == files


@pytest.mark.parametrize("length", [9, 10, 11, 20, 21, 95])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_long_sentence_is_cut_into_equal_parts_however_it_is_read(length, parts):
    cutter = Sentences(longest=10)
    read = [2, *[length // parts] * (parts - 1), length - length // parts * (parts - 1)]
    offsets = [cutter.offsets(np.array(read[:2]), ends_line=parts == 1)]
    offsets += [cutter.offsets(np.array([n]), ends_line=k == parts - 1) for k, n in enumerate(read[2:], 1)]
    offsets += [cutter.offsets(np.array([1]), ends_line=True), cutter.end()]
    lengths = np.diff(np.concatenate(offsets))
    assert (lengths[0], lengths[-1]) == (2, 1)
    assert sum(lengths[1:-1]) == length
    assert len(lengths[1:-1]) == -(-length // 10) == cutter.count - 2
    assert max(lengths[1:-1]) - min(lengths[1:-1]) <= 1


def test_the_minimum_count_is_chosen_by_the_size_of_the_text(write, folder):
    corpus = prepare(write("text.txt", "a b\n" * 25_000 + "once\n"), folder, **CHOICES | {"min_count": None})
    assert corpus.min_count == 2
    assert corpus.notes == ["minimum count 2, chosen for 100,005 bytes of text"]
    assert list(corpus.tokenizer.vocab)[3:] == ["a", "b"]


def test_a_minimum_count_above_every_count_is_said_with_the_highest(write, folder):
    path = write("small.txt", "the cat and the dog\n")
    with pytest.raises(
        CorpusError, match=r"none of the 4 distinct tokens occurs 5 times.*'the', occurs 2 times"
    ):
        prepare(path, folder, **CHOICES | {"min_count": 5})


@pytest.mark.parametrize("content", ["", " \n\t\n"], ids=["no bytes", "white space"])
@pytest.mark.parametrize("tokenizer", [None, learn("a"), Tokenizer.train_from_iterator(["a"], "unigram", 6)])
def test_an_empty_corpus_is_refused(write, folder, content, tokenizer):
    path = write("empty.txt", content)
    with pytest.raises(
        CorpusError, match=r"no token that the vocabulary knows \(.*empty.txt: \d bytes in all\)"
    ):
        prepare(path, folder, **CHOICES | {"tokenizer": tokenizer})


def test_a_vocabulary_too_large_for_a_table_is_refused(write, folder, monkeypatch):
    monkeypatch.setattr(vocabulary, "MOST_WORDS", 3)
    with pytest.raises(
        CorpusError, match=r"more than 3 distinct words \(4 characters\) occur 1 times or more"
    ):
        prepare(write("text.txt", "a b c d"), folder, **CHOICES)


def test_other_words_than_the_two_kinds_are_refused(write, folder):
    with pytest.raises(VocabError, match="words must be 'word' or 'whitespace', found 'bpe'"):
        prepare(write("text.txt", "a"), folder, **CHOICES, words="bpe")


@pytest.mark.parametrize("setting", ["threads", "min_count", "longest"])
def test_settings_of_nothing_are_refused(write, folder, setting):
    with pytest.raises(ShapeError, match=f"{setting} must be .* 1"):
        prepare(write("text.txt", "a b"), folder, **CHOICES | {setting: 0})


def test_progress_is_told_and_stop_leaves_nothing_behind(write, folder, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 100)
    path = write("text.txt", "a b c d e f g\n" * 1000)
    told: list[tuple[str, float]] = []
    prepare(path, folder, **CHOICES, progress=lambda *event: told.append(event))
    for phase in ("counting", "encoding"):
        fractions = [fraction for name, fraction in told if name == phase]
        assert len(fractions) > 10
        assert fractions == sorted(fractions)
        assert 0 < fractions[0] < 0.5
        assert fractions[-1] == 1
    for phase in ("counting", "encoding"):
        told.clear()
        with pytest.raises(KeyboardInterrupt):
            prepare(
                path,
                folder,
                **CHOICES,
                progress=lambda *event: told.append(event),
                stop=lambda phase=phase: [name for name, _ in told].count(phase) == 5,
            )
        assert not list(folder.iterdir())


def test_without_numba_the_extra_is_named(write, folder):
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "from tokenspace.train.corpus import MissingExtra, prepare\n"
        f"choices = dict(tokenizer=None, min_count=1, lowercase=True, threads=1)\n"
        f"try: prepare({str(write('text.txt', 'a b'))!r}, {str(folder)!r}, **choices)\n"
        "except MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "preparing a corpus needs packages that are not installed; run: pip install"
    )
    assert "'numba>=0.61' 'zstandard>=0.23'" in done.stdout
