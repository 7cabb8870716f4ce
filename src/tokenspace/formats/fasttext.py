r"""fastText's own models (``.bin``): words, and the rows of their character n-grams. Read, not written.

Little-endian, without padding (https://github.com/facebookresearch/fastText, src/: fasttext.cc, args.cc,
dictionary.cc, densematrix.cc)::

    2 × int32     793712314, and the version: 11 or 12; the first models (2016) have neither
    12 × int32    dim, ws, epoch, minCount, neg, wordNgrams, loss (1 hs, 2 ns, 3 softmax, 4 ova),
                  model (1 cbow, 2 sg, 3 supervised), bucket, minn, maxn, lrUpdateRate
    float64       t, the threshold above which frequent words are sampled
    3 × int32     entries, words, labels: entries = words + labels, the words first
    int64         tokens of the text
    int64         pruned n-grams (-1: none); only quantized models have any; the first models lack this
    entries       for each: bytes, NUL, int64 count, int8 type (0 word, 1 label)
    int8          1 if the input matrix is quantized (.ftz); the first models lack this
    input         int64 rows (words + bucket), int64 dim, float32 row by row
    int8          1 if the output matrix is quantized; the first models lack this
    output        int64 rows (words, or labels of a supervised model), int64 dim, float32 row by row

A word's vector is the mean of its own row of ``input`` and of its n-grams' rows (``subwords``); but that of
``</s>``, the end of a line, is its own row alone, except in the first models.
"""

from __future__ import annotations

import io
import math
import os
import struct
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tokenspace.errors import TableFormatError
from tokenspace.formats.tokens import LONGEST_TOKEN, Errors, TokensRead, counted, table_read
from tokenspace.mapped import release
from tokenspace.shapes import Array, Float, Int
from tokenspace.source import Source, read_up_to
from tokenspace.subwords import END_OF_LINE, LONGEST_NGRAM, MOST_NGRAMS, Subwords, composed, mean
from tokenspace.table import Table, check_finite
from tokenspace.vocab import Vocab

NAME = "fasttext"
MAGIC = (793_712_314).to_bytes(4, "little")
VERSIONS = (11, 12)
LOSSES = {1: "hs", 2: "ns", 3: "softmax", 4: "ova"}
MODELS = {1: "cbow", 2: "sg", 3: "supervised"}
_ARGS, _COUNTS = struct.Struct("<12id"), struct.Struct("<3iq")
_AFTER_WORD = 10  # bytes: NUL, count, type
_BLOCK = 1 << 20  # bytes of the dictionary looked through at once
_ROWS_AT_ONCE = 16_384


class Args(NamedTuple):
    """How a model was trained, by fastText's own names of its options."""

    dim: int
    ws: int
    epoch: int
    min_count: int
    neg: int
    word_ngrams: int
    loss: str
    model: str
    bucket: int
    minn: int
    maxn: int
    lr_update_rate: int
    t: float


@dataclass(frozen=True)
class FastText:
    """A whole model. ``input`` (V + bucket, D) and ``output`` are mapped where the file is not packed.

    ``words`` hold the file's bytes; ``version`` is None for a model of 2016. ``output`` has a row per word,
    per label of a supervised model, or per inner node of the tree if ``args.loss`` is "hs".
    """

    path: Path
    version: int | None
    args: Args
    words: Vocab
    counts: Int[Array, " V"]
    labels: Vocab
    label_counts: Int[Array, " L"]
    tokens: int
    words_at: int  # the byte where the first word begins
    input: Float[Array, "rows D"]
    output: Float[Array, "outputs D"]

    @cached_property
    def subwords(self) -> Subwords | None:
        """The n-grams' part of ``input``; None if the model was trained without."""
        minn, maxn = self.args.minn, self.args.maxn
        if self.args.bucket == 0 or maxn == 0 or minn > maxn:
            return None
        if maxn > LONGEST_NGRAM:
            raise TableFormatError(
                f"{self.path} has n-grams of up to {maxn:,} characters; {LONGEST_NGRAM} are the most"
            )
        sizes = np.diff(self.words.offsets)
        if (longest := int(sizes.max())) * (maxn - minn + 1) > MOST_NGRAMS:
            raise TableFormatError(
                f"{self.path}: word {int(sizes.argmax()) + 1:,} has {longest:,} bytes, and more than "
                f"{MOST_NGRAMS:,} n-grams of {minn} to {maxn} characters"
            )
        return Subwords(self.input[len(self.words) :], minn, maxn)

    @property
    def alone(self) -> str | None:
        """The word whose row is its vector, whatever its n-grams."""
        return None if self.version is None else END_OF_LINE

    def vector(self, word: str) -> Float[Array, " D"] | None:
        """fastText's vector of ``word``, known or not; None if it is neither known nor has an n-gram.

        ``TableFormatError`` if it is not finite.
        """
        known = self.words.ids(word)[:1]
        if self.subwords is None or (known and word == self.alone):
            return mean(self.input[known], word) if known else None
        if not known:
            return self.subwords.vector(word)
        return mean(np.vstack([self.input[known], self.subwords.rows[self.subwords.ids(word)]]), word)

    def ngrams(self, word: str) -> list[str]:
        """The n-grams of ``word``'s characters; empty if the model was trained without."""
        return [] if self.subwords is None or word == self.alone else self.subwords.ngrams(word)


def is_model(head: bytes) -> bool:
    """Whether a file's first 72 bytes or more are a fastText model's."""
    if head.startswith(MAGIC):
        return True
    if len(head) < _ARGS.size + _COUNTS.size:
        return False
    dim, ws, *_, loss, model, bucket, minn, maxn, _, t = _ARGS.unpack_from(head)
    entries, words, labels, _ = _COUNTS.unpack_from(head, _ARGS.size)
    possible = 0 < dim <= 1 << 16 and 0 < ws <= 1 << 16 and 0 <= minn <= 1 << 16 and 0 <= maxn <= 1 << 16
    named = loss in LOSSES and model in MODELS and bucket >= 0 and math.isfinite(t)
    return possible and named and words > 0 and labels >= 0 and entries == words + labels


def load(path: str | os.PathLike[str] | Source, errors: Errors = "strict", limit: int | None = None) -> Table:
    """The table of fastText's own word vectors; ``subwords`` give unknown words theirs, as fastText does.

    ``output`` is there where its rows belong to words: not for a hierarchical softmax or a supervised model.
    It and the subwords stay mapped, and so does ``weight`` if the model has no n-grams. ``errors``: see
    ``formats.load``; n-grams are those of the file's bytes. ``TableFormatError`` names byte or word of what
    is wrong.
    """
    model = open_model(path)
    rows = min(len(model.words), limit or len(model.words))
    offsets = model.words.offsets[: rows + 1]
    data = model.words.data[: offsets[-1]]
    tokens = TokensRead(model.path, errors)
    tokens.add(
        data,
        np.diff(offsets),
        lambda i: (f"word {i + 1:,}", model.words_at + int(offsets[i]) + _AFTER_WORD * i),
    )
    own = model.input[:rows]
    weight = own if model.subwords is None else np.empty((rows, model.args.dim), np.float32)
    output, left_out = _output(model, rows)
    table = table_read(model.path, NAME, weight, tokens, output, **_about(model), **left_out)
    table.subwords = model.subwords
    if model.subwords is None:
        _check_rows(table)
    else:
        start = 0
        alone = np.array(table.vocab.ids(model.alone) if model.alone else [], np.int64)
        for block in composed(own, model.subwords, data, offsets):
            here = alone[(start <= alone) & (alone < start + len(block))]
            block[here - start] = own[here]
            check_finite(table, block, start)
            weight[start : start + len(block)] = block
            start += len(block)
    return table


def _output(model: FastText, rows: int) -> tuple[Array | None, dict[str, str]]:
    """The output rows of the words; else None, and why."""
    if model.args.model == "supervised":
        return None, {"output_left_out": f"its rows belong to {counted(len(model.labels), 'label')}"}
    if model.args.loss == "hs":
        return None, {"output_left_out": "a hierarchical softmax's rows belong to nodes of its tree"}
    return model.output[:rows], {}


def _about(model: FastText) -> dict[str, Any]:
    version = {} if model.version is None else {"version": model.version}
    return version | model.args._asdict() | {"tokens_of_text": model.tokens}


def _check_rows(table: Table) -> None:
    for start in range(0, len(table), _ROWS_AT_ONCE):
        rows = table.weight[start : start + _ROWS_AT_ONCE]
        check_finite(table, rows, start)
        release(rows, table.weight)


def open_model(path: str | os.PathLike[str] | Source) -> FastText:
    """A model's every part; of its matrices no byte is read. Every count is held against the file's size.

    ``TableFormatError`` names the byte of what is wrong, and a quantized model.
    """
    source = path if isinstance(path, Source) else Source(path)
    with _reader(source) as file:
        return _read_model(file)


def _read_model(file: _Reader) -> FastText:
    """The model whose bytes ``file`` gives."""
    if not is_model(file.bytes(0, 128)):
        raise TableFormatError(
            f"{file.path} is no fastText model: it begins neither with {MAGIC!r} nor with the numbers of "
            "one of 2016"
        )
    version = None
    if file.bytes(0, 4) == MAGIC:
        _, version = file.numbers(struct.Struct("<2i"), "the version")
        if version not in VERSIONS:
            raise file.wrong(4, f"version {version}; versions 11 and 12 are read")
    args = _read_args(file, version)
    at = file.at
    entries, words, labels, tokens = file.numbers(_COUNTS, "the dictionary's counts")
    if words < 1 or labels < 0 or entries != words + labels or tokens < 0:
        raise file.wrong(
            at, f"{entries:,} entries of {words:,} words and {labels:,} labels, {tokens:,} tokens of text"
        )
    at = file.at
    pruned = -1 if version is None else file.numbers(struct.Struct("<q"), "the number of pruned n-grams")[0]
    if pruned < -1:
        raise file.wrong(at, f"{pruned:,} pruned n-grams")
    if pruned > 0:
        raise _quantized(file, at, f"{pruned:,} of its n-grams are kept, the others pruned")
    words_at = file.at
    data, offsets, counts = _read_dictionary(file, entries, words)
    matrix = _read_matrix(file, "input", words + args.bucket, args.dim, version)
    rows = labels if args.model == "supervised" else words
    output = _read_matrix(file, "output", rows, args.dim, version)
    file.check_end()
    split = int(offsets[words])
    return FastText(
        file.path,
        version,
        args,
        Vocab.from_bytes(data[:split], offsets[: words + 1]),
        counts[:words],
        Vocab.from_bytes(data[split:], offsets[words:] - split),
        counts[words:],
        tokens,
        words_at,
        matrix,
        output,
    )


@contextmanager
def _reader(source: Source) -> Iterator[_Reader]:
    if not source.packed:
        yield _Reader(source.path, source.content(), source.size)
        return
    with source.open() as stream:
        yield _Unpacking(source.path, np.empty(0, np.uint8), source.size, stream)


class _Reader:
    """A file's bytes, and how far they are read; ``size`` is None if only the file's end can tell."""

    def __init__(self, path: Path, content: Int[Array, " bytes"], size: int | None) -> None:
        self.path, self.at, self.size = path, 0, size
        self._content = content

    def bytes(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to before ``end``, or to the file's end."""
        return self.part(start, end).tobytes()

    def part(self, start: int, end: int) -> Int[Array, " bytes"]:
        """The same as an array."""
        return self._content[start:end]

    def matrix(self, start: int, end: int) -> Int[Array, " bytes"]:
        """The same for a large part, and nothing before it is asked for again."""
        return self.part(start, end)

    def check_end(self) -> None:
        """``TableFormatError`` if the file goes on."""
        if self.part(self.at, self.at + 1).size:
            left = "bytes" if self.size is None else counted(self.size - self.at, "byte")
            raise self.wrong(self.at, f"{left} after the output matrix, the last part")

    def numbers(self, layout: struct.Struct, what: str) -> tuple[Any, ...]:
        held = self.bytes(self.at, self.at + layout.size)
        if len(held) < layout.size:
            raise self.wrong(self.at, f"it ends where {what} should be")
        self.at += layout.size
        return layout.unpack(held)

    def wrong(self, at: int, what: str) -> TableFormatError:
        return TableFormatError(
            f"{self.path} (byte {at:,}): {what}; the model is damaged or cut off: get it again"
        )


class _Unpacking(_Reader):
    """A packed file's bytes, unpacked as far as they are asked for: parts are copies, and large ones, the
    matrices, are read straight from the stream and not held twice.
    """

    def __init__(
        self, path: Path, content: Int[Array, " bytes"], size: int | None, stream: io.BufferedReader
    ) -> None:
        super().__init__(path, content, size)
        self._stream, self._held, self._gone = stream, bytearray(), 0

    def part(self, start: int, end: int) -> Int[Array, " bytes"]:
        self._held += read_up_to(self._stream, end - self._gone - len(self._held))
        return np.frombuffer(bytes(self._held[start - self._gone : end - self._gone]), np.uint8)

    def matrix(self, start: int, end: int) -> Int[Array, " bytes"]:
        ready = self._held[start - self._gone : end - self._gone]
        found = ready + read_up_to(self._stream, end - start - len(ready))
        self._held = self._held[end - self._gone :]
        self._gone = start + len(found)
        matrix = np.frombuffer(found, np.uint8)
        matrix.flags.writeable = False
        return matrix


def _read_args(file: _Reader, version: int | None) -> Args:
    at = file.at
    found = Args._make(file.numbers(_ARGS, "its options"))
    wrong = [name for name in ("bucket", "minn", "maxn") if getattr(found, name) < 0]
    wrong += ["dim"] * (found.dim < 1) + ["loss"] * (found.loss not in LOSSES)
    wrong += ["model"] * (found.model not in MODELS) + ["t"] * (not math.isfinite(found.t))
    if wrong:
        raise file.wrong(at, f"option {wrong[0]} is {getattr(found, wrong[0])}")
    named = found._replace(loss=LOSSES[int(found.loss)], model=MODELS[int(found.model)])
    if version == 11 and named.model == "supervised":  # made before these had n-grams
        return named._replace(maxn=0)
    return named


def _read_dictionary(
    file: _Reader, entries: int, words: int
) -> tuple[Int[Array, " bytes"], Int[Array, " entries_plus_1"], Int[Array, " entries"]]:
    """The words and labels end to end, where each begins, and their counts."""
    first = at = file.at
    if file.size is not None and entries * _AFTER_WORD > file.size - first:
        raise file.wrong(first, f"{entries:,} entries can't lie in the {file.size - first:,} bytes left")
    data: list[Array] = []  # these grow with what is read
    lengths, counts = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)]
    done = empty = 0
    while done < entries:
        block = file.bytes(at, at + _BLOCK)
        ends = _word_ends(block, entries - done)
        if not ends.size:
            raise file.wrong(at, f"entry {done + 1:,} of {entries:,} has no end, or more than 65,536 bytes")
        read = np.frombuffer(block, np.uint8)
        starts = np.append(0, ends[:-1] + _AFTER_WORD)
        lengths.append(ends - starts)
        counts.append(read[ends[:, None] + np.arange(1, 9)].view("<i8")[:, 0])
        kinds = read[ends + 9].view(np.int8)
        is_label = np.arange(done, done + ends.size) >= words
        empties = empty + np.cumsum(lengths[-1] == 0)  # zeros without end read as empty words
        wrong = (kinds != is_label) | (counts[-1] < 0) | (lengths[-1] > LONGEST_TOKEN)
        wrong |= (lengths[-1] == 0) & (empties > 1)
        if wrong.any():
            i = int(wrong.argmax())
            length, belongs = int(lengths[-1][i]), "label (1)" if is_label[i] else "word (0)"
            raise file.wrong(
                at + int(starts[i]),
                f"entry {done + i + 1:,} of {entries:,} is of type {kinds[i]}, has count "
                f"{counts[-1][i]:,} and {length:,} bytes, where a {belongs} "
                f"of at most {LONGEST_TOKEN:,} bytes should be{', and one empty one at most' * (not length)}",
            )
        in_word = np.ones(int(ends[-1]), bool)
        in_word[(ends[:-1, None] + np.arange(_AFTER_WORD)).ravel()] = False
        data.append(read[: in_word.size][in_word])
        done, empty, at = done + ends.size, int(empties[-1]), at + int(ends[-1]) + _AFTER_WORD
    file.at = at
    return np.concatenate(data), np.cumsum(np.concatenate(lengths)), np.concatenate(counts)


def _word_ends(block: bytes, most: int) -> Int[Array, " words"]:
    """Where the words of a block of the dictionary end, of at most ``most`` whole entries."""
    ends, at, last = array("q"), 0, len(block) - _AFTER_WORD
    for _ in range(most):
        nul = block.find(b"\0", at)
        if not 0 <= nul <= last:
            break
        ends.append(nul)
        at = nul + _AFTER_WORD
    return np.array(ends, np.int64)


def _read_matrix(
    file: _Reader, name: str, rows: int, dim: int, version: int | None
) -> Float[Array, "rows D"]:
    at = file.at
    if version is not None and (flag := file.numbers(struct.Struct("<B"), f"the {name} matrix")[0]):
        if flag > 1:
            raise file.wrong(at, f"whether the {name} matrix is quantized must be 0 or 1, found {flag}")
        raise _quantized(file, at, f"its {name} matrix is quantized")
    at = file.at
    found = file.numbers(struct.Struct("<2q"), f"the {name} matrix's size")
    if found != (rows, dim):
        raise file.wrong(
            at, f"the {name} matrix has {found[0]:,} rows of {found[1]:,}, where {rows:,} of {dim:,} belong"
        )
    start, end = file.at, file.at + 4 * rows * dim
    found_bytes = file.matrix(start, end)
    if found_bytes.size < end - start:
        raise file.wrong(
            start,
            f"the {name} matrix of {rows:,} rows of {dim:,} needs {end - start:,} bytes, "
            f"and {found_bytes.size:,} are left",
        )
    file.at = end
    return found_bytes.view("<f4").reshape(rows, dim)


def _quantized(file: _Reader, at: int, what: str) -> TableFormatError:
    return TableFormatError(
        f"{file.path} (byte {at:,}) is a quantized fastText model (.ftz): {what}, which is not read here; "
        "take the model it was made from (.bin), or write its vectors as text: fasttext print-word-vectors"
    )
