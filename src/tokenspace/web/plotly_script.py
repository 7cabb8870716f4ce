"""plotly's script for the page, out of the package that is installed here: nothing is fetched."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tokenspace.errors import MissingExtra


def has_plotly() -> bool:
    """Whether there is one."""
    return _place() is not None


def plotly_script() -> bytes:
    """The script, some 5 MB of UTF-8; ``MissingExtra`` without plotly."""
    if (place := _place()) is None:
        raise MissingExtra("the map", "look")
    return place.read_bytes()


def _place() -> Path | None:
    """Where the script lies. plotly itself is not imported, which takes longer than the rest of the start."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        return None
    place = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    return place if place.is_file() else None
