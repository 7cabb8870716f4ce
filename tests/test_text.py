"""Plain text files: what is refused and with which words, and that nothing is lost on the way."""

import hashlib
import os

import pytest

from tokenspace import text
from tokenspace.errors import CorpusError

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
