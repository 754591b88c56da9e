"""Ctrl-C in Python: a run saves where everything is whole, and can go on."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import inbounds as ib
from inbounds.learners.aram import Aram
from inbounds.training import interrupts
from inbounds.training.api import train
from inbounds.training.checkpoint import newest_checkpoint
from inbounds.training.interrupts import deferred_interrupt
from inbounds.training.record import METRICS, RunFolder

TINY = Aram(hidden=(8, 8), batch_size=16, proposals=4)
SETTINGS = {
    "warm_up": 20,
    "capacity": 10_000,
    "episodes": 1,
    "evaluate_every": 0,
    "environments": 2,
    "scale_observations": False,
    "scale_rewards": False,
}


@pytest.fixture(autouse=True)
def usual_handler():
    """Let Ctrl-C be what it is in a program; workers of a test run ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_a_turn_saves_and_the_run_can_go_on(tmp_path):
    folder, pressed = tmp_path / "run", []

    def press_soon(row):
        if not pressed:  # after the first report, so that it comes while the next steps are taken
            pressed.append(threading.Timer(0.2, press_ctrl_c))
            pressed[0].start()

    with pytest.raises(KeyboardInterrupt):
        train(ib.make("reacher"), TINY, out=folder, steps=40_000, callbacks=(press_soon,), **SETTINGS)
    saved = newest_checkpoint(folder / "checkpoints", pytest.fail).notes["step"]
    assert 2_000 < saved < 40_000
    train(ib.make("reacher"), TINY, out=folder, steps=saved + 100, resume=True, **SETTINGS)
    assert max(row["step"] for row in RunFolder(folder).rows(METRICS)) == saved + 100
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_ctrl_c_breaks_off(monkeypatch):
    monkeypatch.setattr(interrupts, "ONE_REQUEST_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt), deferred_interrupt() as asked:
        press_ctrl_c()
        assert asked.count == 1
        press_ctrl_c()


def test_a_polite_request_of_a_batch_system_counts_as_ctrl_c():
    before = signal.getsignal(signal.SIGTERM)
    with deferred_interrupt() as asked:
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked.count == 1
    assert signal.getsignal(signal.SIGTERM) is before


def test_two_signals_at_once_are_one_request(monkeypatch):
    monkeypatch.setattr(interrupts, "ONE_REQUEST_SECONDS", 60.0)
    with deferred_interrupt() as asked:
        press_ctrl_c()  # GNU timeout sends its signal to a program, and then to the program's group
        press_ctrl_c()
        assert asked.count == 1


def test_a_handler_of_somebody_else_stays_in_place():
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with deferred_interrupt() as asked:
            press_ctrl_c()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT] and not asked


def test_a_thread_that_may_have_no_handler_trains_without_one():
    found = []

    def block():
        with deferred_interrupt() as asked:
            found.append(asked)

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert not found[0]
