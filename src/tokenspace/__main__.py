"""``python -m tokenspace`` is the command ``tokenspace``."""

import contextlib
import errno
import os
import sys

_CLOSED = "Error: stdout is closed, so there is nowhere to print; send it to a file, or to /dev/null\n"


def main() -> None:
    """Run the command; an interrupt while it still loads, or a full disk under --help, ends quietly."""
    _fill_closed_streams()
    if sys.stdout is None:
        os.write(2, _CLOSED.encode())
        sys.exit(1)
    try:
        from tokenspace.cli import main as verbs

        verbs(prog_name="tokenspace")
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        about = "stdout: " if error.errno == errno.ENOSPC else ""
        if error.errno != errno.EPIPE:  # a reader that has seen enough is no error
            with contextlib.suppress(OSError):
                os.write(2, f"Error: {about}{error.strerror or error}\n".encode())
        os._exit(1)  # a plain exit would try to flush what could not be written


def _fill_closed_streams() -> None:
    """Open the null device in place of a closed stream: else a table's file would get its number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  it stays open as long as the process lives


if __name__ == "__main__":
    main()
