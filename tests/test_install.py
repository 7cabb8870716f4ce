"""What a user gets who installs the base package from this folder into an empty environment."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MEGABYTES = 1_000_000

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A fresh environment that holds tokenspace as built, and what it asks for; nothing editable."""
    folder = tmp_path_factory.mktemp("install")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip = [folder / "venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", ROOT], check=True, cwd=folder)
    return folder


def run(base: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [base / "venv/bin" / arguments[0], *arguments[1:]]
    return subprocess.run(command, cwd=base, capture_output=True, text=True, check=False)


def test_it_is_light(base):
    files = [path for path in (base / "venv").rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) <= 200 * MEGABYTES
    code = "import importlib.util as u; print([n for n in ('torch', 'numba', 'scipy') if u.find_spec(n)])"
    assert run(base, "python", "-c", code).stdout == "[]\n"


def test_the_main_job_works(base):
    walk = run(base, "tokenspace", "embed", "The cat sat", "--pair", "A dog", "--predict", "--gradient")
    assert (walk.returncode, walk.stderr) == (0, "")
    assert "the transformer's input" in walk.stdout
    queen = run(base, "tokenspace", "analogy", "man", "king", "woman", "-k", "1")
    assert queen.stdout.endswith("  queen\n")
    assert "cosine(cat, dog)" in run(base, "python", "-m", "tokenspace.reference").stdout


def test_a_missing_extra_is_named_with_its_command(base):
    (base / "text.txt").write_text("the cat sat on the mat\n" * 20)
    result = run(base, "tokenspace", "train", "text.txt", "-o", "table")
    assert result.returncode == 1
    assert result.stderr == (
        "Error: training needs packages that are not installed; "
        "run: pip install 'numba>=0.61' 'zstandard>=0.23'\n"
    )
    assert not (base / "table").exists()


def test_notices_travel_with_the_package(base):
    code = "import importlib.metadata as m; print(*m.files('tokenspace'), sep='\\n')"
    files = run(base, "python", "-c", code).stdout
    for name in (
        "licenses/LICENSE",
        "licenses/NOTICE",
        "data/LICENSES.md",
        "data/wordnet.safetensors",
        "py.typed",
    ):
        assert name in files
