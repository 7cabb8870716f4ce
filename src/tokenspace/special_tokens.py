"""A vocabulary's special tokens: rows like any other, whose tokens stand for structure rather than text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tokenspace.tokenizer import Tokenizer
from tokenspace.tokenizer_files import named_special_tokens
from tokenspace.vocab import Vocab

_BY_SPELLING = {
    "padding": ("[PAD]", "<pad>", "<|pad|>", "<|padding|>"),
    "unknown": ("[UNK]", "<unk>"),
    "classification": ("[CLS]", "<cls>"),
    "separator": ("[SEP]", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
    "begin": ("<s>", "<bos>", "<|begin_of_text|>"),
    "end": ("</s>", "<eos>", "<|end_of_text|>"),
}
_SPELLED = {token: role for role, tokens in _BY_SPELLING.items() for token in tokens}


class SpecialToken(NamedTuple):
    """A special token, its id, and what it is for ("padding", "mask" …): nothing where no file says so."""

    token: str
    id: int
    roles: tuple[str, ...]


def special_tokens(
    vocab: Vocab, tokenizer: Tokenizer | None = None, folder: Path | None = None
) -> list[SpecialToken]:
    """Return the special tokens of ``vocab`` in id order, with their roles.

    Roles come from the tokenizer's files in ``folder`` (``cls_token`` and such), else from ``tokenizer``,
    which knows its unknown token, else from the spellings that are customary (``[CLS]``, ``</s>``).
    ``CheckpointError`` if a file in ``folder`` can't be read.

    >>> for special in special_tokens(Vocab(["[PAD]", "the", "[CLS]", "<extra>"], special=[0, 2, 3])):
    ...     print(special.id, special.token, *special.roles)
    0 [PAD] padding
    2 [CLS] classification
    3 <extra>
    """
    named: dict[int, list[str]] = {i: [] for i in vocab.special}
    for token, roles in (named_special_tokens(folder) if folder is not None else {}).items():
        if token in vocab:
            named.setdefault(vocab.id(token), []).extend(roles)
    if tokenizer is not None and tokenizer.unk_id is not None and tokenizer.unk_id in named:
        roles = named[tokenizer.unk_id]
        roles += [] if "unknown" in roles else ["unknown"]
    return with_roles(named, vocab.__getitem__)


def with_roles(named: Mapping[int, Sequence[str]], token_of: Callable[[int], str]) -> list[SpecialToken]:
    """Return the tokens of the ids in ``named`` with the roles given there, in id order; a token without any
    has the role of its customary spelling.
    """
    found = []
    for i, roles in sorted(named.items()):
        token = token_of(i)
        spelled = [_SPELLED[token]] if not roles and token in _SPELLED else []
        found.append(SpecialToken(token, i, tuple(roles or spelled)))
    return found
