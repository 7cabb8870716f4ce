import numpy as np
import pytest
from rich.console import Console

import tokenspace as ts
from tokenspace.errors import ShapeError
from tokenspace.geometry import Projection, View, clusters, kept, pca
from tokenspace.plots import Map, write_page
from tokenspace.table import Table
from tokenspace.vocab import Vocab

HOSTILE = ["<script>alert(1)</script>", "\n", "🐱", "\u202eabc", "x" * 2000, "%{y}", "<b>"]


def random_table(rng, tokens=None, rows=60):
    tokens = tokens or [f"w{i}" for i in range(rows)]
    return Table(rng.normal(size=(len(tokens), 8)).astype(np.float32), Vocab(tokens, special=[0]))


def points(figure, dims):
    """id -> coordinates, from what the figure draws."""
    return {
        int(i): tuple(np.float32(getattr(trace, axis)[n]) for axis in "xyz"[:dims])
        for trace in figure.data
        for n, i in enumerate(trace.customdata)
    }


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("color", ["kind", "cluster", "norm", "kept"])
def test_every_row_is_drawn_at_its_place(rng, dims, color):
    table = random_table(rng)
    projection = pca(table, dims)
    figure = Map.of(table, projection, color).figure()
    drawn = points(figure, dims)
    assert sorted(drawn) == list(range(60))
    for i, place in drawn.items():
        assert place == tuple(projection.coordinates[i])
    assert {trace.type for trace in figure.data} == {"scatter3d" if dims == 3 else "scattergl"}
    axes = figure.layout.scene if dims == 3 else figure.layout
    assert axes.xaxis.title.text == projection.axes[0]
    assert axes.yaxis.title.text == projection.axes[1]


def test_kinds_are_groups(rng):
    figure = Map.of(random_table(rng), color="kind").figure()
    assert [(trace.name, len(trace.x)) for trace in figure.data] == [
        ("special (1)", 1),
        ("word-initial (59)", 59),
    ]


def test_clusters_are_groups_named_by_their_tokens(rng):
    table = random_table(rng)
    found = clusters(table, k=20)
    figure = Map.of(table, color="cluster", grouped=found).figure()
    assert [trace.name for trace in figure.data] == [
        f"{name} ({size})" for name, size in zip(found.names, found.sizes, strict=True)
    ]
    for label, trace in enumerate(figure.data):
        assert (found.labels[trace.customdata] == label).all()
    assert len({trace.marker.color for trace in figure.data}) == 20  # more than there are by default


def test_lengths_and_shares_are_scales(rng):
    table = random_table(rng)
    (norms,) = Map.of(table, color="norm").figure().data
    np.testing.assert_allclose(norms.marker.color, np.linalg.norm(table.weight, axis=1), rtol=1e-6)
    projection = pca(table)
    measured = kept(table, projection, k=5, limit=10)
    rest, known = Map.of(table, projection, "kept", measured=measured).figure().data
    assert (rest.name, len(rest.x), len(known.x)) == ("not measured", 50, 10)
    np.testing.assert_array_equal(known.marker.color, measured.share[known.customdata])
    assert (known.marker.cmin, known.marker.cmax) == (0, 1)


def test_tokens_are_shown_harmlessly(rng):
    figure = Map.of(random_table(rng, HOSTILE)).figure()
    text = {
        int(i): label for trace in figure.data for i, label in zip(trace.customdata, trace.text, strict=True)
    }
    assert text[0] == "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert text[1] == "'\\n'"
    assert text[2] == "🐱"
    assert "\u202e" not in text[3]
    assert len(text[4]) <= 40
    assert "%{text}" in figure.data[0].hovertemplate
    assert "id %{customdata}" in figure.data[0].hovertemplate


def test_the_title_says_method_seed_and_versions(rng):
    table = random_table(rng)
    place = np.zeros((60, 2), np.float32)
    made = Projection(place, "tsne", 3, {}, ("t-SNE 1", "t-SNE 2"), {"openTSNE": "1.0", "numpy": "2"})
    picture = Map.of(table, made, "norm")
    assert picture.title == "60 rows by t-SNE, seed 3; color: length of the row (openTSNE 1.0, numpy 2)"
    assert picture.figure().layout.title.text.startswith(
        "60 rows by t-SNE, seed 3; color: length of the row<br>"
    )
    assert Map.of(table).title.startswith("60 rows by PCA; color: kind of token (tokenspace ")


@pytest.mark.parametrize(
    ("method", "settings", "title"),
    [
        ("umap", {"center": True, "remove": 2}, "60 rows without their top 2 directions by UMAP, seed 0;"),
        ("tsne", {"center": True, "remove": 1}, "60 rows without their top direction by t-SNE, seed 0;"),
        ("tsne", {"center": True, "remove": 0}, "60 rows about their mean by t-SNE, seed 0;"),
        ("tsne", {"center": False, "remove": 0}, "60 rows by t-SNE, seed 0;"),
        ("pca", {"center": True, "remove": 3}, "60 rows without their top 3 directions by PCA;"),
        ("pca", {"center": True, "remove": 0}, "60 rows by PCA;"),
    ],
)
def test_the_title_says_what_was_taken_out(rng, method, settings, title):
    made = Projection(np.zeros((60, 2), np.float32), method, 0, settings, ("x", "y"), {"numpy": "2"})
    assert Map.of(random_table(rng), made).title.startswith(title)


def test_the_terminal_shows_where_points_lie():
    spread = np.array([[0, 0], [0, 0], [0, 0], [1, 1]], np.float32)
    table = Table(np.eye(4, dtype=np.float32), Vocab(["a", "b", "c", "d"]))
    picture = Map.of(table, Projection(spread, "pca", 0, {}, ("east", "north"), {}))
    console = Console(width=10, record=True)
    console.print(picture)
    lines = console.export_text().splitlines()
    drawn = [line for line in lines if "█" in line or "▓" in line or "▒" in line or "░" in line]
    assert drawn[0].index("▒") == 9  # one point: right and up
    assert drawn[-1].index("█") == 0  # three points: left and down
    assert "right: east; up: north" in " ".join(" ".join(lines).split())


def test_the_switches_of_a_map_and_its_view(rng):
    table = random_table(rng)
    figure = ts.plots.map(table, color="norm", dims=3, remove=1)
    assert len(figure.data[0].x) == len(table)
    assert figure.layout.scene.xaxis.title.text.startswith("PC 2 (")
    view = View(table, remove=1)
    assert Map.of(view).projection.axes[0] == figure.layout.scene.xaxis.title.text


@pytest.mark.parametrize(("dims", "evaluates"), [(2, True), (3, False)])
def test_a_page_may_evaluate_only_where_points_on_a_plane_need_it(rng, tmp_path, dims, evaluates):
    table = random_table(rng)
    write_page(Map.of(table, pca(table, dims)).figure(), tmp_path / "map.html", "a map")
    head = (tmp_path / "map.html").read_text().split("<body>")[0]
    assert ("script-src 'unsafe-inline' 'unsafe-eval';" in head) == evaluates
    assert ("script-src 'unsafe-inline';" in head) != evaluates


def test_what_is_refused(rng):
    table = random_table(rng)
    with pytest.raises(ShapeError, match="60 points is not one of this table of 7 rows"):
        Map.of(random_table(rng, HOSTILE), pca(table))
