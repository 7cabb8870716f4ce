"""``python -m tokenspace`` is the command ``tokenspace``."""

import errno
import os
import sys


def main() -> None:
    """Run the command; an interrupt while it still loads, or a full disk under --help, ends quietly."""
    try:
        from tokenspace.cli import main as verbs

        verbs(prog_name="tokenspace")
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        about = "stdout: " if error.errno == errno.ENOSPC else ""
        os.write(2, f"Error: {about}{error.strerror or error}\n".encode())
        os._exit(1)  # a plain exit would try to flush what could not be written


if __name__ == "__main__":
    main()
