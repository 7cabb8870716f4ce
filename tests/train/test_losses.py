"""The file of losses: whole lines, cut back where a run goes on."""

import json
import subprocess
import sys
import textwrap

import pytest

from tokenspace.errors import OutputError
from tokenspace.train.losses import LossLog


def lines(path) -> list[int]:
    return [json.loads(line)["tokens"] for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "t.loss.jsonl"
    with LossLog(path) as log:
        for tokens in (10, 20, 30, 40):
            log.append({"tokens": tokens, "loss": 1 / tokens})
    return path


def test_a_line_is_there_as_soon_as_it_is_added(tmp_path):
    log = LossLog(tmp_path / "losses")
    assert not (tmp_path / "losses").exists()
    for n in range(3):
        log.append({"tokens": n})
        assert lines(tmp_path / "losses") == list(range(n + 1))
    log.close()


def test_a_new_run_begins_a_new_file(path):
    with LossLog(path) as log:
        log.append({"tokens": 7})
    assert lines(path) == [7]


def test_a_run_that_goes_on_keeps_what_came_before(path):
    with LossLog(path, keep_tokens=20) as log:
        log.append({"tokens": 25})
    assert lines(path) == [10, 20, 25]


@pytest.mark.parametrize(
    "damage",
    [b'{"tokens": 41, "lo', b'{"tokens": 41}', b"\xff\n", b"[]\n", b'{"tokens": "x"}\n', b"\x00" * 9],
)
def test_a_line_that_a_crash_left_half_is_cut(path, damage):
    with path.open("ab") as file:
        file.write(damage)
    with LossLog(path, keep_tokens=1000) as log:
        log.append({"tokens": 50})
    assert lines(path) == [10, 20, 30, 40, 50]


def test_a_missing_file_is_begun(tmp_path):
    with LossLog(tmp_path / "losses", keep_tokens=100) as log:
        log.append({"tokens": 101})
    assert lines(tmp_path / "losses") == [101]


def test_a_place_that_can_not_be_written_is_told(tmp_path):
    with pytest.raises(OutputError, match=r"can't write .*: No such file"):
        LossLog(tmp_path / "no" / "losses").append({"tokens": 1})


def test_a_full_disk_is_told(tmp_path):
    code = f"""
        import resource, sys
        from tokenspace.errors import OutputError
        from tokenspace.train.losses import LossLog
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        log = LossLog({str(tmp_path / "losses")!r})
        try:
            for n in range(100):
                log.append({{"tokens": n}})
        except OutputError as error:
            sys.exit(str(error))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert "losses: File too large" in done.stderr
    assert "Traceback" not in done.stderr
