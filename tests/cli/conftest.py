import subprocess
import sys

import pytest


@pytest.fixture(scope="session", autouse=True)
def _compiled(tmp_path_factory):
    """Train once, so that no test of these meets the note about compiling."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "text").write_text("a b a b\n")
    command = [sys.executable, "-m", "tokenspace", "train", "text", "-o", "table", "--sample", "0"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
