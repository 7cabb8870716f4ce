import contextlib
import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from tokenspace import atomic
from tokenspace.atomic import check_writable, replacing, replacing_folder
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
    with pytest.raises(OutputError, match="can't write /proc/out: no file can be made in /proc"):
        check_writable("/proc/out")  # whoever asks, root too
    with pytest.raises(OutputError, match="can't write"), replacing(tmp_path / ("x" * 300)) as fresh:
        fresh.write_text("never")


def test_the_error_of_one_file_inside_another_is_said_once(tmp_path):
    inner = pytest.raises(OutputError, match=r"^can't write [^:]*/inner/x: there is no directory")
    with inner, replacing(tmp_path / "outer"), replacing(tmp_path / "inner" / "x"):
        pass
    assert os.listdir(tmp_path) == []


def killed_while_writing(path, what="replacing"):
    """A process that is killed in the middle of writing ``path``."""
    code = f"""
        import os, pathlib, signal, sys
        from tokenspace.atomic import {what}
        with {what}(pathlib.Path(sys.argv[1])) as fresh:
            (fresh / "a" if fresh.is_dir() else fresh).write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    program = "\n".join(line[8:] for line in code.splitlines())
    done = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert done.returncode == -signal.SIGKILL


def partials(folder) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".partial")]


@pytest.mark.parametrize(
    "name", ["out", "o[u]t*?", ".hidden", "é" * 127], ids=["out", "glob", "hidden", "long"]
)
def test_what_a_killed_process_left_is_removed_by_the_next_who_writes_there(tmp_path, name):
    target = tmp_path / name
    target.write_text("old")
    killed_while_writing(target)
    assert len(partials(tmp_path)) == 1
    assert target.read_text() == "old"
    with replacing(target) as fresh:
        assert partials(tmp_path) == [fresh.parent.name]
        fresh.write_text("new")
    assert os.listdir(tmp_path) == [name]
    assert target.read_text() == "new"


def test_a_killed_folder_s_rest_is_removed_too(tmp_path):
    killed_while_writing(tmp_path / "out", "replacing_folder")
    assert len(partials(tmp_path)) == 1
    with replacing_folder(tmp_path / "out") as fresh:
        (fresh / "a").write_text("new")
    assert os.listdir(tmp_path) == ["out"]


def test_what_is_not_this_target_s_stays(tmp_path):
    """Another target's, whose name begins like this one's; a file; a link."""
    names = [
        ".a.b.abcdefgh.partial",
        ".a.abcdefgh.ijklmnop.partial",
        ".a.short.partial",
        ".b.abcdefgh.partial",
    ]
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / ".a.filefile.partial").write_text("a file")
    (tmp_path / ".a.linklink.partial").symlink_to(tmp_path / names[0])
    kept = sorted(os.listdir(tmp_path))
    with replacing(tmp_path / "a") as fresh:
        fresh.write_text("new")
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "a"])


def test_a_living_writer_s_file_is_left_alone(tmp_path):
    """Another thread's of this process, and whatever the writer has put in the place of its file."""
    target = tmp_path / "out"
    with replacing(target) as slow:
        slow.with_name("other").write_text("slow")
        slow.with_name("other").replace(slow)

        def quick():
            with replacing(target) as fresh:
                fresh.write_text("quick")

        thread = threading.Thread(target=quick)
        thread.start()
        thread.join()
        assert target.read_text() == "quick"
        assert slow.read_text() == "slow"
    assert target.read_text() == "slow"
    assert os.listdir(tmp_path) == ["out"]


def test_a_folder_taken_for_abandoned_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    lock, made = atomic._lock, []

    def late(fcntl, handle, wait):
        if not made:
            made.extend(partials(tmp_path))
            (tmp_path / made[0]).rmdir()
        return lock(fcntl, handle, wait)

    monkeypatch.setattr(atomic, "_lock", late)
    with replacing(tmp_path / "out") as fresh:
        fresh.write_text("new")
        assert fresh.parent.name not in made
    assert os.listdir(tmp_path) == ["out"]


def test_without_locks_the_rest_stays(tmp_path, monkeypatch):
    """On Windows, and on file systems that have none."""
    (tmp_path / ".out.abcdefgh.partial").mkdir()

    def refused(handle, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    for without in (None, SimpleNamespace(flock=refused, LOCK_EX=2, LOCK_NB=4)):
        with monkeypatch.context() as patched:
            patched.setattr(atomic, "_fcntl", without)
            with replacing(tmp_path / "out") as fresh:
                fresh.write_text("new")
        assert sorted(os.listdir(tmp_path)) == [".out.abcdefgh.partial", "out"]


def test_many_threads_write_to_one_place(tmp_path):
    def write(text):
        for _ in range(20):
            with replacing(tmp_path / "out") as fresh:
                fresh.write_text(text * 1000)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    text = (tmp_path / "out").read_text()
    assert text == text[0] * 1000
    assert os.listdir(tmp_path) == ["out"]


def test_a_file_has_the_mode_of_any_new_file(tmp_path):
    """Even if the writer has put one of another mode there, as safetensors does."""
    (tmp_path / "plain").touch()
    mode = (tmp_path / "plain").stat().st_mode
    with replacing(tmp_path / "out") as fresh:
        fresh.chmod(0o600)
    with replacing_folder(tmp_path / "folder") as fresh:
        (fresh / "a").touch(0o600)
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "folder" / "a").stat().st_mode == mode


def test_a_folder_appears_whole(tmp_path, monkeypatch):
    synced, sync = [], atomic._sync

    def noted(path):
        synced.append((path.name, (tmp_path / "out" / "a").exists()))
        sync(path)

    monkeypatch.setattr(atomic, "_sync", noted)
    (tmp_path / "out").mkdir()  # an empty one is as good as none
    with replacing_folder(tmp_path / "out") as fresh:
        (fresh / "a").write_text("new")
        assert not list((tmp_path / "out").iterdir())
    assert (tmp_path / "out" / "a").read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]
    assert synced == [("a", False), ("out", False), (tmp_path.name, True)]


def test_a_failure_leaves_no_folder(tmp_path):
    with pytest.raises(KeyboardInterrupt), replacing_folder(tmp_path / "out") as fresh:  # noqa: PT012
        (fresh / "a").write_text("half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_a_folder_that_holds_files_is_not_replaced(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path)
    for target, message in {
        tmp_path: "a folder that holds files can't be replaced in one step",
        tmp_path / "link": "a folder that holds files can't be replaced in one step",
        tmp_path / "file": "it is no folder",
        tmp_path / "missing" / "out": "there is no directory",
        "": "no output was named",
        tmp_path / ("x" * 300): "File name too long",
    }.items():
        with pytest.raises(OutputError, match=message), replacing_folder(target):
            pass
    with pytest.raises(OutputError, match="can't be replaced"), replacing_folder(tmp_path / "out"):  # noqa: PT012
        (tmp_path / "out").mkdir()  # while this one was written
        (tmp_path / "out" / "theirs").touch()
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "out"]
    assert os.listdir(tmp_path / "out") == ["theirs"]


@pytest.mark.parametrize("write", [atomic.replacing, atomic.replacing_folder], ids=["file", "folder"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL], ids=errno.errorcode.get)
def test_a_folder_that_cannot_be_synced_is_said_as_it_is(write, number, tmp_path, monkeypatch):
    """The new file has its name by then: the error must not say that nothing was written."""
    sync = os.fsync

    def fsync(handle):
        if os.path.samestat(os.fstat(handle), tmp_path.stat()):
            raise OSError(number, os.strerror(number))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    refused = pytest.raises(
        OutputError, match=r"t is written, but may be lost in a power cut: .*Input/output"
    )
    with refused if number == errno.EIO else contextlib.nullcontext(), write(tmp_path / "t") as fresh:
        (fresh / "a" if write is atomic.replacing_folder else fresh).write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["t"]
    assert (tmp_path / "t" / "a" if write is atomic.replacing_folder else tmp_path / "t").read_text() == "new"
