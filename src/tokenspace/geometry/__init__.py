"""Questions to a table: what is near a word, what completes an analogy, how alike two are; and scores."""

from tokenspace.geometry.analogy import analogy
from tokenspace.geometry.analogy_questions import AnalogyScore, analogy_questions
from tokenspace.geometry.clusters import Clusters, clusters
from tokenspace.geometry.compose import Resolved, resolve
from tokenspace.geometry.cosine import cosine, unit_rows
from tokenspace.geometry.evaluation import table_sha256
from tokenspace.geometry.kept import Kept, kept
from tokenspace.geometry.nearest import Nearest, nearest
from tokenspace.geometry.neighbors import neighbors
from tokenspace.geometry.projection import Projection, pca, project, tsne, umap
from tokenspace.geometry.relations import RelationsScore, relations
from tokenspace.geometry.scores import Hit
from tokenspace.geometry.similarity import Similarities, Similarity, similarities, similarity
from tokenspace.geometry.transform import Transform, View
from tokenspace.geometry.word_pairs import PairsScore, word_pairs

__all__ = [
    "AnalogyScore",
    "Clusters",
    "Hit",
    "Kept",
    "Nearest",
    "PairsScore",
    "Projection",
    "RelationsScore",
    "Resolved",
    "Similarities",
    "Similarity",
    "Transform",
    "View",
    "analogy",
    "analogy_questions",
    "clusters",
    "cosine",
    "kept",
    "nearest",
    "neighbors",
    "pca",
    "project",
    "relations",
    "resolve",
    "similarities",
    "similarity",
    "table_sha256",
    "tsne",
    "umap",
    "unit_rows",
    "word_pairs",
]
