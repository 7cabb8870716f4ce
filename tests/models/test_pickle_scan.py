"""Torch files that claim more than they hold are refused before torch allocates it."""

import io
import re
import tracemalloc
import zipfile

import pytest
import torch

from tokenspace.errors import CheckpointError
from tokenspace.models.pickle_scan import check
from tokenspace.models.pickled import open_pickle


def torch_file(zipped: bool, tensors=None) -> bytes:
    held = io.BytesIO()
    tensors = {"weight": torch.arange(6.0).reshape(3, 2)} if tensors is None else tensors
    torch.save(tensors, held, _use_new_zipfile_serialization=zipped)
    return held.getvalue()


@pytest.mark.parametrize("zipped", [True, False])
def test_what_torch_writes_passes(zipped, write):
    large = {
        "a": torch.zeros(300, 70),
        "b": torch.ones(2, dtype=torch.bfloat16),
        "step": 10**12,
        "c": [1, {}],
    }
    shared = torch.arange(9.0)
    for tensors in (None, large, {"view": shared[2:5], "all": shared}, {"none": torch.zeros(0)}):
        content = torch_file(zipped, tensors)
        check(io.BytesIO(content), len(content))
        open_pickle(write("x.pt", content))


LIES = {
    "a text of 2 GB": (False, lambda data: data.replace(b"\x07\0\0\0storage", b"\x07\0\0\x80storage")),
    "a storage of 2^31 - 1 numbers": (False, lambda data: data.replace(b"K\x06Ntq", b"J\xff\xff\xff\x7fNtq")),
    "the same in a zip": (True, lambda data: re.sub(rb"K\x06t(q.Q)", b"J\xff\xff\xff\x7ft\\1", data)),
    "a member of 4 GB": (
        True,
        lambda data: (
            data[: (at := data.index(b"PK\x01\x02")) + 20] + b"\xf0\xff\xff\xff" * 2 + data[at + 28 :]
        ),
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_costs_nothing(lie, write):
    zipped, change = LIES[lie]
    data = torch_file(zipped)
    told = change(data)
    if lie == "the same in a zip":
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(held := io.BytesIO(), "w") as new:
            for entry in old.infolist():
                content = old.read(entry)
                new.writestr(entry.filename, change(content) if entry.filename.endswith(".pkl") else content)
        told = held.getvalue()
    assert told != data
    path = write("x.pt", told)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match="can't open"):
        open_pickle(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6
