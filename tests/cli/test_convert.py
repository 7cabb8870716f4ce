import json

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

import tokenspace as ts
from tokenspace.cli import main
from tokenspace.cli.convert import FORMATS, PARTS
from tokenspace.formats import open as formats

EQUAL = "read back: tokens and values equal"


def run(*arguments: str, exit_code: int = 0):
    result = CliRunner().invoke(main, ["convert", *arguments], catch_exceptions=False)
    assert result.exit_code == exit_code, result.stderr
    return result


@pytest.fixture
def awkward(tmp_path) -> str:
    """Four rows, two tokens that word2vec's formats can't hold, one that repeats."""
    tokens = ["a b", "cat", "\n", "cat"]
    ts.save(ts.Table(np.ones((4, 2), np.float16), ts.Vocab(tokens, special=[1])), tmp_path / "in")
    return str(tmp_path / "in")


def test_the_choices_are_the_library_s():
    assert formats.WRITABLE == FORMATS


def test_json_is_as_designed(tmp_path):
    files = [str(tmp_path / "w.npy"), str(tmp_path / "w.vocab.txt")]
    result = run("wordnet", files[0], "--json")
    assert json.loads(result.stdout) == {
        "rows": 33_003,
        "dim": 100,
        "format": "numpy",
        "lossless": True,
        "lost": ["tokenizer", "special", "provenance"],
        "left_out": [],
        "repeated": 0,
        "files": files,
        "read_as": "native",
        "dtypes": ["float16", "float16"],
        "renumbered": False,
        "replaced": 0,
        "rounded": 0,
        "unreachable": 0,
        "as_first": 0,
        "not_read": [],
    }
    assert result.stderr == ""


def test_tensors_that_are_not_read_are_said(tmp_path):
    weight = np.eye(3, dtype=np.float32)
    tokens = np.array(["a", "b", "c"])
    np.savez(tmp_path / "x.npz", weight=weight, tokens=tokens, extra=weight)
    assert (
        "not read: 'extra.npy of shape [3, 3]'"
        in run(str(tmp_path / "x.npz"), str(tmp_path / "y.npy")).stderr
    )
    save_file({"emb.weight": weight, "lm_head.weight": weight + 1}, tmp_path / "m.safetensors")
    (tmp_path / "m.vocab.txt").write_text("a\nb\nc\n")
    command = (str(tmp_path / "m.safetensors"), str(tmp_path / "y.npy"), "--tensor", "emb.weight")
    assert "not read: 'lm_head.weight of shape [3, 3]'" in run(*command).stderr
    assert json.loads(run(*command, "--json").stdout)["not_read"] == ["lm_head.weight of shape [3, 3]"]
    config = {"model_type": "new", "vocab_size": 3}
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    (tmp_path / "m" / "vocab.txt").write_text("a\nb\nc\n")
    (tmp_path / "m.safetensors").rename(tmp_path / "m" / "model.safetensors")
    command = (str(tmp_path / "m"), str(tmp_path / "z.npy"), "--tensor", "emb.weight")
    assert "not read: 'lm_head.weight of shape [3, 3]'" in run(*command).stderr


def test_what_is_lost_is_said(awkward, tmp_path):
    out = str(tmp_path / "w")
    result = run(awkward, out, "--to", "word2vec-binary", "--allow-loss")
    assert (
        result.stdout == f"{out}: 2 rows × 2, native to word2vec-binary; read back: tokens and values equal\n"
    )
    assert result.stderr.splitlines() == [
        "left out 2 rows that word2vec-binary can't hold, ids after them move up: 'a b', '\\n'",
        "1 token repeats an earlier one; each keeps its row here, gensim reads the first",
        "float16 is written as float32: the same values",
        "word2vec-binary has no place for which tokens are special",
    ]
    assert set(PARTS) == formats.PARTS


def test_a_row_left_out_for_its_place_is_told(tmp_path):
    ts.save(ts.Table(np.ones((3, 2), np.float32), ts.Vocab(["\ufeffa", "b", "c 1"])), tmp_path / "in")
    result = run(str(tmp_path / "in"), str(tmp_path / "w.txt"), "--allow-loss")
    assert result.stderr == (
        "left out 2 rows that glove can't hold (1 for being the first alone), ids after them move up: "
        "'\\ufeffa', 'c 1'\n"
    )
    assert list(ts.load(tmp_path / "w.txt").vocab) == ["b"]


def test_what_was_mended_or_cut_is_said(tmp_path, write):
    path = write("x.vec", b"3 1\nb\xe9b 1\nb 2\nc 3\n")
    result = run(str(path), str(tmp_path / "out"), "--errors", "replace", "--limit", "2")
    assert (
        result.stdout
        == f"{tmp_path / 'out'}: 2 rows × 1, word2vec-text to native; read back: tokens and values equal\n"
    )
    assert result.stderr == "1 token held bytes that are no UTF-8, now U+FFFD\n"
    assert "limit" in run(str(path), str(tmp_path / "out"), "--limit", "0", exit_code=2).stderr
    failed = run(str(path), str(tmp_path / "new"), exit_code=1)
    assert "line 2 (byte 4)" in failed.stderr
    assert "--errors" not in failed.stdout


def test_a_token_that_would_be_lost_is_one_line_and_status_1(awkward, tmp_path):
    result = run(awkward, str(tmp_path / "w.vec"), exit_code=1)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "token 'a b' at id 0 (and 1 more such token) would not be read back" in result.stderr
    assert not (tmp_path / "w.vec").exists()


def test_an_unknown_format_is_a_usage_mistake(awkward, tmp_path):
    run(awkward, str(tmp_path / "w"), "--to", "fasttext", exit_code=2)


def test_names_of_files_can_not_drive_the_terminal(awkward, tmp_path):
    result = run(awkward, str(tmp_path / "\x1b[31m.npy"), "--allow-loss")
    assert "\x1b" not in result.stdout + result.stderr
    assert r"\x1b[31m.vocab.txt'" in result.stdout


def test_gensim_reads_no_npy(tmp_path):
    ts.save(ts.Table(np.ones((3, 2), np.float32), ts.Vocab(["a", "a", "a"])), tmp_path / "in")
    note = "2 tokens repeat an earlier one; each keeps its row here"
    assert run(str(tmp_path / "in"), str(tmp_path / "w.npy")).stderr == f"{note}\n"
    assert run(str(tmp_path / "in"), str(tmp_path / "w.txt")).stderr == f"{note}, gensim reads the first\n"


def test_the_tokens_of_a_matrix_are_named(tmp_path, write):
    np.save(tmp_path / "w.npy", np.ones((2, 3), np.float32))
    missing = run(str(tmp_path / "w.npy"), str(tmp_path / "out"), exit_code=1)
    assert "convert --vocab FILE" in missing.stderr
    words = write("words", "a\nb\n")
    result = run(str(tmp_path / "w.npy"), str(tmp_path / "out"), "--vocab", str(words))
    assert result.stdout == f"{tmp_path / 'out'}: 2 rows × 3, numpy to native; {EQUAL}\n"
    assert list(ts.load(tmp_path / "out").vocab) == ["a", "b"]
