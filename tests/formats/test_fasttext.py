import gzip
import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from gensim.models.fasttext import (
    FastText,
    load_facebook_model,
    load_facebook_vectors,
    save_facebook_model,
)
from gensim.test.utils import datapath

from tokenspace import geometry
from tokenspace.errors import TableFormatError, VocabError
from tokenspace.formats import native
from tokenspace.formats.fasttext import load, open_model
from tokenspace.source import Source
from tokenspace.subwords import fnv1a, ngrams

from .fasttext_files import OPTIONS, WORDS, matrix, model, model_parts


def test_the_layout_in_these_bytes(write):
    data = (
        b"\xba\x16\x4f\x2f" b"\x0c\0\0\0"
        b"\1\0\0\0" b"\5\0\0\0" b"\1\0\0\0" b"\1\0\0\0" b"\5\0\0\0" b"\1\0\0\0"
        b"\2\0\0\0" b"\1\0\0\0" b"\1\0\0\0" b"\3\0\0\0" b"\3\0\0\0" b"\x64\0\0\0"
        b"\0\0\0\0\0\0\0\0"
        b"\1\0\0\0" b"\1\0\0\0" b"\0\0\0\0" b"\x09\0\0\0\0\0\0\0" b"\xff\xff\xff\xff\xff\xff\xff\xff"
        b"a\0" b"\4\0\0\0\0\0\0\0" b"\0"
        b"\0" b"\2\0\0\0\0\0\0\0" b"\1\0\0\0\0\0\0\0" b"\0\0\x80\x3f" b"\0\0\x40\x40"
        b"\0" b"\1\0\0\0\0\0\0\0" b"\1\0\0\0\0\0\0\0" b"\0\0\x80\xbf"
    )  # fmt: skip
    found = open_model(write("m.bin", data))
    assert found.args == (1, 5, 1, 1, 5, 1, "ns", "cbow", 1, 3, 3, 100, 0.0)
    assert (list(found.words), found.counts.tolist(), found.tokens, found.version) == (["a"], [4], 9, 12)
    assert (found.input.tolist(), found.output.tolist()) == ([[1], [3]], [[-1]])
    table = load(write("m.bin", data))
    assert table.weight.tolist() == [[2]]  # (1 + 3) / 2: its own row, and that of "<a>"
    assert table.output.tolist() == [[-1]]


def test_a_words_row_is_the_mean_with_its_ngrams_and_an_unknown_word_that_of_its_ngrams(write):
    table = load(write("m.bin", model()))
    rows = matrix(7, 2, 1)
    for i, (word, _) in list(enumerate(WORDS))[1:]:
        ids = [i] + [3 + fnv1a(ngram) % 4 for ngram in ngrams(word.encode(), 2, 3)]
        np.testing.assert_allclose(table.weight[i], rows[ids].mean(axis=0), rtol=1e-6)
    assert table["</s>"].tolist() == rows[0].tolist()
    ids = [3 + fnv1a(ngram) % 4 for ngram in ngrams(b"dog", 2, 3)]
    np.testing.assert_allclose(table["dog"], rows[ids].mean(axis=0), rtol=1e-6)
    assert geometry.resolve(table, "dog").tokens == ("<d", "<do", "do", "dog", "og", "og>", "g>")
    assert table.output.tolist() == matrix(3, 2, 100).tolist()
    with pytest.raises(VocabError):
        table[""]


def test_provenance_says_how_the_model_was_trained(write):
    assert load(write("m.bin", model())).provenance["read_from"] == {
        "file": "m.bin",
        "format": "fasttext",
        "version": 12,
        **OPTIONS,
        "loss": "ns",
        "model": "sg",
        "tokens_of_text": 15,
    }


def test_words_are_composed_in_blocks(write, monkeypatch):
    words = [("a", 1), ("cat", 1), ("</s>", 1), ("né", 1)]
    path = write("m.bin", model(words=words))
    whole = load(path)
    assert whole["</s>"].tolist() == matrix(8, 2, 1)[2].tolist()
    monkeypatch.setattr("tokenspace.subwords._NGRAMS_AT_ONCE", 14)
    monkeypatch.setattr("tokenspace.subwords._NUMBERS_AT_ONCE", 2)
    np.testing.assert_array_equal(load(path).weight, whole.weight)
    numbers = matrix(8, 2, 1)
    numbers[3] = np.nan
    bad = write(
        "bad.bin", b"".join((model_parts(words=words) | {"input numbers": numbers.tobytes()}).values())
    )
    with pytest.raises(TableFormatError, match="row 3 of the table, token 'né'"):
        load(bad)


def test_the_whole_model(write):
    found = open_model(write("m.bin", model(labels=[("__label__é", 2)])))
    assert (list(found.words), found.counts.tolist()) == (["</s>", "cat", "né"], [7, 5, 3])
    assert (list(found.labels), found.label_counts.tolist()) == (["__label__é"], [2])
    assert isinstance(found.input, np.memmap)
    assert isinstance(found.output, np.memmap)
    table = load(found.path)
    for word in ["</s>", "cat", "né", "dog"]:
        np.testing.assert_array_equal(found.vector(word), table[word])
    assert found.vector("") is None
    assert found.ngrams("né") == ["<n", "<né", "né", "né>", "é>"]
    assert isinstance(table.output, np.memmap)
    assert isinstance(table.subwords.rows, np.memmap)


@pytest.mark.parametrize("options", [{"maxn": 0}, {"bucket": 0}, {"minn": 4}])
def test_without_ngrams_the_rows_are_the_files_own(write, options):
    path = write("m.bin", model(**options))
    table = load(path)
    assert table.subwords is None
    assert isinstance(table.weight, np.memmap)
    assert table.weight.tolist() == matrix(3, 2, 1).tolist()
    with pytest.raises(VocabError):
        table["dog"]
    found = open_model(path)
    assert (found.vector("dog"), found.ngrams("dog")) == (None, [])
    assert found.vector("cat").tolist() == [3, 4]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"loss": 1}, "a hierarchical softmax's rows belong to nodes of its tree"),
        ({"model": 3, "loss": 3, "labels": [("__label__a", 1)]}, "its rows belong to 1 label"),
    ],
)
def test_output_rows_that_belong_to_no_word_are_left_out_and_said_so(write, settings, reason):
    table = load(write("m.bin", model(**settings)))
    assert table.output is None
    assert table.provenance["read_from"]["output_left_out"] == reason


@pytest.mark.parametrize("settings", [{"loss": 2}, {"loss": 3}, {"loss": 4}, {"loss": 3, "model": 1}])
def test_output_rows_that_belong_to_words_are_kept(write, settings):
    assert load(write("m.bin", model(**settings))).output.tolist() == matrix(3, 2, 100).tolist()


def test_a_classifier_of_version_11_has_no_ngrams(write):
    """fastText itself reads it so: they came to classifiers with version 12."""
    labels = [("__label__a", 1)]
    assert load(write("m.bin", model(version=11, model=3, labels=labels))).subwords is None
    assert load(write("m.bin", model(version=12, model=3, labels=labels))).subwords is not None
    assert load(write("m.bin", model(version=11))).subwords is not None


def test_a_model_of_2016_has_neither_magic_nor_flags(write):
    old, new = load(write("old.bin", model(version=None))), load(write("new.bin", model()))
    np.testing.assert_array_equal(old.weight[1:], new.weight[1:])
    np.testing.assert_array_equal(old.output, new.output)
    assert "version" not in old.provenance["read_from"]


def test_an_unpruned_model_that_says_0_ngrams_are_kept_is_read_whole(write):
    """fastText 0.1 wrote 0 where -1 was meant (its issue 332); the matrix has every row."""
    parts = model_parts() | {"pruned": struct.pack("<q", 0)}
    whole = load(write("m.bin", b"".join(parts.values())))
    np.testing.assert_array_equal(whole.weight, load(write("n.bin", model())).weight)


@pytest.mark.parametrize("limit", [1, 2, 3, 9])
def test_a_limit_gives_the_first_words(write, limit):
    path = write("m.bin", model())
    part, whole = load(path, limit=limit), load(path)
    assert len(part) == min(limit, 3)
    assert list(part.vocab) == list(whole.vocab)[:limit]
    np.testing.assert_array_equal(part.weight, whole.weight[:limit])
    np.testing.assert_array_equal(part.output, whole.output[:limit])
    np.testing.assert_array_equal(part["dog"], whole["dog"])


def test_words_past_the_limit_are_not_checked(write):
    parts = model_parts(words=[("a", 1), (b"\xff", 1)])
    path = write("m.bin", b"".join(parts.values()))
    assert list(load(path, limit=1).vocab) == ["a"]
    with pytest.raises(TableFormatError, match="word 2"):
        load(path, limit=2)


@pytest.mark.parametrize("pack", ["gzip", "zip"])
@pytest.mark.parametrize("options", [{}, {"maxn": 0}])
def test_a_packed_model_is_the_same_table(write, tmp_path, pack, options):
    plain = load(write("m.bin", model(**options)))
    if pack == "gzip":
        path = write("m.bin.gz", gzip.compress(model(**options)))
    else:
        path = tmp_path / "all.zip" / "m.bin"
        with zipfile.ZipFile(path.parent, "w") as archive:
            archive.writestr("m.bin", model(**options))
    for table in (load(path), load(Source(path))):
        np.testing.assert_array_equal(table.weight, plain.weight)
        np.testing.assert_array_equal(table.output, plain.output)
        assert list(table.vocab) == list(plain.vocab)


def test_words_that_are_no_text(write):
    words = [("a", 1), (b"caf\xe9", 1), (b"caf\xe8", 1)]
    path = write("m.bin", model(words=words))
    at = path.read_bytes().index(b"caf\xe9")
    with pytest.raises(TableFormatError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}, word 2 (byte {at}): the token b'caf\\xe9' is not UTF-8")
    replaced = load(path, errors="replace")
    assert list(replaced.vocab) == ["a", "caf\ufffd", "caf\ufffd"]
    assert replaced.provenance["read_from"]["replaced_tokens"] == 2
    assert replaced.provenance["read_from"]["repeated_tokens"] == 1
    kept = load(path, errors="surrogateescape")
    assert list(kept.vocab) == ["a", "caf\udce9", "caf\udce8"]
    np.testing.assert_array_equal(replaced.weight, kept.weight)  # of the file's bytes, whatever their text
    ids = [1] + [3 + fnv1a(ngram) % 4 for ngram in ngrams(b"caf\xe9", 2, 3)]
    np.testing.assert_allclose(kept.weight[1], matrix(7, 2, 1)[ids].mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    "word", ["a b", "\u00a0", "\n", "", "\t", "a" * 65_536], ids=lambda word: repr(word)[:9]
)
def test_awkward_words_come_back(write, word, tmp_path):
    table = load(write("m.bin", model(words=[("a", 1), (word, 1)])))
    assert list(table.vocab) == ["a", word]
    native.save(table, tmp_path / "t")
    again = native.load(tmp_path / "t")
    assert list(again.vocab) == ["a", word]
    np.testing.assert_array_equal(again["dog"], table["dog"])


def test_the_end_of_a_line_has_ngrams_in_the_first_models_alone(write):
    new, old = open_model(write("m.bin", model())), open_model(write("old.bin", model(version=None)))
    assert new.vector("</s>").tolist() == load(new.path)["</s>"].tolist() == [1, 2]
    ids = [0] + [3 + fnv1a(ngram) % 4 for ngram in ngrams(b"</s>", 2, 3)]
    np.testing.assert_allclose(old.vector("</s>"), matrix(7, 2, 1)[ids].mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(load(old.path)["</s>"], old.vector("</s>"))
    absent = open_model(write("absent.bin", model(words=[("a", 1)])))
    assert absent.vector("</s>") is None
    assert new.ngrams("</s>") == []
    assert old.ngrams("</s>")[:2] == ["<<", "<</"]


FIXTURES = {
    "crime-and-punishment.bin": {"</s>"},
    "lee_fasttext.bin": set(),  # of 2016, when it had some
    "lee_fasttext_new.bin": {"</s>"},
    "toy-model.bin": set(),
    "toy-model-pretrained.bin": set(),
    "non_ascii_fasttext.bin": set(),
}
UNKNOWN = ["unknownword", "ЛИЦ", "né", "😀"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FIXTURES)
def test_gensims_fixtures_are_the_same_vectors_and_unknown_words_too(name):
    """But for "</s>", to which gensim gives n-grams: fastText has none there since 2017 (its .vec files
    show it).
    """
    table, theirs = load(datapath(name)), load_facebook_vectors(datapath(name))
    assert list(table.vocab) == theirs.index_to_key
    wrong = [i for i, word in enumerate(table.vocab) if word in FIXTURES[name]]
    right = np.setdiff1d(np.arange(len(table)), wrong)
    np.testing.assert_allclose(table.weight[right], theirs.vectors[right], rtol=1e-5, atol=1e-6)
    assert not any(np.allclose(table.weight[i], theirs.vectors[i]) for i in wrong)
    for word in UNKNOWN:
        np.testing.assert_allclose(table[word], theirs[word], rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["crime-and-punishment.bin", "lee_fasttext.bin", "toy-model.bin"])
def test_gensims_fixtures_have_the_same_output_and_counts(name):
    found, theirs = open_model(datapath(name)), load_facebook_model(datapath(name))
    np.testing.assert_array_equal(found.output, theirs.syn1neg)
    np.testing.assert_array_equal(found.input[len(found.words) :], theirs.wv.vectors_ngrams)
    assert found.counts.tolist() == [theirs.wv.get_vecattr(word, "count") for word in found.words]


@pytest.mark.parametrize(
    "settings",
    [
        {"sg": 1, "bucket": 12, "min_n": 1, "max_n": 3},
        {"sg": 0, "bucket": 50},
        {"sg": 1, "bucket": 50, "hs": 1, "negative": 0},
        {"sg": 1, "bucket": 1, "max_n": 0},
    ],
    ids=str,
)
def test_what_gensim_trains_and_writes_is_read(tmp_path, settings):
    theirs = FastText([["king", "né", "жизнь", "a"]] * 5, vector_size=4, min_count=1, workers=1, **settings)
    save_facebook_model(theirs, str(tmp_path / "m.bin"))
    table = load(tmp_path / "m.bin")
    assert list(table.vocab) == theirs.wv.index_to_key
    np.testing.assert_allclose(table.weight, theirs.wv.vectors, rtol=1e-5, atol=1e-6)
    if table.subwords is not None:
        np.testing.assert_allclose(table["queen"], theirs.wv["queen"], rtol=1e-5, atol=1e-6)
    if not settings.get("hs"):
        np.testing.assert_array_equal(table.output, theirs.syn1neg)


@pytest.mark.filterwarnings("ignore")
def test_gensims_fixture_in_cp852_keeps_its_bytes_and_their_ngrams():
    """gensim writes what is no UTF-8 as ``\\x82``, four characters, and takes the n-grams of these: its
    vectors of 69 words are not the model's.
    """
    path = datapath("cp852_fasttext.bin")
    with pytest.raises(TableFormatError, match="is not UTF-8"):
        load(path)
    table, theirs = load(path, errors="surrogateescape"), load_facebook_vectors(path)
    escaped = [
        word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") for word in table.vocab
    ]
    assert escaped == theirs.index_to_key
    text = np.array([word.isprintable() for word in table.vocab])
    assert (len(text), (~text).sum()) == (171, 69)
    np.testing.assert_allclose(table.weight[text], theirs.vectors[text], rtol=1e-5, atol=1e-6)
    replaced = load(path, errors="replace")
    assert replaced.provenance["read_from"]["replaced_tokens"] == 69
    assert replaced.provenance["read_from"]["repeated_tokens"] == 6


def test_gensims_fixture_of_a_classifier_which_gensim_does_not_read():
    """fastText's own .vec file of it holds its words' vectors, to five digits."""
    table = load(datapath("pang_lee_polarity_fasttext.bin"), errors="surrogateescape")
    lines = Path(datapath("pang_lee_polarity_fasttext.vec")).read_bytes().split(b"\n")[1:-1]
    assert [line.split(b" ")[0].decode("utf-8", "surrogateescape") for line in lines] == list(table.vocab)
    written = np.array([line.split()[-100:] for line in lines], np.float32)
    np.testing.assert_allclose(table.weight, written, rtol=1e-4)
    assert (table.output, table.subwords) == (None, None)


@pytest.mark.parametrize("name", ["crime-and-punishment", "lee_fasttext", "toy-model"])
def test_vectors_are_those_that_fasttext_wrote_beside_the_model(name):
    lines = Path(datapath(f"{name}.vec")).read_text(encoding="utf-8").split("\n")[1:-1]
    table = load(datapath(f"{name}.bin"))
    assert [line.split(" ")[0] for line in lines] == list(table.vocab)
    written = np.array([line.split()[1:] for line in lines], np.float32)
    np.testing.assert_allclose(table.weight, written, rtol=1e-4, atol=1e-6)


# What fastText 0.9.2 gives for crime-and-punishment.bin and toy-model.bin (its Python package)
FASTTEXT_GIVES = {
    "crime-and-punishment.bin": {
        "</s>": [0.19648102, 0.14883801, 0.069312185, 0.03630019, -0.09717959],
        "не": [0.011162816, 0.02186116, 0.14600176, 0.05529371, -0.012681567],
        "a": [-0.049920328, -0.030803688, -0.066686876, -0.022117563, 0.08852083],
        "unknownword": [0.010535566, 0.037196826, 0.025298879, 0.11161098, 0.03931654],
        "ЛИЦ": [-0.06571102, -0.006706874, 0.05489832, 0.0660048, -0.03198921],
    },
    "toy-model.bin": {
        "anarchism": [0.053744365, 0.16173856, 0.08507219, -0.16948241, 0.0606516],
        "né": [0.091542535, 0.10627737, 0.040549144, -0.19156936, 0.08100888],
        "😀": [-0.16795678, 0.034248374, 0.00023404202, -0.2045787, -0.05583073],
    },
}


@pytest.mark.parametrize("name", FASTTEXT_GIVES)
def test_known_and_unknown_words_are_bit_for_bit_fasttexts(name):
    table, whole = load(datapath(name)), open_model(datapath(name))
    for word, expected in FASTTEXT_GIVES[name].items():
        np.testing.assert_array_equal(table[word], np.array(expected, np.float32))
        np.testing.assert_array_equal(whole.vector(word), np.array(expected, np.float32))


_PEAK = """
import json, sys
from tokenspace.formats import fasttext
def peak():
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return {name: int(fields[name].split()[0]) / 1024 for name in ("VmHWM", "RssAnon")}
fasttext.load(sys.argv[2])
before = peak()
table = fasttext.load(sys.argv[1])
after = peak()
print(json.dumps([len(table), {name: after[name] - before[name] for name in after}]))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="peak memory is read from Linux's /proc")
def test_only_the_table_itself_takes_memory_of_its_own(tmp_path, write):
    """gensim#2724: of the file's 78 MB, the 38 MB of the output are not even read; of the input's 38 MB,
    pages are lent by the system. The words' vectors are all that is held.
    """
    words = [(f"w{i}", 1) for i in range(20_000)]
    path = write("m.bin", model(words=words, dim=500, bucket=1000))
    script = subprocess.run(
        [sys.executable, "-c", _PEAK, str(path), str(write("small.bin", model()))],
        check=True,
        capture_output=True,
        text=True,
    )
    rows, grown = json.loads(script.stdout)
    vectors = rows * 500 * 4 / 2**20
    assert rows == 20_000
    assert grown["RssAnon"] < vectors + 12
    assert grown["VmHWM"] < 2 * vectors + 30
