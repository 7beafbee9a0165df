"""Two processes save to one folder while a third one loads: each load is of one save."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gpflow_gvi._core import files
from gpflow_gvi.saving import load, save

ROOT = Path(__file__).parents[2]

SAVING = """
import sys, time
import numpy as np
from gpflow_gvi.saving import save
folder, number, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
end, count = time.monotonic() + seconds, 0
while time.monotonic() < end:
    number += 2
    same = np.full(1000, number)
    save({"a": same, "b": same.copy(), "c": str(number)}, folder, overwrite=True)
    count += 1
print(count)
"""

WRITING = """
import sys
from gpflow_gvi._core import files
folder, number, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for _ in range(count):
    number += 2
    with files.new_folder(folder, "a", overwrite=True) as partial:
        (partial / "a").write_text(str(number))
        (partial / "b").write_text(str(number))
print(count)
"""


def two(program, folder, amount):
    """Two processes that write odd and even numbers."""
    commands = [[sys.executable, "-c", program, folder, str(i), str(amount)] for i in (0, 1)]
    return [
        subprocess.Popen([*map(str, c)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for c in commands
    ]


def counts(processes):
    found = [process.communicate() for process in processes]
    assert [p.returncode for p in processes] == [0, 0], found
    return [int(out) for out, _ in found]


def test_two_processes_write_a_few_times(tmp_path):
    """Of the folders alone, which needs no TensorFlow."""
    folder = tmp_path / "saved"
    with files.new_folder(folder, "a") as partial:
        (partial / "a").write_text("0")
    processes = two(WRITING, folder, 10)
    while any(process.poll() is None for process in processes):
        assert (files.present(folder)).name.startswith("saved")
        time.sleep(0.005)
    assert counts(processes) == [10, 10]
    assert (folder / "a").read_text() == (folder / "b").read_text()
    assert (folder / "a").read_text() in ("20", "21")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [60])
def test_two_processes_save_for_a_minute(seconds, tmp_path):
    folder = tmp_path / "saved"
    save({"a": np.zeros(1), "b": np.zeros(1), "c": "0"}, folder)
    processes = two(SAVING, folder, seconds)
    loaded = []
    while any(process.poll() is None for process in processes):
        thing = load(folder)
        assert set(thing["a"]) == set(thing["b"]) == {int(thing["c"])}
        loaded.append(int(thing["c"]))
    assert min(counts(processes)) > seconds
    assert len(loaded) > 10
    assert {number % 2 for number in loaded[len(loaded) // 2 :]} == {0, 1}
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
