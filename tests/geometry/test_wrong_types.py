"""What users pass by mistake: told in words where no type checker runs, as it does in these tests."""

import subprocess
import sys

import pytest

CALLS = {
    'neighbors("wordnet", "cat")': "a Table is needed, found str; tokenspace.load",
    'neighbors(None, "cat")': "a Table is needed, found NoneType",
    'View(View(table), "cat")': "a Table is needed, found View",
    "nearest(table.weight)": "a Table is needed, found ndarray",
    'neighbors(table, "cat", 2.5)': "k must be a whole number from 1 on, found 2.5",
    'neighbors(table, "cat", "3")': "k must be a whole number from 1 on, found '3'",
    "nearest(table, [0], None)": "k must be a whole number from 1 on, found None",
    'analogy(table, "cat", "dog", "cow", 2.0)': "k must be a whole number from 1 on, found 2.0",
    'neighbors(table, ["cat", "dog"])': "a query is a word, a row's id, or a vector of 3 finite numbers",
    'analogy(table, table["cat"], "dog", "cow")': "asked of words or ids, found ndarray",
    'similarity(table, b"cat", "dog")': "found bytes",
}


@pytest.fixture(scope="module")
def told():
    code = """
import numpy as np
from tokenspace import Table, Vocab
from tokenspace.errors import TokenspaceError
from tokenspace.geometry import View, analogy, nearest, neighbors, similarity
table = Table(np.eye(3, dtype=np.float32), Vocab(["cat", "dog", "cow"]))
"""
    for call in CALLS:
        code += f"try:\n    {call}\nexcept TokenspaceError as error:\n    print(error)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return dict(zip(CALLS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_type_is_told_in_one_line(told, call):
    assert CALLS[call] in told[call]
