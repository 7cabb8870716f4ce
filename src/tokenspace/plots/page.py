"""A figure as one HTML file that works offline: plotly's script lies in it, and no request leaves it."""

from __future__ import annotations

import html
import json
import os
from types import ModuleType
from typing import TYPE_CHECKING

from tokenspace.atomic import replacing
from tokenspace.errors import MissingExtra, OutputError, ShapeError

if TYPE_CHECKING:
    import plotly.graph_objects

PAGES = (".html", ".htm")
# The browser itself is told to fetch nothing; plotly sets styles and makes images from its own data.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'{evaluation}; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)
# Its buttons are named, since plotly's own choice has one that sends the chart to its maker's server.
_CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtons": [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
    "plotlyServerURL": "",
    "typesetMath": False,  # a token $x$ is no formula
}
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>body {{ margin: 0; font-family: sans-serif; background: white; }}</style>
</head>
<body>
<noscript>This picture is drawn by a script in this page; allow it to run.</noscript>
<div id="picture"></div>
<script type="application/json" id="figure">{figure}</script>
<script>{plotly}</script>
<script>
const figure = JSON.parse(document.getElementById("figure").textContent);
Plotly.newPlot("picture", figure.data, figure.layout, {config});
</script>
</body>
</html>
"""


def plotly_objects(what: str) -> ModuleType:
    """``plotly.graph_objects``, or ``MissingExtra`` for ``what``."""
    try:
        import plotly.graph_objects as objects
    except ImportError:
        raise MissingExtra(what, "look") from None
    return objects


def write_page(figure: plotly.graph_objects.Figure, path: str | os.PathLike[str], title: str) -> None:
    """Write ``figure`` to ``path`` as one HTML page of about 5 MB, atomically.

    ``OutputError`` if the place can't be written, or its name is another kind of file's: a page's ends in
    .html. ``ShapeError`` for what is no figure, such as the picture that it was made from.
    """
    if not hasattr(figure, "to_json"):
        hint = "; give its .figure()" if hasattr(figure, "figure") else ""
        raise ShapeError(f"a page shows a plotly figure, found {type(figure).__name__}{hint}")
    name = os.fsdecode(path)
    if name and not name.lower().endswith(PAGES):
        raise OutputError(f"can't write {name}: a page's name ends in .html")
    from plotly.offline import get_plotlyjs

    # plotly draws points on a plane by WebGL code that it puts together itself
    evaluates = any(trace.type == "scattergl" for trace in figure.data)
    page = _PAGE.format(
        policy=_POLICY.format(evaluation=" 'unsafe-eval'" if evaluates else ""),
        title=html.escape(title),
        figure=figure.to_json().replace("<", "\\u003c"),  # no token can end the script element
        plotly=get_plotlyjs(),
        config=json.dumps(_CONFIG),
    )
    with replacing(path) as fresh:
        fresh.write_text(page, encoding="utf-8")
