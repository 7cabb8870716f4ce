"""Run as a program: training in child processes that are killed (SIGKILL) at many moments, then resumed.

Prints one JSON line for each kill. Everything is compiled before the first fork, so a child costs little more
than its work. A *moment* is a step of a file (opened, renamed, removed, …) in the run's folder or beside its
output, or an event of training's progress. Each run has the same ones, however busy the machine is: a kill is
placed by them, or some time after one, and a run that is done by then waits for it.
"""

import json
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from safetensors import safe_open

from tokenspace.kernels import skipgram as kernel
from tokenspace.train import skipgram, training

FILE_STEPS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.scandir"}
KILLS = 20


def train(folder: Path, progress=None) -> None:
    skipgram(
        folder / "text.txt",
        dim=24,
        epochs=3,
        negative=3,
        threads=1,
        seed=5,
        output=folder / "t.safetensors",
        resume=True,
        checkpoint_minutes=0,  # after every piece, whatever the clock says
        evaluate=[folder / "pairs.tsv"],
        progress=progress,
    )


class Moments:
    """Counts moments, and kills the process at one of them, or ``delay`` seconds later."""

    def __init__(self, folder: Path, kill_at: int, delay: float, tell: int) -> None:
        self.count = 0
        self._folder, self._kill_at, self._tell = str(folder), kill_at, tell
        self._killer = threading.Timer(delay, _kill) if delay else None
        sys.addaudithook(self._hear)

    def wait_for_kill(self) -> None:
        if self._killer is not None:
            self._killer.join()

    def progress(self, event) -> None:
        self._moment(event.phase)

    def _hear(self, name: str, arguments: tuple) -> None:
        if name in FILE_STEPS and str(arguments[0]).startswith(self._folder):
            place = str(arguments[1] if name == "os.rename" else arguments[0])
            self._moment(f"{name} {place[len(self._folder) + 1 :]}")

    def _moment(self, what: str) -> None:
        os.write(self._tell, f"{what}\n".encode())
        self.count += 1
        if self.count == self._kill_at:
            if self._killer is None:
                _kill()
            self._killer.start()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_child(folder: Path, kill_at: int = 0, delay: float = 0.0) -> tuple[bool, list[str]]:
    """Train in a child that is killed at a moment, or soon after it; (killed, moments until then)."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(ours)
            moments = Moments(folder, kill_at, delay, theirs)
            train(folder, moments.progress)
            if kill_at:
                moments.wait_for_kill()
            status = 0
        finally:
            os._exit(status)
    os.close(theirs)
    with os.fdopen(ours, encoding="utf-8", errors="surrogateescape") as pipe:
        moments = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True, moments
    assert os.WEXITSTATUS(status) == 0
    return False, moments


def fresh(root: Path) -> Path:
    folder = root / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("text.txt", "pairs.tsv"):
        shutil.copy(root / name, folder / name)
    return folder


def state_pieces(folder: Path) -> int | None:
    """How many pieces the checkpoint has, which must be whole; None without one."""
    path = folder / "t.training" / "state.safetensors"
    if not path.exists():
        return None
    with safe_open(path, "numpy") as file:
        pieces = json.loads(file.metadata()["about"])["pieces"]
        assert len(file.get_tensor("loss")) == len(file.get_tensor("pairs")) == pieces
        assert file.get_tensor("inputs").shape == file.get_tensor("outputs").shape
    return pieces


def losses(folder: Path) -> list[dict]:
    timed = ("seconds", "tokens_per_second")
    lines = (folder / "t.loss.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in timed} for line in lines]


def outcome(folder: Path) -> tuple[list[str], bytes, list[dict]]:
    return sorted(os.listdir(folder)), (folder / "t.safetensors").read_bytes(), losses(folder)


def kind(moment: str) -> str:
    """What was done, without the letters of a temporary name."""
    return re.sub(r"\.[a-z0-9_]{8}\.partial", ".partial", moment)


def main(root: Path, how: str) -> None:
    training.SECONDS_BETWEEN_EVENTS = 0.0
    kernel.NEGATIVES_TABLE = 1 << 16  # to shuffle a whole one takes longer than all else
    train(fresh(root))  # compiles
    folder = fresh(root)
    begin = time.perf_counter()
    _, moments = in_child(folder)
    whole = time.perf_counter() - begin
    expected = outcome(folder)
    random.seed(7)
    if how == "random":  # half of them between two moments, half at one
        chosen = random.sample(range(1, len(moments) + 1), KILLS)
        kills = [{"kill_at": n} for n in chosen]
        for kill in kills[: KILLS // 2]:
            kill["delay"] = random.uniform(0, 2 * whole / len(moments))
    else:  # one at each kind of step
        kinds: dict[str, list[int]] = {}
        for n, moment in enumerate(moments, start=1):
            kinds.setdefault(kind(moment), []).append(n)
        kills = [{"kill_at": random.choice(places)} for places in kinds.values()]
    for kill in kills:
        folder = fresh(root)
        killed, told = in_child(folder, **kill)
        pieces = state_pieces(folder)
        broken_off, _ = in_child(folder)
        assert not broken_off
        same = [a == b for a, b in zip(outcome(folder), expected, strict=True)]
        at = kind(told[-1]) if told else ""
        sys.stdout.write(
            json.dumps({"killed": killed, "at": at, "pieces": pieces, "same": same} | kill) + "\n"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
