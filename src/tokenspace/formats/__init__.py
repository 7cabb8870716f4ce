"""Reading and writing tables: one module a format; ``load`` takes whatever holds a table."""

from tokenspace.formats.convert import Conversion, convert, losses
from tokenspace.formats.open import BUILT_IN, FORMATS, WRITABLE, format_for, load, located, save
from tokenspace.formats.sniff import sniff

__all__ = [
    "BUILT_IN",
    "FORMATS",
    "WRITABLE",
    "Conversion",
    "convert",
    "format_for",
    "load",
    "located",
    "losses",
    "save",
    "sniff",
]
