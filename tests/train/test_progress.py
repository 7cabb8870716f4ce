"""When a run will be done, told before any of it is trained."""

import math
import time

import pytest

from tokenspace.train import skipgram
from tokenspace.train.progress import Preparation


@pytest.fixture
def clock(monkeypatch):
    """``clock.now`` is what the time is."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(time, "perf_counter", lambda: Clock.now)
    return Clock


def test_what_is_left_of_reading_and_a_guess_for_training(clock):
    told = []
    tell = Preparation(told.append, training_seconds=50.0, epochs=5, tokenizer_given=False)
    tell("counting", 0.0)
    clock.now = 102.0
    tell("counting", 0.25)  # 6 s of it are left, and 8 for the ids
    clock.now = 108.0
    tell("counting", 1.0)
    clock.now = 110.0
    tell("encoding", 0.0)
    clock.now = 111.0
    tell("encoding", 0.5)
    assert math.isnan(told[0].eta_seconds)
    assert [event.eta_seconds for event in told[1:3]] == [64.0, 58.0]
    assert told[4].eta_seconds == 51.0
    assert [event.phase for event in told] == ["counting"] * 3 + ["encoding"] * 2
    assert {event.fraction for event in told} == {0.0}


def test_a_given_tokenizer_leaves_nothing_to_count(clock):
    told = []
    tell = Preparation(told.append, training_seconds=50.0, epochs=5, tokenizer_given=True)
    tell("counting", 0.0)
    clock.now = 102.0
    tell("counting", 0.25)
    assert told[-1].eta_seconds == 56.0


def test_the_last_event_before_training_is_about_what_training_takes(write):
    """Within a factor of a hundred: it says seconds, minutes or hours."""
    path = write("text.txt", "the cat chased the mouse .\nthe king ruled the land .\n" * 20_000)
    told = []
    skipgram(path, dim=100, epochs=20, threads=1, sample=0, progress=told.append)
    before = [event for event in told if event.phase != "training"]
    began = next(event for event in told if event.phase == "training")
    seconds = began.eta_seconds / (1 - began.fraction)
    assert seconds / 100 < before[-1].eta_seconds < seconds * 100
    assert math.isnan(before[-1].loss)
