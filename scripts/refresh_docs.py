"""Run every command that README and docs show, and put what it prints below it.

    python scripts/refresh_docs.py          # rewrite the blocks whose output has changed
    python scripts/refresh_docs.py --check  # exit 1 if there are any (the tests do the same)

A ```console block holds commands ("$ ...") and, under each, what it prints (stdout and stderr together).
The blocks of one file run in order, in one empty folder. "..." in the text matches anything, and a block that
still matches is left as it is.
"""

from __future__ import annotations

import argparse
import doctest
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TRACEBACK = "Traceback (most recent call last)"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = Path(sys.executable).parent
COLUMNS = "100"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n", re.MULTILINE)


def refreshed(text: str, folder: Path, programs: Path = PROGRAMS) -> str:
    """``text`` with the output of each command as it is now.

    The commands run in ``folder`` and find programs in ``programs`` first: stand-ins whose work another
    process may do. A command that kills finds this environment's programs alone.
    """
    return _BLOCK.sub(lambda block: f"```console\n{_block(block[1], folder, programs)}```", text)


def _block(body: str, folder: Path, programs: Path) -> str:
    parts = _COMMAND.split(body)
    if parts[0].strip():
        raise SystemExit(f"a console block must begin with a command ('$ ...'): {parts[0]!r}")
    result = ""
    for command, shown in zip(parts[1::2], parts[2::2], strict=True):
        printed = _run(command, folder, PROGRAMS if "kill" in command else programs)
        result += f"$ {command}\n" + (
            shown if _same(shown.rstrip() + "\n", printed) else _merged(shown, printed)
        )
    return result


def _same(shown: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)


def _merged(shown: str, printed: str) -> str:
    """What was printed, but for the lines whose wildcards still match."""
    kept = [line for line in shown.splitlines(keepends=True) if "..." in line]
    lines = printed.splitlines(keepends=True)
    return "".join(next((old for old in kept if _same(old, line)), line) for line in lines)


def _run(command: str, folder: Path, programs: Path = PROGRAMS) -> str:
    environment = os.environ | {
        "PATH": os.pathsep.join([str(programs), str(PROGRAMS), os.environ["PATH"]]),
        "COLUMNS": COLUMNS,
        "NO_COLOR": "1",
    }
    run = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if TRACEBACK in run.stdout:
        sys.exit(f"no document shows a traceback, and nothing was written: {command}\n{run.stdout}")
    return re.sub(r"[ \t]+$", "", run.stdout, flags=re.MULTILINE).rstrip("\n") + "\n"


def warm() -> None:
    """Compile the kernel now if it never was, so that no example shows the note which says so."""
    with tempfile.TemporaryDirectory() as folder:
        _run("echo a b a b > text && tokenspace train text -o table --sample 0", Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = {}
    warm()
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            fresh = refreshed(text, Path(folder))
        if fresh != text:
            stale[path] = fresh
    for path, fresh in stale.items():
        if not check:
            path.write_text(fresh, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'stale' if check else 'refreshed'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
