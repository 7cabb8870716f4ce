"""Learning a table from text. Training needs the ``train`` extra; importing this room does not."""

from __future__ import annotations

from tokenspace.train.progress import Progress
from tokenspace.train.skipgram import skipgram

__all__ = ["Progress", "skipgram"]
