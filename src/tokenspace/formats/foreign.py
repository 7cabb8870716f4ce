r"""Files that hold no table in a format read here, told by their first bytes: what they are, and what to do.

Nothing is unpacked, unpickled or parsed: a few bytes are compared.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import NamedTuple

from tokenspace.formats.lines import NUMBER, WIDEST, spaced, width

_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the number that an older torch.save begins with
_PICKLE = re.compile(
    rb"""\x80[\x02-\x05]                   # protocol 2 and later. 0 and 1 have no mark of their own:
    |(?:[(N]|[IFL][-+.\deL]+\n            # tuples may begin with None, numbers as text,
       |K.|M..|J.{4}|G.{8})*               # numbers as bytes;
     (?:c[A-Za-z_][\w.]*\n[A-Za-z_]\w*\n  # then a class,
       |\([dl]p?\d*\n|[\]}]q[\0-\x08]      # a dict or a list,
       |[VS][^\n]*\np\d+\n                # a text that ends in a new line,
       |X..\0\0|U.[^\n]{0,255}?q\0        # a text behind its length,
       |t(?:p\d+\n|q[\0-\x08]))            # or the end of a tuple
    """,
    re.VERBOSE | re.DOTALL,
)
_GENSIM = re.compile(rb"gensim\.models\.\w+\W{1,4}(\w+)")
_AS_TEXT = "write it as text, a token and its numbers with spaces between on each line"
_UNPACK = "unpack it first"
_LINES = 20


def _saved_with(program: str) -> str:
    return (
        f"open it with {program} and save its rows and tokens: "
        "ts.save(ts.Table(rows, ts.Vocab(tokens)), 'x.safetensors')"
    )


_RUNS_CODE = f", which runs code when it is opened: {_saved_with('Python')}"


class _Kind(NamedTuple):
    """Bytes that a file begins with, or has at ``at``; the name of what it is, and what to do with it."""

    magic: bytes
    name: str
    advice: str
    at: int = 0


_KINDS = (
    _Kind(b"BZh", "bzip2", _UNPACK),
    _Kind(b"\xfd7zXZ", "xz", _UNPACK),
    _Kind(b"\x28\xb5\x2f\xfd", "zstd", _UNPACK),
    _Kind(b"\x04\x22\x4d\x18", "lz4", _UNPACK),
    _Kind(b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    _Kind(b"Rar!\x1a\x07", "a rar archive", _UNPACK),
    _Kind(b"ustar", "a tar archive", _UNPACK, 257),
    _Kind(b"PK\x05\x06", "an empty zip archive", "get or make it again"),
    _Kind(b"x\x9c", "zlib data, as joblib writes with compress", _saved_with("the program that wrote it")),
    _Kind(b"\x89HDF\r\n\x1a\n", "HDF5 (Keras, h5py, PyTables)", _saved_with("h5py")),
    _Kind(b"PAR1", "Parquet", _saved_with("pandas or pyarrow")),
    _Kind(b"ARROW1", "Arrow or Feather", _saved_with("pandas or pyarrow")),
    _Kind(b"ORC", "ORC", _saved_with("pyarrow")),
    _Kind(b"Obj\x01", "Avro", _saved_with("the program that wrote it")),
    _Kind(b"SQLite format 3\0", "an SQLite database", f"select its rows and {_AS_TEXT}"),
    _Kind(b"MATLAB 5.0", "a MATLAB file", _saved_with("scipy.io.loadmat")),
    _Kind(b"RDX", "R's data", _AS_TEXT + ": write.table(…, quote=FALSE, col.names=FALSE)"),
    _Kind(b"TFL3", "a TensorFlow Lite model", "name the checkpoint that it was made from", 4),
    _Kind(b"lmgg", "GGML, which came before GGUF", "convert it with llama.cpp's tools"),
    _Kind(b"tjgg", "GGML, which came before GGUF", "convert it with llama.cpp's tools"),
    _Kind(b"fmgg", "GGML, which came before GGUF", "convert it with llama.cpp's tools"),
    _Kind(b"\xff\xfe", "UTF-16 text", "convert it first: iconv -f utf-16 -t utf-8"),
    _Kind(b"\xfe\xff", "UTF-16 text", "convert it first: iconv -f utf-16 -t utf-8"),
    _Kind(b"%PDF", "a PDF document", "name a table's file"),
    _Kind(b"\x89PNG", "a picture", "name a table's file"),
    _Kind(b"\xff\xd8\xff", "a picture", "name a table's file"),
    _Kind(b"\x7fELF", "a program", "name a table's file"),
    _Kind(
        b"version https://git-lfs",
        "a Git LFS pointer, which stands in for the file itself",
        "fetch that: git lfs pull",
    ),
    _Kind(
        b"model_checkpoint_path:",
        "the list of a TensorFlow checkpoint's files",
        _saved_with("the program that wrote it"),
    ),
)
_SUFFIXES = {  # of what has no first bytes of its own; or whose first bytes several kinds share
    ".onnx": ("an ONNX model", "name the checkpoint that it was exported from"),
    ".pb": ("a TensorFlow model", _saved_with("TensorFlow")),
    ".index": ("a TensorFlow checkpoint", _saved_with("tf.train.load_checkpoint")),
    ".ckpt": ("a checkpoint of another program", _saved_with("the program that wrote it")),
    ".msgpack": ("MessagePack, as Flax writes", _saved_with("flax.serialization.msgpack_restore")),
    ".ann": ("an Annoy index, which holds no tokens", _saved_with("the program that wrote it")),
    ".annoy": ("an Annoy index, which holds no tokens", _saved_with("the program that wrote it")),
    ".faiss": ("a FAISS index, which holds no tokens", _saved_with("the program that wrote it")),
    ".t7": ("a Lua Torch file", _saved_with("the program that wrote it")),
}
_SHARD = re.compile(r"\.data-\d+-of-\d+$")
_FAISS = re.compile(rb"I[xwBH][A-Z][A-Za-z0-9].\0\0\0", re.DOTALL)


def binary(head: bytes) -> str | None:
    """Name a file of another program by its first bytes ``head``, in words with what to do; None if they tell
    nothing, or if it is torch's.

    >>> binary(b"PAR1\\x15")[:37]
    'is Parquet: open it with pandas or py'
    """
    if (found := pickle(head)) is not None:
        return found
    for kind in _KINDS:
        if head.startswith(kind.magic, kind.at):
            return f"is {kind.name}: {kind.advice}"
    if re.match(rb"\s*<(!doctype|html|head|body|\?xml)\b", head, re.IGNORECASE):
        return "is a web page, as a download that failed leaves: get the file itself"
    if _FAISS.match(head):
        what, advice = _SUFFIXES[".faiss"]
        return f"is {what}: {advice}"
    if head and not head.strip(b"\0"):
        return "begins with zeros alone: is the download complete?"
    return None


def by_name(name: str) -> str | None:
    """Name a file by its suffix alone, in words with what to do; None if that tells nothing."""
    what, advice = _SUFFIXES.get(PurePath(name).suffix.lower(), (None, ""))
    if _SHARD.search(name):
        what, advice = _SUFFIXES[".index"]
    return None if what is None else f"looks like {what}, by its name: {advice}"


def pickle(head: bytes) -> str | None:
    """Name a pickle that torch did not write, as ``binary`` does; None if it is none."""
    if not _PICKLE.match(head) or head[: len(_TORCH)] == _TORCH[: len(head)]:
        return None
    if found := _GENSIM.search(head):
        model = found[1].decode()
        saving = f"{model}.load(path).wv.save_word2vec_format('x.bin', binary=True)"
        if model.endswith("KeyedVectors"):
            saving = "KeyedVectors.load(path).save_word2vec_format('x.bin', binary=True)"
        elif model == "FastText":
            saving = "gensim.models.fasttext.save_facebook_model(FastText.load(path), 'x.bin')"
        return f"is a pickle of gensim's {model}: save it from there in a format read here: {saving}"
    for program in (b"gensim", b"pandas", b"sklearn", b"joblib", b"torch", b"scipy", b"numpy"):
        if program in head:
            return f"is a pickle of {program.decode()} objects{_RUNS_CODE}"
    return f"is a Python pickle{_RUNS_CODE}"


def text(head: bytes) -> str | None:
    """Return what is wrong with lines that are not a table, or only look like one; None if nothing is.

    >>> text(b"the,0.1,0.2\\n")[:42], text(b"the 0.1 0.2\\n")
    ('has commas between its numbers (CSV): writ', None)
    """
    start = head.lstrip()
    if start[:1] in (b"{", b"[") and not width(head.split(b"\n", 1)[0]):
        return f"is JSON: {_AS_TEXT}"
    whole = head if head.endswith(b"\n") or b"\n" not in head else head[: head.rindex(b"\n")]
    lines = [line.rstrip(b"\r\t ") for line in whole.split(b"\n")[:_LINES] if line.strip()]
    if lines and 2 * sum(map(_has_decimal_commas, lines)) > len(lines):
        return f"has decimal commas: {_AS_TEXT}, with points in them"
    for mark, name in ((b";", "semicolons"), (b",", "commas"), (b"|", "bars")):
        wider = [_fields(line, mark) > max(width(line), 1) for line in lines]
        if lines and 2 * sum(wider) > len(lines):
            return f"has {name} between its numbers (CSV): {_AS_TEXT}"
    firsts = [spaced(line).split(b" ", 1)[0] for line in lines]
    if (
        lines
        and all(map(NUMBER.fullmatch, firsts))
        and (not all(map(_is_whole, firsts)) or len(set(firsts)) < len(firsts))
    ):
        return (
            "has numbers alone, and no tokens: put each row's token before it, as in: paste metadata.tsv "
            "vectors.tsv > table.tsv"
        )
    if lines and 2 * sum(map(_has_column_between, lines)) > len(lines):
        return (
            "has columns between its first and its numbers: a row is a token and its numbers; take them out"
        )
    rows = [width(line) > 0 for line in lines]
    if lines and not rows[0] and 2 * sum(rows) > len(rows):
        return f"begins with {lines[0][:40]!r}, no row and no header of word2vec; take that line away"
    return None


def _fields(line: bytes, mark: bytes) -> int:
    """How many numbers end a line whose separator is ``mark``; 0 if there is none."""
    if mark not in line:
        return 0
    points = line.replace(b",", b".") if mark == b";" else line
    return width(points.translate(None, b' \t"').replace(mark, b" "))


def _has_decimal_commas(line: bytes) -> bool:
    fields = line.split(None, WIDEST)[1:WIDEST]
    return bool(fields) and all(
        b"," in field and NUMBER.fullmatch(field.replace(b",", b".")) for field in fields
    )


def _is_whole(number: bytes) -> bool:
    return number.lstrip(b"+-").isdigit()


def _has_column_between(line: bytes) -> bool:
    """Return whether tabs stand both before a line's numbers and within what is before them."""
    count = width(line)
    before = len(spaced(line).rsplit(b" ", count)[0]) if count else 0
    return b"\t" in line[:before].rstrip() and line[before : before + 1] == b"\t"


def folder(path: Path) -> str | None:
    """Name a folder without files read here, in words with what to do; None if it may hold some."""
    names = sorted(each.name for each in path.iterdir())
    if not names:
        return "is an empty folder: name a table's file, or a folder that holds a model"
    if "saved_model.pb" in names or any(_SHARD.search(name) for name in names):
        what, advice = _SUFFIXES[".pb"]
        return f"holds {what}: {advice}"
    return None
