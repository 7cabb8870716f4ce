"""GGUF files, put together byte by byte."""

import struct

import numpy as np


def string(text):
    text = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(text)) + text


def entry(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def strings(key, items):
    return entry(key, 9, struct.pack("<IQ", 8, len(items)) + b"".join(map(string, items)))


def integers(key, items):
    return entry(key, 9, struct.pack("<IQ", 5, len(items)) + np.array(items, "<i4").tobytes())


def tensor(name, axes, kind, offset):
    return string(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, offset)


def file_of(entries, tensors, data=b"", version=3, counts=None, alignment=32):
    """A GGUF file, byte by byte."""
    start = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(entries))))
    head = start + b"".join(entries) + b"".join(tensors)
    return head.ljust(-(-len(head) // alignment) * alignment, b"\0") + data


TOKENS = strings("tokenizer.ggml.tokens", ["<s>", "a", "b"])


NUMBERS = np.array([[1, 2], [3, 4], [5, 6]], "<f4")


EMBEDDING = tensor("token_embd.weight", [2, 3], 0, 0)


SMALL = file_of([TOKENS], [EMBEDDING], NUMBERS.tobytes())


def replaced(old, new, content=SMALL):
    assert content.count(old) == 1
    return content.replace(old, new)
