"""Seconds and memory that small files cost a reader when they promise or unpack to gigabytes.

    python benchmarks/file_bounds.py            # a minute: results/file_bounds.md

The claim: each is read, or refused with one error, within five seconds and four times its size and 64 MB.
Each (tests/formats/bombs.py) is loaded in a process of its own; memory is the growth of its VmHWM.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "formats"))
RESULTS = HERE / "results" / "file_bounds.md"
SECONDS, FACTOR, MEGABYTES = 5.0, 4, 64


def main() -> int:
    import bombs
    from peak import Loader

    lines = [
        "# Measured: small files that promise much",
        "",
        f"`python benchmarks/file_bounds.py`: the bound is {SECONDS:.0f} s, and {FACTOR} times the size and "
        f"{MEGABYTES} MB.",
        "",
        "| file | size, MB | seconds | memory, MB | within | what came |",
        "|---|---|---|---|---|---|",
    ]
    wrong, loader = 0, Loader()
    with tempfile.TemporaryDirectory() as name:
        for what, path in bombs.made(Path(name)):
            files = [path] if path.is_file() else path.rglob("*")
            size = sum(file.stat().st_size for file in files if file.is_file())
            size = max(size, bombs.UNPACKED.get(what.replace(" ", "_"), 0))
            cost = loader.cost(path)
            within = cost.seconds < SECONDS and cost.grown < FACTOR * size + (MEGABYTES << 20)
            wrong += not within
            said = cost.said.split(str(path))[-1].lstrip(": ,").replace("|", "\\|")[:90].replace(name, "")
            lines.append(
                f"| {what} | {size / 1e6:.1f} | {cost.seconds:.2f} | {cost.grown / 1e6:.0f} | "
                f"{'yes' if within else '**no**'} | {said} |"
            )
            print(lines[-1], flush=True)
    loader.close()
    RESULTS.write_text("\n".join(lines) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
