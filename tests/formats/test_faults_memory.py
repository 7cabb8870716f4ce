"""What takes a multiple of a table's file in memory elsewhere; see ``test_faults.py``."""

import contextlib
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

import tokenspace as ts
from tokenspace.errors import TableFormatError
from tokenspace.formats import fasttext

from .memory_limit import taking_at_most

# ── gensim#2447, gensim#2187: a query or a load takes a multiple of the file in memory ────────────────────


WIDTH, ROWS = 128, 60_000  # 30.7 MB in float32


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A file of each kind with ``ROWS`` rows, all the same, but for row 1,000: its token is no UTF-8."""
    folder = tmp_path_factory.mktemp("large")
    row = np.full(WIDTH, 0.5, np.float32)

    def repeated(line: bytes) -> bytes:
        return line * 1000 + b"\xff" + line * (ROWS - 1000)

    header = f"{ROWS} {WIDTH}\n".encode()
    text = repeated(b"cat" + b" 0.5" * WIDTH + b"\n")
    (folder / "word2vec-text").write_bytes(header + text)
    (folder / "word2vec-binary").write_bytes(header + repeated(b"cat " + row.tobytes() + b"\n"))
    (folder / "glove").write_bytes(text)
    np.save(folder / "t.npy", np.broadcast_to(row, (ROWS, WIDTH)))
    (folder / "t.vocab.txt").write_bytes(repeated(b"cat\n"))
    return folder


@pytest.mark.parametrize("name", ["word2vec-text", "word2vec-binary", "glove", "t.npy"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_limit_reads_the_first_rows_alone(name, packed, large, tmp_path):
    path = large / name
    if packed:
        with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for each in (path, large / "t.vocab.txt"):
                archive.write(each, each.name)
        path = tmp_path / "all.zip" / name
    with taking_at_most(20):
        few = ts.load(path, limit=7)
    assert list(few.vocab) == ["cat"] * 7
    assert few.weight.tolist() == [[0.5] * WIDTH] * 7
    assert len(ts.load(path, limit=1000)) == 1000
    with pytest.raises(TableFormatError, match="not UTF-8"):
        ts.load(path, limit=1001)


def test_a_query_of_a_native_file_does_not_copy_it(tmp_path):
    weight = np.zeros((150_000, 128), np.float32)
    weight[:, 0] = 1
    ts.save(ts.Table(weight, ts.Vocab([f"t{i}" for i in range(len(weight))])), tmp_path / "t")
    del weight
    with taking_at_most(9):
        opened = ts.load(tmp_path / "t")
    assert isinstance(opened.weight, np.memmap)
    with taking_at_most(64):  # of 77: blocks of 16 MB and what is made of one
        assert len(ts.geometry.neighbors(opened, 7, k=3)) == 3


# ── gensim#2724: a fastText model of 7 GB takes 20 GB ─────────────────────────────────────────────────────


def test_opening_a_fasttext_model_reads_no_matrix(tmp_path):
    from gensim.models.fasttext import FastText, save_facebook_model

    model = FastText(vector_size=32, min_count=1, bucket=60_000, workers=1, seed=1)
    model.build_vocab([["cat", "dog"] * 3])
    model.train([["cat", "dog"] * 3], total_examples=1, epochs=1)
    save_facebook_model(model, str(tmp_path / "t"))
    size = (tmp_path / "t").stat().st_size
    assert size > 7e6
    fasttext.load(tmp_path / "t")
    with taking_at_most(size / 4e6):
        opened = fasttext.load(tmp_path / "t")
        assert np.allclose(opened["cat"], model.wv["cat"], atol=1e-6)


# ── mutated files: blanks and newlines by the megabyte ────────────────────────────────────────────────────


def cost_of_loading(path):
    """The bytes that Python and NumPy take at most while ``path`` is loaded or refused, and the seconds."""
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with contextlib.suppress(TableFormatError):
            ts.load(path)
        return tracemalloc.get_traced_memory()[1], time.perf_counter() - start
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("blank", [b" ", b"\t", b"a "])
@pytest.mark.parametrize("head", [b"`\x01\0\0\0,;| ", b"a 1 2\n" * 5])
def test_megabytes_of_blanks_cost_their_size_and_no_time(head, blank, tmp_path):
    path = tmp_path / "t"
    path.write_bytes(head + blank * (8_000_000 // len(blank)))
    peak, seconds = cost_of_loading(path)
    assert peak < 4 * 8_000_000 + (64 << 20)
    assert seconds < 10


def test_a_vocabulary_of_newlines_is_counted_before_it_is_cut(tmp_path):
    np.save(tmp_path / "t.npy", np.zeros((6, 2), np.float32))
    (tmp_path / "t.vocab.txt").write_bytes(b"a\n" + b"\n" * 16_000_000)
    peak, _ = cost_of_loading(tmp_path / "t.npy")
    assert peak < 3 * 16_000_000
    with pytest.raises(TableFormatError, match=r"has 6 rows, .* 16,000,001 lines"):
        ts.load(tmp_path / "t.npy")
