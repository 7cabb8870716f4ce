"""What README and docs show is what happens: every command is run, every Python example too."""

import doctest
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_spec = importlib.util.spec_from_file_location("refresh_docs", ROOT / "scripts" / "refresh_docs.py")
refresh_docs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(refresh_docs)

DOCUMENTS = pytest.mark.parametrize("path", refresh_docs.DOCUMENTS, ids=lambda path: path.name)


@pytest.fixture(scope="module", autouse=True)
def _warm():
    refresh_docs.warm()


@pytest.fixture(scope="module")
def programs(commands, tmp_path_factory):
    """``tokenspace`` and ``python``, as forks that have loaded the library."""
    folder = tmp_path_factory.mktemp("programs")
    commands.command(folder / "tokenspace", "-m", "tokenspace")
    commands.command(folder / "python")
    return folder


@DOCUMENTS
def test_commands_print_what_is_shown(path, programs, tmp_path):
    text = path.read_text(encoding="utf-8")
    assert refresh_docs.refreshed(text, tmp_path, programs) == text, "run: python scripts/refresh_docs.py"


@DOCUMENTS
def test_python_examples_give_what_is_shown(path):
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, path.name, str(path), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert runner.run(test).failed == 0


def test_a_stale_block_is_rewritten_and_a_wildcard_kept(tmp_path):
    stale = "```console\n$ echo a1\nb\n$ echo \\\n  c2; echo d\nc...\ne\n```\n"
    fresh = "```console\n$ echo a1\na1\n$ echo \\\n  c2; echo d\nc...\nd\n```\n"
    assert refresh_docs.refreshed(stale, tmp_path) == fresh


def test_a_traceback_is_no_document_s(tmp_path):
    with pytest.raises(SystemExit, match="no document shows a traceback"):
        refresh_docs.refreshed("```console\n$ python3 -c 'raise ValueError'\nx\n```\n", tmp_path)
