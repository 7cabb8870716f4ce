"""Answers as JSON: long arrays travel as base64, and text is always UTF-8."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np

from tokenspace.errors import TableFormatError
from tokenspace.shapes import Array, ArrayLike

_PACKED = {"f32": "<f4", "f16": "<f2", "i32": "<i4", "u8": "u1"}
_SURROGATES = re.compile("[\ud800-\udfff]")


def packed(values: ArrayLike, kind: str = "f32") -> dict[str, str]:
    """Numbers as one base64 string, little-endian, in row order: ``{"f32": "…"}``.

    >>> packed([1.0, -2.0]), packed([1, 2], "u8")
    ({'f32': 'AACAPwAAAMA='}, {'u8': 'AQI='})
    """
    array = np.ascontiguousarray(values, dtype=np.dtype(_PACKED[kind]))
    return {kind: base64.b64encode(array.tobytes()).decode("ascii")}


def unpacked(answer: dict[str, str]) -> Array:
    """The numbers of ``packed``, along one axis."""
    ((kind, text),) = answer.items()
    return np.frombuffer(base64.b64decode(text), np.dtype(_PACKED[kind]))


def as_text(token: str) -> str:
    """``token`` as a page receives it: each byte that is no UTF-8 as U+FFFD."""
    return _SURROGATES.sub("\ufffd", token)


def as_json(value: Any) -> bytes:
    """UTF-8 JSON. A byte of a token that is no UTF-8 becomes U+FFFD: the id is the key, not the spelling.

    ``TableFormatError`` if a number is NaN or infinite, which JSON doesn't have.

    >>> as_json(["é", "\\udcff"]).decode()
    '["é","�"]'
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise TableFormatError(
            "the answer holds NaN or infinity: the table's numbers leave float32 on the way; "
            "scale the table down"
        ) from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        return as_text(text).encode()
