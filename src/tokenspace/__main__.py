"""``python -m tokenspace`` is the command ``tokenspace``."""

from tokenspace.cli import main

main(prog_name="tokenspace")
