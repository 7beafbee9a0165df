"""Workers: who does which task, and what becomes of those who die."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from gpflow_gvi.experiments.crew import Crew
from gpflow_gvi.experiments.folder import FolderInUseError, held
from gpflow_gvi.experiments.results import Results
from gpflow_gvi.experiments.run_all import run_all
from gpflow_gvi.experiments.sweep import read_sweep
from gpflow_gvi.experiments.tasks import Task


class Doer:
    """Says which process did what; a task's data say how it fares."""

    def __init__(self) -> None:
        self.ballast = []

    def record(self, task):
        seen = Path(task.folder) / task.name
        before = seen.exists()
        seen.touch()
        if task.data == "dies" or (task.data == "dies once" and not before):
            os.kill(os.getpid(), signal.SIGKILL)
        if task.data == "grows":
            self.ballast.append(b"x" * 200_000_000)
        if task.data == "slow":
            time.sleep(0.1)
        return {"name": task.name, "status": "done", "pid": os.getpid()}


@pytest.fixture
def tasks(tmp_path):
    def make(*fates):
        return [Task(f"run{i}", fate, {}, {}, str(tmp_path), None, False) for i, fate in fates]

    return make


def _records(crew, batches):
    return {record["name"]: record for record in crew.records(batches)}


def test_neighbours_are_done_by_one_worker_and_idle_ones_take_their_share(tasks):
    batches = [tasks(*((i, "slow") for i in range(9))), tasks((9, ""))]
    found = _records(Crew(2, 30_000.0, doer=Doer), batches)
    assert len(found) == 10
    pids = [found[f"run{i}"]["pid"] for i in range(9)]
    assert len({*pids}) == 2  # the second worker was soon done with its own
    first = pids[0]
    assert pids == sorted(pids, key=lambda pid: pid != first)  # from the end of the other's


def test_a_worker_that_dies_loses_nothing(tasks):
    found = _records(Crew(1, doer=Doer), [tasks((0, ""), (1, "dies once"), (2, ""), (3, "dies"))])
    assert [found[f"run{i}"]["status"] for i in range(4)] == ["done"] * 3 + ["failed"]
    assert "died 2 times" in found["run3"]["error"]
    assert found["run0"]["pid"] != found["run1"]["pid"]


def test_a_worker_that_has_grown_is_replaced(tasks):
    crew = Crew(1, 300.0, doer=Doer)
    found = _records(crew, [tasks((0, "grows"), (1, "grows"), (2, ""), (3, "grows"))])
    pids = [found[f"run{i}"]["pid"] for i in range(4)]
    assert len({*pids}) > 1
    crew = Crew(1, 30_000.0, doer=Doer)
    assert len({r["pid"] for r in _records(crew, [tasks((4, ""), (5, ""))]).values()}) == 1


def test_nobody_is_left_when_one_stops_in_the_middle(tasks):
    crew = Crew(2, doer=Doer)
    for _ in crew.records([tasks(*((i, "slow") for i in range(20)))]):
        processes = [worker.process for worker in crew._workers]
        break
    del _  # the generator is closed
    for process in processes:
        process.join(10.0)
        assert not process.is_alive()


@pytest.fixture
def points(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text("base: {data: yacht}\naxes:\n  seed: [0, 1, 2, 3]\n")
    return read_sweep(path)


class Here:
    """A scheduler that does as it is told."""

    def __init__(self, statuses):
        self.statuses, self.names = list(statuses), []

    def records(self, batches):
        for task in (task for batch in batches for task in batch):
            self.names.append(task.name)
            status = self.statuses.pop(0)
            if status == "interrupt":
                raise KeyboardInterrupt
            yield {"name": task.name, "status": status, "error": "one\ntwo"}


def test_a_sweep_goes_on_where_it_was(points, tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt):
        run_all(points, tmp_path / "runs", Here(["done", "failed", "interrupt"]))
    with (tmp_path / "runs" / "results.jsonl").open("a") as file:
        file.write('{"name": "torn')
    again = Here(["done", "done"])
    assert run_all(points, tmp_path / "runs", again) == (3, 1)
    assert "results.jsonl:3 is no record" in caplog.text
    assert run_all(points, tmp_path / "runs", Here([])) == (3, 1)
    assert run_all(points, tmp_path / "runs", Here(["done"]), retry=True) == (4, 0)
    records, wrong = Results(tmp_path / "runs").read()
    assert len(records) == 4
    assert len(wrong) == 1
    for line in (tmp_path / "runs" / "results.jsonl").read_text().splitlines():
        if "torn" not in line:
            json.loads(line)


def test_a_second_sweep_in_the_same_folder_is_refused(points, tmp_path):
    with held(tmp_path / "sweep.lock"), pytest.raises(FolderInUseError, match="another process"):
        run_all(points, tmp_path, Here([]))


def test_a_lock_can_be_waited_for(tmp_path):
    order = []

    def other():
        with held(tmp_path / "a.lock"):
            started.set()
            time.sleep(0.3)
            order.append("first")

    started = threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    started.wait()
    with held(tmp_path / "a.lock", wait=True):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
