"""The ``tokenspace`` command: one thin function a verb, which parses, makes one library call and prints.

Modules here import click alone at their top, so that ``tokenspace --help`` comes at once.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from typing import Any

import click

from tokenspace import __version__
from tokenspace.cli.analogy import analogy
from tokenspace.cli.convert import convert
from tokenspace.cli.embed import embed
from tokenspace.cli.evaluate import evaluate
from tokenspace.cli.explore import explore
from tokenspace.cli.heatmap import heatmap
from tokenspace.cli.inspect import inspect
from tokenspace.cli.loss import loss
from tokenspace.cli.map import map_
from tokenspace.cli.neighbors import neighbors
from tokenspace.cli.norms import norms
from tokenspace.cli.params import params
from tokenspace.cli.similarity import similarity
from tokenspace.cli.train import train
from tokenspace.shown import one_line

INTERRUPTED = 130  # 128 + SIGINT, as shells count it


class Verbs(click.Group):
    """A group whose verbs fail with one line on stderr: status 1, no traceback unless ``--debug`` asks."""

    def invoke(self, ctx: click.Context) -> Any:
        from tokenspace.errors import TokenspaceError

        try:
            return super().invoke(ctx)
        except TokenspaceError as error:
            self._fail(ctx, f"Error: {error}", 1)
        except KeyboardInterrupt:
            self._fail(ctx, "interrupted", INTERRUPTED)
        except BrokenPipeError:  # the reader has seen enough: `tokenspace neighbors king | head -1`
            _give_up_stdout()
            ctx.exit(1)
        except MemoryError:
            self._fail(ctx, "Error: not enough memory for this; use fewer texts or a smaller table", 1)
        except OSError as error:  # a full disk behind stdout, a name too long for any file
            _give_up_stdout()
            # a file that can't be written is an OutputError: what no name comes with is stdout
            full = "stdout: " if error.errno == errno.ENOSPC else ""
            about = f"{error.filename}: " if error.filename else full
            self._fail(ctx, f"Error: {about}{error.strerror or error}", 1)

    def _fail(self, ctx: click.Context, message: str, status: int) -> None:
        if ctx.params.get("debug"):
            raise
        with contextlib.suppress(OSError):  # stderr takes nothing: the status still says so
            click.echo(one_line(message), err=True)
        ctx.exit(status)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of the walk from text to vectors, not of the alphabet


def _give_up_stdout() -> None:
    """If stdout can't take what it still holds, drop it, or Python complains when it flushes at exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        sys.stdout = None


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tokenspace")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """The embedding layer of a transformer: text to token ids to vectors, and what lies between.

    With no -t/--table, a verb uses the built-in table "wordnet".
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a token may hold what the terminal can't show
            stream.reconfigure(errors="backslashreplace")
    if hasattr(sys.stdin, "reconfigure"):  # texts are UTF-8 wherever they come from
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")


for _verb in (
    embed,
    neighbors,
    analogy,
    similarity,
    evaluate,
    map_,
    heatmap,
    norms,
    explore,
    params,
    inspect,
    train,
    loss,
    convert,
):
    main.add_command(_verb)
