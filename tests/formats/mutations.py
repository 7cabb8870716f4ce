"""What is done to a file: each edit is a function of a generator and the bytes, and of nothing else.

Most are blind. Some know what they change, so that damage comes past the first check: a number in a header
becomes one at a boundary; JSON changes its shape (safetensors' header is given its true length again);
what a zip archive holds is changed and packed with its true checksum; an archive's directory lies. Some make
much of little: megabytes of one byte, which pack into kilobytes; archives of thousands of members; long and
deep JSON; tokenizers that double a text at each step.
"""

from __future__ import annotations

import io
import json
import lzma
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

LIMITS = (0, 1, -1, 2, 127, 255, 65_535, 2**31 - 1, 2**31, 2**32 - 1, 10**18, 2**62, 2**63 - 1, 2**63)
HEADER = 96  # bytes that many edits fall into
RAW = (  # JSON that a value can not be written as by the library
    "1e999", "-1e999", "NaN", "1" + "0" * 400, "9" * 5000, "-0.0", "1.0", "[" * 3000 + "]" * 3000,
    "[" * 100_000, '{"a":' * 3000 + "1" + "}" * 3000, '{"a":1,"a":2}', '"\\ud800"', '"\\u0000"',
    '"\\udcff"', "'", "[" + "[]," * 400_000 + "1]", "[" + '{"a":1},' * 200_000 + "1]",
)  # fmt: skip
NUMBERS = ("9" * 400, "9" * 40, "1e400", "1e5", "nan", "inf", "0x10", "1_0", "+1", "1.", "")
VALUES = (None, True, False, 0.5, "", "x", "F32", "U8", "../x", [], {}, [0], [1, 2, 3], [[]], {"a": 1})
BITS = (b"\n", b" ", b"\0", b"0", b"-", b"\xff", b" 1", b"\r\n", b"\xc2\xa0")  # of text and of what is none

UNREADABLE = (  # what reading a damaged archive can end in
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, LookupError, ValueError, OSError, EOFError,
    RuntimeError,
)  # fmt: skip

Edit = Callable[[random.Random, bytes, bytes], bytes]  # generator, the bytes, another file's bytes


def place(rng: random.Random, data: bytes) -> int:
    """An offset in ``data``: at its start, where headers are, in its second half, or anywhere."""
    how = rng.random()
    if how < 0.4:
        return rng.randrange(min(len(data), HEADER))
    return rng.randrange(len(data) // 2 if how < 0.7 else 0, len(data))


def flip_bits(rng: random.Random, data: bytes, other: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[place(rng, data)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def set_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[place(rng, data)] = rng.choice((0, 1, 9, 10, 13, 32, 45, 46, 48, 57, 127, 128, 194, 255))
    return bytes(changed)


def cut(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: place(rng, data)]


def insert(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = place(rng, data)
    what = rng.choice((*BITS, rng.randbytes(rng.randint(1, 9))))
    return data[:at] + what * rng.choice((1, 1, 1, 2, 7, 1000)) + data[at:]


def delete(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = place(rng, data)
    return data[:at] + data[at + rng.choice((1, 1, 2, 4, 8, rng.randint(1, len(data)))) :]


def repeat(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A block once more, or many times."""
    start = place(rng, data)
    block = data[start : start + rng.randint(1, 64)]
    return data[:start] + block * rng.choice((2, 2, 3, 100, 2000)) + data[start + len(block) :]


def splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """The start of one file and the end of another."""
    return data[: place(rng, data)] + (other[place(rng, other) :] if other else b"")


def set_integer(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A binary integer at a boundary."""
    width, at = rng.choice((1, 2, 4, 4, 8, 8)), place(rng, data)
    value = rng.choice(LIMITS) & (256**width - 1)
    return data[:at] + value.to_bytes(width, rng.choice(("little", "little", "big"))) + data[at + width :]


def set_decimal(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A number in text at a boundary."""
    found = list(re.finditer(rb"-?\d+", data[:4096]))
    if not found:
        return set_integer(rng, data, other)
    chosen = rng.choice(found[:4] if rng.random() < 0.6 else found)
    text = rng.choice((*map(str, LIMITS), *NUMBERS))
    return data[: chosen.start()] + text.encode() + data[chosen.end() :]


def set_json(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """The shape of JSON: the whole file's, or that of safetensors' header, whose length stays true."""
    length = int.from_bytes(data[:8], "little")
    header = data[8:9] == b"{" and length <= len(data) - 8
    try:
        text = changed_json(rng, data[8 : 8 + length] if header else data)
    except (ValueError, RecursionError):
        return set_decimal(rng, data, other)
    return struct.pack("<Q", len(text)) + text + data[8 + length :] if header else text


def changed_json(rng: random.Random, data: bytes) -> bytes:
    content = json.loads(data)
    raw: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = _changed(rng, content, raw)
    text = json.dumps(content)
    for i, what in enumerate(raw):
        text = text.replace(f'"@raw{i}@"', what, 1)
    return text.encode("utf-8", "surrogatepass")


def _changed(rng: random.Random, content: Any, raw: list[str]) -> Any:
    """``content`` with one part of it another."""
    if isinstance(content, str) and content.startswith("{") and rng.random() < 0.8:
        return changed_json(rng, content.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    if not isinstance(content, (dict, list)) or not content or rng.random() < 0.1:
        return _value(rng, content, raw)
    key = rng.choice(list(content)) if isinstance(content, dict) else rng.randrange(len(content))
    content = content.copy()
    how = rng.random()
    if how < 0.75:
        content[key] = _changed(rng, content[key], raw)
    elif how < 0.85:
        del content[key]
    elif isinstance(content, list):
        content.insert(key, _value(rng, content[key], raw))
    elif how < 0.95:
        content[rng.choice(("", "x", key + "\0", "weight", "__metadata__"))] = content.pop(key)
    else:
        raw.append(json.dumps(content[key]) + ',"' + key + '": ' + json.dumps(content[key]))
        content[key] = f"@raw{len(raw) - 1}@"
    return content


def _value(rng: random.Random, old: Any, raw: list[str]) -> Any:
    how = rng.random()
    if how < 0.4 or (type(old) is int and how < 0.7):
        return rng.choice(LIMITS)
    if how < 0.75:
        return rng.choice(VALUES)
    raw.append(rng.choice(RAW))
    return f"@raw{len(raw) - 1}@"


def set_member(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """What a zip archive holds, packed again with its true checksum; a member gone, renamed or doubled."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            members = [(entry.filename, entry.compress_type, archive.read(entry)) for entry in entries]
    except UNREADABLE:
        return lie_in_directory(rng, data, other)
    if not members:
        return data
    at = rng.randrange(len(members))
    name, kind, content = members[at]
    how = rng.random()
    if how < 0.8 and content:
        members[at] = (name, kind, rng.choice(BLIND)(rng, content, other))
    elif how < 0.85:
        del members[at]
    elif how < 0.9:
        members[at] = (rng.choice(("x", "../x", name + "\0", "/" + name, name.upper())), kind, content)
    else:
        members.insert(rng.randrange(len(members) + 1), (name, kind, rng.choice((b"", content, other))))
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, kind, content in members:
            entry = zipfile.ZipInfo()
            entry.filename, entry.compress_type = name, kind  # as it is: the constructor would clean the name
            archive.NameToInfo.pop(name, None)  # a name that is there already would be warned of
            archive.writestr(entry, content)
    return held.getvalue()


def lie_in_directory(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A field of a zip archive's entries says what is not so: method, checksum, sizes, lengths, offsets."""
    places = [found.start() for found in re.finditer(rb"PK(\x01\x02|\x03\x04|\x05\x06)", data)]
    if not places:
        return set_integer(rng, data, other)
    at = rng.choice(places)
    fields = {  # offset and width of each field
        b"\x01\x02": ((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4)),
        b"\x03\x04": ((6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)),
        b"\x05\x06": ((8, 2), (10, 2), (12, 4), (16, 4), (20, 2)),
    }[data[at + 2 : at + 4]]
    offset, width = rng.choice(fields)
    value = rng.choice((*LIMITS, 8, 12, 14, 99)) & (256**width - 1)
    start = at + offset
    return data[:start] + value.to_bytes(width, "little") + data[start + width :]


def append_much(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Megabytes of one byte after the file's end, or in its middle."""
    much = rng.choice((b"\0", b"\0", b"\n", b" ", b"a")) * rng.choice((1 << 20, 1 << 22, 1 << 24))
    at = len(data) if rng.random() < 0.7 else place(rng, data)
    return data[:at] + much + data[at:]


def add_members(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Hundreds of members more in a zip archive; rarely more than are read."""
    held = io.BytesIO(data)
    count = rng.choice((*[300] * 19, 21_000))
    content = rng.choice((b"", data[:100], other[:100]))
    try:
        with zipfile.ZipFile(held, "a") as archive:
            for i in range(count):
                archive.writestr(zipfile.ZipInfo(f"{i}{rng.choice(('.npy', '.txt', ''))}x.npy"), content)
    except UNREADABLE:
        return append_much(rng, data, other)
    return held.getvalue()


def grow_tokenizer(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A tokenizer whose steps double a text, or repeat it."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return set_json(rng, data, other)
    if not isinstance(content, dict):
        return set_json(rng, data, other)
    count = rng.choice((1, 2, 5, 12, 40, 1000))
    letter = rng.choice(("a", "t", "[", " "))
    doubled = rng.choice(
        (
            {"type": "Replace", "pattern": {"String": letter}, "content": 2 * letter},
            {"type": "Replace", "pattern": {"Regex": rng.choice(("", "(?=a)", "a*", "."))}, "content": "aa"},
            {"type": "Prepend", "prepend": letter * rng.choice((1, 100, 100_000))},
            {"type": "ByteLevel"},
            {"type": "NFKD"},
        )
    )
    text = {"Sequence": {"id": "A", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [text, text], "pair": [text, text]}
    if rng.random() < 0.75:
        content["normalizer"] = {"type": "Sequence", "normalizers": [doubled] * count}
        for token in content.get("added_tokens") or []:
            if isinstance(token, dict):
                token["normalized"] = True
    else:
        steps = [template | {"special_tokens": {}}] * count
        content["post_processor"] = {"type": "Sequence", "processors": steps}
    return json.dumps(content).encode("utf-8", "surrogatepass")


BLIND: tuple[Edit, ...] = (
    flip_bits, set_bytes, cut, insert, delete, repeat, splice, set_integer, set_decimal,
)  # fmt: skip


def edits_for(data: bytes) -> tuple[Edit, ...]:
    """The edits that may be made to a file, those that know it as often as all the others."""
    if data.startswith(b"PK"):
        return (*BLIND, *[set_member] * 7, *[lie_in_directory] * 3, add_members, append_much)
    if b'"post_processor"' in data and data.startswith(b"{"):
        return (*BLIND, *[set_json] * 9, *[grow_tokenizer] * 4, append_much)
    if data[:1] == b"{" or data[8:9] == b"{":
        return (*BLIND, *[set_json] * 9, append_much)
    return (*BLIND, set_integer, set_integer, set_decimal, set_decimal, append_much)
