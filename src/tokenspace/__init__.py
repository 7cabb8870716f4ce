"""tokenspace: the embedding layer of a transformer, whole.

Names load when they are first used, so that ``import tokenspace`` costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_ROOMS = (
    "checkpoint",
    "formats",
    "geometry",
    "initializers",
    "models",
    "nn",
    "optim",
    "plots",
    "reference",
    "train",
)
_NAMES = {
    "Table": "tokenspace.table",
    "Tokenizer": "tokenspace.tokenizer",
    "Vocab": "tokenspace.vocab",
    "load": "tokenspace.formats",
    "save": "tokenspace.formats",
    "TokenspaceError": "tokenspace.errors",
    "TokenIdError": "tokenspace.errors",
    "VocabError": "tokenspace.errors",
    "ShapeError": "tokenspace.errors",
    "TableFormatError": "tokenspace.errors",
    "OutputError": "tokenspace.errors",
    "CheckpointError": "tokenspace.errors",
    "EditRefused": "tokenspace.errors",
    "CorpusError": "tokenspace.errors",
    "MissingExtra": "tokenspace.errors",
}
__all__ = ["__version__", *_NAMES, *_ROOMS]

if TYPE_CHECKING:
    from tokenspace import (
        checkpoint,
        formats,
        geometry,
        initializers,
        models,
        nn,
        optim,
        plots,
        reference,
        train,
    )
    from tokenspace.errors import (
        CheckpointError,
        CorpusError,
        EditRefused,
        MissingExtra,
        OutputError,
        ShapeError,
        TableFormatError,
        TokenIdError,
        TokenspaceError,
        VocabError,
    )
    from tokenspace.formats import load, save
    from tokenspace.table import Table
    from tokenspace.tokenizer import Tokenizer
    from tokenspace.vocab import Vocab


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
    elif name in _ROOMS:
        value = importlib.import_module(f"tokenspace.{name}")
    else:
        raise AttributeError(f"module 'tokenspace' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
