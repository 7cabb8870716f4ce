"""fastText models of any content for the tests: the parts of the format in order, each replaceable."""

import struct
from typing import Any

import numpy as np

WORDS = [("</s>", 7), ("cat", 5), ("né", 3)]
OPTIONS: dict[str, Any] = {
    "dim": 2,
    "ws": 5,
    "epoch": 1,
    "min_count": 1,
    "neg": 5,
    "word_ngrams": 1,
    "loss": 2,
    "model": 2,
    "bucket": 4,
    "minn": 2,
    "maxn": 3,
    "lr_update_rate": 100,
    "t": 0.0001,
}


def matrix(rows: int, dim: int, start: int = 0) -> np.ndarray:
    return np.arange(start, start + rows * dim, dtype="<f4").reshape(rows, dim)


def model_parts(words=None, labels=(), version: int | None = 12, **options: Any) -> dict[str, bytes]:
    """The parts of a model, by name; joined in order they are its file. ``version`` None: one of 2016."""
    words = WORDS if words is None else words
    found = OPTIONS | options
    new = version is not None
    entries = [(word, count, 0) for word, count in words] + [(label, count, 1) for label, count in labels]
    outputs = len(labels) if found["model"] == 3 else len(words)
    rows = {"input": matrix(len(words) + found["bucket"], found["dim"], 1)}
    rows["output"] = matrix(outputs, found["dim"], 100)
    parts = {"magic": struct.pack("<i", 793_712_314), "version": struct.pack("<i", version)} if new else {}
    parts |= {name: struct.pack("<d" if name == "t" else "<i", value) for name, value in found.items()}
    parts |= {
        "entries": struct.pack("<i", len(entries)),
        "words": struct.pack("<i", len(words)),
        "labels": struct.pack("<i", len(labels)),
        "tokens": struct.pack("<q", 15),
    }
    if new:
        parts["pruned"] = struct.pack("<q", -1)
    for i, (word, count, kind) in enumerate(entries):
        text = word if isinstance(word, bytes) else word.encode()
        parts |= {f"word {i}": text + b"\0", f"count {i}": struct.pack("<q", count)}
        parts[f"type {i}"] = struct.pack("<b", kind)
    for name, values in rows.items():
        if new:
            parts[f"{name} quantized"] = b"\0"
        parts[f"{name} rows"] = struct.pack("<q", values.shape[0])
        parts[f"{name} dim"] = struct.pack("<q", values.shape[1])
        parts[f"{name} numbers"] = values.tobytes()
    return parts


def model(**settings: Any) -> bytes:
    return b"".join(model_parts(**settings).values())
