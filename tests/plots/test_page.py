import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import tokenspace as ts
from tokenspace.errors import MissingExtra, OutputError
from tokenspace.plots import Heatmap, write_page

HOSTILE = ["<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "<!--", "%{y}", "plain"]


class Elements(HTMLParser):
    """The tags of a page with their attributes, and the text of each script."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script" and self.lasttag == "script":
            self.scripts.append(data)


@pytest.fixture
def page(tmp_path) -> str:
    table = ts.Table(np.eye(len(HOSTILE), 8, dtype=np.float32), ts.Vocab(HOSTILE))
    write_page(Heatmap.of(table, HOSTILE).figure(), tmp_path / "page.html", "5 rows of <evil> & co")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]  # nothing left beside it
    return (tmp_path / "page.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_anywhere(page):
    elements = Elements(page)
    assert {"html", "head", "meta", "title", "style", "body", "noscript", "div", "script"} == {
        tag for tag, _ in elements.tags
    }
    assert not [
        tag for tag, attributes in elements.tags if {"src", "href", "data", "action"} & set(attributes)
    ]
    from plotly.offline import get_plotlyjs

    ours = page.replace(get_plotlyjs(), "")
    assert len(ours) < 20_000 < len(page)  # plotly's script is in the page
    assert not re.search(r"https?:|//[a-z]|@import|url\(", ours)


def test_the_browser_is_told_to_fetch_nothing(page):
    (policy,) = (
        attributes["content"]
        for tag, attributes in Elements(page).tags
        if tag == "meta" and "Content-Security-Policy" in attributes.values()
    )
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert all("http" not in sources and "*" not in sources for sources in rules.values())
    assert "connect-src" not in rules  # so the default, nothing


def test_no_button_sends_the_chart_away(page):
    from plotly.offline import get_plotlyjs

    ours = page.replace(get_plotlyjs(), "")
    assert '"plotlyServerURL": ""' in ours
    assert '"modeBarButtons": [["toImage"], ["zoom2d", "pan2d"]' in ours


def test_hostile_tokens_make_no_element(page):
    elements = Elements(page)
    assert [tag for tag, _ in elements.tags].count("script") == 3
    assert "alert(1)</script>" not in page
    assert "<img" not in page.split("</title>")[1].split("plotly.js v")[0]
    assert "<title>5 rows of &lt;evil&gt; &amp; co</title>" in page


def test_without_plotly_the_extra_is_named(monkeypatch):
    table = ts.Table(np.eye(2, dtype=np.float32), ts.Vocab(["a", "b"]))
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MissingExtra, match=r"a plotly figure needs .*pip install 'plotly>="):
        ts.plots.heatmap(table, ["a"])
    with pytest.raises(MissingExtra, match="plotly"):
        ts.plots.norms(table)


def test_an_unwritable_place_is_an_error_of_ours(tmp_path):
    figure = ts.plots.heatmap(ts.Table(np.eye(2, dtype=np.float32), ts.Vocab(["a", "b"])), ["a"])
    with pytest.raises(OutputError, match="there is no directory"):
        write_page(figure, tmp_path / "no" / "page.html", "")
    with pytest.raises(OutputError, match=r"page\.png: a page's name ends in \.html"):
        write_page(figure, tmp_path / "page.png", "")
    assert list(tmp_path.iterdir()) == []


def test_no_text_of_any_figure_ends_the_script(tmp_path):
    import plotly.graph_objects as objects

    text = "</script><script>alert(1)</script>"

    class Unescaped(objects.Figure):
        """As if plotly wrote ``<`` as it is; this version does not."""

        def to_json(self):
            return json.dumps({"data": [], "layout": {"title": text}})

    write_page(Unescaped(), tmp_path / "page.html", text)
    assert [tag for tag, _ in Elements((tmp_path / "page.html").read_text()).tags].count("script") == 3
