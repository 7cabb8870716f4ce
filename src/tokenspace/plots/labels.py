"""A token as a label: safe to show, and as wide as there is room for."""

from __future__ import annotations

import html

from rich.cells import cell_len, set_cell_size

from tokenspace.shown import shown

PAGE_WIDTH = 40  # columns of a label on a page


def fitted(label: str, width: int) -> str:
    """``label`` in exactly ``width`` columns of a terminal: padded, or cut and ended with an ellipsis.

    A Chinese or Japanese character takes two columns.

    >>> fitted("cat", 5), fitted("embedding", 5), fitted("東京タワー", 5)
    ('cat  ', 'embe…', '東京…')
    """
    if cell_len(label) > width:
        label = set_cell_size(label, width - 1).rstrip() + "…" if width > 1 else "…"
    return set_cell_size(label, width)


def on_page(token: str) -> str:
    """``token`` for a plotly label, where ``<b>`` and ``&amp;`` would be obeyed: what shows is the token.

    >>> on_page("<b>"), on_page("\\n")
    ('&lt;b&gt;', "'\\\\n'")
    """
    return html.escape(fitted(shown(token), PAGE_WIDTH).rstrip(), quote=False)
