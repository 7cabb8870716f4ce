import threading
import time

import pytest

from tokenspace.errors import TokenspaceError
from tokenspace.web.jobs import Jobs, Running


def test_a_long_job_is_polled_and_runs_once():
    jobs, begun, go, runs = Jobs(), threading.Event(), threading.Event(), []

    def compute(progress):
        runs.append(1)
        progress(1, 4)
        begun.set()
        go.wait(60)
        return "done"

    assert isinstance(jobs.result("a", compute, wait=0.05), Running)
    assert begun.wait(60)
    assert jobs.result("a", compute, wait=0.05) == Running(0.25)
    go.set()
    assert jobs.result("a", compute, wait=60) == "done"
    assert jobs.result("a", compute) == "done"
    assert runs == [1]


def test_one_at_a_time_and_what_was_asked_for_last_comes_first():
    jobs, begun, go, order, together = Jobs(), threading.Event(), threading.Event(), [], []
    busy = threading.Lock()

    def job(name):
        def compute(progress):
            together.append(not busy.acquire(blocking=False))
            begun.set()
            go.wait(60)
            order.append(name)
            busy.release()
            return name

        return compute

    for name in ("first", "second", "third", "second"):
        jobs.result(name, job(name), wait=0.02)
        assert begun.wait(60)  # the first runs, and the others wait
    go.set()
    deadline = time.monotonic() + 60
    while len(order) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert order == ["first", "second", "third"]
    assert together == [False] * 3


def test_an_error_reaches_who_asked_and_the_job_may_be_tried_again():
    jobs, fails = Jobs(), [True]

    def compute(progress):
        if fails.pop():
            raise TokenspaceError("no such method")
        return "fine"

    with pytest.raises(TokenspaceError, match="no such method"):
        jobs.result("a", compute, wait=10)
    fails.append(False)
    assert jobs.result("a", compute, wait=10) == "fine"


def test_a_job_uses_anothers_result():
    jobs, runs = Jobs(), []
    assert jobs.done("map", lambda: runs.append(1) or "map") == "map"
    assert jobs.result("map", lambda progress: "again", wait=10) == "map"
    assert jobs.done("map", lambda: "again") == "map"
    assert runs == [1]


def test_results_are_forgotten_oldest_first():
    jobs, runs = Jobs(kept=2), []
    for key in "abcda":
        jobs.result(key, lambda progress, key=key: runs.append(key), wait=10)
    assert runs == ["a", "b", "c", "d", "a"]


def test_too_many_that_wait_are_refused():
    jobs, begun, go = Jobs(), threading.Event(), threading.Event()

    def compute(progress):
        begun.set()
        go.wait(60)

    try:
        for n in range(9):  # one runs, eight wait
            jobs.result(n, compute, wait=0.02)
            assert begun.wait(60)
        with pytest.raises(TokenspaceError, match="too many"):
            jobs.result(9, compute, wait=0.02)
    finally:
        go.set()
