"""A disk that fails at any step of a run: one error, the old table as it was, a run that goes on."""

import errno
import os
import shutil
import sys

import pytest

from tokenspace.errors import TokenspaceError
from tokenspace.train import skipgram
from tokenspace.train.run import Run

STEPS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.scandir", "os.listdir"}


class Disk:
    """Counts the steps of files below a folder, by kind, and fails one of them."""

    def __init__(self):
        self.folder, self.fail, self.seen = None, None, []
        sys.addaudithook(self._hear)  # stays for the process; does nothing without a folder

    def _hear(self, name, arguments):
        if self.folder is None or name not in STEPS or isinstance(arguments[0], int):
            return
        path = os.fsdecode(arguments[1] if name == "os.rename" else arguments[0])
        if not path.startswith(self.folder):
            return
        parts = path[len(self.folder) :].split("/")
        kind = name + " ".join("*.partial" if part.endswith(".partial") else part for part in parts)
        self.seen.append(kind)
        if kind == self.fail:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)


disk = Disk()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text("the cat chased the mouse .\nthe dog chased the king .\n" * 3000)
    yield tmp_path
    disk.folder = disk.fail = None


def train(folder, resume=False, **more):
    output = folder / "t.safetensors"
    settings = {"dim": 4, "epochs": 2, "threads": 1, "negative": 2, "seed": 3, "checkpoint_minutes": 0}
    return skipgram(folder / "text.txt", output=output, resume=resume, **settings, **more)


def beside(folder):
    return {path.name: path.read_bytes() for path in folder.glob("t.*") if path.is_file()}


OLD = {"t.safetensors": b"an old table", "t.loss.jsonl": b'{"tokens": 1, "loss": 9.0}\n'}


@pytest.mark.parametrize("resumed", [False, True], ids=["begun", "resumed"])
def test_a_failing_disk_is_one_error_at_every_step(folder, resumed, monkeypatch):
    monkeypatch.setattr("tokenspace.kernels.skipgram.NEGATIVES_TABLE", 1 << 12)
    train(folder)
    table = (folder / "t.safetensors").read_bytes()
    saved = folder / "saved"
    if resumed:
        trained = []
        with monkeypatch.context() as patch:
            patch.setattr("tokenspace.train.training.SECONDS_BETWEEN_EVENTS", 0.0)
            train(
                folder,
                progress=lambda event: trained.append(event.fraction),
                stop=lambda: max(trained, default=0) > 0,
            )
        shutil.copytree(folder / "t.training", saved)

    def start_over():
        shutil.rmtree(folder / "t.training", ignore_errors=True)
        if resumed:
            shutil.copytree(saved, folder / "t.training")
        for name, content in OLD.items():
            (folder / name).write_bytes(content)

    start_over()
    disk.folder, disk.seen = f"{folder}/t.", []
    train(folder, resume=resumed)
    kinds = sorted(set(disk.seen))
    disk.folder = None
    assert any("training" in kind for kind in kinds), kinds
    raw, said = [], []
    for kind in kinds:
        start_over()
        disk.folder, disk.fail = f"{folder}/t.", kind
        try:
            train(folder, resume=resumed)
        except TokenspaceError as error:
            said.append(str(error))
            left = beside(folder)
            assert left["t.safetensors"] == table or left == OLD, kind
        except OSError as error:
            raw.append(f"{kind}: {error!r}")
        disk.folder = disk.fail = None
        train(folder, resume=Run.lies_in(folder / "t.training"))
        assert (folder / "t.safetensors").read_bytes() == table, kind
        assert not (folder / "t.training").exists(), kind
    assert not raw, "\n".join(raw)
    assert said
    assert all("\n" not in message for message in said)
