"""A run that diverges is stopped at the next look, by either objective, and nothing bad is saved of it."""

import random
import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from tokenspace import formats
from tokenspace.errors import ShapeError
from tokenspace.train import skipgram
from tokenspace.train.divergence import LARGEST, Limit, magnitude
from tokenspace.train.language_model import language_model
from tokenspace.train.run import Run


@pytest.fixture
def folder(tmp_path):
    rng = random.Random(1)
    words, weights = [f"w{n}" for n in range(400)], [1 / (n + 1) for n in range(400)]
    lines = (" ".join(rng.choices(words, weights, k=12)) for _ in range(4000))
    (tmp_path / "text.txt").write_text("\n".join(lines))
    (tmp_path / "pairs.tsv").write_text("w1 w2 3\nw3 w9 1\nw5 w6 2\n")
    return tmp_path


def train(folder, **settings):
    return skipgram(folder / "text.txt", **{"dim": 24, "epochs": 8, "threads": 1, "seed": 1} | settings)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("alpha", [0.4, 1.0, 10.0])
def test_rows_that_left_all_reason_are_noticed_before_the_end(folder, alpha, threads):
    given = []
    with pytest.raises(
        ShapeError, match=rf"training diverged .* a row holds .*lower alpha \({alpha:g}\)"
    ) as e:
        train(
            folder,
            alpha=alpha,
            threads=threads,
            snapshots=30,
            evaluate=folder / "pairs.tsv",
            on_snapshot=lambda fraction, table: given.append(magnitude(table.weight)),
        )
    assert int(re.search(r"after (\d+)%", str(e.value))[1]) < 60
    assert all(largest <= LARGEST for largest in given)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_last_good_state_and_the_old_table_are_kept(folder, threads):
    output = folder / "t.safetensors"
    train(folder, output=output, epochs=1)
    before = {path.name: path.read_bytes() for path in folder.glob("t.*")}
    settings = {"output": output, "alpha": 0.3, "dim": 50, "threads": threads, "checkpoint_minutes": 0}
    for resume in (False, True):
        with pytest.raises(
            ShapeError, match=r"training diverged .* is kept in .*t.training; delete that"
        ) as e:
            train(folder, **settings, resume=resume)
        assert str(e.value).count("delete that folder") == 1
        state = load_file(folder / "t.training" / "state.safetensors")
        assert len(state["loss"]) > 0
        assert magnitude(state["inputs"]) <= LARGEST
        assert magnitude(state["outputs"]) <= LARGEST
        assert {name: (folder / name).read_bytes() for name in before} == before


def test_without_a_good_state_no_folder_stays(folder):
    with pytest.raises(ShapeError, match=r"training diverged"):
        train(folder, output=folder / "t", alpha=10.0)
    assert {path.name for path in folder.iterdir()} == {"text.txt", "pairs.tsv"}


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_a_state_that_left_all_reason_is_not_gone_on_with(folder, value, monkeypatch):
    stops = iter([False] * 40)
    train(folder, output=folder / "t", stop=lambda: next(stops, True), checkpoint_minutes=0)
    path = folder / "t.training"
    run = Run(path, 0)
    arrays, about = run.load()
    arrays = {name: np.array(array) for name, array in arrays.items()}
    arrays["inputs"][5, 3] = value
    run.save(arrays, about)
    with pytest.raises(Exception, match=r"the run can't go on from it .training diverged .* begin anew"):
        train(folder, output=folder / "t", resume=True, checkpoint_minutes=0)
    assert formats.load(folder / "t").provenance["interrupted_at"]  # what was published stays


@pytest.mark.parametrize("held_out", [0.0, 0.1])
def test_a_language_model_keeps_its_last_good_state(folder, held_out):
    settings = {"dim": 16, "layers": 1, "heads": 2, "context": 16, "vocab_size": 300, "epochs": 1}
    settings |= {"threads": 1, "held_out": held_out, "rate": 1.0, "weight_decay": 1.0}
    with Run.begin(folder / "t.training", {}, resume=False) as run:
        with pytest.raises(ShapeError, match=r"training diverged: .*; lower the rate \(1\)"):
            language_model(folder / "text.txt", run=run, checkpoint_minutes=0, **settings)
        if run.has_state:
            arrays, _ = run.load()
            limit = Limit([])
            assert not limit.excess(array for name, array in arrays.items() if name.startswith("model."))


def test_a_start_with_large_rows_may_stay_large():
    limit = Limit([np.full((2, 2), 5e4, np.float32)])
    assert not limit.excess([np.full((2, 2), 4e5, np.float32)])
    assert limit.excess([np.full((2, 2), 6e5, np.float32)])
    assert "NaN" in limit.excess([np.float32([[np.nan, 0]])])
