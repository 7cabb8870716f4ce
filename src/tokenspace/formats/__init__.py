"""Reading and writing tables: one module a format; ``load`` takes whatever holds a table."""

from tokenspace.formats.convert import Conversion, convert, losses
from tokenspace.formats.open import BUILT_IN, FORMATS, format_for, load, save, sniff

__all__ = ["BUILT_IN", "FORMATS", "Conversion", "convert", "format_for", "load", "losses", "save", "sniff"]
