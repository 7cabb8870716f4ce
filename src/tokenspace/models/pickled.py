"""``pytorch_model.bin``, ``x.pt``: pickles, so opened by torch's weights-only loader or not at all.

That loader makes tensors and plain containers alone and refuses whatever else a pickle can ask for, such as
running code. It needs torch, which safetensors files don't.
"""

from __future__ import annotations

import io
import pickle
import re
import struct
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

from tokenspace.errors import CheckpointError, MissingExtra
from tokenspace.mapped import watch
from tokenspace.models import pickle_scan
from tokenspace.models.safetensors import DTYPES, LARGEST, TensorInfo
from tokenspace.number_types import number_type
from tokenspace.source import ZIP, Source, read_up_to

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_REFUSALS = (  # what reading a damaged or hostile pickle can end in
    pickle.UnpicklingError,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)
_OBJECT = re.compile(r"GLOBAL\s+(\S+)")
_WITHIN_ADVICE = re.compile(r"WeightsUnpickler error:(.*?)(?:Check the documentation|$)", re.DOTALL)
WITHIN = ("state_dict", "model_state_dict", "model", "module")
ALONE = "tensor"
_DEEPEST = 4  # dicts within dicts


def open_pickle(path: Path | Source) -> dict[str, TensorInfo]:
    """Every tensor of the file by name, its numbers in memory (mapped, where torch wrote a plain zip file).

    A dict of tensors may lie in another, under a name in ``WITHIN``; a tensor alone is called ``tensor``.
    ``MissingExtra`` without torch; ``CheckpointError`` for what the weights-only loader refuses.
    """
    packed = path if isinstance(path, Source) and path.packed else None
    path = path.path if isinstance(path, Source) else path
    try:
        import torch
    except ImportError:
        raise MissingExtra(f"{path}, a pickle that torch's weights-only loader must open,", "torch") from None
    file: Path | io.BytesIO = path
    try:
        if packed:
            file = io.BytesIO(_unpacked(packed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on the file's age
            mapped = packed is None and _is_zip(path)
            _check(file)
            found = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    except _REFUSALS as error:
        raise CheckpointError(f"torch's weights-only loader can't open {path}: {_reason(error)}") from None
    if isinstance(found, torch.Tensor):
        found = {ALONE: found}
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} holds a {type(found).__name__}; a checkpoint is a dict of tensors")
    tensors = {name: _tensor(path, name, tensor) for name, tensor in _tensors(found).items()}
    if mapped:
        for tensor in tensors.values():
            watch(tensor.array, path)
    return tensors


def _unpacked(source: Source) -> bytes:
    """The bytes of a packed file, as far as its pickles promise; ``ValueError`` if it goes on after them."""
    with source.open() as stream:
        if stream.peek(4)[:4] == ZIP:
            head, most = b"", LARGEST if source.size is None else source.size
        else:
            head, most = pickle_scan.promised(stream)
        held = head + read_up_to(stream, most - len(head))
        if stream.read(1):
            raise ValueError(f"it goes on after the {most:,} bytes that its pickles promise")
    return held


def _reason(error: Exception) -> str:
    """Why the loader refused, in one line, and what to do."""
    text = str(error)
    if found := _OBJECT.search(text):
        return (
            f"it holds a whole module or other objects ({found[1][:80]!r}), which only running code could "
            "make again; save its tensors alone: torch.save(module.state_dict(), path)"
        )
    if found := _WITHIN_ADVICE.search(text):
        text = found[1]
    said = " ".join(text.split())[:200]
    return f"{said}; is the download complete, and the file nothing but tensors?"


def _tensors(found: dict[Any, Any]) -> dict[str, Any]:
    """The tensors of a dict, or of the first dict within it that has any."""
    import torch

    for _ in range(_DEEPEST):
        tensors = {
            name: tensor
            for name, tensor in found.items()
            if isinstance(name, str) and isinstance(tensor, torch.Tensor)
        }
        within = next((found[name] for name in WITHIN if isinstance(found.get(name), dict)), None)
        if tensors or within is None:
            return tensors
        found = within
    return {}


def _check(file: Path | io.BytesIO) -> None:
    if isinstance(file, io.BytesIO):
        pickle_scan.check(file, file.getbuffer().nbytes)
        file.seek(0)
    else:
        with file.open("rb") as stream:
            pickle_scan.check(stream, file.stat().st_size)


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _tensor(path: Path, name: str, tensor: Any) -> TensorInfo:
    """The tensor where it lies: neither one that is stored by columns nor a number that is stored once for
    many places is copied.
    """
    import torch

    kind = str(tensor.dtype).removeprefix("torch.")
    try:
        tensor = tensor.detach()
        if kind == "bfloat16":  # torch can't give it to NumPy
            array = tensor.view(torch.int16).numpy().view(number_type(kind))
        else:
            array = tensor.numpy()
    except (TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: tensor {name!r} is {kind}, which NumPy can't hold ({error})"
        ) from None
    if str(array.dtype) not in _NAMES:
        raise CheckpointError(f"{path}: tensor {name!r} is {kind}, which no table can be")
    array.flags.writeable = False
    return TensorInfo(name, _NAMES[str(array.dtype)], array.shape, path, 0, array.nbytes, array)
