"""Plain text files: what is refused and with which words, and that nothing is lost on the way."""

import gzip
import hashlib
import io
import os
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest
import zstandard

from tokenspace import text
from tokenspace.errors import CorpusError, MissingExtra

MEBIBYTE = 1 << 20


def test_a_file_is_described_by_name_size_and_hash_without_its_folder(write):
    (file,) = text.check(write("notes.txt", "grüß dich\n"))
    assert file.description() == {
        "name": "notes.txt",
        "bytes": 12,
        "sha256": hashlib.sha256("grüß dich\n".encode()).hexdigest(),
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fine\n\xe9t\xe9\n", r"junk.txt is not UTF-8 text: byte 5 \(0xe9\)"),
        (b"a" * (MEBIBYTE - 1) + "é".encode() + b"\xff", rf"byte {MEBIBYTE + 1:,} \(0xff\)"),
        (b"a" * (MEBIBYTE - 1) + b"\xc3(", rf"byte {MEBIBYTE - 1:,} \(0xc3\)"),
        (b"cut \xe2\x82", r"byte 4 \(0xe2\)"),
        (b"PK\x03\x04\x00\x00", r"junk.txt is not text: byte 4 is zero"),
        (b"a" * MEBIBYTE + b"\x00", rf"byte {MEBIBYTE:,} is zero"),
    ],
    ids=["latin-1", "second block", "cut by a block", "cut by the end", "zip", "zero in the second block"],
)
def test_bytes_that_are_no_text_are_named_with_their_offset(write, content, message):
    with pytest.raises(CorpusError, match=message):
        text.check([write("junk.txt", content)])


def test_a_character_cut_by_a_block_is_text(write):
    content = "a" * (MEBIBYTE - 1) + "é"
    (file,) = text.check([write("long.txt", content)])
    assert file.bytes == MEBIBYTE + 1
    assert "".join(text.lines([file])) == content


def test_a_directory_a_missing_file_and_a_pipe_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="is a directory; name the text files inside"):
        text.check([tmp_path])
    with pytest.raises(CorpusError, match=r"there is no file .*nowhere\.txt"):
        text.check([tmp_path / "nowhere.txt"])
    with pytest.raises(CorpusError, match="no text file was named"):
        text.check([])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError, match="not a regular file"):
        text.check([tmp_path / "pipe"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_refused(write):
    path = write("secret.txt", "words")
    path.chmod(0)
    with pytest.raises(CorpusError, match=r"can't read .*secret.txt: Permission denied"):
        text.check([path])


def test_a_read_error_is_one_clear_line(write, monkeypatch):
    path = write("disk.txt", "words")

    def fail(self, *arguments, **options):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(type(path), "open", fail)
    with pytest.raises(CorpusError, match=r"can't read .*disk.txt: Input/output error"):
        text.check([path])


def test_lines_of_several_files_follow_each_other_without_a_byte_order_mark(write):
    files = text.check([write("a.txt", b"\xef\xbb\xbfone\r\ntwo\n"), write("b.txt", "three")])
    assert list(text.lines(files)) == ["one\n", "two\n", "three"]


@pytest.mark.parametrize("word", ["word ", "w" * 3_000_000], ids=["words", "one word of 3 million letters"])
def test_a_line_of_megabytes_comes_in_parts_cut_at_spaces(write, word):
    content = (word * (3_000_000 // len(word))) + "end\nnext\n"
    parts = list(text.lines(text.check([write("text8.txt", content)])))
    assert len(parts) >= 4
    assert "".join(parts) == content
    assert max(map(len, parts)) <= 2 * MEBIBYTE
    if word == "word ":
        assert all(part.endswith(("word", "end\n", "next\n")) for part in parts)


@pytest.mark.parametrize("content", [None, b"\xff", b"\0"], ids=["missing", "latin-1", "zero"])
def test_a_name_is_shown_without_its_control_characters(tmp_path, content):
    path = tmp_path / "\x1b[31mred"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"\\x1b\[31mred") as caught:
        text.check([path])
    assert "\x1b" not in str(caught.value)


def content_of(*names) -> bytes:
    return b"".join(block.data for block in text.Reading(text.find(names)))


def test_patterns_are_replaced_by_the_files_they_match_in_order(write, tmp_path):
    (tmp_path / "more.txt").mkdir()
    for name in ("b.txt", "a.txt", "c.md", "more.txt/d.txt"):
        write(name, f"{name} ")
    assert content_of(tmp_path / "*.txt") == b"a.txt b.txt "
    assert content_of(str(tmp_path / "**" / "*.txt")) == b"a.txt b.txt more.txt/d.txt "
    assert content_of(tmp_path / "c.md", tmp_path / "[ab].txt") == b"c.md a.txt b.txt "
    with pytest.raises(CorpusError, match=r"no file matches .*\*\.tex; check the pattern"):
        text.find(tmp_path / "*.tex")


def test_a_file_named_like_a_pattern_is_itself(write, tmp_path):
    write("[ab].txt", "brackets")
    write("a.txt", "a")
    assert content_of(tmp_path / "[ab].txt") == b"brackets"


WORDS = b"".join(b"%d words of text\n" % n for n in range(100_000))
FRAMES = zstandard.ZstdCompressor()
COMPRESSED = {
    "gzip": gzip.compress(WORDS),
    "gzip, several members": b"".join(
        gzip.compress(WORDS[k : k + 700_000]) for k in range(0, 2_000_000, 700_000)
    ),
    "zstd": FRAMES.compress(WORDS),
    "zstd, several frames": FRAMES.compress(WORDS[:9]) + FRAMES.compress(b"") + FRAMES.compress(WORDS[9:]),
    "zstd, a skippable frame first": b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + FRAMES.compress(WORDS),
}


@pytest.mark.parametrize("kind", COMPRESSED)
def test_what_is_compressed_is_read_whole_whatever_its_name(write, kind):
    path = write("text.txt", COMPRESSED[kind])
    reading = text.Reading([path])
    assert b"".join(block.data for block in reading) == WORDS
    digest = hashlib.sha256(COMPRESSED[kind]).hexdigest()
    assert reading.done == [text.TextFile(path, len(COMPRESSED[kind]), digest)]
    assert reading.text_bytes == len(WORDS)
    assert "".join(text.lines(text.check(path))).encode() == WORDS


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
@pytest.mark.parametrize("fault", ["cut", "changed", "followed by rubbish"])
def test_damaged_archives_are_one_clear_error(write, kind, fault):
    whole = (
        COMPRESSED["gzip"]
        if kind == "gzip"
        else zstandard.ZstdCompressor(write_checksum=True).compress(WORDS)
    )
    middle = len(whole) // 2
    damaged = {
        "cut": whole[:-20],
        "changed": whole[:middle] + b"rubbish" + whole[middle + 7 :],
        "followed by rubbish": whole + b"rubbish",
    }[fault]
    with pytest.raises(CorpusError, match=rf"text.xz is damaged {kind} data: .*; get or make it again"):
        content_of(write("text.xz", damaged))


def test_a_zstd_window_that_takes_too_much_memory_is_no_damage(write):
    settings = zstandard.ZstdCompressionParameters(window_log=28)
    compressor = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    path = write("long.zst", compressor.compress(WORDS) + compressor.flush())
    with pytest.raises(
        CorpusError, match=r"long.zst was compressed with a window of more than 128 MB; decomp"
    ):
        content_of(path)


@pytest.mark.parametrize("compress", [gzip.compress, FRAMES.compress], ids=["gzip", "zstd"])
def test_bytes_that_are_no_text_are_named_by_their_offset_in_the_text(write, compress):
    path = write("text.gz", compress(WORDS + b"\xff"))
    with pytest.raises(CorpusError, match=rf"text.gz is not UTF-8 text: byte {len(WORDS):,} \(0xff\)"):
        content_of(path)


def test_the_byte_order_mark_counts_in_offsets(write):
    with pytest.raises(CorpusError, match=r"byte 5 \(0xff\)"):
        content_of(write("marked.txt", b"\xef\xbb\xbfab\xff"))


def test_without_zstandard_the_extra_is_named(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(
        MissingExtra, match=r"reading .*text.zst, which is .*zstd, needs .*pip install .*'zstandard>="
    ):
        content_of(write("text.zst", COMPRESSED["zstd"]))


def test_stdin_is_read_once(write, monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(COMPRESSED["gzip"])))
    path = write("more.txt", "more")
    reading = text.Reading(text.find([path, "-"]))
    assert reading.fraction is None
    assert b"".join(block.data for block in reading) == b"more" + WORDS
    assert [file.description()["name"] for file in reading.done] == ["more.txt", "stdin"]
    with pytest.raises(CorpusError, match=r"stdin \(-\) was named more than once"):
        text.find(["-", "-"])
    with pytest.raises(CorpusError, match="stdin is not a regular file, and it is read more than once"):
        text.check("-")
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(CorpusError, match=r"stdin \(-\) is closed"):
        content_of("-")


def test_a_file_named_minus_is_read_by_its_path(write, monkeypatch, tmp_path):
    write("-", "minus")
    monkeypatch.chdir(tmp_path)
    assert content_of("./-") == b"minus"
    assert list(text.lines(text.check("./-"))) == ["minus"]
    write("stdin", "file ")
    assert content_of("stdin", "stdin") == b"file file "


@pytest.mark.parametrize("block", [8, 9, 10, 11, 12, 40])
def test_blocks_are_cut_where_no_word_is(write, monkeypatch, block):
    content = "ab éé\r\n\r\ncd\ref\n👍👍👍👍👍👍 " + "g h\ti " * 3 + "\nend"
    path = write("text.txt", content)
    monkeypatch.setattr(text, "BLOCK", block)
    blocks = list(text.Reading([path]))
    assert b"".join(one.data for one in blocks) == content.encode()
    for one, after in pairwise(blocks):
        assert one.ends_line == one.data.endswith((b"\n", b"\r"))
        assert not (one.data.endswith(b"\r") and after.data.startswith(b"\n"))
        if block == 40 and not one.ends_line:
            assert after.data.startswith((b" ", b"\t"))
    assert blocks[-1].ends_line


def test_the_fraction_read_rises_to_one(write):
    reading = text.Reading([write("a.txt", WORDS), write("b.txt", WORDS)])
    fractions = [reading.fraction for _ in reading]
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < 0.5
    assert reading.fraction == 1


def test_a_name_that_is_no_utf8_is_described_with_escapes(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.txt")
    path.write_text("fine\n")
    (file,) = text.check(path)
    assert file.description()["name"] == "caf\\xe9.txt"


@pytest.mark.parametrize("files", [None, 3, b"name", [None], [b"name"], True], ids=repr)
def test_what_names_no_file_is_refused(files):
    with pytest.raises(CorpusError, match="a text file is named by a str or a Path, found "):
        text.find(files)


@pytest.mark.parametrize("files", ["", [], [""], ["a", ""]], ids=repr)
def test_no_name_at_all_is_refused(files):
    with pytest.raises(CorpusError, match="no text file was named"):
        text.find(files)
