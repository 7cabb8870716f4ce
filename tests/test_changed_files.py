"""A mapped file that is cut off or written to is noticed before a query; one that is replaced is no fault.

They run in processes of their own: without the check the kernel ends it with SIGBUS.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import tokenspace as ts

QUERIES = {
    "lookup": "table.lookup([len(table) - 1])",
    "row": "table['t9']",
    "neighbors": "ts.geometry.neighbors(table, 't9')",
    "neighbors by id": "ts.geometry.neighbors(table, 9)",
    "similarity": "ts.geometry.similarity(table, 't9', 't8')",
    "analogy": "ts.geometry.analogy(table, 't9', 't8', 't7')",
    "view": "ts.geometry.neighbors(view, 't9')",
    "norms": "ts.plots.Norms.of(table)",
    "save": "ts.save(table, COPY)",
    "page": "answer(explorer, CALLS['neighbors'], b'q=t9')",
    "page's tokens": "answer(explorer, CALLS['complete'], b'prefix=t')",
}
CODE = """
import json, os, sys, time, numpy as np
import tokenspace as ts
from tokenspace.geometry.transform import View
from tokenspace.web.calls import CALLS, answer
from tokenspace.web.explorer import Explorer

def change(path, how):
    size = os.path.getsize(path)
    if how == "truncated":
        os.truncate(path, size // 16)
    elif how == "emptied":
        open(path, "wb").close()
    elif how == "overwritten":
        content = open(path, "rb").read()
        time.sleep(0.02)
        with open(path, "r+b") as file:
            file.write(content[:-4] + b"abcd")
    elif how == "grown":
        with open(path, "ab") as file:
            file.write(b"more")
    elif "replaced" in how:
        os.link(path, path + ".old")
        open(path + ".new", "wb").write(b"another")
        os.replace(path + ".new", path)
        if how == "truncated and replaced":
            os.truncate(path + ".old", size // 16)
    elif how == "removed":
        os.remove(path)

for path, how, queries in json.loads(sys.argv[1]):
    table = ts.load(path)
    view, explorer = View(table), Explorer(table)
    change(path, how)
    for query in queries:
        try:
            eval(query)
        except ts.TokenspaceError as error:
            print(type(error).__name__, error)
        else:
            print("answered")
"""
CHANGED = ["truncated", "emptied", "overwritten", "grown", "truncated and replaced"]


def answers(*cases) -> list[str]:
    """What one process says to ``(path, change, queries)`` after another."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(cases)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr[-500:])
    return done.stdout.splitlines()


@pytest.fixture
def made(tmp_path):
    weight = np.random.default_rng(0).normal(size=(3000, 64)).astype(np.float32)
    table = ts.Table(weight, ts.Vocab([f"t{i}" for i in range(3000)]))

    def make(kind, name="t"):
        path = tmp_path / f"{name}{kind}"
        if kind == ".pt":
            import torch

            torch.save({"weight": torch.from_numpy(weight)}, path)
            path.with_suffix(".vocab.txt").write_text("".join(f"t{i}\n" for i in range(3000)))
        else:
            ts.save(table, path)
        return str(path)

    return make


@pytest.mark.parametrize("how", ["truncated", "overwritten"])
def test_a_changed_file_is_named_before_each_kind_of_query(how, made, tmp_path):
    path = made(".safetensors")
    queries = [query.replace("COPY", repr(str(tmp_path / "copy"))) for query in QUERIES.values()]
    said = answers((path, how, queries))
    for query, line in zip(QUERIES, said, strict=True):
        assert line.startswith(f"TableFormatError {path} changed after it was opened (it "), (query, line)


@pytest.mark.parametrize("kind", [".safetensors", ".npy", ".npz", ".gguf", ".pt"])
def test_each_mapped_format_and_each_change(kind, made):
    ways = [*CHANGED, "replaced", "removed", "none"]
    if kind == ".pt":
        ways.remove("truncated and replaced")  # torch keeps the file of its map to itself
    paths = [made(kind, f"t{n}") for n in range(len(ways))]
    said = answers(*[(path, how, [QUERIES["neighbors"]]) for path, how in zip(paths, ways, strict=True)])
    for path, how, line in zip(paths, ways, said, strict=True):
        if how in CHANGED:
            assert line.startswith(f"TableFormatError {path} changed after it was opened (it "), (how, line)
        else:
            assert line == "answered", how


def test_changes_through_the_table_s_own_writable_map_are_no_fault(tmp_path):
    np.save(tmp_path / "t.npy", np.eye(3, dtype=np.float32))
    for mode in ("r+", "c"):
        rows = np.load(tmp_path / "t.npy", mmap_mode=mode)
        table = ts.Table(rows, ts.Vocab(["a", "b", "c"]))
        rows[0, 0] = 5
        rows.flush()
        os.utime(tmp_path / "t.npy", (1, 1))
        assert table["a"].tolist() == [5, 0, 0]
        with open(tmp_path / "t.npy", "ab") as file:
            os.truncate(file.fileno(), 140)
        with pytest.raises(ts.TableFormatError, match=r"changed .* bytes and has 140"):
            table.lookup([2])
        np.save(tmp_path / "t.npy", np.eye(3, dtype=np.float32))
