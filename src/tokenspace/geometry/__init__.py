"""Questions to a table: what lies near a word, what completes an analogy, how alike two words are."""

from tokenspace.geometry.analogy import analogy
from tokenspace.geometry.compose import Resolved, resolve
from tokenspace.geometry.cosine import cosine, unit_rows
from tokenspace.geometry.neighbors import Hit, neighbors
from tokenspace.geometry.similarity import Similarity, similarity

__all__ = [
    "Hit",
    "Resolved",
    "Similarity",
    "analogy",
    "cosine",
    "neighbors",
    "resolve",
    "similarity",
    "unit_rows",
]
