"""Locks: one process and one thread at a time, for as long as they live."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from inbounds.errors import FolderBusyError
from inbounds.storage import files
from inbounds.storage.files import is_locked, locked

HOLDER = """
import sys, time
from pathlib import Path
from inbounds.storage.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_another_process_is_kept_out_until_the_first_one_is_gone(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        try:
            assert is_locked(tmp_path)
            with pytest.raises(FolderBusyError, match="Wait until it has ended"), locked(tmp_path):
                pass
        finally:
            holder.send_signal(signal.SIGKILL)
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)


FORKING = """
import os, sys, threading, time
from pathlib import Path
from inbounds.storage.files import locked
folder = Path(sys.argv[1])
with locked(folder):
    if os.fork() == 0:
        try:
            with locked(folder):
                os.write(1, b"entered\\n")  # whole lines, also from two processes
        except Exception as error:
            os.write(1, type(error).__name__.encode() + b"\\n")
        while True:
            time.sleep(1)
    os.write(1, b"held\\n")
    time.sleep(60)
"""


def test_a_forked_process_has_no_part_in_the_lock_and_does_not_keep_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert holder.stdout is not None
        assert {holder.stdout.readline(), holder.stdout.readline()} == {"held\n", "FolderBusyError\n"}
        assert is_locked(tmp_path)
        holder.kill()
        holder.wait()
        with locked(tmp_path):  # its helper lives on
            assert is_locked(tmp_path)
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()


LEAVING = """
import os, sys
from pathlib import Path
from inbounds.storage.files import is_locked, locked
folder = Path(sys.argv[1])
with locked(folder):
    child = os.fork()
    if child == 0:
        opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]  # one has the number of the lock
    else:
        print(os.waitpid(child, 0)[1], is_locked(folder))
if child == 0:
    for descriptor in opened:
        os.fstat(descriptor)
    os._exit(0)
"""


def test_a_forked_process_that_leaves_the_block_of_its_parent_closes_nothing_of_its_own(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", LEAVING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0 True\n"


def test_another_thread_is_kept_out_and_the_same_one_may_enter_again(tmp_path: Path) -> None:
    refused: list[bool] = []

    def enter() -> None:
        try:
            with locked(tmp_path):
                refused.append(False)
        except FolderBusyError:
            refused.append(True)

    with locked(tmp_path), locked(tmp_path / "." / ""):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    enter()
    assert refused == [True, False]


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_the_lock_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / files.LOCK)
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)


def test_a_file_system_without_locks_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with locked(tmp_path):
        assert not is_locked(tmp_path)
    assert fcntl.flock is refuse
