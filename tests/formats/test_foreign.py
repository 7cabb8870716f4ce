"""Separators of text tables, and files that hold no table: each is read, or named with what to do."""

import gzip
import io
import pickle
import re
import tarfile
import zipfile

import numpy as np
import pytest
from gensim.models import FastText, KeyedVectors, Word2Vec

import tokenspace as ts
from tokenspace.errors import TableFormatError, VocabError
from tokenspace.formats.open import FORMATS
from tokenspace.table import Table
from tokenspace.vocab import Vocab

ROWS = {"the": [0.1, 0.2, 0.3, 0.4], "cat": [1, -2, 3e-1, 4]}
END = ["\n", "\r\n", "\t\n", " \n", "\t\r\n"]


def lines(first, other, end="\n", rows=ROWS):
    return "".join(f"{token}{first}{other.join(map(str, row))}{end}" for token, row in rows.items())


@pytest.mark.parametrize("first", ["\t", " "])
@pytest.mark.parametrize("other", ["\t", " "])
@pytest.mark.parametrize("end", END)
@pytest.mark.parametrize("header", ["", "2 4\n", "2\t4\n", "2 4\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_tab_separates_as_a_space_does(first, other, end, header, packed, write):
    text = (header + lines(first, other, end)).encode()
    table = ts.load(write("t", gzip.compress(text) if packed else text))
    assert list(table.vocab) == list(ROWS)
    assert table.weight.tobytes() == np.array(list(ROWS.values()), np.float32).tobytes()


@pytest.mark.parametrize(
    "odd", ["odd\t5 6 7 8\n", "odd 5\t6 7\t8\n", "New York\t5\t6\t7\t8\n", "a\tb 5 6 7 8\n"]
)
@pytest.mark.parametrize("before", [0, 3, 200])
def test_lines_of_other_separators_may_stand_anywhere(odd, before, write):
    table = ts.load(write("t", ("the 1 2 3 4\n" * 200 + odd + "cat 1 2 3 4\n" * before).encode()))
    assert table.weight[200].tolist() == [5, 6, 7, 8]
    assert table.vocab[200] == odd.removesuffix("\n").rsplit("5", 1)[0].rstrip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the  0.1 0.2\ncat  1 2\n", r"line 1 \(byte 0\): an empty field, between two spaces or tabs"),
        ("the 0.1  0.2\ncat 1  2\n", r"line 1 \(byte 0\): an empty field"),
        ("the\t\t0.1 0.2\n", r"line 1 \(byte 0\): an empty field"),
        ("the 1 2\ncat\t1 2 3\n", r"line 2 \(byte 8\): a token and more than the 2 numbers"),
        ("the 1 2\ncat\t1\n", r"line 2 \(byte 8\): a token and 1 number, where 2 are needed"),
        ("2 2\nthe,1,2\ncat,1,2\n", r"line 2 \(byte 4\): .*commas stand where a space or tab must"),
        ("the,0.1,0.2\ncat,1,2\n", r"has commas between its numbers \(CSV\)"),
        ("the, 0.1, 0.2\ncat, 1, 2\n", r"has commas"),
        ('word,x,y\n"the",0.1,0.2\n"cat",1,2\n', r"has commas"),
        ("the;0,1;0,2\ncat;1,5;2\n", r"has semicolons"),
        ("the|0.1|0.2\n", r"has bars"),
        ("the 0,1 0,2\n", r"has decimal commas"),
        ("word\tx\ty\nthe\t1\t2\ncat\t3\t4\n", r"begins with b'word\\tx\\ty', no row and no header"),
        ("0.1\t0.2\t0.3\n1.1\t2.1\t3.2\n", r"has numbers alone, and no tokens: .* paste metadata\.tsv"),
        ("1 0.2 0.3\n-.5 2.1 3.2\n", r"has numbers alone"),
        ("7\tthe\t12\n8\tcat\t3\n", r"has columns between its first and its numbers"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_other_separators_are_named(text, message, end, write):
    text = text.replace("\n", end)
    with pytest.raises(TableFormatError, match=re.sub(r"byte \d", r"byte \\d", message)):
        ts.load(write("t", text.encode()))


@pytest.mark.parametrize("token", ["a\t5", "a\t", "a ", "a 5", "a\t "])
@pytest.mark.parametrize("name", ["glove", "word2vec-text"])
def test_a_token_that_a_reader_would_split_is_not_written(token, name, tmp_path):
    table = Table(np.ones((2, 2), np.float32), Vocab(["the", token]))
    assert FORMATS[name].refusal(token.encode())
    with pytest.raises(VocabError, match="would not be read back"):
        ts.save(table, tmp_path / "t", name)
    for suffix in (".npy", ".npz", ".safetensors"):
        ts.save(table, tmp_path / f"t{suffix}")
        assert list(ts.load(tmp_path / f"t{suffix}").vocab) == ["the", token]


# ── empty ──────────────────────────────────────────────────────────────────────────────────────────────────


EMPTY = {
    "nothing": b"",
    "a newline": b"\n",
    "blanks": b" \t\r\n\n",
    "nothing, packed": gzip.compress(b""),
    "blanks, packed": gzip.compress(b"\n \n"),
}


@pytest.mark.parametrize("content", EMPTY.values(), ids=EMPTY)
@pytest.mark.parametrize("name", ["t", "t.vec", "t.npy", "t.safetensors", "t.gguf", "t.pt"])
def test_an_empty_file_is_called_so(content, name, write):
    with pytest.raises(TableFormatError, match=rf"{name}.* the file is empty"):
        ts.load(write(name, content))


def test_an_empty_member_folder_or_archive_is_called_so(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x.txt", "")
    with zipfile.ZipFile(tmp_path / "b.zip", "w"):
        pass
    (tmp_path / "folder").mkdir()
    expected = {"a.zip": "the file is empty", "b.zip": "empty zip archive", "folder": "empty folder"}
    for name, message in expected.items():
        with pytest.raises(TableFormatError, match=message):
            ts.load(tmp_path / name)


@pytest.mark.parametrize(
    "content", [b"\nthe 1 2\n", b"\r\n\n1 2\nthe 1 2\n", b"   \nthe 1 2\n", b"\t\n \n1 2\nthe 1 2\n"]
)
def test_an_empty_first_line_is_named(content, write):
    with pytest.raises(TableFormatError, match="begins with an empty line"):
        ts.load(write("t", content))


# ── other programs' files ──────────────────────────────────────────────────────────────────────────────────


def saved(model, folder):
    model.save(str(folder / "model"))
    return (folder / "model").read_bytes()


def keyed_vectors():
    vectors = KeyedVectors(3)
    vectors.add_vectors(["the", "cat"], np.ones((2, 3), np.float32))
    return vectors


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_is_named_whatever_its_protocol(protocol, write, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)  # nothing asks for it
    expected = {
        "gensim's KeyedVectors: .*save_word2vec_format": keyed_vectors(),
        "numpy objects, which runs code": {"the": np.ones(2), "cat": np.ones(2)},
        "Python pickle, which runs code": {"the": [1.0, 2.0]},
        "(?s:.*)which runs code": [[1.0], [2.0]],
    }
    others = [
        (["a", "b"], np.ones((2, 3))),
        ({"a": 0}, np.ones((1, 3))),
        ("a", np.ones(3)),
        (("a", "b"), np.ones((2, 3))),
        (2, 1.5, None, True, 70_000, ["a"]),
        ((2, 3), ["a"]),
        "abc",
        "é" * 400,
        b"abc",
    ]
    for value in others:
        with pytest.raises(TableFormatError, match=r"is a (Python pickle|pickle of numpy).*which runs code"):
            ts.load(write("t.pkl", pickle.dumps(value, protocol)))
    for message, value in expected.items():
        with pytest.raises(TableFormatError, match=f"is a pickle of {message}|is a {message}|{message}"):
            ts.load(write("t.pkl", pickle.dumps(value, protocol)))


@pytest.mark.parametrize(
    ("model", "saving"),
    [
        (keyed_vectors, r"KeyedVectors\.load\(path\)\.save_word2vec_format"),
        (
            lambda: Word2Vec([["a", "b"] * 5], vector_size=3, min_count=1),
            r"Word2Vec\.load\(path\)\.wv\.save",
        ),
        (lambda: FastText([["a", "b"] * 5], vector_size=3, min_count=1, bucket=9), "save_facebook_model"),
    ],
)
def test_gensims_own_files_are_named_with_what_saves_them(model, saving, tmp_path, write):
    with pytest.raises(TableFormatError, match=f"is a pickle of gensim's .*{saving}"):
        ts.load(write("t", saved(model(), tmp_path)))


def tar():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("x.txt"))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x", b"PAR1\x15\0", "is Parquet"),
        ("x", b"\x89HDF\r\n\x1a\n\0", "is HDF5"),
        ("x", b"ARROW1\0\0", "is Arrow or Feather"),
        ("x", b"SQLite format 3\0", "is an SQLite database"),
        ("x", b"BZh91AY&SY", "is bzip2: unpack"),
        ("x", b"\xfd7zXZ\0", "is xz: unpack"),
        ("x", b"\x28\xb5\x2f\xfd\0", "is zstd: unpack"),
        ("x", b"7z\xbc\xaf\x27\x1c", "is a 7z archive"),
        ("x", tar(), "is a tar archive"),
        ("x", b"x\x9c\x00", "is zlib data, as joblib"),
        ("x", b"IxFI\x10\0\0\0\x02", "is a FAISS index"),
        ("x", b"  <!DOCTYPE html><html>404</html>", "is a web page"),
        ("x", b"<html>\n404 1 2\n</html>", "is a web page"),
        (
            "x",
            b"version https://git-lfs.github.com/spec/v1\noid 1\n",
            "is a Git LFS pointer",
        ),
        ("x", b'{"the": [0.1, 0.2]}', "is JSON"),
        ("x", b'[\n {"word": "the"}\n]', "is JSON"),
        ("x", "the 0.1 0.2\n".encode("utf-16"), "is UTF-16 text"),
        ("x", bytes(4096), "begins with zeros alone"),
        ("x.onnx", b"\x08\x07\x12\x07pytorch", "looks like an ONNX model"),
        ("x.ann", b"\x01\x02\x03", "looks like an Annoy index"),
        ("x.msgpack", b"\x83\xa1a\x01", "looks like MessagePack"),
        ("m.ckpt.index", b"\x00\x00\x05", "looks like a TensorFlow checkpoint"),
        ("m.ckpt.data-00000-of-00001", b"\x01\x02", "looks like a TensorFlow checkpoint"),
        ("x", b"words and words\n", "is no table in a format known here.* Read here are native, word2vec"),
    ],
)
def test_files_of_other_programs_are_named_with_what_to_do(name, content, message, write):
    with pytest.raises(TableFormatError, match=rf"{name} {message}"):
        ts.load(write(name, content))


def test_a_tensorflow_model_s_folder_is_named(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01")
    with pytest.raises(TableFormatError, match="holds a TensorFlow model"):
        ts.load(tmp_path)


@pytest.mark.parametrize("first", ["ORC", "PAR1", "RDX", "BZh", "{", "[", "<html", "c", "7z", "%PDF", "]q"])
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_no_token_makes_a_table_look_like_another_programs_file(first, separator, write):
    text = lines(separator, separator, rows={first: [1.5, 2], "b": [3, 4]})
    assert list(ts.load(write("t", text.encode())).vocab) == [first, "b"]
