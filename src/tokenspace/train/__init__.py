"""Learning a table from text.

Skip-gram needs the ``train`` extra, a language model the ``torch`` extra; importing this room needs neither.
"""

from __future__ import annotations

from tokenspace.train.language_model import LanguageModel, language_model
from tokenspace.train.progress import Progress
from tokenspace.train.skipgram import skipgram

__all__ = ["LanguageModel", "Progress", "language_model", "skipgram"]
