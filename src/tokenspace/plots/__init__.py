"""Pictures: each one's data, which draws itself in a terminal (``rich.print``) and as a plotly figure.

The functions give the figure, for a notebook; they need the ``look`` extra. Importing this room does not.
"""

from tokenspace.plots.arrows import Arrows, arrows
from tokenspace.plots.heatmap import Heatmap, heatmap
from tokenspace.plots.loss import LossCurve, loss
from tokenspace.plots.map import Map, map
from tokenspace.plots.norms import Norms, norms
from tokenspace.plots.page import write_page

__all__ = [
    "Arrows",
    "Heatmap",
    "LossCurve",
    "Map",
    "Norms",
    "arrows",
    "heatmap",
    "loss",
    "map",
    "norms",
    "write_page",
]
