"""Folders that sentence-transformers and model2vec encode with: theirs loaded here, ours loaded there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tokenspace.errors import OutputError, TableFormatError, VocabError
from tokenspace.formats import static_embedding
from tokenspace.formats.static_embedding import is_static, load, save
from tokenspace.formats.word_tokenizer import tokens_of, word_tokenizer
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.vocab import Vocab, placeholder

SENTENCES = [
    "The cat sat.",
    "",
    "zebra quux",
    "the the cat a unknown",
    "don't apple in New York",
    "é 日本 日 word " * 300,
]
WORDS = ["the", "a", "cat", "sat", ".", "don't", "日本", "New York", "é"]


def rows_of(count, dim=5, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


@pytest.fixture
def words():
    return Table(rows_of(len(WORDS)), Vocab(WORDS, special=[4]), provenance={"made": ["by hand", 1.5]})


@pytest.fixture(scope="module")
def trained():
    """A table over a tokenizer that was trained from words."""
    tokenizer = Tokenizer.train_from_iterator(["the cat sat.", "a dog sat on the cat"])
    return Table(rows_of(len(tokenizer.vocab)), tokenizer.vocab, tokenizer)


@pytest.fixture(scope="module")
def peers(tmp_path_factory, minilm, trained):
    """What both packages encode with our folders, and the folders that they write."""
    out = tmp_path_factory.mktemp("peers")
    padded = [*minilm.vocab, *(placeholder(len(minilm) + i) for i in range(3))]
    scaled = {"read_from": {"normalize": True}}
    tables = {
        "minilm": minilm,
        "padded": Table(rows_of(len(padded), 4), Vocab(padded, minilm.vocab.special), minilm.tokenizer),
        "words": Table(rows_of(len(WORDS)), Vocab(WORDS)),
        "half": Table(rows_of(len(WORDS)).astype(np.float16), Vocab(WORDS)),
        "scaled": Table(rows_of(len(WORDS)), Vocab(WORDS), provenance=scaled),
        "trained": trained,
    }
    for name, table in tables.items():
        save(table, out / name)
    program = Path(__file__).parent / "static_embedding_peers.py"
    command = [sys.executable, program, out, json.dumps(SENTENCES), *(out / name for name in tables)]
    offline = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=offline, check=False)
    assert done.returncode == 0, done.stderr
    return out, tables, dict(np.load(out / "ours.npz"))


def means(table, tokenizer, without=None):
    """The mean of the table's rows for each sentence's ids, in float64; zero for none."""
    found = []
    for sentence in SENTENCES:
        ids = [i for i in tokenizer.inner.encode(sentence, add_special_tokens=False).ids if i != without]
        rows = np.asarray(table.weight[ids], np.float64)
        found.append(rows.mean(axis=0) if ids else np.zeros(table.dim))
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minilm", "padded", "words", "half", "scaled", "trained"])
def test_both_packages_encode_sentences_with_a_folder_of_ours(peers, name):
    """As the mean of the table's rows; model2vec leaves out [UNK], sentence-transformers counts it."""
    out, tables, found = peers
    table = tables[name]
    tokenizer = table.tokenizer or Tokenizer.load(out / name / "tokenizer.json")
    most = np.full((len(SENTENCES), 1), 2e-3 if name == "half" else 1e-6)
    most[-1] = max(most[-1], 2e-5)  # of 600 tokens, added up in float32
    whole, known = means(table, tokenizer), means(table, tokenizer, tokenizer.unk_id)
    uncut = slice(-1) if name in ("minilm", "padded") else slice(None)  # their tokenizer.json says 128 tokens
    assert (np.abs(found[f"{name}.static"] - whole) <= most)[uncut].all()
    if name == "scaled":
        whole, known = (a / np.maximum(np.linalg.norm(a, axis=1), 1e-9)[:, None] for a in (whole, known))
    assert (np.abs(found[f"{name}.sbert"] - whole) <= most)[uncut].all()
    assert (np.abs(found[f"{name}.model2vec"] - known) <= most).all()
    assert not found[f"{name}.model2vec"][1].any()  # the empty text
    assert name not in ("words", "half", "trained") or not found[f"{name}.model2vec"][2].any()


@pytest.mark.slow
def test_folders_that_the_packages_write_load_bit_equal(peers):
    out, _, _ = peers
    theirs = np.load(out / "theirs.npz")
    expected = {
        "model2vec": (theirs["rows"], {"dtype": "float32"}),
        "sbert": (theirs["rows"], {"dtype": "float32"}),
        "bare": (theirs["rows"], {"dtype": "float32"}),
        "pickled": (theirs["rows"], {"dtype": "float32"}),
        "half": (theirs["rows"].astype(np.float16), {"dtype": "float16", "normalize": True}),
        "double": (theirs["rows"], {"dtype": "float64", "rounded_from": "float64"}),
        "int8": ((theirs["rows"] * 50).astype(np.int8).astype(np.float32), {"dtype": "int8"}),
        "folded": (
            theirs["folded"],
            {"dtype": "float32", "mapping": "5 tokens share 3 rows", "weights": "multiplied in"},
        ),
    }
    for name, (rows, notes) in expected.items():
        folder = out / "theirs" / name
        if name in ("model2vec", "half", "double", "int8", "folded"):
            notes["max_length"] = 512
        assert is_static(folder), name
        table = load(folder)
        assert table.weight.dtype == rows.dtype, name
        assert np.array_equal(table.weight, rows), name
        assert list(table.vocab) == ["[UNK]", "the", "cat", "sat", "dog"], name
        assert table.provenance == {"read_from": {"file": name, "format": "static-embedding"} | notes}
        assert table.tokenizer.encode("the dog").ids.tolist() == [1, 4]
        assert list(load(folder, limit=2).vocab) == ["[UNK]", "the"]


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=lambda kind: kind.__name__
)
def test_a_table_of_words_comes_back(words, tmp_path, dtype):
    table = Table(words.weight.astype(dtype), words.vocab, provenance=words.provenance)
    save(table, tmp_path / "out")
    back = load(tmp_path / "out")
    assert back.weight.dtype == (np.float16 if dtype == np.float16 else np.float32)
    assert np.array_equal(np.asarray(back.weight, np.float32), np.asarray(table.weight, np.float32))
    assert isinstance(back.weight, np.memmap)
    assert back.vocab == table.vocab
    assert back.provenance == table.provenance
    assert back.tokenizer is None


def test_a_table_with_a_tokenizer_keeps_it(trained, tmp_path):
    save(trained, tmp_path / "out")
    assert load_file(tmp_path / "out" / "model.safetensors").keys() == {"embeddings"}
    back = load(tmp_path / "out")
    assert back.tokenizer.to_json() == trained.tokenizer.to_json()
    assert back.vocab == trained.vocab
    assert np.array_equal(back.weight, trained.weight)


def test_rows_past_the_tokenizer_s_keep_their_places(trained, tmp_path):
    tokens = [*trained.vocab, placeholder(len(trained))]
    table = Table(rows_of(len(tokens)), Vocab(tokens, trained.vocab.special), trained.tokenizer)
    save(table, tmp_path / "out")
    back = load(tmp_path / "out")
    assert back.vocab == table.vocab
    assert load_file(tmp_path / "out" / "model.safetensors").keys() == {"embeddings", "mapping"}
    assert isinstance(back.weight, np.memmap)  # the mapping sends each to itself
    assert np.array_equal(back.weight, table.weight)


def test_a_prefix_has_no_tokenizer(trained, words, tmp_path):
    save(trained, tmp_path / "out")
    short = load(tmp_path / "out", limit=4)
    assert list(short.vocab) == list(trained.vocab)[:4]
    assert short.vocab.special == (0, 1, 2)
    assert np.array_equal(short.weight, trained.weight[:4])
    assert short.tokenizer is None
    assert load(tmp_path / "out", limit=1000).tokenizer is not None
    save(words, tmp_path / "words")
    assert load(tmp_path / "words", limit=2).vocab == Vocab(WORDS[:2], encoding="word")


def test_what_is_written_is_verified_before_it_has_its_name(words, tmp_path):
    seen = []

    def refuse(read):
        seen.append(read())
        raise TableFormatError("differs")

    with pytest.raises(TableFormatError, match="differs"):
        save(words, tmp_path / "out", refuse)
    assert np.array_equal(seen[0].weight, words.weight)
    assert os.listdir(tmp_path) == []


def test_a_word_is_found_whole_and_nothing_else_is(tmp_path):
    words = ["a", "the", "cat", "c", "##t", "a</w>", ".", "New York", "é"]
    tokenizer = Tokenizer.from_json(word_tokenizer(words, "x"))
    assert tokens_of(tokenizer) == words

    def found(text):
        return [words[i] for i in tokenizer.encode(text).ids]

    assert found("a cat, the c.") == ["a", "cat", "the", "c", "."]
    assert found("cab act dogc tc cc aa") == []  # no character of an unknown word is taken for a word
    assert found("CAT é e\u0301") == ["é", "é"]  # a word has a capital: case counts
    assert found("New York, New Yorkers") == ["New York"]
    lower = Tokenizer.from_json(word_tokenizer(["cat", "e\u0301t"], "x"))
    assert lower.encode("CAT E\u0301T").ids.tolist() == [0, 1]  # a word is not NFC: neither is the text


SPLIT = ["well-known", "U.S.", "10,000", "However,", "new_york", "New York", "[PAD]", "##ing", "👩\u200d💻"]
SPLIT += ["a\u00a0b", "a\nb", "...", "e.g.", "½x", "x½", "-", "½"]


def test_words_that_a_text_would_be_split_at_are_found(tmp_path):
    words = ["the", "known", "x", *SPLIT]
    tokenizer = Tokenizer.from_json(word_tokenizer(words, "x"))
    assert tokens_of(tokenizer) == words
    for i, word in enumerate(words):
        assert tokenizer.encode(word).ids.tolist() == [i]
        assert tokenizer.encode(f"zz {word} zz").ids.tolist() == [i]
    text = "In New York the (well-known) army of the U.S. x, 10,000..."
    found = ["New York", "the", "well-known", "the", "U.S.", "x", "10,000"]
    assert [words[i] for i in tokenizer.encode(text).ids] == found
    table = Table(rows_of(len(words)), Vocab(words))
    assert static_embedding.unreachable(table) == 0
    save(table, tmp_path / "out")
    assert load(tmp_path / "out").provenance == {}
    lower = Tokenizer.from_json(word_tokenizer(["well-known", "é-e"], "x"))
    assert lower.encode("WELL-KNOWN E\u0301-E").ids.tolist() == [0, 1]


def test_words_that_no_text_gives_are_counted(trained, tmp_path):
    words = [" the", "a", "\u00a0", "b\n", "c"]
    table = Table(rows_of(5), Vocab(words), provenance={"read_from": {"file": "x.vec"}, "made": 1})
    assert static_embedding.unreachable(table) == 3
    assert static_embedding.unreachable(trained) == 0
    save(table, tmp_path / "out")
    back = load(tmp_path / "out")
    assert list(back.vocab) == words
    assert back.provenance == {"read_from": {"file": "x.vec", "unreachable_tokens": 3}, "made": 1}
    tokenizer = Tokenizer.load(tmp_path / "out" / "tokenizer.json")
    assert tokenizer.encode("a the. c").ids.tolist() == [1, 4]  # no gap is taken for a word
    about(unreachable="3")(tmp_path / "out")
    with pytest.raises(TableFormatError, match="is not what tokenspace writes there"):
        load(tmp_path / "out")


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["a", "b", "a"], r"token 'a' is at id 0 and at 2; a text can't tell"),
        (["a", "\udcff"], r"token '\\udcff' at id 1 would not be read back: it is not UTF-8"),
        (["a", ""], "it is empty"),
    ],
)
def test_tokens_that_can_not_be_held(tmp_path, tokens, message):
    with pytest.raises(VocabError, match=message):
        save(Table(rows_of(len(tokens)), Vocab(tokens)), tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_a_tokenizer_that_names_other_tokens_is_refused(trained, tmp_path):
    other = Table(trained.weight, Vocab([*list(trained.vocab)[:-1], "zebra"]), trained.tokenizer)
    with pytest.raises(VocabError, match=r"is 'zebra' in the table and 'on' in its tokenizer"):
        save(other, tmp_path / "out")
    short = Table(trained.weight[:3], Vocab(list(trained.vocab)[:3]), trained.tokenizer)
    with pytest.raises(VocabError, match="each token needs one"):
        save(short, tmp_path / "out")


def test_numbers_and_provenance_that_can_not_be_held(words, tmp_path):
    broken = Table(words.weight.copy(), words.vocab)
    broken.weight[3, 1] = np.nan
    with pytest.raises(TableFormatError, match="row 3 of the table, token 'sat', holds NaN"):
        save(broken, tmp_path / "out")
    with pytest.raises(TableFormatError, match="provenance can't be written as JSON"):
        save(Table(words.weight, words.vocab, provenance={"x": {1, 2}}), tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(OutputError, match="can't be replaced in one step; name another"):
        save(words, tmp_path / "full")


# ── folders that are not what they should be ─────────────────────────────────────────────────────────


@pytest.fixture
def folder(words, tmp_path):
    save(words, tmp_path / "out")
    return tmp_path / "out"


def edit(path, change):
    content = json.loads(path.read_bytes())
    changed = change(content)
    path.write_text(json.dumps(content if changed is None else changed))


@pytest.mark.parametrize("name", ["../out", "/etc", "a/../../b", "c:x", "a\\b"])
def test_no_module_lies_outside_the_folder(folder, name):
    edit(folder / "modules.json", lambda modules: modules[0].update(path=name))
    with pytest.raises(TableFormatError, match="a module lies in the folder itself"):
        load(folder)


def tensors(**changed):
    def change(folder):
        held = load_file(folder / "model.safetensors") | changed
        save_file(
            {name: array for name, array in held.items() if array is not None}, folder / "model.safetensors"
        )

    return change


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


def about(**changed):
    return lambda folder: edit(folder / "config.json", lambda config: config["tokenspace"].update(changed))


NINE = np.arange(9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (tensors(embeddings=None, other=NINE), "has neither 'embeddings' nor 'embedding.weight'"),
        (tensors(embeddings=rows_of(8)), "the tokenizer has 9 tokens, the table 8 rows"),
        (
            tensors(embeddings=NINE.astype(np.float32)),
            r"'embeddings' is F32 \(9,\); here it must have 2 axes",
        ),
        (tensors(embeddings=np.ones((9, 2), np.int16)), "'embeddings' is I16"),
        (tensors(embeddings=np.ones((9, 0), np.float32)), "at least one row and column"),
        (tensors(mapping=NINE[:8]), "the tokenizer has 9 tokens, the table 8 rows"),
        (tensors(mapping=NINE + 1), "'mapping' sends token 8 to row 9 of a table of 9"),
        (tensors(mapping=NINE - 1), "'mapping' sends token 0 to row -1"),
        (tensors(mapping=NINE.astype(np.uint64) << 62), "'mapping' sends token 1"),
        (tensors(mapping=NINE.astype(np.float32)), "'mapping' is F32"),
        (tensors(weights=NINE), "'weights' is I64"),
        (tensors(weights=NINE[:5].astype(np.float64)), "'weights' has 5 entries for 9 tokens"),
        (text("model.safetensors", "rubbish"), "too few for a safetensors file"),
        (text("modules.json", "{"), "modules.json is not JSON"),
        (text("config.json", "[" * 100_000), "config.json is not JSON"),
        (text("config.json", "[]"), "is a JSON list; an object is needed"),
        (text("tokenizer.json", "{}"), "is no tokenizer.json"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "can't read .*tokenizer.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no model.safetensors"),
        (about(format=2), "is a table of format 2; this version reads format 1"),
        (about(special=["x"]), "'tokenspace' is not what tokenspace writes there"),
        (about(special=[9]), "id 9 is outside this vocabulary of 9 tokens"),
        (about(encoding="morse"), "'tokenspace' is not what tokenspace writes there"),
        (about(provenance=[]), "'tokenspace' is not what tokenspace writes there"),
        (
            lambda folder: edit(folder / "config.json", lambda config: config | {"tokenspace": 1}),
            "is not what",
        ),
    ],
)
def test_damaged_folders(folder, change, message):
    change(folder)
    with pytest.raises(TableFormatError, match=message):
        load(folder)


def test_what_is_such_a_folder(folder, tmp_path, minilm_folder):
    assert is_static(folder)
    (folder / "modules.json").unlink()
    assert is_static(folder)  # model2vec's alone
    edit(folder / "config.json", lambda config: config | {"model_type": "bert"})
    assert not is_static(folder)
    (folder / "config.json").unlink()
    assert is_static(folder)  # StaticEmbedding's alone
    (folder / "tokenizer.json").unlink()
    assert not is_static(folder)
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Transformer", "path": ""}]')
    assert not is_static(folder)
    (folder / "modules.json").write_text("rubbish")
    assert not is_static(folder)
    assert not is_static(tmp_path / "missing")
    assert not is_static(minilm_folder)


def test_a_model2vec_folder_without_modules_or_model_type(folder):
    (folder / "modules.json").unlink()
    (folder / "config.json").write_text('{"max_length": 512, "normalize": false}')
    assert is_static(folder)
    (folder / "model.safetensors").unlink()
    assert not is_static(folder)


def test_what_the_later_modules_do_is_kept_or_named(folder, tmp_path):
    modules = json.loads((folder / "modules.json").read_bytes())
    for kind in ("Dense", "Normalize"):
        modules.append(
            {"idx": 1, "name": "1", "path": f"1_{kind}", "type": f"sentence_transformers.models.{kind}"}
        )
    (folder / "modules.json").write_text(json.dumps(modules))
    edit(folder / "config.json", lambda config: config.pop("tokenspace") and None)
    edit(folder / "config.json", lambda config: config.update(max_length=7))
    table = load(folder)
    notes = {"normalize": True, "max_length": 7, "modules_left_out": ["Dense"]}
    assert table.provenance["read_from"].items() >= notes.items()
    save(table, tmp_path / "again")
    config = json.loads((tmp_path / "again" / "config.json").read_bytes())
    assert (config["normalize"], config["max_length"]) == (True, 7)
    kinds = [module["type"] for module in json.loads((tmp_path / "again" / "modules.json").read_bytes())]
    assert [kind.split(".")[-1] for kind in kinds] == ["StaticEmbedding", "Normalize"]
    (folder / "modules.json").write_text('[{"type": "StaticEmbedding"}, 3]')
    assert not is_static(folder)


def test_float64_rows_that_are_rounded_are_counted(folder):
    rows = np.ones((9, 5))
    rows[[2, 7], 1] = 0.1
    tensors(embeddings=rows)(folder)
    edit(folder / "config.json", lambda config: config.pop("tokenspace") and None)
    read_from = load(folder).provenance["read_from"]
    assert (read_from["dtype"], read_from["rounded_from"], read_from["rounded_rows"]) == ("float64",) * 2 + (
        2,
    )
    tensors(mapping=NINE[::-1].copy())(folder)
    assert load(folder, limit=2).provenance["read_from"]["rounded_rows"] == 1
    rows[3, 3] = 1e300
    tensors(embeddings=rows, mapping=None)(folder)
    with pytest.raises(TableFormatError, match=r"row 3 holds 1e\+300, too large for float32"):
        load(folder)


def test_memory_that_is_not_there_is_told(folder, monkeypatch):
    def none(*shape):
        raise MemoryError

    tensors(weights=NINE.astype(np.float32))(folder)
    monkeypatch.setattr(static_embedding.np, "empty", none)
    with pytest.raises(TableFormatError, match="memory can't hold 9 tokens of 5 numbers; limit= reads fewer"):
        load(folder)
