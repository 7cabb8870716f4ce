import contextlib
import json

import numpy as np
import pytest

from tokenspace.errors import CheckpointError, CorpusError, TableFormatError, TokenIdError, VocabError
from tokenspace.tokenizer import Tokenizer

TEXTS = ["The cat sat on the mat.", "The dog didn't sit, did it?", "three cats; 24 dogs!"]


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return Tokenizer.train_from_iterator(TEXTS)


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return Tokenizer.train_from_iterator(TEXTS * 3, kind="bpe", vocab_size=300)


def test_words_keep_punctuation_and_inner_apostrophes(words):
    assert words.encode("The dog didn't sit, did it?").tokens == [
        "the",
        "dog",
        "didn't",
        "sit",
        ",",
        "did",
        "it",
        "?",
    ]
    assert words.encode("24 cats!").tokens == ["24", "cats", "!"]


def test_spans_lead_back_to_the_text(words):
    text = "24  Cats, 😀 zebras"
    encoded = words.encode(text)
    assert [text[start:end] for start, end in encoded.spans] == ["24", "Cats", ",", "😀", "zebras"]


def test_the_most_frequent_words_come_first_and_special_tokens_before_them(words):
    assert list(words.vocab)[:4] == ["[PAD]", "[UNK]", "[SEP]", "the"]
    assert words.vocab.special == (0, 1, 2)
    assert (words.pad_id, words.unk_id) == (0, 1)


def test_case_is_kept_on_request():
    tokenizer = Tokenizer.train_from_iterator(TEXTS, lowercase=False)
    assert tokenizer.encode("The the").tokens == ["The", "the"]


def test_min_count_and_vocab_size_bound_the_vocabulary():
    assert set(Tokenizer.train_from_iterator(TEXTS, min_count=3).vocab) == {"[PAD]", "[UNK]", "[SEP]", "the"}
    assert len(Tokenizer.train_from_iterator(TEXTS, vocab_size=7).vocab) == 7


def test_bpe_has_no_unknown_text(bpe):
    text = "Unseen words, naïve 😀!\n"
    encoded = bpe.encode(text)
    assert bpe.decode(encoded.ids) == text.lower()
    assert bpe.unk_id is None
    assert bpe.vocab.encoding == "byte-level"
    assert 256 < len(bpe.vocab) <= 300


def test_a_pair_is_joined_by_separators_in_two_segments(words):
    encoded = words.encode("the cat", "the dog")
    assert encoded.tokens == ["the", "cat", "[SEP]", "the", "dog", "[SEP]"]
    assert encoded.segments.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_batch_is_padded_to_its_longest(words):
    long, short = words.encode_batch(["the cat sat on", "the dog"])
    assert short.tokens == ["the", "dog", "[PAD]", "[PAD]"]
    assert short.mask.tolist() == [1, 1, 0, 0]
    assert short.spans == [(0, 3), (4, 7), (0, 0), (0, 0)]
    assert np.stack([long.ids, short.ids]).shape == (2, 4)
    assert words.encode_batch([]) == []


def test_json_round_trip_keeps_ids_and_bytes(words, tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(words.to_json(), encoding="utf-8")
    for again in (Tokenizer.load(file), Tokenizer.load(tmp_path)):
        assert again.to_json() == words.to_json()
        assert again.encode(TEXTS[1]).ids.tolist() == words.encode(TEXTS[1]).ids.tolist()
        assert again.vocab == words.vocab


def test_a_files_own_truncation_and_padding_are_off(words):
    description = json.loads(words.to_json())
    description["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    description["padding"] = {
        "strategy": {"Fixed": 128},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 2,
        "pad_type_id": 0,
        "pad_token": "[SEP]",
    }
    tokenizer = Tokenizer.from_json(json.dumps(description))
    assert tokenizer.encode("the cat sat on the mat").ids.size == 6
    assert tokenizer.pad_id == 2


def test_holes_in_the_ids_get_placeholder_tokens(words):
    description = json.loads(words.to_json())
    description["model"]["vocab"]["zebra"] = len(words.vocab) + 2
    vocab = Tokenizer.from_json(json.dumps(description)).vocab
    assert vocab[len(words.vocab)] == f"[unused-row-{len(words.vocab)}]"
    assert vocab.kind(len(words.vocab)) == "unused"
    assert vocab.id("zebra") == len(words.vocab) + 2


def test_pieces_are_the_word_alone(words, bpe):
    assert words.pieces("cats") == [words.vocab.id("cats")]
    assert bpe.decode(bpe.pieces("cats")) == "cats"


def test_bytes_that_are_no_text_become_replacement_characters(words):
    assert words.encode("the \udce9 cat").tokens == ["the", "[UNK]", "cat"]


def test_training_on_files(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("\n".join(TEXTS), encoding="utf-8")
    assert Tokenizer.train([file]).vocab == Tokenizer.train_from_iterator(TEXTS).vocab


@pytest.mark.parametrize(
    ("kind", "vocab_size", "min_count", "message"),
    [
        ("wrod", 100, 1, "'word', 'whitespace', 'bpe'"),
        ("word", 2, 1, "vocab_size must be an integer from 4"),
        ("word", 100, 0, "min_count must be an integer from 1"),
    ],
)
def test_bad_settings(kind, vocab_size, min_count, message):
    with pytest.raises(VocabError, match=message):
        Tokenizer.train_from_iterator(TEXTS, kind, vocab_size, min_count)


def test_bad_files(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TableFormatError, match=r"no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    with pytest.raises(CheckpointError, match="no tokenizer at"):
        Tokenizer.load(tmp_path / "nothing")
    (tmp_path / "latin1.txt").write_bytes(b"caf\n\nna\xefve")
    with pytest.raises(CorpusError, match=r"latin1\.txt is not UTF-8 .*byte 7"):
        Tokenizer.train([tmp_path / "latin1.txt"])
    with pytest.raises(CorpusError, match="is a directory"):
        Tokenizer.train([tmp_path])


@pytest.mark.parametrize("ids", [[3.9], [10**6], [True], [-1], [2**40], 10**6])
def test_decode_keeps_the_id_contract(words, ids):
    with pytest.raises(TokenIdError):
        words.decode(ids)


def test_decode_takes_one_id_or_none(words):
    assert words.decode(words.vocab.id("cat")) == "cat"
    assert words.decode([]) == ""


DAMAGED = {
    "no UTF-8": lambda text: text.encode().replace(b"cat", b"c\xfft"),
    "empty": lambda text: b"",
    "nested": lambda text: b"[" * 100_000,
    "no object": lambda text: b"3",
    "unknown token missing": lambda text: (
        text.encode().replace(b'"[UNK]":1', b'"[XXX]":1').replace(b'"content":"[UNK]"', b'"content":"[YYY]"')
    ),
    "an id of billions": lambda text: text.encode().replace(b'"sat":', b'"sat":4000000000,"sit":'),
    "padding of billions": lambda text: text.encode().replace(
        b'"padding":null',
        b'"padding":{"strategy":"BatchLongest","direction":"Right","pad_to_multiple_of":null,'
        b'"pad_id":4000000000,"pad_type_id":0,"pad_token":"[PAD]"}',
    ),
}


def use_all(tokenizer: Tokenizer) -> None:
    tokenizer.encode("zebra")
    assert len(tokenizer.vocab) < 100


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_description_is_one_of_our_errors_wherever_it_is_used(words, damage):
    compact = json.dumps(json.loads(words.to_json()), separators=(",", ":"), ensure_ascii=False)
    damaged = DAMAGED[damage](compact)
    assert damaged != compact.encode()
    for use in (
        lambda t: t.encode("zebra"),
        lambda t: t.encode_batch(["cat", "the cat"]),
        lambda t: t.pieces("zebra"),
        lambda t: t.vocab,
        lambda t: t.pad_id,
        lambda t: t.unk_id,
        lambda t: t.to_json(),
    ):
        with contextlib.suppress(TableFormatError):  # what can be used nevertheless may be
            use(Tokenizer.from_json(damaged, "the tokenizer in t.safetensors"))
    if damage != "padding of billions":  # ignored: there is a [PAD]
        with pytest.raises(TableFormatError, match=r"the tokenizer in t\.safetensors"):
            use_all(Tokenizer.from_json(damaged, "the tokenizer in t.safetensors"))


def test_lone_surrogates_are_no_text(words):
    assert words.encode("the \ud800 cat \udce9").tokens == ["the", "[UNK]", "cat", "[UNK]"]
