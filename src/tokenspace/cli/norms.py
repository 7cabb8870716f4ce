from __future__ import annotations

from typing import Any

import click

from tokenspace.cli.console import echo_json, json_option, table_option
from tokenspace.cli.picture import check_page, html_option, screen


@click.command()
@table_option
@html_option
@json_option
def norms(source: str, page: str | None, as_json: bool) -> None:
    """How long a table's rows are, by kind of token.

    A histogram of Euclidean lengths for special, byte, word-initial, continuation and unused tokens.
    """
    from tokenspace import formats
    from tokenspace.plots import Norms, write_page

    if page is not None:
        check_page(page)
    picture = Norms.of(formats.load(source))
    if page is not None:
        write_page(picture.figure(), page, f"lengths of the rows of {source}")
    if as_json:
        counts = picture.counts()
        kinds = {
            kind: _described(lengths) | {"counts": counts[kind].tolist()}
            for kind, lengths in picture.by_kind().items()
        }
        echo_json(
            {**_described(picture.lengths), "edges": [_rounded(x) for x in picture.edges()], "kinds": kinds}
        )
    elif page is not None:
        click.echo(f"{page}: {len(picture.lengths):,} rows")
    else:
        screen().print(picture)


def _described(lengths: Any) -> dict[str, Any]:
    import numpy as np

    return {
        "rows": len(lengths),
        "min": _rounded(lengths.min()),
        "median": _rounded(np.median(lengths)),
        "max": _rounded(lengths.max()),
    }


def _rounded(length: Any) -> float:
    return float(f"{length:.7g}")  # as many digits as the table's float32 can vouch for
