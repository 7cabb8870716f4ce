import json
import subprocess
import sys
import time
import unicodedata

import pytest

from tokenspace import tokenizer_training
from tokenspace.errors import CorpusError, VocabError
from tokenspace.tokenizer import Tokenizer
from tokenspace.train.vocabulary import Splitter

TEXTS = [
    "The cat sat on the mat.",
    "The dog didn't sit, did it?",
    "three cats; 24 dogs!",
    "Café 猫 naïve",
] * 5


@pytest.fixture(scope="module")
def learned() -> dict[str, Tokenizer]:
    return {
        kind: Tokenizer.train_from_iterator(TEXTS, kind=kind, vocab_size=110)
        for kind in ("wordpiece", "unigram")
    }


def test_wordpiece_is_berts(learned):
    tokenizer = learned["wordpiece"]
    assert (tokenizer.kind, tokenizer.vocab.encoding) == ("wordpiece", "wordpiece")
    assert list(tokenizer.vocab)[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.vocab.special == (0, 1, 2, 3, 4)
    assert (tokenizer.pad_id, tokenizer.unk_id) == (0, 1)
    encoded = tokenizer.encode("The cats", "a DOG")
    assert encoded.tokens[0] == "[CLS]"
    assert [token for token, added in zip(encoded.tokens, encoded.added, strict=True) if added] == [
        "[CLS]",
        "[SEP]",
        "[SEP]",
    ]
    second = encoded.tokens.index("[SEP]") + 1
    assert encoded.segments.tolist() == [0] * second + [1] * (len(encoded.tokens) - second)
    assert tokenizer.decode(encoded.ids) == "the cats a dog"
    assert tokenizer.encode("[MASK] z").tokens == ["[CLS]", "[MASK]", "[UNK]", "[SEP]"]


def test_wordpiece_strips_accents_with_case_and_splits_chinese(learned):
    assert learned["wordpiece"].decode(learned["wordpiece"].encode("Café猫").ids) == "cafe 猫"
    cased = Tokenizer.train_from_iterator(TEXTS, kind="wordpiece", vocab_size=150, lowercase=False)
    assert cased.decode(cased.encode("Café猫").ids) == "Café 猫"


def test_unigram_is_sentencepieces(learned):
    tokenizer = learned["unigram"]
    assert (tokenizer.kind, tokenizer.vocab.encoding) == ("unigram", "sentencepiece")
    assert list(tokenizer.vocab)[:3] == ["<unk>", "<s>", "</s>"]
    assert tokenizer.vocab.special == (0, 1, 2)
    assert (tokenizer.pad_id, tokenizer.unk_id) == (None, 0)
    encoded = tokenizer.encode("The cats", "a dog")
    assert encoded.tokens[0] == "<s>"
    assert encoded.tokens[1].startswith("▁t")
    assert encoded.tokens[-1] == "</s>"
    assert encoded.added.sum() == 3
    assert tokenizer.decode(encoded.ids) == "the cats a dog"
    assert tokenizer.encode(" ﬁt \n the\tcat ").tokens == tokenizer.encode("fit the cat").tokens


def test_unigram_takes_the_likeliest_split(learned):
    """Kudo 2018, equation 2: of all ways to split, the one with the largest sum of log-probabilities."""
    pieces = json.loads(learned["unigram"].to_json())["model"]["vocab"]
    scores = dict(map(tuple, pieces))

    def best(text: str) -> float:
        table = [0.0] + [-1e9] * len(text)
        for end in range(1, len(text) + 1):
            for start in range(end):
                if text[start:end] in scores:
                    table[end] = max(table[end], table[start] + scores[text[start:end]])
        return table[-1]

    tokens = learned["unigram"].encode("the cats sat").tokens[1:-1]
    assert sum(scores[token] for token in tokens) == pytest.approx(best("▁the▁cats▁sat"))
    assert [score for _, score in pieces[3:]] == sorted((score for _, score in pieces[3:]), reverse=True)


def test_the_same_text_gives_the_same_tokenizer_in_every_process():
    script = (
        "import hashlib, tokenspace as ts;"
        "texts = [' '.join(f'{a}{b}{a}' for b in 'aeiouy') for a in 'bcdfghklmnprst'] * 3;"
        "print([hashlib.sha256(ts.Tokenizer.train_from_iterator(texts, kind, size).to_json().encode())"
        ".hexdigest() for kind, size in (('wordpiece', 80), ('unigram', 60), ('bpe', 300))])"
    )
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, check=True) for _ in range(4)]
    assert len({run.stdout for run in runs}) == 1


def test_a_generator_of_texts_is_enough():
    one = Tokenizer.train_from_iterator(iter(TEXTS), kind="wordpiece", vocab_size=110)
    assert one.to_json() == Tokenizer.train_from_iterator(TEXTS, kind="wordpiece", vocab_size=110).to_json()


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_files_are_texts(kind, learned, write):
    file = write("text.txt", "\n".join(TEXTS))
    assert Tokenizer.train(file, kind, vocab_size=110).to_json() == learned[kind].to_json()


def test_vocab_size_bounds_the_vocabulary(learned):
    assert len(learned["wordpiece"].vocab) <= 110
    assert len(learned["unigram"].vocab) <= 110


@pytest.mark.parametrize(
    ("kind", "vocab_size", "min_count", "message"),
    [
        ("sentencepiece", 100, 1, "'word', 'whitespace', 'bpe', 'wordpiece', 'unigram'"),
        ("wordpiece", 20, 1, r"vocab_size 20 is too small: the special tokens and this text's characters"),
        ("unigram", 6, 1, "vocab_size 6 is too small"),
        ("unigram", 100, 2, "has no minimum count"),
        ("bpe", 257, 1, "vocab_size 257 is too small: the special tokens and the 256 bytes are 258"),
        ("word", 3, 1, "vocab_size must be an integer from 4 to 2,147,483,647, found 3"),
        ("bpe", 10**30, 1, "vocab_size must be an integer from 4 to 10,000,000, found 1000"),
        ("wordpiece", "9", 1, "vocab_size must be an integer from 4 to 10,000,000, found '9'"),
        ("word", 100.0, 1, "vocab_size must be an integer .* found 100.0"),
        ("word", True, 1, "vocab_size must be an integer .* found True"),
        ("word", 100, 1.5, "min_count must be an integer from 1 to 2,147,483,647, found 1.5"),
        ("bpe", 300, 0, "min_count must be an integer from 1 to 2,147,483,647, found 0"),
        ("unigram", 100, 10**30, "min_count must be an integer"),
    ],
)
def test_bad_settings(kind, vocab_size, min_count, message):
    with pytest.raises(VocabError, match=message):
        tokenizer_training.train(TEXTS, kind, vocab_size, min_count, True)


def test_the_least_sizes_are_enough():
    vocab = Tokenizer.train_from_iterator(TEXTS, "bpe", vocab_size=258).vocab
    assert len(vocab) == 258


@pytest.mark.parametrize("kind", tokenizer_training.KINDS)
@pytest.mark.parametrize("error", [CorpusError("line 7 is bad"), ValueError("not enough")])
def test_what_the_texts_raise_passes(kind, error):
    def texts():
        yield from TEXTS
        raise error

    with pytest.raises(type(error), match=str(error)):
        Tokenizer.train_from_iterator(texts(), kind, vocab_size=300)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_no_text_leaves_the_special_tokens(kind):
    vocab = Tokenizer.train_from_iterator([], kind).vocab
    assert len(vocab) == len(vocab.special)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_a_word_of_a_million_letters_is_learned_from_in_parts(kind):
    begin = time.perf_counter()
    Tokenizer.train_from_iterator(["a b", 1_000_000 * "é"], kind, vocab_size=300)
    assert time.perf_counter() - begin < 20
    parts = list(tokenizer_training._cut_long_runs([f"a {2500 * 'b'} c {1001 * 'd'}", "e" * 1000]))
    assert [len(part) for part in parts] == [1002, 1000, 500 + 3 + 1000, 1, 1000]


ATTACHED = ["\u200c", "\u200d", "\u00ad", "\u2060", "\ufeff", "\u200e", "\ufe0f", "\u0301", "\u180e"]
SPLIT = {
    "می‌خواهم کتاب‌ها": ["می‌خواهم", "کتاب‌ها"],  # U+200C inside both
    "अवन्‍ हिन्दी": ["अवन्‍", "हिन्दी"],  # U+200D at a word's end
    "שָׁלוֹם مُحَمَّد": ["שָׁלוֹם", "مُحَمَّد"],
    "soft\u00adware": ["soft\u00adware"],
    "zero\u200bwidth": ["zero", "width"],
    "\ufeffthe \u200eend\u200b": ["the", "end"],
    "👩‍💻👍🏽 1️⃣": ["👩‍💻", "👍🏽", "1️⃣"],
    "l\u2060'\u2060eau don't": ["l\u2060'\u2060eau", "don't"],
    "The cat's mat, 10,000 (x).": ["The", "cat's", "mat", ",", "10", ",", "000", "(", "x", ")", "."],
}


@pytest.mark.parametrize(("text", "words"), SPLIT.items())
def test_joiners_and_marks_belong_to_their_word(text, words):
    inner = tokenizer_training.word_level("word", lowercase=False)
    assert [word for word, _ in inner.pre_tokenizer.pre_tokenize_str(text)] == words
    assert Splitter("word", lowercase=False).split(text.split()).words == words
    learned = Tokenizer.train_from_iterator([text], lowercase=False)
    assert set(learned.vocab) == {"[PAD]", "[UNK]", "[SEP]", *words}
    assert learned.encode(text).tokens == words


@pytest.mark.parametrize("attached", ATTACHED)
@pytest.mark.parametrize("left", ["a", "ب", "क"])
def test_words_with_attached_characters_are_unicodes(attached, left):
    """Annex 29, as the ``regex`` package has it."""
    regex = pytest.importorskip("regex")
    for text in (f"{left}{attached}{left}", f"{left}{attached} {left}", f"{left}{attached}{attached}{left}x"):
        theirs = [part for part in regex.split(r"(?V1w)\b", text) if part.strip()]
        inner = tokenizer_training.word_level("word", lowercase=False)
        assert [word for word, _ in inner.pre_tokenizer.pre_tokenize_str(text)] == theirs


CAPITALS = [
    "ΛΟΓΟΣ",
    "ΌΛΟΣ Ο ΚΌΣΜΟΣ",
    "ΣΑΣ.",
    "Σ",
    "Α\u0301Σ",
    "ΑΣ'Β ΑΣ'",
    "İSTANBUL",
    "STRAẞE",
    "ǅ",
    "ΟΔΥΣΣΕΥΣ-ΑΣ",
    "ΑΣ\u00ad",
]


@pytest.mark.parametrize("text", CAPITALS)
@pytest.mark.parametrize("kind", ["word", "whitespace", "bpe", "unigram"])
def test_lower_casing_is_pythons(text, kind):
    learned = Tokenizer.train_from_iterator([text, text.lower()], kind, 400 if kind == "bpe" else 60)
    form = "NFKC" if kind == "unigram" else "NFC"
    assert learned.inner.normalizer.normalize_str(text) == unicodedata.normalize(form, text).lower()
    again = Tokenizer.from_json(learned.to_json())
    assert again.encode(text).tokens == again.encode(text.lower()).tokens
    if kind in ("word", "whitespace"):
        assert Splitter(kind, lowercase=True).split(text.split()).words == again.encode(text).tokens


def test_wordpiece_learns_a_final_sigma():
    learned = Tokenizer.train_from_iterator(["ΛΟΓΟΣ λογος"] * 9, "wordpiece", 60)
    assert learned.encode("ΛΟΓΟΣ").tokens == learned.encode("λογος").tokens
    assert not any("οσ" in token for token in learned.vocab)
