import contextlib
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tokenspace.cli import main


def run_here(folder: Path, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess:
    """What a command run in ``folder`` gives, in this process: seconds sooner than in one of its own.

    Tests about streams, signals, exits and what a process loads start a process.
    """
    with contextlib.chdir(folder):
        done = CliRunner().invoke(main, arguments, input=stdin, prog_name="tokenspace")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


@pytest.fixture(scope="session", autouse=True)
def _compiled(commands, tmp_path_factory):
    """Train once, so that no test of these meets the note about compiling."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "text").write_text("a b a b\n")
    done = commands.run("-m", "tokenspace", "train", "text", "-o", "table", "--sample", "0", cwd=folder)
    assert done.returncode == 0, done.stderr
