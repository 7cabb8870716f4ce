"""Errors that say what to install: packages that pip finds, from a clone and a wheel alike."""

import json
import re
import time
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tokenspace as ts
from tokenspace import errors
from tokenspace.errors import packages_of

ROOT = Path(__file__).parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
NAMED = sorted({"train", "look", "tsne", "umap", "torch", "gguf"})


@pytest.mark.parametrize("extra", NAMED)
def test_the_command_names_the_packages_of_the_extra(extra):
    assert packages_of(extra) == EXTRAS[extra]
    error = ts.MissingExtra("this", extra)
    command = " ".join(f"'{package}'" for package in EXTRAS[extra])
    assert str(error) == f"this needs packages that are not installed; run: pip install {command}"
    assert error.extra == extra


def test_no_text_names_a_distribution_that_an_index_lacks():
    """Before a release no index has ``tokenspace``: neither messages nor documents may ask pip for it."""
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    texts += [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".js", ".html")]
    for path in texts:
        assert not re.search(r"pip install\s+'?tokenspace|tokenspace\[", path.read_text("utf-8")), path


LONG = 60_000


def long_member(path, name):
    with zipfile.ZipFile(path.with_suffix(".npz"), "w") as archive:
        archive.writestr(name, b"x")
    return path.with_suffix(".npz")


def long_array(path, name):
    np.savez(path.with_suffix(".npz"), **{name: np.zeros((2, 2))})
    return path.with_suffix(".npz")


def long_tensor(path, name):
    header = json.dumps({name: {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 99]}}).encode()
    path = path.with_suffix(".safetensors")
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    return path


def long_token(path, name):
    path = path.with_suffix(".vec")
    path.write_text(f"2 2\na 1 2\n{name} x y\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("make", [long_member, long_array, long_tensor, long_token])
@pytest.mark.parametrize(
    "text", ["x" * LONG, "\x1b[31mred" * (LONG // 8), "two words" * (LONG // 9)], ids=len
)
def test_a_text_of_a_file_never_fills_a_message(make, text, tmp_path):
    path = make(tmp_path / "table", text)
    with pytest.raises(ts.TokenspaceError) as caught:
        ts.load(path)
    assert len(str(caught.value)) < 1_600
    assert "\x1b" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", [name for name in vars(errors) if name.endswith(("Error", "Refused"))])
def test_every_error_shortens_its_message(name):
    error = getattr(errors, name)(f"can't read '{'y' * LONG}': it isn't here; don't try '{'z' * LONG}' again")
    assert re.fullmatch(r"can't read 'y+…y+': it isn't here; don't try 'z+…z+' again", str(error))
    assert len(str(error)) < 400
    short = "there is no 'king', and there isn't a queen; it's \u201cthe cat\u201d that we've found"
    assert str(getattr(errors, name)(short)) == short


@pytest.mark.parametrize("text", ["'", "\\", "'\\", "' ", "\"'", "a'b ", "'x" + "y" * 300], ids=repr)
def test_a_hostile_text_is_shortened_at_once(text):
    begin = time.perf_counter()
    assert len(str(ts.TokenspaceError(text * LONG))) <= 1_501
    assert time.perf_counter() - begin < 5
