import os
import stat

import pytest

from tokenspace.atomic import check_writable, replacing
from tokenspace.errors import OutputError


def test_the_new_file_appears_whole(tmp_path):
    target = tmp_path / "out"
    with replacing(target) as fresh:
        fresh.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]


def test_the_bytes_are_on_the_disk_before_the_name_is_theirs(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append(os.path.exists(tmp_path / "out")))
    with replacing(tmp_path / "out") as fresh:
        fresh.write_text("new")
    assert calls == [False, True]  # the file, then the folder that holds its new name


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, failure):
    target = tmp_path / "out"
    target.write_text("old")
    with pytest.raises(failure), replacing(target) as fresh:  # noqa: PT012
        fresh.write_text("half")
        raise failure
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_permissions_and_links_are_kept(tmp_path):
    target, link = tmp_path / "out", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    with replacing(link) as fresh:
        fresh.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_places_that_can_not_be_written(tmp_path):
    with pytest.raises(OutputError, match="it is a directory"):
        check_writable(tmp_path)
    with pytest.raises(OutputError, match="no output was named"):
        check_writable("")
    with pytest.raises(OutputError, match="there is no directory"):
        check_writable(tmp_path / "missing" / "out")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone" / "out")
    with pytest.raises(OutputError, match=r"there is no directory .*gone"):
        check_writable(tmp_path / "dangling")
    with pytest.raises(OutputError, match="not a regular file"):
        check_writable("/dev/null")
    with pytest.raises(OutputError, match="can't write /proc/out"):
        check_writable("/proc/out")  # whoever asks, root too
    with pytest.raises(OutputError, match="can't write"), replacing(tmp_path / ("x" * 300)) as fresh:
        fresh.write_text("never")


def test_the_error_of_one_file_inside_another_is_said_once(tmp_path):
    inner = pytest.raises(OutputError, match=r"^can't write [^:]*/inner/x: there is no directory")
    with inner, replacing(tmp_path / "outer"), replacing(tmp_path / "inner" / "x"):
        pass
    assert os.listdir(tmp_path) == []
