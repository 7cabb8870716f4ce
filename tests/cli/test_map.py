import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import tokenspace as ts
from tokenspace.cli import main
from tokenspace.cli.console import number
from tokenspace.cli.map import map_


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    table = ts.load("wordnet")
    path = tmp_path_factory.mktemp("map") / "small.safetensors"
    ids = np.arange(3, 203)
    ts.save(ts.Table(table.lookup(ids), table.vocab.take(ids)), path)
    return str(path)


def run(*arguments: str):
    return CliRunner().invoke(map_, arguments, catch_exceptions=False)


@pytest.mark.parametrize("dims", [2, 3])
def test_json_is_the_librarys_map(small, dims):
    result = run("-t", small, "--dims", str(dims), "--color", "norm", "--json")
    document = json.loads(result.stdout)
    projection = ts.geometry.pca(ts.load(small), dims)
    assert document["points"] == [[number(x) for x in point] for point in projection.coordinates]
    assert document["tokens"] == list(ts.load(small).vocab)
    assert {key: document[key] for key in projection.provenance()} == json.loads(
        json.dumps(projection.provenance())
    )
    assert document["color"] == {"by": "norm"}
    assert len(document["colors"]) == 200
    assert result.stderr == ""


def test_the_files(small, tmp_path):
    page, data = tmp_path / "map.html", tmp_path / "map.json"
    result = run("-t", small, "--color", "cluster", "-o", str(page))
    assert result.stdout.startswith(f"{page}: 200 rows by PCA; color: cluster (tokenspace ")
    content = page.read_text()
    assert content.startswith("<!DOCTYPE html>")
    assert '"scattergl"' in content
    run("-t", small, "--color", "cluster", "-o", str(data))
    document = json.loads(data.read_text())
    assert document["color"]["k"] == 16
    assert set(document["colors"]) == set(ts.geometry.clusters(ts.load(small)).names)
    assert document == json.loads(run("-t", small, "--color", "cluster", "--json").stdout)


def test_it_is_drawn_here_and_the_switch_is_the_librarys(small):
    drawn = run("-t", small, "--remove", "2").stdout
    axes = ts.geometry.pca(ts.load(small), remove=2).axes
    assert f"right: {axes[0]}" in drawn
    assert axes[0].startswith("PC 3 (")
    assert "word-initial" in drawn


def test_a_seed_and_a_method(small):
    document = json.loads(run("-t", small, "--method", "tsne", "--seed", "5", "--json").stdout)
    assert (document["method"], document["seed"]) == ("tsne", 5)
    assert "openTSNE" in document["versions"]


@pytest.mark.parametrize(
    ("method", "setting", "used"), [("tsne", "perplexity", 3.0), ("umap", "neighbors", 11)]
)
def test_a_small_table_has_a_map_by_each_method(tmp_path, method, setting, used):
    table = tmp_path / "twelve.txt"
    rows = np.random.default_rng(0).normal(size=(12, 4))
    table.write_text("".join(f"w{i} {' '.join(map(str, row))}\n" for i, row in enumerate(rows)))
    result = run("-t", str(table), "--method", method, "--color", "cluster", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["settings"][setting] == used
    assert document["color"]["k"] == 3


def test_a_page_without_plotly_and_a_place_that_holds_none(small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    for verb in ("map", "heatmap", "norms"):
        words = ["cat"] if verb == "heatmap" else []
        result = CliRunner().invoke(main, [verb, *words, "-t", small, "-o", str(tmp_path / "page.html")])
        assert result.stderr.startswith("Error: a page needs packages")
        result = CliRunner().invoke(main, [verb, *words, "-t", small, "-o", "/proc/page.html"])
        assert result.stderr == "Error: can't write /proc/page.html: no file can be made in /proc\n"


@pytest.mark.parametrize("name", ["map.png", "map"])
def test_other_files_are_a_usage_mistake(small, name):
    result = run("-t", small, "-o", name)
    assert result.exit_code == 2
    assert "a map's name ends in .html or .json" in result.stderr
