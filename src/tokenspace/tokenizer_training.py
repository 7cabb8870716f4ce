"""Learning a tokenizer from text: words, byte pairs, WordPiece, or a unigram language model.

Each kind comes with what its family does around it:

========== =============================== ===================================== ==========================
kind       special tokens, from id 0       a text, and a pair                    what marks a token's place
========== =============================== ===================================== ==========================
word       [PAD] [UNK] [SEP]               A; A [SEP] B [SEP]                    nothing
whitespace [PAD] [UNK] [SEP]               A; A [SEP] B [SEP]                    nothing
bpe        [PAD] [SEP]                     A; A [SEP] B [SEP]                    Ġ for a space before it
wordpiece  [PAD] [UNK] [CLS] [SEP] [MASK]  [CLS] A [SEP]; [CLS] A [SEP] B [SEP]  ## if a word goes on
unigram    <unk> <s> </s>                  <s> A </s>; <s> A </s> B </s>         ▁ for a space before it
========== =============================== ===================================== ==========================

The same texts give the same tokenizer in every process, which the ``tokenizers`` library alone does not
promise for the last two: it numbers what it finds in the order of hash maps that differ from run to run.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tokenspace.errors import VocabError

if TYPE_CHECKING:
    import tokenizers

PAD, UNK, SEP, CLS, MASK = "[PAD]", "[UNK]", "[SEP]", "[CLS]", "[MASK]"
BERT_SPECIAL = (PAD, UNK, CLS, SEP, MASK)
WORD_SPECIAL = (PAD, UNK, SEP)
UNIGRAM_SPECIAL = ("<unk>", "<s>", "</s>")
WHOLE_WORDS = ("word", "whitespace")
KINDS = (*WHOLE_WORDS, "bpe", "wordpiece", "unigram")
# Marks, joiners, format characters and emoji modifiers belong to the character before them (Unicode Standard
# Annex 29, rule WB4). U+200B, the zero width space, is the one format character that ends a word.
_ATTACHED = r"[[\p{M}\p{Cf}\x{1F3FB}-\x{1F3FF}]&&[^\x{200B}]]"
_LETTERS = rf"\p{{L}}(?:\p{{L}}|{_ATTACHED})*"
# A run of letters (an apostrophe inside it stays: don't), a run of digits, or one other visible character;
# pictures joined by U+200D are one (rule WB3c). What is not matched, such as a lone U+200E, is no word.
_WORDS = (
    rf"{_LETTERS}(?:['’]{_ATTACHED}*{_LETTERS})*"
    rf"|\p{{N}}(?:\p{{N}}|{_ATTACHED})*"
    rf"|[^\s\p{{L}}\p{{N}}\p{{Cf}}]{_ATTACHED}*(?:(?<=\x{{200D}})\p{{Extended_Pictographic}}{_ATTACHED}*)*"
)
# Python's rule (Unicode Standard, table 3-17): a capital sigma after a cased character and not before one is
# final. The library's Lowercase looks at one character at a time, and knows no such context.
_FINAL_SIGMA = r"(?<=\p{Cased}\p{Case_Ignorable}*)Σ(?!\p{Case_Ignorable}*\p{Cased})"
MOST_WORDS = 2**31 - 1
MOST_PIECES = 10_000_000  # memory for as many as are asked for is taken before any is found
_TOO_SMALL = "The vocabulary is not large enough"  # so the library's own error begins
LONGEST_RUN = 1000  # characters without white space that pieces are learned from as one
_SCORE_DIGITS = 4  # log-probabilities are summed in an order that varies: their last digits do too


def train(texts: Iterable[str], kind: str, vocab_size: Any, min_count: Any, lowercase: bool) -> str:
    """The text of a ``tokenizer.json`` learned from ``texts``, which are gone over twice for wordpiece.

    ``Tokenizer.train_from_iterator`` says what the settings mean; ``VocabError`` if one can't be.
    """
    if kind not in KINDS:
        raise VocabError(
            f"tokenizer kind {kind!r} is not known; allowed: {', '.join(repr(kind) for kind in KINDS)}"
        )
    if kind in WHOLE_WORDS:
        vocab_size = _whole("vocab_size", vocab_size, 4, MOST_WORDS)
        min_count = _whole("min_count", min_count, 1, MOST_WORDS)
        return _words(texts, kind, vocab_size, min_count, lowercase).to_str()
    vocab_size = _whole("vocab_size", vocab_size, 4, MOST_PIECES)
    min_count = _whole("min_count", min_count, 1, MOST_WORDS)
    if kind == "unigram" and min_count > 1:
        raise VocabError(f"a unigram model has no minimum count, found {min_count}; leave it at 1")
    learn = {"bpe": _byte_pairs, "wordpiece": _wordpiece, "unigram": _unigram}[kind]
    return learn(texts, vocab_size, min_count, lowercase).to_str()


def _whole(name: str, value: object, low: int, high: int) -> int:
    """``value`` if it is an integer in ``low … high``; nothing is rounded."""
    try:
        number = low - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = low - 1
    if not low <= number <= high:
        raise VocabError(f"{name} must be an integer from {low:,} to {high:,}, found {value!r}")
    return number


def _words(
    texts: Iterable[str], kind: str, vocab_size: int, min_count: int, lowercase: bool
) -> tokenizers.Tokenizer:
    from tokenizers import trainers

    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        special_tokens=list(WORD_SPECIAL),
        show_progress=False,
    )
    inner = _split_into_words(
        kind, lowercase, []
    )  # special tokens are not yet known: in a text they're words
    inner.train_from_iterator(texts, trainer)
    return word_level(kind, lowercase, [token for token, _ in sorted(inner.get_vocab().items(), key=_id)])


def word_level(kind: str, lowercase: bool, words: Iterable[str] = ()) -> tokenizers.Tokenizer:
    """A tokenizer of whole ``words``, which get their ids in this order, after the special tokens.

    One that is written like a special token is left out: in a text it can't be told from it.
    """
    inner = _split_into_words(
        kind, lowercase, [*WORD_SPECIAL, *(word for word in words if word not in WORD_SPECIAL)]
    )
    inner.add_special_tokens(list(WORD_SPECIAL))
    frame(inner, "$A", f"$A {SEP} $B:1 {SEP}:1")
    return inner


def _split_into_words(kind: str, lowercase: bool, tokens: list[str]) -> tokenizers.Tokenizer:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    inner = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=UNK))
    if kind == "word":
        inner.pre_tokenizer = pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True)
    else:
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.normalizer = _normalizer("NFC", lowercase)
    return inner


def _id(entry: tuple[str, int]) -> int:
    return entry[1]


def _byte_pairs(
    texts: Iterable[str], vocab_size: int, min_count: int, lowercase: bool
) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    special, alphabet = [PAD, SEP], sorted(pre_tokenizers.ByteLevel.alphabet())
    needed = len(special) + len(alphabet)
    if vocab_size < needed:
        raise VocabError(
            f"vocab_size {vocab_size:,} is too small: the special tokens and the {len(alphabet)} bytes "
            f"are {needed}"
        )
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.normalizer = _normalizer("NFC", lowercase)
    texts = _cut_long_runs(texts)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        special_tokens=special,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    frame(inner, "$A", f"$A {SEP} $B:1 {SEP}:1")
    return inner


def _wordpiece(
    texts: Iterable[str], vocab_size: int, min_count: int, lowercase: bool
) -> tokenizers.Tokenizer:
    """The characters first, in a pass that merges none, so that their ids (which settle equal counts) are
    given in the order of the characters and not of a hash map.
    """
    from tokenizers import models, normalizers, trainers

    if iter(texts) is texts:
        texts = list(texts)  # a generator can't be gone over again

    def around(model: tokenizers.models.WordPiece) -> tokenizers.Tokenizer:
        inner = wordpiece(model, lowercase)
        if lowercase:
            inner.normalizer = normalizers.Sequence([_final_sigma(), inner.normalizer])
        return inner

    def learn(size: int, continuations: list[str]) -> tokenizers.Tokenizer:
        inner = around(models.WordPiece(unk_token=UNK))
        trainer = trainers.WordPieceTrainer(
            vocab_size=size,
            min_frequency=min_count,
            special_tokens=[*BERT_SPECIAL, *continuations],
            show_progress=False,
        )
        inner.train_from_iterator(_cut_long_runs(texts), trainer)
        return inner

    alphabet = learn(0, []).get_vocab()
    _check_size(vocab_size, len(alphabet))
    learned = learn(vocab_size, sorted(token for token in alphabet if token.startswith("##")))
    return around(models.WordPiece(learned.get_vocab(), unk_token=UNK))


def wordpiece(model: tokenizers.models.WordPiece, lowercase: bool) -> tokenizers.Tokenizer:
    """BERT's tokenizer around a WordPiece model, with its special tokens around each text."""
    inner = around_pieces(model, lowercase)
    inner.add_special_tokens([token for token in BERT_SPECIAL if inner.token_to_id(token) is not None])
    if inner.token_to_id(CLS) is not None and inner.token_to_id(SEP) is not None:
        frame(inner, f"{CLS} $A {SEP}", f"{CLS} $A {SEP} $B:1 {SEP}:1")
    return inner


def around_pieces(
    model: tokenizers.models.WordPiece,
    lowercase: bool,
    strip_accents: bool | None = None,
    split_chinese: bool = True,
) -> tokenizers.Tokenizer:
    """BERT's tokenizer around a WordPiece model, without special tokens: what it cleans, splits and puts
    together again. ``strip_accents`` None means as ``lowercase``.
    """
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers

    inner = Tokenizer(model)
    inner.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=split_chinese,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece(prefix="##")
    return inner


def _unigram(texts: Iterable[str], vocab_size: int, min_count: int, lowercase: bool) -> tokenizers.Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    one_space = normalizers.Replace(Regex(r"\s+"), " ")  # as SentencePiece does, newlines included
    inner = Tokenizer(models.Unigram())
    inner.normalizer = normalizers.Sequence([_normalizer("NFKC", lowercase), one_space, normalizers.Strip()])
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size,
        special_tokens=list(UNIGRAM_SPECIAL),
        unk_token=UNIGRAM_SPECIAL[0],
        show_progress=False,
    )
    try:
        inner.train_from_iterator(_cut_long_runs(texts), trainer)
    except Exception as error:
        if type(error) is not Exception or not str(error).startswith(_TOO_SMALL):
            raise  # what the texts raise themselves is theirs to say
        raise VocabError(f"vocab_size {vocab_size:,} is too small for this text: {error}") from None
    description = json.loads(inner.to_str())
    learned = [(token, score) for token, score in description["model"]["vocab"]]
    inner.model = models.Unigram(_in_order(learned), unk_id=0, byte_fallback=False)
    frame(inner, "<s> $A </s>", "<s> $A </s> $B:1 </s>:1")
    return inner


def _cut_long_runs(texts: Iterable[str]) -> Iterator[str]:
    """The same texts; one with a longer run of characters without white space comes in parts.

    The library's time grows with the square of a run's length, and it can't be interrupted.

    >>> [len(part) for part in _cut_long_runs(["a b", "c " + 2500 * "d"])]
    [3, 1002, 1000, 500]
    """
    for text in texts:
        if not isinstance(text, str) or len(text) <= LONGEST_RUN or _longest_run(text) <= LONGEST_RUN:
            yield text
            continue
        begin = 0
        for run in re.finditer(r"\S+", text):
            for cut in range(run.start() + LONGEST_RUN, run.end(), LONGEST_RUN):
                yield text[begin:cut]
                begin = cut
        yield text[begin:]


def _longest_run(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _in_order(learned: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The learned pieces in an order and with scores that are the same in every run: likeliest first, equal
    ones by spelling.

    Characters that no sentence needs alone are kept with the lowest score and steps of 0.0001 above it, dealt
    out in a hash map's order; here they get the same scores in the order of the characters.
    """
    special, pieces = learned[: len(UNIGRAM_SPECIAL)], learned[len(UNIGRAM_SPECIAL) :]
    rounded = {token: round(score, _SCORE_DIGITS) for token, score in pieces}
    single = sorted(token for token in rounded if len(token) == 1)
    floor = min(rounded.values(), default=0.0) + len(single) * 10.0**-_SCORE_DIGITS
    spare = [token for token in single if rounded[token] <= floor]
    rounded.update(zip(spare, sorted((rounded[token] for token in spare), reverse=True), strict=True))
    return special + sorted(rounded.items(), key=lambda piece: (-piece[1], piece[0]))


def _normalizer(form: str, lowercase: bool) -> tokenizers.normalizers.Normalizer:
    from tokenizers import normalizers

    steps = [getattr(normalizers, form)()]
    return normalizers.Sequence([*steps, _final_sigma(), normalizers.Lowercase()] if lowercase else steps)


def _final_sigma() -> tokenizers.normalizers.Normalizer:
    """Lower-case each final Σ to ς, and leave all else to the step after this one."""
    from tokenizers import Regex, normalizers

    return normalizers.Replace(Regex(_FINAL_SIGMA), "ς")


def frame(inner: tokenizers.Tokenizer, single: str, pair: str) -> None:
    """Have special tokens put around a text and a pair."""
    from tokenizers import processors

    names = {part.split(":")[0] for part in f"{single} {pair}".split() if not part.startswith("$")}
    inner.post_processor = processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(name, inner.token_to_id(name)) for name in sorted(names)],
    )


def _check_size(vocab_size: int, needed: int) -> None:
    if vocab_size < needed:
        raise VocabError(
            f"vocab_size {vocab_size:,} is too small: the special tokens and this text's characters, each at "
            f"a word's beginning and inside one, are {needed:,}"
        )
