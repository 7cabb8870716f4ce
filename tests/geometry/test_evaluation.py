import hashlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import tokenspace as ts
from tokenspace.errors import ShapeError
from tokenspace.geometry.cosine import cosine
from tokenspace.geometry.evaluation import WordRows, pair_cosines, table_sha256
from tokenspace.subwords import Subwords
from tokenspace.table import Table
from tokenspace.vocab import Vocab


def table_of(tokens, encoding=None, tokenizer=None) -> Table:
    vocab = Vocab(tokens, encoding=encoding)
    return Table(np.arange(2 * len(tokens), dtype=np.float32).reshape(-1, 2), vocab, tokenizer)


def test_lower_case_compares_words_and_tokens_and_the_first_row_speaks():
    words = WordRows(table_of(["US", "us", "Us", "them"]))
    assert words.row("uS") == 0
    assert words.rows("us") == [0, 1, 2]
    assert words.rows("nobody") == []


def test_kept_case_is_as_written():
    words = WordRows(table_of(["US", "us"]), case="keep")
    assert (words.row("us"), words.row("US"), words.row("Us")) == (1, 0, None)


def test_repeated_tokens_are_all_read_and_the_first_speaks():
    assert WordRows(table_of(["a", "b", "a"]), case="keep").rows("a") == [0, 2]


def test_the_limit_is_the_whole_vocabulary():
    words = WordRows(table_of(["a", "b", "B", "c"]), limit=2)
    assert (words.rows("b"), words.row("c"), words.limit) == ([1], None, 2)
    assert WordRows(table_of(["a"]), limit=99).limit == 1
    assert WordRows(table_of(["a", "b"]), limit=np.int32(1)).limit == 1


@pytest.mark.parametrize(
    ("encoding", "tokens"),
    [
        ("word", ["king", "élan"]),
        ("byte-level", ["king", "Ġking", "ĠKing", "Ã©lan", "ĠÃ©lan"]),
        ("sentencepiece", ["king", "▁king", "▁élan"]),
        ("sentencepiece", ["king", "élan"]),
        ("wordpiece", ["##king", "king", "élan"]),
    ],
)
@pytest.mark.parametrize("word", ["king", "élan"])
def test_a_word_means_the_row_that_a_person_means(encoding, tokens, word):
    table = table_of(tokens, encoding)
    assert WordRows(table, case="keep").row(word) == table.vocab.find(word).id
    assert WordRows(table).row(word.upper()) == table.vocab.find(word).id


def test_forms_and_cases_of_a_byte_level_word():
    words = WordRows(table_of(["king", "Ġking", "ĠKing", "Ġkings"], "byte-level"))
    assert words.rows("king") == [1, 2, 0]


def test_bytes_have_no_case():
    """Ã and ã stand for the bytes C3 and E3: lower-casing one to the other would mix up characters."""
    words = WordRows(table_of(["ĠÃ©", "Ġã©"], "byte-level"))
    assert words.rows("é") == [0]


@pytest.mark.parametrize("limit", [0, -1, True])
def test_a_limit_is_at_least_one_row(limit):
    with pytest.raises(ShapeError, match="limit must be at least 1 row"):
        WordRows(table_of(["a"]), limit=limit)


@pytest.mark.parametrize("call", ["relations(table, case='upper')", "analogy_questions(table, '', '3cos')"])
def test_other_rules_are_refused(call):
    code = f"import tokenspace as ts; table = ts.load(); ts.geometry.{call}"  # here without type checks
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ShapeError" in run.stderr
    assert "is not known; allowed: " in run.stderr


def test_unknown_words_are_made_of_pieces(minilm):
    words = WordRows(minilm)
    assert [minilm.vocab[i] for i in words.pieces("Unhappiness")] == ["un", "##ha", "##pp", "##iness"]
    assert words.pieces("king") == [minilm.vocab.id("king")]
    assert words.pieces("☃☃") == []  # its piece is the unknown token
    assert WordRows(minilm, limit=3000).pieces("unhappiness") == []  # so are pieces beyond the limit
    assert WordRows(table_of(["a"])).pieces("b") == []  # no tokenizer


def test_unknown_words_are_made_of_ngrams_where_the_table_has_them():
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    subwords = Subwords(rows, minn=2, maxn=3)
    table = Table(np.eye(2, 4, dtype=np.float32), Vocab(["king", "queen"]), subwords=subwords)
    words = WordRows(table)
    assert np.array_equal(words.composed("Kingdom"), subwords.vector("kingdom"))
    found = pair_cosines(words, [("king", "kingdom"), ("king", "queen")], compose=True)
    expected = cosine(table["king"], subwords.vector("kingdom"))
    assert found.values.tolist() == [pytest.approx(expected), 0]
    assert (found.known, found.composed) == ([0, 1], 1)
    assert pair_cosines(words, [("king", "kingdom")], compose=False).known == []


def test_the_hash_is_of_header_rows_and_tokens():
    weight = np.array([[1, -2], [0.5, 0]], ml_dtypes.bfloat16)
    table = Table(weight, Vocab(["a", "bé"]))
    rows = bytes.fromhex("803f 00c0 003f 0000")
    offsets = np.array([0, 1, 4], "<i8").tobytes()
    assert (
        table_sha256(table) == hashlib.sha256(b"bfloat16 2 2\n" + rows + offsets + "abé".encode()).hexdigest()
    )


def test_the_hash_is_of_the_table_however_it_lies(tmp_path, monkeypatch, rng):
    weight = rng.normal(size=(50, 3)).astype(np.float16)
    table = Table(weight, Vocab([f"t{i}" for i in range(50)]))
    ts.save(table, tmp_path / "table")
    before = table_sha256(table)
    assert table_sha256(ts.load(tmp_path / "table")) == before
    assert table_sha256(Table(np.asfortranarray(weight), table.vocab)) == before
    monkeypatch.setattr("tokenspace.geometry.evaluation.ROWS_AT_ONCE", 7)
    assert table_sha256(table) == before


def test_the_hash_sees_every_part(rng):
    weight = rng.normal(size=(3, 4)).astype(np.float32)
    vocab = Vocab(["a", "b", "c"])
    changed = weight.copy()
    changed[2, 3] = np.nextafter(changed[2, 3], np.float32(9))
    tables = [
        Table(weight, vocab),
        Table(changed, vocab),
        Table(weight, Vocab(["a", "bc", ""])),
        Table(weight.astype(np.float16), vocab),
        Table(weight[:, :2], vocab),
    ]
    assert len({table_sha256(table) for table in tables}) == len(tables)
