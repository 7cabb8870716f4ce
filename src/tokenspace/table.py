"""The embedding table: V rows of D numbers, the tokens they belong to, and how they came to be."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenspace import mapped
from tokenspace.errors import ShapeError, TableFormatError, VocabError
from tokenspace.ids import checked_ids
from tokenspace.shapes import Array, ArrayLike, Float
from tokenspace.subwords import Subwords
from tokenspace.tokenizer import Tokenizer
from tokenspace.vocab import Vocab, check_vocab
from tokenspace.word_lookup import WordLookup

DTYPES = ("float32", "float16", "bfloat16")


class Table:
    """An embedding table (V, D) and its vocabulary; the noun that every room shares.

    ``weight`` and ``output`` are (V, D) arrays of float32, float16 or bfloat16, kept as they are: a memory
    map stays one, and numbers become float32 when rows are read. ``output`` is a second table over the same
    tokens: skip-gram's context matrix, or an untied head. ``provenance`` says in plain JSON values what made
    the table. ``subwords`` give words that the vocabulary lacks a vector from their characters.
    ``ShapeError`` if the parts don't fit each other.

    >>> table = Table(np.array([[1, 2], [3, 4]], np.float16), Vocab(["a", "cat"]))
    >>> table["cat"], table.lookup([[0, 0, 1]]).shape
    (array([3., 4.], dtype=float32), (1, 3, 2))
    """

    def __init__(
        self,
        weight: ArrayLike,
        vocab: Vocab,
        tokenizer: Tokenizer | None = None,
        output: ArrayLike | None = None,
        provenance: dict[str, Any] | None = None,
        subwords: Subwords | None = None,
    ):
        check_vocab(vocab)
        if not isinstance(provenance, (dict, type(None))):
            raise TableFormatError(f"provenance must be a dict, found {type(provenance).__name__}")
        self.weight = _checked(weight, "weight", len(vocab))
        self.output = None if output is None else _checked(output, "output", len(vocab))
        if self.output is not None and self.output.shape != self.weight.shape:
            raise ShapeError(
                f"output has width {self.output.shape[1]:,}, weight {self.weight.shape[1]:,}; "
                "they must be equal"
            )
        if subwords is not None and subwords.rows.shape[1] != self.weight.shape[1]:
            raise ShapeError(
                f"subwords have width {subwords.rows.shape[1]:,}, weight {self.weight.shape[1]:,}; "
                "they must be equal"
            )
        self.vocab = vocab
        self.tokenizer = tokenizer
        self.provenance: dict[str, Any] = {} if provenance is None else provenance
        self.subwords = subwords
        for array in _arrays(self):
            mapped.watch(array)

    def __len__(self) -> int:
        """V, the number of rows."""
        return self.weight.shape[0]

    @property
    def dim(self) -> int:
        """D, the numbers in a row."""
        return self.weight.shape[1]

    def __getitem__(self, token: str) -> Float[Array, " D"]:
        """The row of ``token`` as ``vocab.find`` understands it, in float32; what the vocabulary lacks is
        composed by ``subwords``, if there are any.
        """
        if not isinstance(token, str):
            raise VocabError(f"a table is indexed by a token, found {token!r}; rows by id: table.lookup(ids)")
        check_unchanged(self)
        found = self.vocab.known(token)
        if found is None and self.subwords is not None:
            vector = self.subwords.vector(token)
            if vector is not None:
                return vector
        return self.lookup((found or self.vocab.find(token)).id)

    def lookup(self, ids: ArrayLike) -> Float[Array, "*axes D"]:
        """The rows of ``ids`` (any shape and integer type) in float32; ``TokenIdError`` if one has no row,
        ``TableFormatError`` if the table's file was written to since it was opened.
        """
        check_unchanged(self)
        return np.asarray(self.weight[checked_ids(ids, len(self))], dtype=np.float32)

    def __repr__(self) -> str:
        parts = [f"{len(self):,} × {self.dim:,} {self.weight.dtype}"]
        parts += [name for name in ("tokenizer", "output", "subwords") if getattr(self, name) is not None]
        return f"Table({', '.join(parts)})"


def check_unchanged(table: Table) -> None:
    """``TableFormatError`` if the file of a mapped table was cut off or overwritten since it was opened.

    Every query calls it first; it takes some microseconds.
    """
    mapped.check_unchanged(*_arrays(table))


def _arrays(table: Table) -> tuple[Array | None, ...]:
    rows = None if table.subwords is None else table.subwords.rows
    return table.weight, table.output, table.vocab.data, table.vocab.offsets, rows


def tokenizer_of(table: Table) -> Tokenizer | WordLookup:
    """The table's tokenizer; without one, its tokens as words. ``VocabError`` if they are pieces, or if no
    row has a token: text can't become ids then without the tokenizer that made them.
    """
    if table.tokenizer is not None:
        return table.tokenizer
    named = len(table.vocab.placeholders()) < len(table)
    if table.vocab.encoding == "word" and named:
        return WordLookup(table.vocab)
    what = f"its tokens are {table.vocab.encoding} pieces" if named else "its rows have no tokens"
    raise VocabError(
        f"this table has no tokenizer, and {what}, so text can't become ids; ask for words (neighbors, "
        "similarity, heatmap), or give it one that was made for its ids: "
        'table.tokenizer = ts.Tokenizer.load(FILE); ts.save(table, "with.safetensors")'
    )


def check_table(table: object) -> None:
    """``ShapeError`` unless ``table`` is a table: a path or a name of one has to be loaded first."""
    if not isinstance(table, Table):
        raise ShapeError(
            f"a Table is needed, found {type(table).__name__}; tokenspace.load(…) opens one, "
            "tokenspace.Table(rows, vocab) makes one"
        )
    check_unchanged(table)


def check_finite(table: Table, rows: Float[Array, "K D"], first_id: int = 0, matrix: str = "table") -> None:
    """``TableFormatError`` if ``rows``, the table's from row ``first_id`` on, hold NaN or infinity."""
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        bad = first_id + int(np.argmin(finite))
        raise TableFormatError(
            f"row {bad:,} of the {matrix}, token {table.vocab[bad]!r}, holds NaN or infinity"
            f"{_others(int((~finite).sum()) - 1)}; "
            "repair those rows or train again with a lower learning rate"
        )


def _others(count: int) -> str:
    return f" (and {count:,} more of the rows read with it)" if count else ""


def _checked(weight: ArrayLike, name: str, tokens: int) -> Array:
    array = np.asanyarray(weight)  # a memory map stays one
    if str(array.dtype) not in DTYPES:
        raise ShapeError(
            f"{name} must be float32, float16 or bfloat16, found {array.dtype}; convert it first"
        )
    if array.ndim != 2 or 0 in array.shape:
        raise ShapeError(
            f"{name} must be a (V, D) array with at least one row and column, found {array.shape}"
        )
    if array.shape[0] != tokens:
        raise ShapeError(
            f"{name} has {array.shape[0]:,} rows for a vocabulary of {tokens:,} tokens; each needs its own"
        )
    return array
