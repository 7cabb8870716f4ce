"""Text as token ids, block by block: any tokenizer's, and where the sentences begin."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tokenspace.kernels import threads as pool
from tokenspace.shapes import Array, Int
from tokenspace.text import BLOCK, Block
from tokenspace.tokenizer import Tokenizer
from tokenspace.tokenizer_training import word_level

_LINES_TOGETHER = 8192
_BLOCKS_A_THREAD = 4  # in a round: equal work for all, and as much text again is read meanwhile

Thing = TypeVar("Thing")
Result = TypeVar("Result")


class EncodedBlock(NamedTuple):
    """The known ids of a block, and how many of them each of its lines has, empty lines included."""

    ids: Int[Array, " n"]  # int32
    lengths: Int[Array, " lines"]  # int64
    ends_line: bool  # False if the last line goes on in the next block


def in_order(body: Callable[[int, Thing], Result], things: Iterable[Thing], threads: int) -> Iterator[Result]:
    """``body(worker, thing)`` for each thing, on up to ``threads`` threads; the results come in order.

    Things are taken in rounds, the next ones while a round is worked on; so few of them are held at a time.
    """
    source = iter(things)
    most = _BLOCKS_A_THREAD * threads
    ahead = list(islice(source, most))
    while ahead:
        round_, ahead = ahead, []
        results: list[Any] = [None] * len(round_)

        def work(
            worker: int,
            piece: int,
            round_: list[Thing] = round_,
            ahead: list[Thing] = ahead,
            results: list[Any] = results,
        ) -> None:
            if piece == 0:
                ahead.extend(islice(source, most))
            else:
                results[piece - 1] = body(worker, round_[piece - 1])

        pool.share(work, len(round_) + 1, threads)
        yield from results


def encode_blocks(blocks: Iterable[Block], tokenizer: Tokenizer, threads: int) -> Iterator[EncodedBlock]:
    """Each block as ids, line by line."""

    def encoded(_: int, block: Block) -> EncodedBlock:
        return EncodedBlock(*encode_texts(block.lines(), tokenizer), block.ends_line)

    return in_order(encoded, blocks, threads)


def encode_texts(texts: Iterable[str], tokenizer: Tokenizer) -> tuple[Int[Array, " n"], Int[Array, " texts"]]:
    """The ids (int32) of all texts, unknown tokens left out, and how many each text has."""
    ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for block in _blocks(texts):
        encodings = tokenizer.inner.encode_batch_fast(block, add_special_tokens=False)
        pieces = [encoding.ids for encoding in encodings]
        block_lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        block_ids = np.fromiter(chain.from_iterable(pieces), np.int32, int(block_lengths.sum()))
        known = block_ids != (-1 if tokenizer.unk_id is None else tokenizer.unk_id)
        known_before = np.concatenate([[0], np.cumsum(known)])
        ids.append(block_ids[known])
        lengths.append(np.diff(known_before[np.concatenate([[0], np.cumsum(block_lengths)])]))
    return np.concatenate(ids), np.concatenate(lengths)


class Sentences:
    """Where sentences begin, as the lengths of lines become known block by block.

    A line of more than ``longest`` tokens is cut into several sentences of nearly equal length; None: never.
    """

    def __init__(self, longest: int | None) -> None:
        self._longest = longest or 1 << 62
        self._open = 0  # tokens of the line that goes on
        self._before = 0  # tokens of the sentences that have ended
        self.count = 0

    def offsets(self, lengths: Int[Array, " lines"], ends_line: bool) -> Int[Array, " sentences"]:
        """The offsets of the sentences that end in a block of such lines."""
        if not len(lengths):
            return np.zeros(0, np.int64)
        lengths = lengths.copy()
        lengths[0] += self._open
        self._open = 0 if ends_line else int(lengths[-1])
        return self._ended(lengths if ends_line else lengths[:-1])

    def end(self) -> Int[Array, " 1"]:
        """The last offset: the number of all tokens."""
        return np.array([self._before], np.int64)

    def _ended(self, lengths: Int[Array, " lines"]) -> Int[Array, " sentences"]:
        found = _cut(lengths, self._longest) + self._before
        self._before = int(found[-1])
        self.count += len(found) - 1
        return found[:-1]


def splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Whether a text's ids are those of its parts between spaces, tabs and line ends, one after the other.

    True only where that is known: nothing that the normalizer does reaches across white space, white space
    ends a word and leaves no trace, no token holds any, and nothing is drawn at random.

    >>> [splits_at_spaces(Tokenizer.train_from_iterator(["a"], kind, 300)) for kind in ("word", "bpe")]
    [True, False]
    """
    settings = json.loads(tokenizer.to_json())
    normalizers = _steps(settings["normalizer"], "normalizers")
    splitters = _steps(settings["pre_tokenizer"], "pretokenizers")
    tokens = [*settings["added_tokens"], *({"content": token} for token in tokenizer.inner.get_vocab())]
    return (
        all(
            step["type"] in _LOCAL_NORMALIZERS or step in _own("normalizer", "normalizers")
            for step in normalizers
        )
        and bool(splitters)
        and (splitters[0]["type"] in _SPLIT_AT_SPACES or splitters == _own("pre_tokenizer", "pretokenizers"))
        and all(step["type"] in ("Punctuation", "Digits", *_SPLIT_AT_SPACES) for step in splitters[1:])
        and not settings["model"].get("dropout")
        and not any(set(" \t\r\n") & set(token["content"]) for token in tokens)
    )


_LOCAL_NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer")
_SPLIT_AT_SPACES = ("WhitespaceSplit", "Whitespace", "BertPreTokenizer")


def _own(part: str, name: str) -> list[dict[str, Any]]:
    """The steps of a word tokenizer trained here, which leave each word to itself."""
    return _steps(json.loads(word_level("word", True).to_str())[part], name)


def _steps(part: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """A part of a ``tokenizer.json`` as the list of its steps."""
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    return [step for one in part[name] for step in _steps(one, name)]


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of at most 8192 texts and, but for the last one, fewer than about a million characters."""
    block: list[str] = []
    size = 0
    for text in texts:
        block.append(text)
        size += len(text)
        if len(block) == _LINES_TOGETHER or size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _cut(lengths: Int[Array, " S"], longest: int) -> Int[Array, " P+1"]:
    """Where the sentences begin and end, the long ones cut into equal parts, the empty ones left out."""
    starts = np.cumsum(lengths) - lengths
    parts = -(-lengths // longest)
    sentence = np.repeat(np.arange(len(lengths)), parts)
    part = np.arange(len(sentence)) - np.repeat(np.cumsum(parts) - parts, parts)
    begins = starts[sentence] + lengths[sentence] * part // parts[sentence]
    return np.append(begins, lengths.sum()).astype(np.int64)
