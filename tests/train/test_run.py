"""A run's folder: what it refuses, what it removes, and what it leaves alone."""

import errno
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from tokenspace.errors import OutputError, TableFormatError
from tokenspace.formats import native
from tokenspace.table import Table
from tokenspace.train import checksum
from tokenspace.train.places import folder_beside, losses_beside
from tokenspace.train.run import Run
from tokenspace.vocab import Vocab

SETTINGS = {"dim": 4, "seed": 1, "window": 5, "sample": 1e-3, "epochs": None}
STATE = {"inputs": np.arange(8, dtype=np.float32).reshape(2, 4), "pairs": np.array([3, 4])}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "t.training"


def begin(folder, resume=False, **changed):
    return Run.begin(folder, SETTINGS | changed, resume)


@pytest.mark.parametrize(
    ("output", "expected"), [("t.safetensors", "t"), ("t", "t"), ("a/t.v2", "a/t.v2"), ("t.vec", "t.vec")]
)
def test_folder_and_losses_lie_beside_the_output(output, expected, tmp_path):
    assert str(folder_beside(output)) == f"{expected}.training"
    assert str(losses_beside(output)) == f"{expected}.loss.jsonl"


def test_through_a_link_they_lie_where_the_table_will(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "t.safetensors").symlink_to(tmp_path / "far" / "u.safetensors")
    assert folder_beside(tmp_path / "t.safetensors") == (tmp_path / "far").resolve() / "u.training"


def test_a_state_comes_back_in_a_later_run(folder):
    with begin(folder) as run:
        assert run.load() is None
        run.save(STATE, {"pieces": 1})
        run.save(STATE, {"pieces": 2})
    with begin(folder, resume=True) as run:
        arrays, about = run.load()
    assert about == {"pieces": 2}
    for name, array in STATE.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


def test_an_unfinished_run_is_refused_without_resume_and_left_as_it_is(folder):
    with begin(folder) as run:
        run.save(STATE, {})
    message = rf"{re.escape(str(folder))} holds an unfinished run; .*--resume.* or delete that folder"
    with pytest.raises(OutputError, match=message):
        begin(folder)
    with begin(folder, resume=True) as run:
        assert run.load() is not None


def test_other_settings_are_refused_and_named(folder):
    begin(folder).close()
    with pytest.raises(
        OutputError, match=r"other settings \(dim 4 then, 5 now; epochs default then, 3 now\)"
    ):
        begin(folder, resume=True, dim=5, epochs=3)
    with pytest.raises(OutputError, match=r"and 1 more\); give the same ones"):
        begin(folder, resume=True, dim=5, epochs=3, seed=2, window=9)
    begin(folder, resume=True).close()


def test_two_processes_can_not_train_at_once(folder):
    with begin(folder):
        code = (
            "from pathlib import Path; from tokenspace.train.run import Run; "
            f"Run.begin(Path({str(folder)!r}), {SETTINGS!r}, True)"
        )
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "another process is at the run in" in other.stderr
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_run_that_was_removed_is_none(folder):
    with begin(folder) as run:
        assert Run.lies_in(folder)
        run.remove()
        assert not folder.exists()
    begin(folder).close()


def test_what_a_killed_beginning_or_end_left_is_cleared(folder):
    """Without its settings a folder is no run, whatever lies there yet."""
    with begin(folder) as run:
        run.save(STATE, {})
        (run.corpus / "ids").write_bytes(b"1234")
    (folder / "settings.json").unlink()
    (folder / ".tmpAbCdEf").write_bytes(b"")
    with begin(folder) as run:
        assert run.load() is None
        assert sorted(os.listdir(folder)) == ["lock", "settings.json"]
        (folder / "settings.json").unlink()
    Run.clear(folder)
    assert not folder.exists()


def test_half_written_files_are_swept_away(folder):
    begin(folder).close()
    for name in (".state.safetensors.abc.partial", ".tmpAbCdEf", "kept"):
        (folder / name).write_bytes(b"half")
    begin(folder, resume=True).close()
    assert sorted(os.listdir(folder)) == ["kept", "lock", "settings.json"]


@pytest.mark.parametrize("name", ["thesis.tex", ".git"])
def test_a_folder_of_someone_elses_is_left_alone(folder, name):
    folder.mkdir()
    (folder / name).mkdir()
    with pytest.raises(OutputError, match=rf"holds what no run put there \({re.escape(name)}\)"):
        begin(folder)
    Run.clear(folder)
    assert os.listdir(folder) == [name]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 99, "settings": {}}', "\x00"])
def test_settings_of_another_program_are_refused(folder, content):
    folder.mkdir()
    (folder / "settings.json").write_text(content)
    with pytest.raises(OutputError, match="is not what this version of tokenspace writes there"):
        begin(folder, resume=True)
    assert (folder / "settings.json").read_text() == content
    assert os.listdir(folder) == ["settings.json"]


def test_places_that_can_not_be(folder):
    with pytest.raises(OutputError, match="can't make the folder"):
        begin(folder / "deeper")
    folder.write_text("a file")
    with pytest.raises(OutputError, match="a file has that name"):
        begin(folder)


def test_publishing_moves_a_whole_table_and_keeps_the_mode_of_the_old_one(folder, tmp_path):
    output = tmp_path / "t.safetensors"
    table = Table(np.ones((2, 3), np.float32), Vocab(["a", "b"]), provenance={"n": 1})
    with begin(folder) as run:
        run.publish(table, output)
        assert sorted(os.listdir(folder)) == ["lock", "settings.json"]
        mode = output.stat().st_mode & 0o777
        umask = os.umask(0)
        os.umask(umask)
        assert mode == 0o666 & ~umask
        output.chmod(0o600)
        run.publish(table, output)
        assert output.stat().st_mode & 0o777 == 0o600
    assert native.load(output).provenance == {"n": 1}


def test_a_disk_that_is_full_leaves_the_state_from_before(folder, tmp_path):
    """A limit on the size of files stands for the full disk: the system refuses to write more, too."""
    code = f"""
        import numpy as np, resource, sys
        from pathlib import Path
        from tokenspace.errors import OutputError
        from tokenspace.train.run import Run
        with Run.begin(Path({str(folder)!r}), {{}}, False) as run:
            run.save({{"a": np.zeros(1000)}}, {{"pieces": 1}})
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
            try:
                run.save({{"a": np.zeros(1_000_000)}}, {{"pieces": 2}})
            except OutputError as error:
                sys.exit(str(error))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert re.search(r"can't write .*state.safetensors: .*File too large", done.stderr), done.stderr
    assert sorted(os.listdir(folder)) == ["lock", "settings.json", "state.safetensors"]
    assert len(load_file(folder / "state.safetensors")["a"]) == 1000


@pytest.mark.parametrize("output", [".", "/", ""])
def test_an_output_that_is_no_name_has_nothing_beside_it(output):
    with pytest.raises(OutputError, match=r"it is a directory|no output was named"):
        folder_beside(output)


@pytest.mark.parametrize("damage", [lambda old: old[:-3], lambda old: b"", lambda old: b"x" * len(old)])
def test_a_damaged_state_is_told_with_the_folder_to_delete(folder, damage):
    with begin(folder) as run:
        run.save(STATE, {"pieces": 1, "tokens": 5})
        assert Run.tokens_read(folder) == 5
        path = folder / "state.safetensors"
        path.write_bytes(damage(path.read_bytes()))
        assert Run.tokens_read(folder) == 0
        with pytest.raises(TableFormatError, match=rf"delete {re.escape(str(folder))} to begin anew"):
            run.load()


@pytest.mark.parametrize("bit", [0, 1, 5, 7])
def test_a_state_with_a_bit_turned_anywhere_is_told(folder, bit):
    arrays = STATE | {"half": np.ones(3, ml_dtypes.bfloat16), "one": np.array(0.5), "none": np.ones((0, 2))}
    with begin(folder) as run:
        run.save(arrays, {"pieces": 1, "words": "caf\xe9"})
        assert run.load() is not None
        path = folder / "state.safetensors"
        whole = path.read_bytes()
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            with pytest.raises(TableFormatError, match="is not what was written there, so the run can't go"):
                run.load()


def test_a_state_larger_than_a_block_is_summed_whole(folder, monkeypatch):
    monkeypatch.setattr(checksum, "_BLOCK", 5)
    with begin(folder) as run:
        run.save(STATE, {})
        monkeypatch.undo()
        assert run.load() is not None


def test_a_folder_that_is_a_link_to_another_disk(folder, tmp_path, monkeypatch):
    (tmp_path / "far").mkdir()
    folder.symlink_to(tmp_path / "far")
    replace = Path.replace

    def is_far(path):
        return tmp_path / "far" in path.resolve().parents

    def within_one_disk(self, target):
        if is_far(self) != is_far(Path(target)):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", within_one_disk)
    table = Table(np.ones((2, 3), np.float32), Vocab(["a", "b"]), provenance={"n": 1})
    with begin(folder) as run:
        run.publish(table, tmp_path / "t.safetensors")
        run.remove()
    assert native.load(tmp_path / "t.safetensors").provenance == {"n": 1}
    assert folder.is_symlink()
    assert not os.listdir(folder)
