"""The engine: which worker executes which run, and what happens when one dies."""

from __future__ import annotations

import errno
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import dask
import psutil
import pytest

from gpflow_gvi.__main__ import main
from gpflow_gvi.experiments import clients
from gpflow_gvi.experiments.clients import job_queue_client, local_client
from gpflow_gvi.experiments.engine import Engine
from gpflow_gvi.experiments.reading import ConfigError
from gpflow_gvi.experiments.results import Results
from gpflow_gvi.experiments.run_all import run_all
from gpflow_gvi.experiments.run_folder import FolderInUseError, held
from gpflow_gvi.experiments.sweep import read_sweep


class Task(NamedTuple):
    """A run, in the eyes of an engine."""

    name: str
    data: str
    folder: str
    axes: dict = {}  # noqa: RUF012


def fate(task):
    """Return which process executed a task, whose data say how that ends."""
    seen = Path(task.folder) / task.name
    before = seen.exists()
    seen.touch()
    if task.data == "dies" or (task.data == "dies once" and not before):
        os.kill(os.getpid(), signal.SIGKILL)
    if task.data == "grows":
        memory.append(b"x" * 200_000_000)
    if task.data == "slow":
        time.sleep(0.1)
    if task.data == "after run9":
        for _ in range(6000):
            if (seen.parent / "run9").exists():
                break
            time.sleep(0.01)
        time.sleep(0.1)
    if task.data == "hangs":
        time.sleep(1000.0)
    if task.data == "raises":
        raise ValueError("no record")
    return {"name": task.name, "status": "done", "pid": os.getpid()}


memory = []


@pytest.fixture(autouse=True)
def _workers_without_tensorflow(monkeypatch):
    """These tasks need none of it, and each process of a worker would import it."""
    monkeypatch.setattr(clients, "_QUIET", "import sys")


@pytest.fixture
def tasks(tmp_path):
    def make(*fates):
        return [Task(f"run{i}", fate, str(tmp_path)) for i, fate in fates]

    return make


def _engine(workers, **options):
    options = {"max_memory": 1e6, **options}
    return Engine(functools.partial(local_client, workers), **options)


def _records(engine, batches):
    return {record["name"]: record for record in engine.records(fate, batches)}


@pytest.mark.parametrize("seconds", [pytest.param(0.05, marks=pytest.mark.slow), 15.0])
def test_runs_that_die_or_raise_fail_alone(tasks, seconds):
    with dask.config.set({"distributed.deploy.lost-worker-timeout": seconds}):
        _require_failures(tasks)


def _require_failures(tasks):
    fates = ["", "dies once", "", "dies", "raises", ""]
    found = _records(_engine(1), [tasks(*enumerate(fates))])
    assert [found[f"run{i}"]["status"] for i in range(6)] == [
        *("done", "done", "done", "failed", "failed", "done")
    ]
    assert "died 2 times" in found["run3"]["error"]
    assert "ValueError: no record" in found["run4"]["error"]
    assert found["run0"]["pid"] != found["run1"]["pid"]


@pytest.mark.slow
def test_a_run_that_exceeds_its_time_fails_alone(tasks):
    # Each new process of a worker first imports what it executes, which counts.
    found = _records(_engine(2, run_timeout=15.0), [tasks((0, ""), (1, "hangs"), (2, ""))])
    assert [found[f"run{i}"]["status"] for i in range(3)] == ["done", "failed", "done"]
    assert "longer than 15 seconds" in found["run1"]["error"]
    assert "--run-timeout" in found["run1"]["error"]


def test_neighbours_are_executed_by_one_worker_and_idle_ones_take_their_share(tasks):
    batches = [tasks(*((i, "after run9") for i in range(9))), tasks((9, ""))]
    found = _records(_engine(2), batches)
    assert len(found) == 10
    pids = [found[f"run{i}"]["pid"] for i in range(9)]
    assert len({*pids}) == 2  # the second worker was soon done with its own
    first = pids[0]
    assert pids == sorted(pids, key=lambda pid: pid != first)  # from the end of the other's


def test_local_workers_keep_memory_and_are_not_profiled():
    with local_client(1) as client:
        assert client.submit(_threshold_and_profiler).result() == (None, False)


def _threshold_and_profiler():
    profiler = dask.config.get("distributed.worker.profile.enabled")
    return os.environ.get("MALLOC_TRIM_THRESHOLD_"), profiler


@pytest.mark.slow
def test_a_worker_that_has_grown_is_restarted(tasks):
    found = _records(_engine(1, max_memory=500.0), [tasks(*((i, "grows") for i in range(4)))])
    pids = [found[f"run{i}"]["pid"] for i in range(4)]
    assert len({*pids}) > 1
    assert [pids.index(pid) for pid in pids] == sorted(pids.index(pid) for pid in pids)
    found = _records(_engine(1), [tasks(*((i, "grows") for i in range(4, 8)))])
    assert len({record["pid"] for record in found.values()}) == 1


@pytest.mark.parametrize(
    "closed", ["between runs", pytest.param("within a run", marks=pytest.mark.slow)]
)
def test_no_process_is_left_when_it_stops_in_the_middle(tasks, closed):
    fates = {"between runs": "slow", "within a run": "hangs"}
    batches = [tasks((0, "")), tasks(*((i, fates[closed]) for i in range(1, 20)))]
    records = _engine(2).records(fate, batches)
    next(records)
    # The resource tracker of multiprocessing stays as long as this process.
    processes = psutil.Process().children(recursive=True)
    workers = [process for process in processes if "spawn_main" in " ".join(process.cmdline())]
    assert len(workers) >= 2
    records.close()
    _, alive = psutil.wait_procs(workers, timeout=60.0)
    assert not alive


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: next(_engine(0).records(fate, [[None]])),
            "workers .--workers. is 0; give a positive",
        ),
        (lambda: next(_engine(-1).records(fate, [[None]])), "workers .--workers. is -1"),
        (lambda: _engine(1, run_timeout=0.0), "--run-timeout"),
        (lambda: _engine(1, max_memory=float("nan")), "--worker-memory"),
        (lambda: job_queue_client("slurm", 0).__enter__(), "--jobs"),
        (lambda: job_queue_client("slurm", 1, {"quue": "all.q"}).__enter__(), "--job: .*quue"),
    ],
)
def test_settings_of_engines_that_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.slow
def test_workers_that_are_submitted_as_jobs(tasks, tmp_path, monkeypatch):
    def command(name, text):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    # In place of Slurm's: a job is a group of processes of this machine.
    command(
        "sbatch",
        f'cp "$1" {tmp_path}/job.sh\nsetsid sh {tmp_path}/job.sh '
        f'> {tmp_path}/log 2>&1 &\necho "Submitted batch job $!"',
    )
    command("scancel", 'kill -9 -- "-$1"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    connect = functools.partial(job_queue_client, "slurm", 1, {"walltime": "02:00:00"})
    found = _records(Engine(connect, max_memory=1e6), [tasks((0, ""), (1, "dies once"), (2, ""))])
    assert [found[f"run{i}"]["status"] for i in range(3)] == ["done"] * 3
    script = (tmp_path / "job.sh").read_text()
    for line in ("#SBATCH -t 02:00:00", "#SBATCH --mem=4G", "export TF_NUM_INTRAOP_THREADS=1"):
        assert line in script


@pytest.mark.slow
def test_an_interrupt_of_the_group_of_processes_ends_all_without_a_traceback(tmp_path):
    (tmp_path / "hanging.py").write_text(
        "import functools, sys, time\n"
        "from tests.unit.experiments.test_engine import Task\n"
        "from gpflow_gvi.experiments import clients, engine\n"
        "def hang(task):\n"
        f"    open({str(tmp_path / 'started')!r}, 'w').close()\n"
        "    time.sleep(1000.0)\n"
        "if __name__ == '__main__':\n"
        "    connect = functools.partial(clients.local_client, 1)\n"
        "    task = Task('a', '', '')\n"
        "    try:\n"
        "        list(engine.Engine(connect).records(hang, [[task]]))\n"
        "    except KeyboardInterrupt:\n"
        "        sys.exit(7)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "hanging.py")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60.0)
    assert process.returncode == 7
    assert b"Traceback" not in told
    for _ in range(200):  # until the last process of the group has ended
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("a process of the group is still alive")


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--workers", "0"], 2, "--workers"),
        (["--workers", "-1"], 2, "--workers"),
        (["--run-timeout", "0"], 2, "--run-timeout"),
        (["--jobs", "3"], 1, "--cluster"),
        (["--cluster", "slurm", "--job", "cores=0.5", "--job", "quue=a:1"], 2, "quue"),
    ],
)
def test_options_of_the_command_that_are_refused(options, status, message, tmp_path, capsys):
    (tmp_path / "sweep.yaml").write_text("base: {data: yacht}\naxes:\n  seed: [0, 1]\n")
    command = ["sweep", str(tmp_path / "sweep.yaml"), "--folder", str(tmp_path / "runs")]
    assert main([*command, *options]) == status
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told


def test_a_machine_that_submits_no_jobs_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="sbatch is not found"):
        job_queue_client("slurm", 1).__enter__()


@pytest.fixture
def points(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text("base: {data: yacht}\naxes:\n  seed: [0, 1, 2, 3]\n")
    return read_sweep(path)


class Here:
    """An engine whose runs end with given statuses."""

    def __init__(self, statuses):
        self.statuses, self.names = list(statuses), []

    def records(self, execute, batches):
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
    assert "results.jsonl:3 is no result" in caplog.text
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


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        RuntimeError(f"a library could not write: {os.strerror(errno.ENOSPC)}"),
    ],
)
def test_a_run_for_which_the_disk_was_full_is_due_again(error, points, tmp_path, monkeypatch):
    def full(*_, **__):
        raise ValueError("it could not be written") from error

    monkeypatch.setattr("gpflow_gvi.experiments.run.run", full)

    class InThisProcess:
        def records(self, execute, batches):
            return [execute(task) for batch in batches for task in batch]

    assert run_all(points[:1], tmp_path, InThisProcess()) == (0, 1)
    assert run_all(points[:1], tmp_path, Here(["done"])) == (1, 0)


def test_the_command_names_the_option_for_failed_runs(points, tmp_path, monkeypatch, capsys):
    config = tmp_path / "sweep.yaml"
    config.write_text("base: {data: yacht}\n")
    monkeypatch.setattr("gpflow_gvi.__main__._engine", lambda _: Here(["failed"]))
    assert main(["sweep", str(config), "--folder", str(tmp_path / "runs")]) == 1
    assert "--retry" in capsys.readouterr().err
