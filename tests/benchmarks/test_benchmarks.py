"""Every claim runs, its figures say what they say, and the docs show the committed ones."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def benchmarks():
    """``benchmarks("report")``: a module of the folder, which is no package, imported as its scripts do."""
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module
    sys.path.remove(str(FOLDER))


CLAIMS = re.findall(r'^    "(\w+)",$', (FOLDER / "__main__.py").read_text(), re.MULTILINE)


def test_every_file_is_listed():
    listed = set(re.findall(r"`(\w+)\.py`", (FOLDER / "README.md").read_text()))
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__main__"}
    assert files == listed
    shared = {"dictionaries", "english", "kneser_ney", "layers", "measure", "plots", "report"}
    alone = {"every_size", "explore", "file_bounds", "fuzz_tables", "gpu", "language_model", "learning_rate"}
    alone |= {"lm_head_loss", "preparation", "skipgram", "small_steps", "small_transformer", "table_files"}
    assert set(CLAIMS) == files - shared - alone


ONE_AFTER_THE_OTHER = """
import contextlib, io, json, pathlib, runpy, sys
folder, out, *claims = sys.argv[1:]
sys.path.insert(0, folder)
for claim in claims:
    sys.argv = [f"{claim}.py", "--quick", "--json", f"{out}/{claim}.json"]
    printed, ended = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(f"{folder}/{claim}.py", run_name="__main__")
        except SystemExit as end:
            ended = end.code
    pathlib.Path(out, f"{claim}.ran").write_text(json.dumps([printed.getvalue(), ended]))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder with what each claim printed and wrote, in one process: libraries are loaded once."""
    out = tmp_path_factory.mktemp("claims")
    subprocess.run([sys.executable, "-c", ONE_AFTER_THE_OTHER, FOLDER, out, *CLAIMS], check=True)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_runs(claim, ran):
    printed, ended = json.loads((ran / f"{claim}.ran").read_text())
    if claim == "rowwise_adagrad" and importlib.util.find_spec("fbgemm_gpu") is None:
        assert ended == "rowwise_adagrad.py needs fbgemm-gpu-cpu==1.8.0; run: make bench"
        return
    assert ended is None
    rows = json.loads((ran / f"{claim}.json").read_text())
    assert rows
    assert len(printed.splitlines()) == len(rows) + 2
    for row in rows:
        assert row["verdict"] or (row["ours"][1] > 0 and row["peer"][1] > 0)
        assert row["asked"] is None


@pytest.mark.slow
@pytest.mark.skipif(
    not (Path("/usr/share/dictd/gcide.dict.dz").exists() and shutil.which("bible")),
    reason="needs Debian's dict-gcide, wordnet-base, bible-kjv and bible-kjv-text",
)
def test_skipgram_runs_beside_gensim(tmp_path):
    path = tmp_path / "rows.json"
    command = [sys.executable, FOLDER / "skipgram.py", "--quick", "--json", path]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = {row["claim"]: row for row in json.loads(path.read_text())}
    assert len(rows) == 3
    assert rows["skip-gram, whole run"]["ratio"] > 1
    assert re.search(r"seed 1, theirs: .* words/s; WordSim-353 ", run.stdout)


def test_without_its_peers_nothing_is_started():
    if (
        importlib.util.find_spec("fbgemm_gpu") is not None
        and importlib.util.find_spec("matplotlib") is not None
    ):
        pytest.skip("the peers are installed")
    run = subprocess.run([sys.executable, FOLDER, "--quick"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.endswith("not installed; run: make bench\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line():
    run = subprocess.run([sys.executable, FOLDER / "gpu.py"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    expected = "benchmarks/gpu.py needs a CUDA GPU and a CUDA build of torch; torch sees none here\n"
    assert run.stderr == expected


def test_contenders_take_turns(benchmarks):
    measure = benchmarks("measure")
    taken = []
    contenders = {name: lambda step, name=name: taken.append((step, name)) for name in "ab"}
    effort = measure.Effort(steps=2, least=2)
    times = measure.in_turn(contenders, effort, before={"b": lambda step: taken.append((step, "before b"))})
    turns = [name for step, name in taken if step >= measure.WARM]
    assert turns in (
        ["a", "before b", "b", "before b", "b", "a"],
        ["before b", "b", "a", "a", "before b", "b"],
    )
    assert {step for step, _ in taken} == set(range(measure.WARM + 2))
    assert times.keys() == {"a", "b"}


def test_it_stops_when_the_time_is_up_but_not_before_the_least(benchmarks):
    measure = benchmarks("measure")
    steps = []
    measure.in_turn({"a": steps.append}, measure.Effort(steps=50, least=4, seconds=0.0))
    assert len(steps) == measure.WARM + 4


def test_the_first_steps_are_not_counted(benchmarks):
    measure = benchmarks("measure")
    wait = {"a": lambda step: time.sleep(0.1 if step < measure.WARM else 0.0)}
    low, middle, high = measure.in_turn(wait, measure.Effort(steps=5, least=5))["a"]
    assert low <= middle <= high < 50.0  # milliseconds


def test_ids_are_zipfs_and_others_each_step(benchmarks):
    measure = benchmarks("measure")
    made = measure.batches(measure.Size(1_000, 8, 50, 400), measure.Effort(steps=1))
    counts = torch.bincount(made[0].ids.flatten(), minlength=1_000)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.3)
    assert not torch.equal(made[0].ids, made[1].ids)
    assert measure.distinct(made) == pytest.approx(len(made[0].ids.unique()), rel=0.05)
    assert set(made[0].segment_ids.unique().tolist()) == {0, 1}


def row(benchmarks, **given):
    kind = benchmarks("measure").Row
    return kind("claim", "size", "peer", ours=(1.0, 2.0, 3.0), peer=(5.0, 6.0, 7.0), **given)


@pytest.mark.parametrize(
    ("asked", "longer", "ratio", "holds"),
    [(3.0, False, 3.0, True), (3.1, False, 3.0, False), (None, False, 3.0, None), (0.3, True, 1 / 3, False)],
)
def test_what_is_missed_is_marked(asked, longer, ratio, holds, benchmarks):
    report = benchmarks("report")
    measured = row(benchmarks, asked=asked, longer=longer, megabytes=30.0, copy_gb_per_s=20.0)
    assert measured.ratio == pytest.approx(ratio)
    assert measured.holds is holds
    shown = report.table([measured]).splitlines()[-1]
    assert ("missed" in shown) == (holds is False)
    assert shown.endswith("| 1.5 |")  # 30 MB at 20 GB/s
    words = report.missed([measured])
    assert ("1.5 ms of our 2.0 at the 20.0 GB/s of a copy" in words) == (holds is False)


def test_results_are_written_read_and_put_into_documents(benchmarks, tmp_path, monkeypatch):
    report = benchmarks("report")
    document, results = tmp_path / "README.md", tmp_path / "results"
    monkeypatch.setattr(report, "RESULTS", results)
    monkeypatch.setattr(report, "DOCUMENTS", [document])
    text = "before\n<!-- benchmarks: cpu summary -->\nold\n<!-- /benchmarks -->\nafter\n"
    document.write_text(text)
    assert report.refresh_documents() == [document]
    assert document.read_text() == text.replace("old", "Not measured yet.")
    machine, rows = report.machine(), [row(benchmarks, asked=2.5), row(benchmarks)]
    report.write("cpu", machine, rows, "make bench")
    assert report.read("cpu") == (machine, json_twice(rows))
    assert machine["torch"] in (results / "cpu.md").read_text()
    assert report.refresh_documents() == [document]
    assert "| claim | peer | 3.0× as fast | ≥ 2.5× |\n<!-- /benchmarks -->\nafter" in document.read_text()
    assert report.refresh_documents() == []


def json_twice(rows):
    return [type(row).from_json(json.loads(json.dumps(row.as_json()))) for row in rows]


def test_documents_show_the_committed_figures(benchmarks):
    report = benchmarks("report")
    for path in report.DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        assert report.refreshed(text) == text, f"{path.name}: run python benchmarks --documents"


def test_rounding_once_is_what_numpy_does_in_float16(benchmarks):
    import numpy as np

    rounded_once = benchmarks("half_gradient").rounded_once
    rng = np.random.default_rng(0)
    values = rng.normal(size=10_000) * 10.0 ** rng.integers(-7, 4, 10_000)
    expected = values.astype(np.float16).astype(np.float64)
    assert np.array_equal(rounded_once(values, torch.float16), expected)
    once = rounded_once(np.array([1 + 2**-8 + 2**-40]), torch.bfloat16)
    assert once == 1 + 2**-7  # by way of float32 it would be a tie, and go down to 1
