import hashlib
import io
import os
import threading
from pathlib import Path

import gensim.test.utils
import numpy as np
import pytest
from gensim.models import KeyedVectors

import tokenspace as ts
from tokenspace.errors import CorpusError, TableFormatError
from tokenspace.geometry import word_pairs
from tokenspace.table import Table
from tokenspace.vocab import Vocab

WORDSIM = gensim.test.utils.datapath("wordsim353.tsv")
SIMLEX = gensim.test.utils.datapath("simlex999.txt")


def keyed_vectors(table: Table) -> KeyedVectors:
    vectors = KeyedVectors(table.dim)
    vectors.add_vectors(list(table.vocab), np.asarray(table.weight, np.float32))
    return vectors


@pytest.fixture(scope="module")
def builtin():
    return ts.load("wordnet")


@pytest.fixture
def compass() -> Table:
    """Cosines with north: 1, 0.8, 0.6, 0, -1."""
    rows = np.array([[0, 1], [0.6, 0.8], [0.8, 0.6], [1, 0], [0, -1]], np.float32)
    return Table(rows, Vocab(["north", "nne", "ne", "east", "South"]))


@pytest.mark.parametrize("file", [WORDSIM, SIMLEX], ids=["wordsim", "simlex"])
@pytest.mark.parametrize("limit", [None, 9000])
@pytest.mark.parametrize("name", ["builtin", "minilm"])
def test_pairs_are_gensims(request, name, file, limit):
    table = request.getfixturevalue(name)
    score = word_pairs(table, file, limit=limit)
    _, (rho, _), unknown = keyed_vectors(table).evaluate_word_pairs(file, restrict_vocab=limit or 300_000)
    assert score.spearman == pytest.approx(rho, abs=5e-5)
    assert 100 * score.skipped / (score.used + score.skipped) == pytest.approx(unknown)


def test_where_case_alone_differs_it_is_gensims_too(write, rng):
    tokens = [f"{'aA'[k % 2]}{k // 4}" for k in range(60)]  # each reading four times, twice as another token
    tokens = list(dict.fromkeys(tokens))
    table = Table(rng.normal(size=(len(tokens), 8)).astype(np.float32), Vocab(tokens))
    lines = [f"a{i}\tA{j}\t{(i * j) % 7}" for i in range(15) for j in range(15)]
    file = write("pairs.tsv", "\n".join(lines))
    vectors = keyed_vectors(table)
    for case in ("lower", "keep"):
        score = word_pairs(table, file, case=case)
        wanted = vectors.evaluate_word_pairs(str(file), case_insensitive=case == "lower")
        assert score.spearman == pytest.approx(wanted[1][0], abs=5e-5)
    assert word_pairs(table, file).spearman != word_pairs(table, file, case="keep").spearman


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tabs", "north\tnne\t3\nnorth\tne\t2.5\nnorth\teast\t-1e0\n"),
        ("commas", 'north,nne,3\n"north", "ne",2.5\r\nnorth,east,-1\n'),
        ("spaces", "north nne 3\nnorth  ne   2.5\n  north east -1"),
        ("comments", "# a, b\t c\n\nnorth\tnne\t3\n#\nnorth\tne\t2.5\n\nnorth\teast\t-1\n"),
        ("byte order mark", "\ufeffnorth\tnne\t3\nnorth\tne\t2.5\nnorth\teast\t-1\n"),
        ("negative", "north\tnne\t0\nnorth\tne\t-2\nnorth\teast\t-3\n"),
    ],
)
def test_formats(compass, write, name, content):
    score = word_pairs(compass, write("pairs", content))
    assert (score.spearman, score.used, score.skipped, score.header) == (1.0, 3, 0, None)


@pytest.mark.parametrize("delimiter", ["\t", ",", " "])
def test_a_header_is_said(compass, write, delimiter):
    lines = [["one", "two", "score"], ["north", "nne", "3"], ["north", "ne", "1"]]
    score = word_pairs(compass, write("pairs", "\n".join(delimiter.join(line) for line in lines)))
    assert score.header == delimiter.join(lines[0])
    assert (score.used, score.skipped) == (2, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\t1\na\tb\n", r"line 2: .* found 2 columns between tabs; the line is 'a\\tb'"),
        ("a\tb\t1\na\tb\t1\t2\n", "line 2: .* found 4 columns"),
        ("a,b,1\n\n# x\na,b\n", "line 4: .* found 2 columns between commas"),
        ("a b c d 1\n", "line 1: .* found 5 columns between spaces"),
        ("word\n", "line 1: .* found 1 column between spaces"),
        ("a\t\t1\n", "line 1: .* one of them empty"),
        ("a\tb\t1\na\tb\thigh\n", "line 2: the score must be a finite number, found 'high'"),
        ("a\tb\t7,5\nc\td\t1\n", "line 1: the score must be a finite number, found '7,5'"),
        ("a\tb\t-.5e\n", "line 1: the score must be a finite number"),
        ("one\ttwo\tscore\nanother\theader\tscore\n", "line 2: the score must be a finite number"),
        ("a\tb\tnan\n", "line 1: the score must be a finite number, found 'nan'"),
        ("a\tb\t1\na\tb\t-inf\n", "line 2: .* found '-inf'"),
        ("a\tb\t1\na\tb\t1_000\n", "line 2: .* found '1_000'"),
        ("a\tb\t1\na\tb\t6,77\n", "line 2: .* found '6,77'"),
        ("", "holds no word pairs"),
        ("# only this\n", "holds no word pairs"),
        ("one\ttwo\tscore\n", "holds no word pairs"),
        ('a,b,1\n"' + "x" * 200_000 + '",b,1\n', "line 2: it can't be read as CSV"),
    ],
)
def test_what_is_no_pair_is_named_by_file_and_line(compass, write, content, message):
    with pytest.raises(TableFormatError, match=message) as error:
        word_pairs(compass, write("pairs.tsv", content))
    assert "pairs.tsv" in str(error.value)
    assert len(str(error.value)) < 500


def test_what_is_no_text_is_named(compass, write, tmp_path):
    for path in (tmp_path / "missing", tmp_path, write("utf16", "a\tb\t1\n".encode("utf-16"))):
        with pytest.raises(CorpusError, match=path.name):
            word_pairs(compass, path)


def test_a_stream_of_bytes_is_a_file_too(compass, write):
    content = b"\xef\xbb\xbfnorth nne 3\r\nnorth ne 2\rnorth east 1\n"
    path = write("pairs", content)
    from_path, from_stream = word_pairs(compass, path), word_pairs(compass, io.BytesIO(content))
    assert (from_path.file, from_stream.file) == (str(path), "stream")
    assert (from_stream.used, from_stream.spearman) == (from_path.used, from_path.spearman) == (3, 1.0)
    assert from_stream.record["file"] == from_path.record["file"] | {"name": "stream"}


def test_a_pipe_is_read_once(compass, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"north nne 3\nnorth ne 2\n",))
    writer.start()
    assert word_pairs(compass, tmp_path / "pipe").used == 2
    writer.join()


def test_a_list_that_never_ends_is_refused(compass, write, monkeypatch):
    content = "north nne 3\nnorth ne 2\n"
    monkeypatch.setattr("tokenspace.geometry.evaluation.LARGEST_FILE", len(content))
    assert word_pairs(compass, write("fits", content)).used == 2
    with pytest.raises(CorpusError, match="large holds more than 23 bytes"):
        word_pairs(compass, write("large", content + "\n"))


def test_unknown_words_are_skipped(compass, write):
    score = word_pairs(compass, write("pairs", "north nne 3\nnorth ne 2\nnorth nowhere 1\nNORTH south 0\n"))
    assert (score.used, score.skipped, score.spearman) == (3, 1, 1.0)
    kept = word_pairs(
        compass, write("pairs", "north nne 3\nnorth ne 2\nnorth South 1\nNORTH nne 0\n"), case="keep"
    )
    assert (kept.used, kept.skipped) == (3, 1)


def test_the_limit_leaves_rows_out(compass, write):
    file = write("pairs", "north nne 3\nnorth ne 2\nnorth east 1\n")
    assert word_pairs(compass, file, limit=3).skipped == 1


def test_composed_words_are_means_of_pieces_and_counted(minilm, write):
    file = write("pairs", "happiness unhappiness 3\nking queen 2\nking carrot 1\n")
    without, composed = word_pairs(minilm, file), word_pairs(minilm, file, compose=True)
    assert (without.used, without.skipped, without.composed) == (2, 1, 0)
    assert (composed.used, composed.skipped, composed.composed) == (3, 0, 1)
    pieces = np.mean([minilm[piece] for piece in ("un", "##ha", "##pp", "##iness")], axis=0)
    below = ts.geometry.cosine(pieces, minilm["happiness"]) < ts.geometry.cosine(
        minilm["king"], minilm["queen"]
    )
    assert (composed.spearman < 1) == below
    assert without.record["settings"]["compose"] is False
    assert composed.record["settings"]["compose"] is True


@pytest.mark.parametrize("content", ["x y 1\n", "north nne 1\n", "north nne 2\nnorth ne 2\n"])
def test_no_correlation_of_what_does_not_vary(compass, write, content):
    score = word_pairs(compass, write("pairs", content))
    assert (score.spearman, score.interval) == (None, None)


def test_a_broken_row_is_told_if_it_is_needed(write):
    rows = np.ones((3, 2), np.float32)
    rows[1, 0] = np.nan
    table = Table(rows, Vocab(["a", "b", "c"]))
    with pytest.raises(TableFormatError, match=r"row 1 of the table, token 'b'"):
        word_pairs(table, write("pairs", "a b 1\na c 2\n"))
    assert word_pairs(table, write("pairs", "a c 1\na c 2\n")).used == 2


def test_pairs_are_compared_in_blocks_alike(builtin, monkeypatch):
    whole = word_pairs(builtin, WORDSIM)
    monkeypatch.setattr("tokenspace.geometry.evaluation.ROWS_AT_ONCE", 100)
    assert word_pairs(builtin, WORDSIM) == whole


def test_the_record_lets_it_be_repeated(builtin):
    record = word_pairs(builtin, WORDSIM, case="keep", limit=20_000).record
    assert record == {
        "tokenspace": ts.__version__,
        "table": {
            "sha256": ts.geometry.table_sha256(builtin),
            "rows": 33_003,
            "dim": 100,
            "dtype": "float16",
        },
        "settings": {"case": "keep", "limit": 20_000, "compose": False},
        "file": {
            "name": "wordsim353.tsv",
            "bytes": 7186,
            "sha256": hashlib.sha256(Path(WORDSIM).read_bytes()).hexdigest(),
        },
    }
    assert word_pairs(builtin, WORDSIM).record["settings"]["limit"] is None
