"""All runs of a sweep: what happens when a worker dies, and how a sweep goes on."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import dask
import psutil
import pytest

from gpflow_gvi.__main__ import main
from gpflow_gvi.experiments import clients
from gpflow_gvi.experiments.clients import job_queue_client, local_client
from gpflow_gvi.experiments.reading import ConfigError
from gpflow_gvi.experiments.run_all import Limits, _records, run_all
from gpflow_gvi.experiments.run_folder import FolderInUseError, Results, held
from gpflow_gvi.experiments.sweep import read_sweep


class Task(NamedTuple):
    """A run, in the eyes of a worker."""

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


def _yielded(workers, tasks, **limits):
    """Yield the records of tasks; those of workers are private, as they need no experiments."""
    connect = functools.partial(local_client, workers)
    return _records(connect, fate, tasks, Limits(**{"megabytes": 1e6, **limits}))


def _by_name(*arguments, **limits):
    return {record["name"]: record for record in _yielded(*arguments, **limits)}


@pytest.mark.slow
def test_runs_that_die_or_raise_fail_alone(tasks):
    fates = ["", "dies once", "", "dies", "raises", ""]
    found = _by_name(1, tasks(*enumerate(fates)))
    assert [found[f"run{i}"]["status"] for i in range(6)] == [
        *("done", "done", "done", "failed", "failed", "done")
    ]
    assert "died each time" in found["run3"]["error"]
    assert "ValueError: no record" in found["run4"]["error"]


@pytest.mark.slow
def test_a_run_that_exceeds_its_time_fails_alone(tasks):
    found = _by_name(2, tasks((0, ""), (1, "hangs"), (2, "")), seconds=5.0)
    assert [found[f"run{i}"]["status"] for i in range(3)] == ["done", "failed", "done"]
    assert "longer than 5 seconds" in found["run1"]["error"]
    assert "--run-timeout" in found["run1"]["error"]


@pytest.mark.slow
def test_local_workers_keep_memory_and_are_not_profiled(monkeypatch):
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)  # any other cluster sets it here
    with local_client(1) as client:
        assert client.submit(_threshold_and_profiler).result() == (None, False)


def _threshold_and_profiler():
    profiler = dask.config.get("distributed.worker.profile.enabled")
    return os.environ.get("MALLOC_TRIM_THRESHOLD_"), profiler


@pytest.mark.slow
def test_a_worker_that_has_grown_is_restarted(tasks):
    found = _by_name(1, tasks(*((i, "grows") for i in range(4))), megabytes=500.0)
    assert len(found) == 4
    assert len({record["pid"] for record in found.values()}) > 1
    found = _by_name(1, tasks(*((i, "grows") for i in range(4, 8))))
    assert len({record["pid"] for record in found.values()}) == 1


@pytest.mark.slow
def test_no_process_is_left_when_it_stops_within_a_run(tasks):
    records = _yielded(2, tasks((0, ""), *((i, "hangs") for i in range(1, 20))))
    next(records)
    # The resource tracker of multiprocessing stays as long as this process.
    processes = psutil.Process().children(recursive=True)
    workers = [process for process in processes if "spawn_main" in " ".join(process.cmdline())]
    assert len(workers) >= 2
    records.close()
    _, alive = psutil.wait_procs(workers, timeout=60.0)
    assert not alive


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
    runs = tasks((0, ""), (1, "dies once"), (2, ""))
    found = {r["name"]: r for r in _records(connect, fate, runs, Limits(megabytes=1e6))}
    assert [found[f"run{i}"]["status"] for i in range(3)] == ["done"] * 3
    script = (tmp_path / "job.sh").read_text()
    for line in ("#SBATCH -t 02:00:00", "#SBATCH --mem=4G", "export TF_NUM_INTRAOP_THREADS=1"):
        assert line in script


@pytest.mark.slow
def test_an_interrupt_of_the_group_of_processes_ends_all_without_a_traceback(tmp_path):
    (tmp_path / "hanging.py").write_text(
        "import functools, sys, time\n"
        "from tests.unit.experiments.test_run_all import Task\n"
        "from gpflow_gvi.experiments import clients, run_all\n"
        "def hang(task):\n"
        f"    open({str(tmp_path / 'started')!r}, 'w').close()\n"
        "    time.sleep(1000.0)\n"
        "if __name__ == '__main__':\n"
        "    connect = functools.partial(clients.local_client, 1)\n"
        "    task = Task('a', '', '')\n"
        "    try:\n"
        "        list(run_all._records(connect, hang, [task], run_all.Limits()))\n"
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
    ("options", "message"),
    [
        (["--workers", "0"], "--workers"),
        (["--run-timeout", "0"], "--run-timeout"),
        (["--worker-memory", "nan"], "--worker-memory"),
        (["--jobs", "3"], "--cluster"),
        (["--cluster", "slurm", "--jobs", "0"], "--jobs"),
        (["--cluster", "slurm", "--job", "cores=0.5", "--job", "quue=a:1"], "quue"),
    ],
)
def test_options_of_the_command_that_are_refused(options, message, tmp_path, capsys):
    (tmp_path / "sweep.yaml").write_text("base: {data: yacht}\naxes:\n  seed: [0, 1]\n")
    command = ["sweep", str(tmp_path / "sweep.yaml"), "--folder", str(tmp_path / "runs")]
    assert main([*command, *options]) == 2
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


@pytest.fixture
def here(monkeypatch):
    """Let runs end in this process with given statuses."""

    def end_with(*statuses):
        left = list(statuses)

        def records(connect, execute, runs, limits):
            for run in runs:
                status = left.pop(0)
                if status == "interrupt":
                    raise KeyboardInterrupt
                record = {"name": run.name, "axes": run.axes, "status": status}
                yield {**record, "error": "one\ntwo"}

        monkeypatch.setattr("gpflow_gvi.experiments.run_all._records", records)

    return end_with


def test_a_sweep_goes_on_where_it_was(points, tmp_path, caplog, here):
    here("done", "failed", "interrupt")
    with pytest.raises(KeyboardInterrupt):
        run_all(points, tmp_path / "runs")
    with (tmp_path / "runs" / "results.jsonl").open("a") as file:
        file.write('{"name": "torn')
    here("done", "done")
    assert run_all(points, tmp_path / "runs") == (3, 1)
    assert "results.jsonl:3 is no result" in caplog.text
    here()
    assert run_all(points, tmp_path / "runs") == (3, 1)
    here("done")
    assert run_all(points, tmp_path / "runs", retry=True) == (4, 0)
    records, wrong = Results(tmp_path / "runs").read()
    assert len(records) == 4
    assert len(wrong) == 1
    for line in (tmp_path / "runs" / "results.jsonl").read_text().splitlines():
        if "torn" not in line:
            json.loads(line)


def test_finished_runs_that_figures_leave_without_one_are_told_of(points, tmp_path, caplog, here):
    folder = tmp_path / "runs"
    here("done", "done", "failed", "done")
    run_all(points, folder, pictures=True)
    assert not caplog.text
    (folder / points[0].name).mkdir()
    (folder / points[0].name / "losses.png").touch()
    run_all(points, folder)
    assert not caplog.text
    run_all(points, folder, pictures=True)
    assert "draws no run that is finished, and 2 of these have no figures" in caplog.text
    config = folder / points[1].name / "config.yaml"
    assert f"gpflow-gvi run {config} --folder {folder} --force" in caplog.text


def test_results_have_the_labels_that_their_runs_have_now(tmp_path, here, caplog):
    path, folder = tmp_path / "sweep.yaml", tmp_path / "runs"

    def records_of(*levels):
        path.write_text("base: {data: yacht}\naxes:\n  seed: {" + ", ".join(levels) + "}\n")
        assert run_all(read_sweep(path), folder) == (2, 0)
        records, wrong = Results(folder).read()
        assert not wrong
        return [(each["axes"], each["status"]) for each in records.values()]

    here("done", "done")
    assert records_of("one: 1", "two: 2") == [({"seed": "one"}, "done"), ({"seed": "two"}, "done")]
    here()
    assert records_of("two: 1", "zwei: 2") == [
        ({"seed": "two"}, "done"),
        ({"seed": "zwei"}, "done"),
    ]
    before = (folder / "results.jsonl").read_text()
    assert records_of("two: 1", "zwei: 2")
    assert (folder / "results.jsonl").read_text() == before
    assert not caplog.text
    here("done")
    assert ({"seed": "drei"}, "done") in records_of("two: 1", "drei: 3")
    assert "results.jsonl has 1 results of other runs than these" in caplog.text


def test_a_sweep_whose_data_have_changed_is_refused(points, tmp_path, here):
    (tmp_path / "uci_yacht.npz").write_bytes(b"new")
    folder = tmp_path / "runs"
    here(*["done"] * 4)
    run_all(points, folder, data_dir=tmp_path)
    before = (folder / "results.jsonl").read_text()
    (folder / points[2].name).mkdir()
    (folder / points[2].name / "run.json").write_text('{"data": "that of the old file"}')
    with pytest.raises(ValueError, match=rf"{points[2].name} is a finished run .* other data"):
        run_all(points, folder, data_dir=tmp_path)
    assert (folder / "results.jsonl").read_text() == before


def test_a_table_that_changes_in_the_meantime_leaves_runs_undone(tmp_path, here):
    table, path = tmp_path / "own.csv", tmp_path / "sweep.yaml"
    table.write_text("a,b\n1,2\n")
    data = f"{{kind: table, path: {table}, inputs: [a], outputs: [b]}}"
    path.write_text(f"base: {{data: {data}}}\naxes:\n  seed: [0, 1]\n")

    def runs():  # each is named, as it is planned, before the file changes
        yield from read_sweep(path)
        table.write_text("a,b\n1,3\n")

    here("done", "done")
    assert run_all(runs(), tmp_path / "runs") == (0, 2)
    here("done", "done")
    assert run_all(read_sweep(path), tmp_path / "runs") == (2, 0)


def test_a_second_sweep_in_the_same_folder_is_refused(points, tmp_path):
    with held(tmp_path / "sweep.lock"), pytest.raises(FolderInUseError, match="another process"):
        run_all(points, tmp_path)


def test_the_command_names_the_option_for_failed_runs(points, tmp_path, here, capsys):
    config = tmp_path / "sweep.yaml"
    config.write_text("base: {data: yacht}\n")
    here("failed")
    assert main(["sweep", str(config), "--folder", str(tmp_path / "runs")]) == 1
    assert "--retry" in capsys.readouterr().err
