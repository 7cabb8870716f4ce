"""The page as one file, to be sent and opened from a disk: its scripts, plotly's, and the server's answers.

What the calls answer lies in script elements of type ``application/json``; ``offline/local.js`` answers
from them in the place of ``static/api.js``. The browser itself is told to load nothing: scripts and styles
run only if their hash is in the policy.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from tokenspace.atomic import check_writable, replacing
from tokenspace.errors import CorpusError, MissingExtra, ShapeError, TokenspaceError
from tokenspace.geometry.rows import row_blocks
from tokenspace.geometry.transform import Transform
from tokenspace.plots.heatmap import WITHIN
from tokenspace.shapes import Array, Float
from tokenspace.text import as_texts
from tokenspace.web.answers import as_json, packed
from tokenspace.web.app import page_files
from tokenspace.web.bundle import bundled, inline
from tokenspace.web.explorer import Answer, Explorer
from tokenspace.web.first_words import first_text
from tokenspace.web.jobs import Running
from tokenspace.web.plotly_script import plotly_script

NEIGHBORS = 5
MOST_ROWS = 60_000  # with neighbors, unless they are asked for
LIMIT = 32_000_000  # bytes of rows
DIRECTIONS = 10  # that the switches can take out
_LARGEST_HALF = 65_504  # of float16
_POLICY = (
    "default-src 'none'; script-src {scripts} 'unsafe-eval'; style-src {styles}; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)

Told = Callable[[str, float | None], None]
"""``told(what, fraction)``: what is being computed, and how much of it is done."""


class Written(NamedTuple):
    """What a file holds: its size, the type of its rows (None: left out), and neighbors of each row."""

    bytes: int
    rows: str | None
    neighbors: int
    left_out: str | None


def export(
    explorer: Explorer,
    path: str | os.PathLike[str],
    texts: str | Sequence[str] | None = None,
    neighbors: int | None = None,
    limit: int | None = None,
    told: Told = lambda what, fraction: None,
) -> Written:
    """Write the page of ``explorer`` to ``path``, atomically.

    ``texts`` are walked under each recipe; by default one text that the table has words of, or none if it has
    no such text. The rows go along in their own type where they fit ``limit`` bytes, as float16 where only
    that fits, else not at all. The ``neighbors`` nearest of each row go along
    where the rows don't, or not exactly: by default 5, up to 60,000 rows. What can't be made of this table (a
    map of one row, clusters without scikit-learn) is left out, and the page says why. ``OutputError`` if the
    place can't be written.
    """
    check_writable(path)
    limit = LIMIT if limit is None else limit
    rows, kind = _rows(explorer, limit)
    exact = rows is not None and rows.dtype == explorer.table.weight.dtype
    count = _neighbor_count(explorer, neighbors, exact)
    left_out = None if rows is not None else _left_out(explorer, limit, count)
    parts: dict[str, Answer | list[Answer]] = {}
    parts["tokens"] = explorer.tokens()
    walks: list[Answer] = []
    with contextlib.nullcontext() if texts is not None else contextlib.suppress(CorpusError):
        walks = _walks(explorer, as_texts(first_text(explorer.table) if texts is None else texts))
    parts["walks"] = walks
    missing: dict[str, str] = {}
    for name, (ask, what) in _slow(explorer).items():
        try:
            parts[name] = _waited(ask, what, told)
        except TokenspaceError as error:
            missing[name] = str(error)
    if count:
        parts["neighbors"] = _neighbors(explorer, count, told)
    directions = 0
    if rows is not None:
        directions = min(DIRECTIONS, explorer.facts()["limits"]["remove"])
        transform = Transform.of(explorer.table, center=True, remove=directions)
        parts["rows"] = {"dim": explorer.table.dim, "dtype": kind}
        parts["top"] = {"mean": packed(transform.mean), "directions": packed(transform.directions)}
    parts["table"] = {
        **_facts(explorer, walks, directions, _summary(explorer, kind, count)),
        "left_out": left_out,
        "missing": missing,
    }
    told("writing", None)
    with replacing(path) as fresh:
        with fresh.open("wb") as file:
            file.writelines(_page(explorer, parts, rows))
        size = fresh.stat().st_size
    return Written(size, kind, count, left_out)


def _rows(explorer: Explorer, limit: int) -> tuple[Array | None, str | None]:
    """The rows as they go into the file, and their type's name."""
    weight = explorer.table.weight
    if weight.nbytes <= limit:
        return weight, str(weight.dtype)
    if weight.dtype == np.float32 and weight.nbytes <= 2 * limit:
        largest = max(float(np.abs(rows).max()) for _, rows in row_blocks(explorer.table))
        if largest <= _LARGEST_HALF:
            return weight.astype(np.float16), "float16"
    return None, None


def _neighbor_count(explorer: Explorer, asked: int | None, exact: bool) -> int:
    if asked is None:
        return 0 if exact or len(explorer.table) > MOST_ROWS else NEIGHBORS
    if not 0 <= asked <= 100:
        raise ShapeError(f"a file holds 0 to 100 neighbors of each row, found {asked:,}")
    return asked


def _left_out(explorer: Explorer, limit: int, count: int) -> str:
    without = "analogies, similarities, heat maps and switches are left out"
    near = f"neighbors are the {count} nearest by cosine" if count else "neighbors are left out, too"
    size, most = megabytes(explorer.table.weight.nbytes), megabytes(limit)
    return f"The rows ({size}) pass this file's limit of {most}: {without}, {near}."


def megabytes(size: int) -> str:
    """
    >>> megabytes(262_144_000), megabytes(16_000_000), megabytes(960)
    ('262 MB', '16 MB', '0.00096 MB')
    """
    millions = size / 1e6
    return f"{millions:,.0f} MB" if millions >= 100 else f"{millions:.3g} MB"


def _summary(explorer: Explorer, kind: str | None, count: int) -> str:
    own = str(explorer.table.weight.dtype)
    held = (
        "no rows"
        if kind is None
        else f"the rows as {kind}" + ("" if kind == own else f", rounded from {own}")
    )
    near = f", the {count} nearest of each by cosine" if count else ""
    return f"a page in one file: {held}{near}; it has no tokenizer"


def _slow(explorer: Explorer) -> dict[str, tuple[Callable[[], Answer | Running], str]]:
    """The parts that take their time: what asks for each, and what it is."""
    parts: dict[str, tuple[Callable[[], Answer | Running], str]] = {}
    for dims in (2, 3):
        parts[f"map-{dims}"] = partial(explorer.map, "pca", dims), f"the map in {dims}-D"
        parts[f"kept-{dims}"] = partial(explorer.kept, "pca", dims), f"what the map in {dims}-D keeps"
    parts["clusters"] = explorer.clusters, "clusters"
    return parts


def _facts(explorer: Explorer, walks: list[Answer], directions: int, summary: str) -> Answer:
    facts = explorer.facts()
    norms = explorer.norms().lengths
    examples = {(walk["text"], walk["pair"]): walk["recipe"] for walk in reversed(walks)}
    return {
        **facts,
        "offline": True,
        "methods": {name: name == "pca" for name in facts["methods"]},
        "provenance": [{"label": "this file", "value": summary}, *facts["provenance"]],
        "examples": [
            {"text": text, "pair": pair, "recipe": recipe}
            for (text, pair), recipe in reversed(examples.items())
        ],
        "limits": {**facts["limits"], "remove": directions},
        "within": WITHIN,
        "zero": np.flatnonzero(norms == 0).tolist(),
    }


def _walks(explorer: Explorer, texts: Sequence[str]) -> list[Answer]:
    """Each text under the table's own recipe first, then under the others."""
    return [
        explorer.walk(text, recipe=recipe["name"], predict=True, gradient=True)
        for text in dict.fromkeys(texts)
        for recipe in explorer.walks.recipes
    ]


def _neighbors(explorer: Explorer, count: int, told: Told) -> Answer:
    found = explorer.nearest(count, lambda done, total: told("neighbors of each row", done / total))
    scores = np.where(found.ids < 0, np.float32(0), found.scores)
    return {"k": count, "ids": packed(found.ids, "i32"), "scores": packed(scores)}


def _waited(ask: Callable[[], Answer | Running], what: str, told: Told) -> Answer:
    told(what, None)
    while isinstance(answer := ask(), Running):
        told(what, answer.fraction)
        time.sleep(0.05)
    return answer


def _page(explorer: Explorer, parts: dict[str, Any], rows: Array | None) -> Iterator[bytes]:
    """The page, piece by piece: index.html with what it names put in its place."""
    files = {name: content.decode() for name, content in page_files().items()}
    offline = resources.files("tokenspace.web") / "offline"
    modules = {name: source for name, source in files.items() if name.endswith(".js")}
    modules |= {file.name: file.read_text("utf-8") for file in offline.iterdir() if file.name.endswith(".js")}
    modules["api.js"] = modules["local.js"]
    script = inline(bundled(modules, "main.js"))
    try:
        plotly = inline(plotly_script().decode())
    except MissingExtra:
        plotly = ""
    style = files["style.css"]
    policy = _POLICY.format(
        scripts=" ".join(_hash(source) for source in (script, plotly) if source), styles=_hash(style)
    )
    head, tail = _index(files["index.html"], style, policy)
    yield head.encode()
    for name, value in parts.items():
        content = as_json(value).replace(b"<", b"\\u003c")  # no token can end the element
        yield b'<script type="application/json" id="data-%s">%s</script>\n' % (name.encode(), content)
    if rows is not None:
        yield b'<script type="text/plain" id="data-rows-data">'
        yield from _base64(rows)
        yield b"</script>\n"
    if plotly:
        yield b'<script type="text/plain" id="plotly">' + plotly.encode() + b"</script>\n"
    yield b"<script>" + script.encode() + b"</script>\n"
    yield tail.encode()


def _index(index: str, style: str, policy: str) -> tuple[str, str]:
    """index.html without links to files, up to where the data go, and the rest."""
    if "</style" in style.lower():
        raise ValueError("the style sheet would end its element")
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    index = _once(r'<meta charset="utf-8">', lambda match: f"{match[0]}\n    {meta}", index)
    index = _once(
        r'<link( id="[^"]*")? rel="stylesheet" href="static/style.css">',
        lambda match: f"<style{match[1] or ''}>{style}</style>",
        index,
    )
    index = _once(r'\s*<script type="module" src="static/main.js"></script>', lambda match: "", index)
    head, body, tail = index.partition("</body>")
    return head, body + tail


def _once(pattern: str, put: Callable[[re.Match[str]], str], text: str) -> str:
    text, found = re.subn(pattern, put, text)
    if found != 1:
        raise ValueError(f"index.html has {found} places like {pattern}; one is needed")
    return text


def _hash(source: str) -> str:
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _base64(rows: Float[Array, "V D"]) -> Iterator[bytes]:
    """The rows' bytes, little-endian, as base64: in blocks of a multiple of 3 bytes."""
    step = max(1, (1 << 20) // rows.shape[1]) * 3
    for start in range(0, len(rows), step):
        block = np.ascontiguousarray(rows[start : start + step])
        yield base64.b64encode(block.astype(block.dtype.newbyteorder("<"), copy=False).tobytes())
