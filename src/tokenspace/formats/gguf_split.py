"""A GGUF model in several files, as ``gguf-split`` and the ``gguf`` package write it.

=========================  =================================================================================
key, in every file         meaning
=========================  =================================================================================
``split.count``            the number of files
``split.no``               this file's place, from 0
``split.tensors.count``    the number of tensors in all files
=========================  =================================================================================

The files are called ``name-00001-of-00003.gguf`` and so on (from 1), and lie in one folder; any may be packed
with gzip (``.gguf.gz``). The first has the
model's other keys, the tokens with them; any may have the table or the head.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tokenspace.errors import TableFormatError
from tokenspace.formats.gguf_header import Header, Tensor
from tokenspace.models.siblings import part_names
from tokenspace.source import Source, exists

COUNT, PLACE, TENSORS = "split.count", "split.no", "split.tensors.count"


class Model:
    """The files of one model: ``first`` has its keys, ``parts`` are all that are there, in order, and
    ``missing`` names the others. A model in one file is its own only part.
    """

    def __init__(self, parts: list[Header], missing: list[str]) -> None:
        self.parts = parts
        self.missing = missing

    @property
    def first(self) -> Header:
        return self.parts[0]

    def find(self, name: str) -> tuple[Header, Tensor] | None:
        """The tensor ``name`` and the file that holds it; None if no file does."""
        return next(((part, part.tensors[name]) for part in self.parts if name in part.tensors), None)

    def names(self) -> list[str]:
        """The names of all tensors."""
        return [name for part in self.parts for name in part.tensors]


def open_model(source: Source, partial: bool = False) -> Model:
    """The model that the file ``source`` is, or is a part of.

    ``TableFormatError`` names a part that is missing, or that belongs to another model. ``partial``: only the
    first part must be there.
    """
    header = Header(source)
    count = _number(header, COUNT) or 1
    if count == 1:
        return Model([header], [])
    place = _number(header, PLACE)
    names = part_names(source.path.name)
    if (
        names is None
        or len(names) != count
        or place is None
        or names[place : place + 1] != [source.path.name]
    ):
        raise header.damaged(
            header.metadata[COUNT].start,
            f"this is part {'?' if place is None else place + 1} of a model of {count:,} files; to find the "
            f"others it must be called name-{(place or 0) + 1:05d}-of-{count:05d}.gguf, as gguf-split does; "
            "or join them: llama-gguf-split --merge",
        )
    paths = [_packed_or_not(source, name) for name in names]
    missing = [path.name for path in paths if not exists(path)]
    if missing and (not partial or missing[0] == names[0]):
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        what = "the tokens are in it" if missing[0] == names[0] else "the table or its output may be in it"
        raise TableFormatError(
            f"{source.path} is part {place + 1:,} of a model of {count:,} files, and "
            f"{missing[0]}{more} is missing beside it: {what}; is the download complete?"
        )
    parts = []
    for i, path in enumerate(paths):
        if path.name not in missing:
            parts.append(header if i == place else Header(Source(path)))
            _check_part(parts[-1], i, count, header)
    _check_tensors(parts, complete=not missing)
    return Model(parts, missing)


def _packed_or_not(source: Source, name: str) -> Path:
    """The file ``name`` beside ``source``; or the same with .gz, or without, if that alone exists."""
    other = name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"
    path = source.beside(name)
    return source.beside(other) if not exists(path) and exists(source.beside(other)) else path


def _check_part(part: Header, place: int, count: int, opened: Header) -> None:
    """``TableFormatError`` if ``part`` is no part of the model that the ``opened`` file belongs to."""
    found = (_number(part, PLACE), _number(part, COUNT), _number(part, TENSORS))
    if found != (place, count, _number(opened, TENSORS)):
        said = ", ".join(f"{key} {value}" for key, value in zip((PLACE, COUNT, TENSORS), found, strict=True))
        raise TableFormatError(
            f"{part.source.path} is no part of the same model as {opened.source.path}: it says {said}, not "
            f"{PLACE} {place}, {COUNT} {count}, {TENSORS} {_number(opened, TENSORS)}; get both again"
        )


def _check_tensors(parts: list[Header], complete: bool) -> None:
    names = [name for part in parts for name in part.tensors]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise TableFormatError(f"{parts[0].source.path}: the tensor {twice!r} is in two files of the model")
    said = _number(parts[0], TENSORS)
    if complete and said is not None and said != len(names):
        raise TableFormatError(
            f"{parts[0].source.path}: the model has {said:,} tensors by {TENSORS}, its files hold "
            f"{len(names):,}; is the download complete?"
        )


def _number(header: Header, key: str) -> int | None:
    found = header.numbers(key)
    return None if found is None or found.size != 1 else int(found[0])
