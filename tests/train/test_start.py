"""Where training starts: the draw that the built-in table depends on, pretrained rows, too large a table."""

import numpy as np
import pytest

from tokenspace.errors import ShapeError
from tokenspace.kernels import skipgram as kernel
from tokenspace.table import Table
from tokenspace.train import skipgram, start
from tokenspace.train.settings import checked
from tokenspace.vocab import Vocab

COUNTS = np.array([0, 3, 5, 0, 7])
VOCAB = Vocab(["[PAD]", "the", "paris", "never", "cat"], special=[0])


def settings(**changed):
    asked = {
        "dim": None, "epochs": 1, "window": 2, "negative": 2, "sample": 0.0, "min_count": None,
        "lowercase": True, "words": "word", "threads": 1, "seed": 1, "alpha": 0.025, "min_alpha": 1e-4,
        "shuffle": True, "tokenizer_given": False, "init_dim": None,
    }  # fmt: skip
    return checked(**(asked | changed))


def test_rows_are_drawn_as_in_one_go(monkeypatch):
    whole = np.random.default_rng(1)
    expected = (whole.random((5, 7), np.float32) - np.float32(0.5)) / np.float32(7)
    expected[COUNTS == 0] = 0
    for at_once in (1, 7, 20, 1 << 22):
        monkeypatch.setattr(start, "_NUMBERS_AT_ONCE", at_once)
        rng = np.random.default_rng(1)
        model, copied = start.drawn(kernel, COUNTS, settings(dim=7), rng)
        np.testing.assert_array_equal(model.inputs[:, :7], expected)
        assert rng.bit_generator.state == whole.bit_generator.state
        assert not model.inputs[:, 7:].any()
        assert not model.outputs.any()
        assert not copied


def pretrained(init, **changed):
    asked = settings(dim=init.dim, **changed)
    model, copied = start.pretrained(kernel, COUNTS, asked, np.random.default_rng(1), VOCAB, init)
    return model.inputs[:, : init.dim], model.outputs[:, : init.dim], copied


def test_known_rows_are_copied_and_the_others_drawn():
    init = Table(np.array([[1, 2], [3, 4], [5, 6]], np.float16), Vocab(["Paris", "the", "never"]))
    inputs, outputs, copied = pretrained(init)
    np.testing.assert_array_equal(inputs[1:4], [[3, 4], [1, 2], [5, 6]])
    assert inputs[4].any()
    assert not inputs[0].any()  # it never occurs, and nobody knows it
    assert not outputs.any()
    assert (copied["matched"], copied["matched_by_case"], copied["total"]) == (3, 1, 4)
    assert copied["context_matrix"] is False
    _, _, kept = pretrained(init, lowercase=False)
    assert (kept["matched"], kept["matched_by_case"]) == (2, 0)


def test_special_tokens_are_not_counted_and_no_match_is_said():
    init = Table(np.ones((2, 2), np.float32), Vocab(["[pad]", "x"]))
    _, _, copied = pretrained(init)
    assert (copied["matched"], copied["matched_by_case"], copied["total"]) == (0, 0, 4)
    assert start.note(copied).startswith("none of 4 tokens has a row in the table to start from")


def test_a_context_matrix_is_copied_too():
    init = Table(np.ones((2, 3), np.float32), Vocab(["the", "x"]), output=np.full((2, 3), 7, np.float32))
    _, outputs, copied = pretrained(init)
    np.testing.assert_array_equal(outputs, [[0] * 3, [7] * 3, [0] * 3, [0] * 3, [0] * 3])
    assert copied["context_matrix"] is True


def test_training_goes_on_from_a_table(write):
    path = write("text.txt", "the cat chased the mouse .\nthe king ruled the land .\n" * 500)
    init = skipgram(path, dim=9, epochs=3, threads=1)
    heard = []
    table = skipgram(path, init=init, alpha=1e-9, min_alpha=0.0, epochs=1, threads=1, on_note=heard.append)
    np.testing.assert_allclose(table.weight[3:], init.weight[3:], atol=1e-4)
    assert "8 of 8 tokens start from pretrained rows" in heard
    about = table.provenance["init"]
    assert (about["matched"], about["total"], len(about["table_sha256"])) == (8, 8, 64)
    assert table.provenance["settings"]["dim"] == 9
    assert heard == table.provenance["notes"]


def test_a_table_of_another_width_is_refused_before_a_file_is_read():
    init = Table(np.ones((1, 3), np.float32), Vocab(["the"]))
    with pytest.raises(ShapeError, match="has width 3, and dim is 4; leave dim out, or make it 3"):
        skipgram("there is no such file", init=init, dim=4)


def test_matrices_that_do_not_fit_in_memory_are_refused(tmp_path):
    """Two of 300,004 × 65,536 float32 numbers: 157 GB, more than the machines that test this may use."""
    if start.memory() > 150e9:
        pytest.skip("this machine has room for them")
    (tmp_path / "text.txt").write_text("\n".join(f"w{2 * n} w{2 * n + 1}" for n in range(150_000)))
    with pytest.raises(
        ShapeError, match=r"two matrices of 300,004 × 65,536 take 157.3 GB of memory, and there"
    ):
        skipgram(tmp_path / "text.txt", dim=65_536, min_count=1, threads=1, output=tmp_path / "t")
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_what_the_system_would_promise_and_not_have_is_refused():
    """Linux hands out more memory than it has, and ends a process that comes to use it."""
    rows = int(1.02 * start.memory() / (2 * 4 * 65_536))
    with pytest.raises(ShapeError, match=f"two matrices of {rows:,} × 65,536 take"):
        start.drawn(kernel, np.ones(rows, np.int64), settings(dim=65_536), np.random.default_rng(1))


def test_memory_is_what_the_machine_has():
    assert 1 << 26 < start.memory() < 1 << 50
