import zipfile

import ml_dtypes
import numpy as np
import pytest
from gensim.models import KeyedVectors
from safetensors.numpy import save_file

import tokenspace as ts
from tokenspace import formats
from tokenspace.errors import OutputError, TableFormatError, VocabError
from tokenspace.formats import gguf, glove, native, npz, word2vec
from tokenspace.formats import numpy as npy
from tokenspace.formats.convert import convert, losses
from tokenspace.formats.tokens import LONGEST_TOKEN

IN_FILES = [name for name in formats.WRITABLE if name != "static-embedding"]  # a folder is never replaced
FILES = {"t.vec": "word2vec-text", "t.bin": "word2vec-binary", "t.txt": "glove", "t.npy": "numpy"}


@pytest.fixture(scope="module")
def built_in() -> ts.Table:
    """The built-in table cut to 6,000 rows of 100: 7 MB of text, more than any reader takes at once."""
    table = ts.load("wordnet")
    vocab = ts.Vocab([table.vocab[i] for i in range(6_000)], special=table.vocab.special)
    return ts.Table(table.weight[:6_000], vocab, table.tokenizer, provenance=table.provenance)


def gensims(path, name) -> tuple[list[str], np.ndarray]:
    if name == "numpy":
        vectors = KeyedVectors(100)
        tokens = path.with_suffix(".vocab.txt").read_text("utf-8").split("\n")[:-1]
        vectors.add_vectors(tokens, np.load(path).astype(np.float32))
    else:
        vectors = KeyedVectors.load_word2vec_format(
            path, binary=name == "word2vec-binary", no_header=name == "glove"
        )
    return vectors.index_to_key, vectors.vectors


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # gensim leaves glove's open
@pytest.mark.parametrize(("file", "name"), FILES.items())
def test_6_000_rows_go_and_come_back_and_gensim_reads_them(file, name, built_in, tmp_path):
    ts.save(built_in, tmp_path / "in.safetensors")
    there = convert(tmp_path / "in.safetensors", tmp_path / file)
    dtype = [] if name == "numpy" else ["dtype"]
    files = [str(tmp_path / file), *([str(tmp_path / "t.vocab.txt")] if name == "numpy" else [])]
    assert there[:8] == (
        6_000,
        100,
        name,
        True,
        [*dtype, "tokenizer", "special", "provenance"],
        [],
        0,
        files,
    )
    assert there.read_as == "native"
    assert there.dtypes == ("float16", "float16" if name == "numpy" else "float32")
    back = convert(tmp_path / file, tmp_path / "back.safetensors")
    assert back[:7] == (6_000, 100, "native", True, [], [], 0)
    assert (back.read_as, back.dtypes[0]) == (name, there.dtypes[1])
    assert (back.renumbered, back.replaced) == (False, 0)
    again = ts.load(tmp_path / "back.safetensors")
    assert list(again.vocab) == list(built_in.vocab)
    bits = np.asarray(built_in.weight, np.float32).view(np.uint32)
    assert np.array_equal(np.asarray(again.weight, np.float32).view(np.uint32), bits)
    tokens, vectors = gensims(tmp_path / file, name)
    assert tokens == list(built_in.vocab)
    assert np.array_equal(vectors.view(np.uint32), bits)


def test_a_trained_table_opens_in_gensim(write, tmp_path):
    table = ts.train.skipgram([write("text", "the cat and the dog\n" * 50)], dim=100, epochs=1, threads=1)
    ts.save(table, tmp_path / "t.bin")
    tokens, vectors = gensims(tmp_path / "t.bin", "word2vec-binary")
    assert tokens == list(table.vocab)
    assert np.array_equal(vectors, table.weight)
    assert losses(table, "word2vec-binary") == ["tokenizer", "output", "special", "provenance"]


def table(*tokens: str, special: tuple[int, ...] = ()) -> ts.Table:
    weight = np.arange(2 * len(tokens), dtype=np.float32).reshape(-1, 2)
    return ts.Table(weight, ts.Vocab(tokens, special=special))


def test_a_token_that_would_be_lost_is_an_error_unless_asked_for(tmp_path):
    ts.save(table("a b", "c", "\n", "[SEP]", special=(3,)), tmp_path / "in")
    (tmp_path / "out").write_bytes(b"old")
    with pytest.raises(VocabError, match=r"token 'a b' at id 0 \(and 1 more such token\)"):
        convert(tmp_path / "in", tmp_path / "out", "word2vec-text")
    assert (tmp_path / "out").read_bytes() == b"old"
    done = convert(tmp_path / "in", tmp_path / "out", "word2vec-text", allow_loss=True)
    files = [str(tmp_path / "out")]
    assert done[:8] == (2, 2, "word2vec-text", False, ["rows", "special"], ["a b", "\n"], 0, files)
    assert done.renumbered
    again = ts.load(tmp_path / "out")
    assert list(again.vocab) == ["c", "[SEP]"]
    assert again.weight.tolist() == [[2, 3], [6, 7]]


@pytest.mark.parametrize(
    ("name", "tokens", "left_out", "as_first"),
    [
        ("glove", ["\ufeffa", "b", "\ufeffc", "PK\x03\x04"], ["\ufeffa"], 1),
        ("glove", ["\0", "a 1", "PK\x03\x04", "b", "", "\0"], ["\0", "a 1", "PK\x03\x04", ""], 2),
        ("glove", ["a 1", "b", "\ufeff"], ["a 1"], 0),
        ("numpy", ["a\r", "\ufeffa", "\ufeffb", "c", "\ufeffd"], ["a\r", "\ufeffa", "\ufeffb"], 2),
    ],
)
def test_a_token_no_file_can_begin_with_is_left_out_where_it_would(
    name, tokens, left_out, as_first, tmp_path
):
    ts.save(table(*tokens), tmp_path / "in")
    with pytest.raises(VocabError, match="would not be read back"):
        convert(tmp_path / "in", tmp_path / "out", name)
    assert not (tmp_path / "out").exists()
    done = convert(tmp_path / "in", tmp_path / "out", name, allow_loss=True)
    assert (done.left_out, done.as_first, done.lost[0], done.lossless) == (left_out, as_first, "rows", False)
    assert done.renumbered
    again = ts.load(tmp_path / "out")
    kept = [i for i in range(len(tokens)) if tokens[i] not in left_out or i == 5]
    assert list(again.vocab) == [tokens[i] for i in kept]
    assert again.weight.tolist() == [[2 * i, 2 * i + 1] for i in kept]


@pytest.mark.parametrize("name", ["glove", "numpy"])
def test_nothing_is_written_if_no_file_can_begin_with_any(name, tmp_path):
    ts.save(table("\ufeffa", "\ufeffb"), tmp_path / "in")
    with pytest.raises(TableFormatError, match="none of this table's tokens"):
        convert(tmp_path / "in", tmp_path / "out", name, allow_loss=True)
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_if_no_row_can_be(tmp_path):
    ts.save(table("a b"), tmp_path / "in")
    with pytest.raises(TableFormatError, match="none of this table's tokens"):
        convert(tmp_path / "in", tmp_path / "out.vec", allow_loss=True)
    assert not (tmp_path / "out.vec").exists()


def test_native_to_native_loses_nothing(tmp_path):
    assert convert("wordnet", tmp_path / "out").lost == []
    assert (tmp_path / "out").read_bytes() == formats.BUILT_IN["wordnet"].read_bytes()


def test_repeated_tokens_are_counted(tmp_path):
    ts.save(table("a", "b", "a"), tmp_path / "in")
    assert convert(tmp_path / "in", tmp_path / "out.vec").repeated == 1


@pytest.mark.parametrize("name", IN_FILES)
def test_a_table_is_not_written_onto_itself(name, tmp_path):
    ts.save(table("a", "b"), tmp_path / "t", name)
    (tmp_path / "link").symlink_to("t")
    before = (tmp_path / "t").read_bytes()
    for out in ("t", "link"):
        with pytest.raises(OutputError, match=r"is read from it; name another file"):
            convert(tmp_path / "t", tmp_path / out, "native")
    assert (tmp_path / "t").read_bytes() == before


def test_nor_onto_any_file_it_is_read_from(tmp_path, write, monkeypatch):
    ts.save(table("a", "b"), tmp_path / "t.npy")
    with pytest.raises(OutputError, match=r"t\.vocab\.txt: .*t\.npy is read from it"):
        convert(tmp_path / "t.npy", tmp_path / "t.vocab.txt")
    ts.save(table("a", "b"), tmp_path / "u.vocab.txt", "glove")
    (tmp_path / "u.npy").write_bytes(b"")
    with pytest.raises(OutputError, match=r"u\.vocab\.txt is read from it"):
        convert(tmp_path / "u.vocab.txt", tmp_path / "u.npy")
    assert ts.load(tmp_path / "u.vocab.txt").weight.tolist() == [[0, 1], [2, 3]]
    model = tmp_path / "model"
    model.mkdir()
    write("model/config.json", '{"vocab_size": 2}')
    write("model/vocab.txt", "[UNK]\na\n")
    save_file({"embeddings.word_embeddings.weight": np.ones((2, 4), np.float32)}, model / "model.safetensors")
    with pytest.raises(OutputError, match=r"is read from it"):
        convert(model, model / "model.safetensors")
    ts.save(table("a", "b"), tmp_path / "built-in")
    monkeypatch.setitem(formats.BUILT_IN, "wordnet", tmp_path / "built-in")
    with pytest.raises(OutputError, match=r"wordnet is read from it"):
        convert("wordnet", tmp_path / "built-in")


def test_bfloat16_keeps_its_values(tmp_path):
    weight = np.array([[0.1, 2]], ml_dtypes.bfloat16)
    ts.save(ts.Table(weight, ts.Vocab(["a"])), tmp_path / "in")
    assert convert(tmp_path / "in", tmp_path / "out.npy").lost == ["dtype"]
    assert np.array_equal(ts.load(tmp_path / "out.npy").weight, weight.astype(np.float32))


@pytest.mark.parametrize("damage", ["value", "sign of zero", "token"])
def test_a_file_that_reads_back_differently_is_not_called_equal(damage, tmp_path, monkeypatch):
    ts.save(table("a", "b"), tmp_path / "in")
    other = {
        "value": ts.Table(np.array([[0, 1], [2, 4]], np.float32), ts.Vocab(["a", "b"])),
        "sign of zero": ts.Table(np.array([[-0.0, 1], [2, 3]], np.float32), ts.Vocab(["a", "b"])),
        "token": table("a", "c"),
    }[damage]
    monkeypatch.setattr(glove, "load", lambda path, **reading: other)
    (tmp_path / "out.txt").write_text("old 1\n")
    with pytest.raises(TableFormatError, match="reads back as another table"):
        convert(tmp_path / "in", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "old 1\n"


@pytest.mark.parametrize("error", [TableFormatError("damaged"), KeyboardInterrupt()])
@pytest.mark.parametrize("name", IN_FILES)
def test_the_old_table_stays_until_the_new_one_is_read_back(name, error, tmp_path, monkeypatch):
    module = {"native": native, "glove": glove, "numpy": npy, "npz": npz, "gguf": gguf}.get(name, word2vec)
    ts.save(table("old"), tmp_path / "out", name)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}

    def fail(*arguments):
        raise error

    monkeypatch.setattr(module, "_load" if name == "numpy" else "load", fail)
    ts.save(table("old" if name == "numpy" else "new"), tmp_path.with_suffix(".in"))
    with pytest.raises(type(error)):
        convert(tmp_path.with_suffix(".in"), tmp_path / "out", name)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["word2vec-text", "word2vec-binary", "glove"])
def test_the_longest_token(name, tmp_path):
    ts.save(table("a" * LONGEST_TOKEN, "b"), tmp_path / "in")
    assert convert(tmp_path / "in", tmp_path / "out", name).lossless
    before = (tmp_path / "out").read_bytes()
    ts.save(table("b", "a" * (LONGEST_TOKEN + 1)), tmp_path / "in")
    with pytest.raises(VocabError, match=r"token 'aaa.{0,50}…' at id 1 .* it has 65,537 bytes"):
        ts.save(ts.load(tmp_path / "in"), tmp_path / "out", name)
    assert (tmp_path / "out").read_bytes() == before


@pytest.mark.parametrize("part", ["output", "special"])
@pytest.mark.parametrize("name", ["native", "gguf", "npz"])
def test_what_a_format_keeps_is_read_back_too(name, part, tmp_path, monkeypatch):
    if part not in formats.FORMATS[name].keeps:
        pytest.skip(f"{name} has no place for it")
    whole = table("a", "b", special=(1,))
    whole.output = whole.weight + 1
    ts.save(whole, tmp_path / "in")
    assert convert(tmp_path / "in", tmp_path / "out", name).lost == ([] if name != "npz" else ["special"])
    again = ts.load(tmp_path / "out")
    assert np.array_equal(again.output, whole.output)
    other = table("a", "b", special=(1,) if part == "output" else ())
    other.output = whole.weight if part == "output" else whole.output
    module = {"native": native, "gguf": gguf, "npz": npz}[name]
    monkeypatch.setattr(module, "load", lambda *given, **reading: other)
    with pytest.raises(TableFormatError, match="reads back as another table"):
        convert(ts.formats.BUILT_IN["wordnet"], tmp_path / "new", name, limit=2)


def test_what_is_read_can_be_cut_and_mended(tmp_path, write):
    path = write("x.vec", b"3 1\nb\xe9b 1\nb\xe8b 2\nc 3\n")
    with pytest.raises(TableFormatError, match=r"line 2 \(byte 4\): the token b'b\\xe9b' is not UTF-8"):
        convert(path, tmp_path / "out")
    done = convert(path, tmp_path / "out", errors="replace", limit=2)
    assert (done.rows, done.replaced, done.repeated) == (2, 2, 1)
    assert list(ts.load(tmp_path / "out").vocab) == ["b\N{REPLACEMENT CHARACTER}b"] * 2
    assert convert(path, tmp_path / "out", rows=[2, 0], errors="surrogateescape").renumbered
    assert list(ts.load(tmp_path / "out").vocab) == ["c", "b\udce9b"]


def test_a_tokenizer_that_some_rows_can_not_keep_is_named(tmp_path):
    done = convert("wordnet", tmp_path / "out", limit=100)
    assert (done.lost, done.renumbered, done.lossless) == (["tokenizer"], False, True)
    done = convert("wordnet", tmp_path / "out", rows=range(100, 200))
    assert (done.lost, done.renumbered) == (["tokenizer", "special"], True)  # no special one among them
    tokenizer = ts.Tokenizer.train_from_iterator(["a b"])
    vocab = ts.Vocab([*tokenizer.vocab, "\udcff"])
    rows = np.ones((len(vocab), 2), np.float32)
    ts.save(ts.Table(rows, vocab, tokenizer), tmp_path / "in")
    done = convert(tmp_path / "in", tmp_path / "out.gguf", allow_loss=True)
    assert done.lost == ["rows", "tokenizer"]


def test_what_an_earlier_file_lost_is_not_lost_again(tmp_path):
    np.save(tmp_path / "in.npy", np.array([[0.1, 1], [2, 3]]))
    (tmp_path / "in.vocab.txt").write_bytes(b"a\n\xff\n")
    first = convert(tmp_path / "in.npy", tmp_path / "one", rows=[1, 0], errors="replace")
    assert (first.rounded, first.replaced, first.renumbered, first.lossless) == (1, 1, True, False)
    assert first.dtypes == ("float64", "float32")
    again = convert(tmp_path / "one", tmp_path / "two")
    assert (again.rounded, again.replaced, again.renumbered, again.lossless) == (0, 0, False, True)
    assert again.dtypes == ("float32", "float32")


def test_tokens_that_no_text_reaches_are_counted(tmp_path):
    ts.save(table("New York", " a", "b"), tmp_path / "in")
    assert convert(tmp_path / "in", f"{tmp_path}/out/").unreachable == 1


def test_rows_taken_are_no_provenance(tmp_path):
    ts.save(table("a", "b"), tmp_path / "in.vec")
    assert convert(tmp_path / "in.vec", tmp_path / "out.vec", rows=[1, 0]).lost == []


def test_an_archive_s_own_tokens_are_not_beside_it(tmp_path):
    ts.save(table("a"), tmp_path / "p.npz")
    convert(tmp_path / "p.npz", tmp_path / "p.npy")
    assert convert(tmp_path / "p.npz", tmp_path / "p.npy").lossless


def test_a_packed_source_is_not_written_onto_either(tmp_path):
    ts.save(table("a"), tmp_path / "t.vec")
    with zipfile.ZipFile(tmp_path / "packed", "w") as archive:
        archive.write(tmp_path / "t.vec", "t.vec")
    before = (tmp_path / "packed").read_bytes()
    for source in (tmp_path / "packed", tmp_path / "packed/t.vec"):
        with pytest.raises(OutputError, match="is read from it"):
            convert(source, tmp_path / "packed", "native")
    assert (tmp_path / "packed").read_bytes() == before


def test_a_format_that_is_none():
    with pytest.raises(TableFormatError, match="no table format 'nope'"):
        losses(table("a"), "nope")
