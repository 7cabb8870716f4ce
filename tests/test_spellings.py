"""One word, several spellings: Unicode's equivalent forms, markers of tokenizers, added tokens as text."""

import unicodedata

import numpy as np
import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Inner

import tokenspace as ts
from tokenspace.errors import VocabError
from tokenspace.geometry import neighbors, similarity
from tokenspace.geometry.evaluation import WordRows
from tokenspace.geometry.word_pairs import word_pairs
from tokenspace.initializers import from_pretrained
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.vocab import Vocab
from tokenspace.web.spelling import Spellings

FORMS = ["NFC", "NFD"]
WORDS = ["café", "Å", "한국", "tiếng", "é", "שׁלום"]
PARTLY = "ti\u00ea\u0301ng"  # as Vietnamese keyboards write it: neither NFC nor NFD


def form(name, word):
    return unicodedata.normalize(name, word)


def table_of(*tokens, **options):
    rows = np.arange(1, 2 * len(tokens) + 1, dtype=np.float32).reshape(-1, 2)
    return Table(rows, Vocab(tokens, **options))


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("stored", FORMS)
@pytest.mark.parametrize("asked", FORMS)
def test_a_word_is_found_in_any_form_of_unicode(word, stored, asked):
    table = table_of("the", form(stored, word), "cat")
    query = form(asked, word)
    assert table.vocab.find(query).id == 1
    assert table[query].tolist() == [3, 4]
    assert similarity(table, query, 1).cosine == pytest.approx(1)
    assert {hit.id for hit in neighbors(table, query, k=2)} == {0, 2}
    assert WordRows(table).rows(query.upper()) == WordRows(table, case="keep").rows(query) == [1]
    assert Spellings(table.vocab).complete(query)[0] == 1
    weight, report = from_pretrained(Vocab([query]), table, np.random.default_rng(0))
    assert (weight.tolist(), report.matched, report.matched_by_case) == ([[3, 4]], 1, 0)


@pytest.mark.parametrize("asked", [form("NFC", PARTLY), form("NFD", PARTLY), PARTLY])
@pytest.mark.parametrize("mark", ["", "▁"])
def test_a_partly_composed_token_is_found(asked, mark):
    vocab = Vocab([f"{mark}the", mark + PARTLY], encoding="sentencepiece" if mark else "word")
    assert vocab.find(asked).id == 1


def test_where_both_forms_are_tokens_the_one_typed_is_meant():
    both = [form(name, "café") for name in FORMS]
    table = table_of(*both, "the")
    for i, word in enumerate(both):
        assert table.vocab.find(word).id == i
        assert WordRows(table, case="keep").row(word) == WordRows(table).row(word.upper()) == i
        _, report = from_pretrained(Vocab([word]), table, np.random.default_rng(0))
        assert report.matched == 1
    weight, _ = from_pretrained(Vocab(both), table, np.random.default_rng(0))
    assert weight.tolist() == table.weight[:2].tolist()


def test_an_exact_search_says_that_unicode_spells_it_otherwise():
    with pytest.raises(VocabError, match=r"Unicode has it spelled otherwise, as 'cafe\\u0301'"):
        Vocab([form("NFD", "café")]).id("café")
    with pytest.raises(VocabError, match="close spellings: 'café'"):
        Vocab(["café"]).find(form("NFD", "CAFÉ"))


@pytest.mark.parametrize("asked", FORMS)
def test_byte_level_tokens_are_found_in_any_form(asked):
    vocab = Vocab(["Ġthe", "ĠcafÃ©", "Ġcafe"], encoding="byte-level")
    assert vocab.find(form(asked, "café")).token == "ĠcafÃ©"


def test_pairs_of_another_form_are_used(tmp_path):
    table = table_of(*(form("NFC", word) for word in ("café", "thé", "noël")))
    (tmp_path / "pairs").write_text(form("NFD", "café thé 3\nthé noël 2\n"), encoding="utf-8")
    assert word_pairs(table, tmp_path / "pairs").used == 2


# ── markers ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("extra", [(), ("<unk>", "<s>", "</s>"), ("[PAD]", "[UNK]", "[SEP]")])
@pytest.mark.parametrize("marked", ["##x", "Ġx", "▁x", "x</w>", "x@@", "##", "Ġ", "▁", "Ċ", "<0x0A>"])
@pytest.mark.parametrize("suffix", [".vec", ".txt", ".npz", ".npy", ".bin"])
def test_a_list_of_words_stays_one_whatever_a_word_looks_like(extra, marked, suffix, tmp_path):
    words = [*extra, *(f"w{i}" for i in range(50)), marked, "x"]
    ts.save(table_of(*words), tmp_path / f"t{suffix}")
    table = ts.load(tmp_path / f"t{suffix}")
    assert table.vocab.encoding == "word"
    assert {table.vocab.find(word).id for word in words} == set(range(len(words)))
    assert WordRows(table, case="keep").row("x") == len(words) - 1
    assert table.vocab.kind(len(words) - 1) == "word-initial"


@pytest.mark.parametrize(
    ("tokens", "encoding"),
    [
        (["[PAD]", "[UNK]", "the", "cat", "dog", "sat", "mat", "on", "##s"], "wordpiece"),
        (["the", "##s", "##ing"], "wordpiece"),
        (["Ċ", "Ġthe", "s", "ing", "ed"], "byte-level"),
        (["Ġthe", "Ġcat", "s"], "byte-level"),
        (["▁the", "▁cat", "s"], "sentencepiece"),
        (["<0x0A>", "▁the", "s", "t"], "sentencepiece"),
        (["#tag", "@user", "the"], "word"),
    ],
)
def test_most_tokens_or_a_tokens_company_show_an_encoding(tokens, encoding):
    assert Vocab(tokens).encoding == encoding


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        ("word", "word"),
        ("whitespace", "word"),
        ("bpe", "byte-level"),
        ("wordpiece", "wordpiece"),
        ("unigram", "sentencepiece"),
    ],
)
def test_a_tokenizer_says_its_encoding(kind, encoding):
    texts = ["## ##x Ġ ▁ one ##two", "two three four"] * 3
    assert Tokenizer.train_from_iterator(texts, kind, 300 if kind == "bpe" else 60).vocab.encoding == encoding


# ── added tokens ───────────────────────────────────────────────────────────────────────────────────────────

ADDED = ["čas", "naïve", "Ġx", "<|čas|>", "Āx", "ĉas"]


@pytest.fixture
def byte_level():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Inner(models.BPE({token: i for i, token in enumerate([*alphabet, "Ġt"])}, [("Ġ", "t")]))
    inner.pre_tokenizer, inner.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    inner.add_tokens([AddedToken(token, normalized=False) for token in ADDED[:3]])
    inner.add_special_tokens(ADDED[3:4])
    inner.add_tokens(ADDED[4:])
    return Tokenizer.from_json(inner.to_str())


@pytest.mark.parametrize("suffix", [".safetensors", ".gguf", ""])
def test_added_tokens_are_text_not_bytes(byte_level, suffix, tmp_path):
    table = Table(np.ones((len(byte_level.vocab), 2), np.float32), byte_level.vocab, byte_level)
    if suffix:
        ts.save(table, tmp_path / f"t{suffix}")
        table = ts.load(tmp_path / f"t{suffix}")
    vocab = table.vocab
    ids = [257 + n for n in range(len(ADDED))]
    assert [vocab.text(i) for i in ids] == [vocab[i] for i in ids] == ADDED
    assert vocab.special == (260,)
    assert [vocab.find(token).token for token in ADDED] == ADDED
    assert [Spellings(vocab).complete(token)[0] for token in ADDED[:2]] == ids[:2]
    assert [WordRows(table, case="keep").row(token) for token in ADDED[:4]] == ids[:4]
    assert vocab.text(vocab.id("Ġt")) == "t"
    assert vocab.known("\ras") is None  # the bytes that the characters of "čas" would stand for
    assert {vocab.kind(i) for i in ids} == {"word-initial", "special"}


@pytest.mark.parametrize("text", ["čas", "a čas b", "naïve naïve", "été čas猫", "<|čas|>x", "ĉas tabĀx"])
def test_decoding_gives_the_text_back(byte_level, text):
    assert byte_level.decode(byte_level.encode(text).ids) == text.replace("<|čas|>", "")


def test_some_rows_keep_what_their_tokens_are(byte_level):
    table = Table(np.ones((len(byte_level.vocab), 2), np.float32), byte_level.vocab)
    assert byte_level.vocab.take(np.array([257, 0, 260])).added == (0,)
    assert ts.formats.selection.selected(table, [258, 257]).vocab.text(0) == "naïve"
