"""How tokenizers mark in a token where words begin, and GPT-2's way to spell bytes.

==============  =======================================================================================
word            a token is a word
wordpiece       ## begins a token that continues a word (BERT)
byte-level      Ġ, the stand-in for a space, begins a word; each byte is spelled by a character (GPT-2)
sentencepiece   ▁ begins a word (T5, LLaMA)
==============  =======================================================================================
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Encoding = Literal["word", "wordpiece", "byte-level", "sentencepiece"]

WORD_START = {"byte-level": "Ġ", "sentencepiece": "▁"}
CONTINUATION = "##"
BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Sign(NamedTuple):
    """How a vocabulary that does not say its encoding may show it: a marker that most tokens begin with, or
    at least ``share`` of them beside one of ``tokens``, which every vocabulary of that encoding has.
    """

    marker: str
    share: float
    tokens: tuple[str, ...]


SIGNS: dict[Encoding, Sign] = {
    "wordpiece": Sign(CONTINUATION, 0.1, BERT_SPECIAL),  # 5,828 of the 30,522 tokens of bert-base-uncased
    "byte-level": Sign("Ġ", 0.2, ("Ċ",)),
    "sentencepiece": Sign("▁", 0.2, ("▁", "<0x0A>")),
}


def _byte_level_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte: itself if visible in Latin-1, else the next from 256."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}


_BYTE_LEVEL = _byte_level_alphabet()
_BYTES = {stand_in: byte for byte, stand_in in _BYTE_LEVEL.items()}
_LONE_BYTES = {stand_in for byte, stand_in in _BYTE_LEVEL.items() if byte < 0x20 or byte >= 0x7F}


def to_byte_level(text: str) -> str:
    """``text`` as byte-level tokens spell it: a stand-in for each byte of its UTF-8.

    >>> to_byte_level(" café")
    'ĠcafÃ©'
    """
    return "".join(_BYTE_LEVEL[byte] for byte in text.encode("utf-8", "surrogateescape"))


def from_byte_level(token: str) -> str:
    """The text that a byte-level token spells, U+FFFD for what is no UTF-8; the token itself if it holds a
    character that stands for no byte.

    >>> from_byte_level("ĠcafÃ©"), from_byte_level("Ġcaf猫")
    (' café', 'Ġcaf猫')
    """
    try:
        return bytes(_BYTES[character] for character in token).decode("utf-8", "replace")
    except KeyError:
        return token


def is_lone_byte(token: str) -> bool:
    """A control byte, or one byte of a longer UTF-8 character: no text by itself."""
    return token in _LONE_BYTES
