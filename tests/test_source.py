"""A table's bytes are the same in a plain file, in gzip and in a zip archive, and damage is named."""

import gzip
import zipfile

import numpy as np
import pytest

from tokenspace.errors import TableFormatError
from tokenspace.source import Source, archive_of, exists

TEXT = b"cat 1 2\ndog 3 4\n" * 100_000  # more than a block


@pytest.fixture
def places(tmp_path):
    (tmp_path / "plain").write_bytes(TEXT)
    (tmp_path / "packed").write_bytes(gzip.compress(TEXT, 1))
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/stored", TEXT, zipfile.ZIP_STORED)
        archive.writestr("deflated", TEXT)
        archive.writestr("packed.gz", gzip.compress(TEXT, 1))
    return tmp_path


@pytest.mark.parametrize(
    "name", ["plain", "packed", "all.zip/a/stored", "all.zip/deflated", "all.zip/packed.gz"]
)
def test_the_same_bytes_wherever_they_lie(places, name):
    source = Source(places / name)
    assert source.size == (None if "packed" in name else len(TEXT))
    assert source.packed == (name != "plain")
    assert isinstance(source.content(), np.memmap) == (name == "plain")
    assert source.content().tobytes() == TEXT
    assert not source.content().flags.writeable
    with source.open() as stream:
        assert stream.readline() == b"cat 1 2\n"
        assert stream.read() == TEXT[8:]


def test_the_members_of_an_archive_are_named(places):
    assert Source(places / "all.zip").members() == ["a/stored", "deflated", "packed.gz"]
    assert Source(places / "plain").members() == []
    assert Source(places / "all.zip/a/stored").beside("other") == places / "all.zip/a/other"
    assert archive_of(places / "all.zip/a/stored") == archive_of(places / "all.zip/x") == places / "all.zip"
    assert archive_of(places / "plain/x") is None
    assert exists(places / "all.zip/a/stored")
    assert not exists(places / "all.zip/a/other")


def test_what_is_not_there_is_named(places):
    for name, fault in {
        "nothing": "nothing does not exist",
        "plain/x": "plain/x does not exist",
        "all.zip/x": "all.zip has no member 'x'; it has a/stored, deflated, packed.gz",
        ".": "is not a regular file",
        "a\0b": "does not exist",
    }.items():
        with pytest.raises(TableFormatError, match=fault):
            Source(places / name)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: data[:5000] + b"\xff" * 99 + data[5099:]]
)
def test_damaged_gzip_is_an_error_not_a_shorter_table(places, damage):
    (places / "packed").write_bytes(damage((places / "packed").read_bytes()))
    source = Source(places / "packed")
    with pytest.raises(TableFormatError, match="packed is damaged"):
        source.content()
    with source.open() as stream, pytest.raises(TableFormatError, match="packed is damaged"):
        stream.read()


def test_damaged_and_unreadable_archives_are_errors(places, tmp_path):
    content = bytearray((places / "all.zip").read_bytes())
    content[100:200] = bytes(100)  # of the stored member
    (tmp_path / "bad.zip").write_bytes(content)
    with pytest.raises(TableFormatError, match=r"bad.zip/a/stored is damaged: Bad CRC"):
        Source(tmp_path / "bad.zip/a/stored").content()
    (tmp_path / "cut.zip").write_bytes(content[:-30])
    with pytest.raises(TableFormatError, match=r"cut.zip/deflated is damaged"):
        Source(tmp_path / "cut.zip/deflated")
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", TEXT)
    with pytest.raises(TableFormatError, match="compressed in a way not read here"):
        Source(tmp_path / "x.zip/a")


def test_nothing_is_allocated_before_it_is_read(tmp_path):
    """A member whose entry claims 4 GB is as large as what unpacks."""
    with zipfile.ZipFile(tmp_path / "lie.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"cat 1 2\n")
    data = (tmp_path / "lie.zip").read_bytes()
    directory = data.index(b"PK\x01\x02")
    data = data[: directory + 24] + (2**32 - 2).to_bytes(4, "little") + data[directory + 28 :]
    (tmp_path / "lie.zip").write_bytes(data)
    source = Source(tmp_path / "lie.zip/a")
    assert source.content().tobytes() == b"cat 1 2\n"


def test_an_archive_is_never_unpacked_and_a_name_leads_nowhere_else(tmp_path):
    with zipfile.ZipFile(tmp_path / "up.zip", "w") as archive:
        archive.writestr("../outside", b"cat 1 2\n")
    assert Source(tmp_path / "up.zip/../outside").content().tobytes() == b"cat 1 2\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["up.zip"]


@pytest.mark.parametrize("name", ["\0x.vec", "\0" * 6])
def test_a_member_without_a_name_is_nobody_s(name, tmp_path):
    with zipfile.ZipFile(tmp_path / "e.zip", "w") as archive:
        archive.writestr("Qx.vec", TEXT[:16])
        archive.writestr("y", TEXT[:16])
    data = (tmp_path / "e.zip").read_bytes().replace(b"Qx.vec", name.encode().ljust(6, b"\0"))
    (tmp_path / "e.zip").write_bytes(data)
    assert Source(tmp_path / "e.zip").members() == ["y"]


@pytest.mark.parametrize("padding", [0, 1, 70_000])
def test_gzip_members_and_padding_are_read_as_gzip_reads_them(tmp_path, padding):
    content = gzip.compress(b"one" * 50_000) + bytes(padding) + gzip.compress(b"") + gzip.compress(b"two")
    (tmp_path / "x").write_bytes(content + bytes(padding))
    assert bytes(Source(tmp_path / "x").content()) == gzip.decompress(content + bytes(padding))


@pytest.mark.parametrize("end", [b"junk", b"\0\0x", b"\x1f", gzip.compress(b"two", mtime=0)[:12]])
def test_gzip_with_something_else_after_it_is_damaged(tmp_path, end):
    (tmp_path / "x").write_bytes(gzip.compress(b"one") + end)
    with pytest.raises(TableFormatError, match="damaged"):
        Source(tmp_path / "x").content()
