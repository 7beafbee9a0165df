from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpflow_gvi._core import files


def test_a_full_disk_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "weights.h5"
    path.write_bytes(b"old")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with (
            pytest.raises(OSError, match=r"No space left.*weights\.h5'"),
            files.new_file(path) as f,
        ):
            f.write(b"new")
        with (
            pytest.raises(OSError, match=r"No space left.*model'"),
            files.new_folder(tmp_path / "model", "mark") as folder,
        ):
            (folder / "mark").write_bytes(b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["weights.h5"]
    assert path.read_bytes() == b"old"


WRITING = """
import sys, time
from pathlib import Path
from gpflow_gvi._core import files
folder, file = map(Path, sys.argv[1:])
with files.new_folder(folder, "mark") as partial, files.new_file(file) as stream:
    (partial / "mark").write_text("new")
    print("written", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def writer(tmp_path):
    """A process that is in the middle of writing a folder and a file."""
    command = [sys.executable, "-c", WRITING, str(tmp_path / "model"), str(tmp_path / "file")]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout.readline() == b"written\n"
        yield process
        process.kill()


def write_both(tmp_path):
    with files.new_folder(tmp_path / "other", "mark", overwrite=True) as folder:
        (folder / "mark").touch()
    with files.new_file(tmp_path / "another") as stream:
        stream.write(b"new")


def test_what_a_killed_process_left_is_removed_a_day_later(tmp_path, writer, monkeypatch):
    def left():
        return sorted(p.suffix for p in tmp_path.iterdir() if p.suffix)

    write_both(tmp_path)
    assert left() == [".partial", ".partial"]
    real = time.time
    monkeypatch.setattr(files.time, "time", lambda: real() + 90_000.0)
    write_both(tmp_path)  # it still writes, and has the locks
    assert left() == [".partial", ".partial"]
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    monkeypatch.undo()
    write_both(tmp_path)  # it may run on another machine, whose locks are not seen here
    assert left() == [".partial", ".partial"]
    monkeypatch.setattr(files.time, "time", lambda: real() + 90_000.0)
    write_both(tmp_path)
    assert left() == []


def test_the_only_complete_folder_is_kept_however_old_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ABANDONED_AFTER", 0.0)
    replaced = [tmp_path / f"{name}.{'0' * 32}.replaced" for name in ("other", "lost")]
    for folder in replaced:
        folder.mkdir()
    write_both(tmp_path)
    write_both(tmp_path)
    assert [folder.exists() for folder in replaced] == [False, True]
