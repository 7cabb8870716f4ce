import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenspace.errors import TokenIdError, VocabError
from tokenspace.vocab import Found, Vocab, placeholder

GPT2 = Vocab(["king", "Ġking", "Ġ", "Ċ", "ing", "Ã©", "ĠcafÃ©", "<|endoftext|>", "Ġthe"], special=[7])
LLAMA = Vocab(["<unk>", "<s>", "<0x0A>", "▁king", "king", "▁", "▁the", "<unused3>"], special=[0, 1])
BERT = Vocab(["[PAD]", "[unused0]", "king", "##ing", "##s", "the"], special=[0])


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]))))
def test_every_token_comes_back_by_id(tokens):
    vocab = Vocab(tokens)
    assert list(vocab) == tokens
    assert [vocab[i] for i in range(len(vocab))] == tokens


@given(st.lists(st.binary(max_size=6), min_size=1))
def test_tokens_that_are_no_utf8_come_back_too(tokens):
    text = [token.decode("utf-8", "surrogateescape") for token in tokens]
    vocab = Vocab(text)
    assert list(vocab) == text
    assert vocab.data.tobytes() == b"".join(tokens)


def test_a_token_that_no_bytes_can_hold_is_refused():
    with pytest.raises(VocabError, match="can't be written as bytes"):
        Vocab(["\ud800"])


def test_duplicates_are_legal_and_the_id_is_the_key():
    vocab = Vocab(["a", "b", "a", "ab", "a"])
    assert vocab.id("a") == 0
    assert vocab.ids("a") == [0, 2, 4]
    assert vocab.ids("zzz") == vocab.ids("") == []
    assert Vocab(["", "x", ""]).ids("") == [0, 2]
    assert len(vocab) == 5


@pytest.mark.parametrize("i", [-1, 6, 10**12, np.int8(-1), True])
def test_an_id_outside_is_refused(i):
    for ask in (BERT.__getitem__, BERT.kind):
        with pytest.raises(TokenIdError, match="outside this vocabulary of 6 tokens"):
            ask(i)
    assert BERT[np.uint8(2)] == "king"


@pytest.mark.parametrize(
    ("vocab", "encoding"),
    [
        (GPT2, "byte-level"),
        (LLAMA, "sentencepiece"),
        (BERT, "wordpiece"),
        (Vocab(["the", "cat", "##"] + [f"word{i}" for i in range(400)]), "word"),
        (Vocab([]), "word"),
    ],
)
def test_the_encoding_is_told_by_its_marker(vocab, encoding):
    assert vocab.encoding == encoding


@pytest.mark.parametrize(
    ("vocab", "word", "token"),
    [
        (GPT2, "king", "Ġking"),
        (GPT2, "Ġking", "Ġking"),
        (GPT2, "ing", "ing"),
        (GPT2, "café", "ĠcafÃ©"),
        (GPT2, "\n", "Ċ"),
        (GPT2, "<|endoftext|>", "<|endoftext|>"),
        (LLAMA, "king", "▁king"),
        (LLAMA, "<0x0A>", "<0x0A>"),
        (BERT, "king", "king"),
        (BERT, "##ing", "##ing"),
    ],
)
def test_find_prefers_the_form_that_begins_a_word(vocab, word, token):
    assert vocab.find(word) == Found(vocab.id(token), token)


@pytest.mark.parametrize(
    ("vocab", "kinds"),
    [
        (
            GPT2,
            "continuation word-initial word-initial byte continuation continuation word-initial special "
            "word-initial",
        ),
        (LLAMA, "special special byte word-initial continuation word-initial word-initial unused"),
        (BERT, "special unused word-initial continuation continuation word-initial"),
        (Vocab(["cat", ",", placeholder(2)]), "word-initial word-initial unused"),
    ],
)
def test_kinds(vocab, kinds):
    assert [vocab.kind(i) for i in range(len(vocab))] == kinds.split()
    assert list(vocab.kinds()) == kinds.split()


@pytest.mark.parametrize(
    ("word", "offered"),
    [("kng", "'king'"), ("KING", "'king'"), ("thee", "'the'"), ("xyzzyq", "no close spelling")],
)
def test_an_unknown_token_is_answered_with_close_spellings(word, offered):
    for vocab in (GPT2, LLAMA, BERT):
        with pytest.raises(VocabError, match="is not one of the") as error:
            vocab.find(word)
        assert offered in str(error.value)


def test_damaged_offsets_are_refused():
    data = np.frombuffer(b"abc", np.uint8)
    for offsets in ([0, 2], [1, 3], [0, 3, 2, 3], [0, 2**63 - 1, -2, 3], []):
        with pytest.raises(VocabError, match="damaged"):
            Vocab.from_bytes(data, np.array(offsets, np.int64))


def test_special_ids_must_exist():
    for wrong in (1, -1, True):
        with pytest.raises(TokenIdError, match="outside this vocabulary of 1 tokens"):
            Vocab(["a"], special=[wrong])


def test_equality_looks_at_tokens_and_special_ids():
    assert Vocab(["a", "bc"]) == Vocab(["a", "bc"])
    assert Vocab(["a", "bc"]) != Vocab(["ab", "c"])
    assert Vocab(["a"], special=[0]) != Vocab(["a"])
    assert Vocab(["a"], encoding="word") != Vocab(["a"], encoding="wordpiece")


@pytest.mark.parametrize("vocab", [GPT2, LLAMA, BERT])
def test_text_that_no_token_can_be_is_only_missing(vocab):
    assert vocab.ids("\ud800") == []
    with pytest.raises(VocabError, match="is not one of the"):
        vocab.find("\ud800")


def test_placeholders_are_rows_named_after_their_own_id():
    vocab = Vocab(["[unused-row-1]", placeholder(1), "cat", placeholder(3), "[unused-row-x]", ""])
    assert vocab.placeholders().tolist() == [1, 3]
    assert Vocab([]).placeholders().tolist() == []


def test_a_search_answers_the_same_before_and_after_there_is_a_dict(monkeypatch):
    tokens = ["a", "b", "a", "", "Ġa", "b" * 300]
    for scans in (0, 2, 100):
        monkeypatch.setattr("tokenspace.vocab._SCANS", scans)
        vocab = Vocab(tokens)
        assert [vocab.id(token) for token in tokens] == [0, 1, 0, 3, 4, 5]
        assert "b" in vocab
        assert "c" not in vocab
        assert 1 not in vocab
        assert ("_first" in vars(vocab)) == (scans < 9)


def test_rows_can_be_taken_in_any_order_with_their_special_ids():
    vocab = Vocab(["[PAD]", "the", "", "cát", "##s", "the"], special=[0, 4])
    some = vocab.take(np.array([4, 3, 3, 2, 5]))
    assert list(some) == ["##s", "cát", "cát", "", "the"]
    assert (some.special, some.encoding) == ((0,), vocab.encoding)
    assert len(vocab.take(np.array([], np.int64))) == 0


def test_close_spellings_are_found_among_many_tokens(monkeypatch):
    """Most are told apart by the bytes they share, before any is compared letter by letter."""
    monkeypatch.setattr("tokenspace.vocab._COMPARED", 5)
    monkeypatch.setattr("tokenspace.vocab._TOKENS_AT_ONCE", 7)
    vocab = Vocab([*(f"{n:05}" for n in range(200)), "", "Queen", "queens", "quiet", "reine"])
    assert vocab.close("queem") == ["queens"]
    assert vocab.close("queen")[0] == "Queen"
    assert vocab.close("\ud800") == []
    assert Vocab([]).close("a") == []
