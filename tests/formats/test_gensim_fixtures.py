"""Every file of vectors in gensim's wheel: read as gensim's own reader does, or right where that is wrong.

fastText's models (``*fasttext*.bin``, ``crime-and-punishment.bin``, ``toy-model*.bin``): test_fasttext.py.
"""

from pathlib import Path

import gensim
import numpy as np
import pytest
from gensim.models import KeyedVectors

import tokenspace as ts
from tokenspace.errors import TableFormatError
from tokenspace.formats import glove, word2vec

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # files it leaves open

DATA = Path(gensim.__file__).parent / "test" / "test_data"
TEXT = [
    "EN.1-10.cbow1_wind5_hs0_neg10_size300_smpl1e-05.txt",
    "IT.1-10.cbow1_wind5_hs0_neg10_size300_smpl1e-05.txt",
    "crime-and-punishment.vec",
    "high_precision.kv.txt",
    "lee_fasttext.vec",
    "toy-model.vec",
    "word2vec_pre_kv_c",
]
BINARY = ["euclidean_vectors.bin", "high_precision.kv.bin", "poincare_vectors.bin"]
NOT_UTF8 = {
    "pang_lee_polarity_fasttext.vec": 150,
    "w2v_keyedvectors_load_test.modeldata": 2,
}  # the first such line
GLOVE = ["test_glove.txt"]
COUNTS = {  # no vectors, but a token and a number a line all the same; gensim's reader drops what repeats
    "w2v_keyedvectors_load_test.vocab": 2,
}
CUT_OFF = "pretrained.vec"  # 3 rows in its header, and there is one

# Pickles of gensim's own classes, some with their arrays beside as .npy. Only gensim has these classes, as
# they were in the version that wrote the file, and opening a pickle runs what it says: let gensim read the
# file, and its save_word2vec_format write one that is read here.
PICKLES = [
    *("d2v-lee-v0.13.0", "doc2vec_old", "doc2vec_old_sep", "fasttext_old", "fasttext_old_sep"),
    *("ft_kv_3.6.0.model.gz", "ft_model_2.3.0", "lee_fasttext", "model-from-gensim-3.8.0.w2v"),
    *("old_keyedvectors_320.dat", "poincare_test_3.4.0", "varembed_vectors.pkl", "w2v-lee-v0.12.0"),
    *("word2vec_3.3", "word2vec_old", "word2vec_old_sep", "word2vec_pre_kv_py2", "word2vec_pre_kv_py3"),
    *("word2vec_pre_kv_py3_4", "word2vec_pre_kv_sep_py2", "word2vec_pre_kv_sep_py3"),
    "word2vec_pre_kv_sep_py3_4",
]


def check(name: str, ours: ts.Table, theirs: KeyedVectors) -> None:
    assert list(ours.vocab) == theirs.index_to_key
    assert np.array_equal(ours.weight.view(np.uint32), theirs.vectors.view(np.uint32)), name


@pytest.mark.parametrize("name", TEXT + BINARY)
def test_word2vec_files_are_read_as_gensim_reads_them(name):
    theirs = KeyedVectors.load_word2vec_format(DATA / name, binary=name in BINARY)
    ours = word2vec.load(DATA / name)
    assert ours.provenance["read_from"]["format"] == (word2vec.BINARY if name in BINARY else word2vec.TEXT)
    check(name, ours, theirs)


@pytest.mark.parametrize("name", TEXT + BINARY)
def test_their_first_rows_are_read_as_gensim_reads_them(name):
    theirs = KeyedVectors.load_word2vec_format(DATA / name, binary=name in BINARY, limit=2)
    check(name, word2vec.load(DATA / name, limit=2), theirs)


@pytest.mark.parametrize("name", GLOVE)
def test_glove_files_are_read_as_gensim_reads_them(name):
    theirs = KeyedVectors.load_word2vec_format(DATA / name, binary=False, no_header=True)
    check(name, glove.load(DATA / name), theirs)


@pytest.mark.parametrize(("name", "rows"), COUNTS.items())
def test_a_repeated_token_keeps_its_row_where_gensim_leaves_it_out(name, rows):
    ours = glove.load(DATA / name, errors="replace")
    lines = [line.rsplit(" ", 1) for line in (DATA / name).read_text(errors="replace").splitlines()]
    assert list(ours.vocab) == [token for token, _ in lines]
    assert ours.weight[:, 0].tolist() == [np.float32(number) for _, number in lines]
    assert len(ours) == rows


@pytest.mark.parametrize(("name", "line"), NOT_UTF8.items())
def test_tokens_that_are_no_utf8_are_refused_with_their_place_or_replaced(name, line):
    with pytest.raises(
        TableFormatError, match=rf"line {line} \(byte [\d,]+\): the token b'.*\\x.*is not UTF-8"
    ):
        word2vec.load(DATA / name)
    ours = word2vec.load(DATA / name, errors="replace")
    theirs = KeyedVectors.load_word2vec_format(DATA / name, unicode_errors="replace")
    assert ours.provenance["read_from"]["replaced_tokens"] == sum("\ufffd" in token for token in ours.vocab)
    assert np.array_equal(ours.weight[: len(theirs)], theirs.vectors)
    assert list(ours.vocab) == theirs.index_to_key
    lines = (DATA / name).read_bytes().split(b"\n")[1:]
    kept = word2vec.load(DATA / name, errors="surrogateescape")
    raw = [token.encode("utf-8", "surrogateescape") for token in kept.vocab]
    assert raw == [line.split(b" ")[0] for line in lines[: len(raw)]]


def test_a_file_that_is_cut_off_is_refused_as_gensim_refuses_it_and_its_first_row_is_read():
    with pytest.raises(EOFError):
        KeyedVectors.load_word2vec_format(DATA / CUT_OFF)
    with pytest.raises(
        TableFormatError, match=r"line 3 \(byte 54\): the file ends after 1 row; 3 are needed"
    ):
        word2vec.load(DATA / CUT_OFF)
    first = KeyedVectors.load_word2vec_format(DATA / CUT_OFF, limit=1)
    check(CUT_OFF, word2vec.load(DATA / CUT_OFF, limit=1), first)


@pytest.mark.parametrize("name", [*PICKLES, "old_d2v_models/d2v_3.4.0.mdl", "old_w2v_models/w2v_3.4.0.mdl"])
def test_a_pickle_of_gensims_classes_is_refused(name):
    with pytest.raises(TableFormatError):
        ts.load(DATA / name)


def test_no_other_file_of_theirs_is_a_table():
    listed = {*TEXT, *BINARY, *NOT_UTF8, *GLOVE, *COUNTS}
    found = set()
    for path in (path for path in DATA.rglob("*") if path.is_file() and path.stat().st_size < 1 << 22):
        for load in (word2vec.load, glove.load):
            try:
                load(path, errors="replace", limit=10)
            except TableFormatError:
                continue
            found.add(path.relative_to(DATA).as_posix())
    assert found - {CUT_OFF} == listed
