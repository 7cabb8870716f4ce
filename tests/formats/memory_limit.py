"""What Python and NumPy allocate, held to a limit."""

import tracemalloc
from contextlib import contextmanager


@contextmanager
def taking_at_most(megabytes: float):
    """No more than this is allocated by Python and NumPy, touched or not."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes * 1e6
    finally:
        tracemalloc.stop()
