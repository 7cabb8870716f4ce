"""``@kernel``: its options, where machine code is kept and when it is stale, and what is said meanwhile.

The tests about folders run on a copy of the room with three small modules of their own: ``outer`` calls
``middle`` calls ``inner``.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tokenspace
from tokenspace.kernels.compiled import kernel

MODULES = {
    "outer": """
from tokenspace.kernels import (
    compiled,
    middle,
)
double = middle.double
@compiled.kernel
def eight_times(x):
    return 2 * double(double(x))
""",
    "middle": """
from tokenspace.kernels.compiled import kernel
from tokenspace.kernels.inner import add
@kernel(inline="always")
def double(x):
    return add(x, x)
""",
    "inner": """
from tokenspace.kernels.compiled import kernel
@kernel
def add(x, y):
    return x + y
""",
}
EIGHT_TIMES = "from tokenspace.kernels.outer import eight_times; print(eight_times(3))"
ONCE = "tokenspace: compiling its kernels, once\n"
AGAIN = "tokenspace: compiling its kernels, again: what was kept of them is damaged\n"
EACH_TIME = (
    "tokenspace: compiling its kernels, in each process: "
    "numba finds no folder to keep them in (set NUMBA_CACHE_DIR)\n"
)


class Room:
    """A copy of the package in ``folder``, with no other cache folder than the one inside it."""

    def __init__(self, folder: Path, started) -> None:
        self.folder, self._started = folder, started
        package = Path(tokenspace.__file__).parent
        self.kernels = folder / "tokenspace" / "kernels"
        self.kernels.mkdir(parents=True)
        root = (package / name for name in ("__init__.py", "errors.py", "shown.py"))
        for file in (*root, *(package / "kernels").glob("*.py")):
            shutil.copy(file, folder / "tokenspace" / file.relative_to(package))
        for name, source in MODULES.items():
            (self.kernels / f"{name}.py").write_text(source)

    def copy(self, folder: Path) -> "Room":
        room = Room(folder, self._started)
        shutil.copytree(self.kernels / "__pycache__", room.kernels / "__pycache__")
        return room

    def run(self, code: str = EIGHT_TIMES) -> tuple[str, str]:
        """The output and errors of the code, run in a process that has compiled none of our kernels yet."""
        here = f"import sys; sys.path.insert(0, {str(self.folder)!r}); sys.dont_write_bytecode = True\n"
        here += "import numba; numba.config.CACHE_DIR = ''\n"
        done = self._started.run("-c", here + code, env=_environment())
        assert done.returncode == 0, done.stderr
        return done.stdout.decode(), done.stderr.decode()

    def run_anew(self, code: str = EIGHT_TIMES, **settings: str) -> tuple[str, str]:
        """The same in a process that has loaded nothing."""
        settings |= {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, env=_environment() | settings, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr


def _environment() -> dict[str, str]:
    elsewhere = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA")
    kept = {name: value for name, value in os.environ.items() if name not in elsewhere}
    return kept | {"HOME": os.devnull}


@pytest.fixture(scope="module")
def started(forks):
    return forks("import numba; numba.njit(lambda: 0)()")


@pytest.fixture
def room(tmp_path, started):
    return Room(tmp_path, started)


@pytest.fixture(scope="module")
def _compiled(tmp_path_factory, started):
    room = Room(tmp_path_factory.mktemp("room"), started)
    assert room.run() == ("24\n", ONCE)
    return room


@pytest.fixture
def compiled(tmp_path, _compiled):
    """A room whose machine code is kept in it."""
    room = _compiled.copy(tmp_path)
    assert room.run() == ("24\n", "")
    return room


def test_machine_code_is_kept_and_loading_it_is_silent(room):
    assert room.run_anew() == ("24\n", ONCE)
    assert room.run_anew() == ("24\n", "")


@pytest.mark.parametrize("module", MODULES)
def test_a_change_in_any_module_that_the_code_comes_from_makes_it_stale(module, compiled):
    file = compiled.kernels / f"{module}.py"
    file.write_text(
        MODULES[module].replace("2 * ", "3 * ").replace("add(x, x)", "add(x, 0)").replace("x + y", "y")
    )
    assert compiled.run() == ({"outer": "36\n", "middle": "6\n", "inner": "6\n"}[module], ONCE)
    file.write_text(MODULES[module])
    assert compiled.run()[0] == "24\n"


def flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES = {
    "emptied": lambda content: b"",
    "cut in its head": lambda content: content[:20],
    "cut after its head": lambda content: content[:64],
    "cut": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "one byte more": lambda content: content + b"\0",
    "zeros": lambda content: bytes(len(content)),
    "zeros at the end": lambda content: content[:-4096] + bytes(4096),
    "a bit flipped": lambda content: flip(content, len(content) // 2),
    "the last bit flipped": lambda content: flip(content, len(content) - 1),
    "its digest changed": lambda content: flip(content, 40),
    "numba's own": lambda content: content[64:],
    "a pickle that can't be read": lambda content: b"\x80\x04.",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_compiled_again_and_never_run(damage, compiled):
    kept = list((compiled.kernels / "__pycache__").glob("*.nbc"))
    assert kept
    for file in kept:
        file.write_bytes(damage(file.read_bytes()))
    assert compiled.run() == ("24\n", AGAIN)
    assert compiled.run() == ("24\n", "")


def test_a_whole_file_of_other_code_is_not_run(room):
    assert room.run("from tokenspace.kernels.inner import add; print(add(3, 4), add(1.5, 2))") == (
        "7 3.5\n", ONCE,
    )  # fmt: skip
    one, other = sorted((room.kernels / "__pycache__").glob("inner.add*.nbc"))
    one.write_bytes(other.read_bytes())
    added = room.run("from tokenspace.kernels.inner import add; print(add(3, 4), add(1.5, 2))")
    assert added == ("7 3.5\n", ONCE)


@pytest.mark.parametrize("name", ["a folder", "a dead link"])
def test_what_is_no_file_stops_nothing(name, compiled):
    for file in (compiled.kernels / "__pycache__").glob("*.nbc"):
        file.unlink()
        if name == "a folder":
            file.mkdir()
        else:
            file.symlink_to("nowhere")
    assert compiled.run() == ("24\n", ONCE)


def test_a_change_elsewhere_does_not(compiled):
    (compiled.kernels / "skipgram.py").write_text("")
    assert compiled.run() == ("24\n", "")


@pytest.mark.skipif(os.name != "posix", reason="HOME decides about the user's cache folder")
def test_without_a_folder_to_keep_it_in_the_code_runs_all_the_same(room):
    (room.kernels / "__pycache__").write_text("a file where the folder would be")
    assert room.run() == ("24\n", EACH_TIME)
    assert room.run() == ("24\n", EACH_TIME)


def test_a_disk_that_fills_up_stops_nothing(room):
    pytest.importorskip("resource")
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16)); "
    assert room.run_anew(EIGHT_TIMES.replace("print", full + "print")) == ("24\n", ONCE)
    assert room.run() == ("24\n", ONCE)


def test_a_folder_that_breaks_stops_nothing(room):
    breaking = f"import shutil; shutil.rmtree({str(room.kernels / '__pycache__')!r}); "
    breaking += f"open({str(room.kernels / '__pycache__')!r}, 'w').close(); "
    assert room.run(EIGHT_TIMES.replace("print", breaking + "print")) == ("24\n", ONCE)


def test_other_peoples_functions_are_not_spoken_of(room):
    theirs = "import numba, tokenspace.kernels.outer\n@numba.njit\ndef f(x): return 2 * x\nprint(f(3))\n"
    assert room.run(theirs) == ("6\n", "")
    assert room.run(theirs + EIGHT_TIMES + "; print(eight_times(1.5))") == ("6\n24\n12.0\n", ONCE)


def test_a_process_without_stderr_compiles(room):
    assert room.run("import sys; sys.stderr = None; " + EIGHT_TIMES) == ("24\n", "")


def test_with_numba_switched_off_kernels_are_plain_python(room):
    assert room.run_anew(NUMBA_DISABLE_JIT="1") == ("24\n", "")


def test_division_by_zero_is_ieee():
    @kernel
    def divide(x, y):
        return x / y

    assert divide(1.0, 0.0) == np.inf
    assert np.isnan(divide(0.0, 0.0))


def test_the_gil_is_released_and_options_are_passed_on():
    @kernel(fastmath={"reassoc", "contract"})
    def triple(x):
        return 3 * x

    assert triple(2) == 6
    assert triple.targetoptions["nogil"] is True
    assert triple.targetoptions["fastmath"] == {"reassoc", "contract"}


def test_code_of_no_module_is_compiled_too():
    made = {}
    exec("def twice(x):\n    return 2 * x", {}, made)
    assert made["twice"].__module__ is None or made["twice"].__module__ == "builtins"
    assert kernel(made["twice"])(3) == 6
