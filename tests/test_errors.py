"""Errors that say what to install: packages that pip finds, from a clone and a wheel alike."""

import re
import tomllib
from pathlib import Path

import pytest

import tokenspace as ts
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
