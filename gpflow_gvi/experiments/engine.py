"""Many runs on the workers of Dask, wherever these are.

Each worker executes one run at a time and takes its next one from a queue of its own, so that runs
with the same graph follow each other in one process. A run writes its folder to disk and returns a
small record: a worker that dies loses only the run that it was executing.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distributed import SpecCluster
from distributed.scheduler import KilledWorker

from .clients import Connect, local_client, require_positive
from .results import Record, failed
from .sweep import PlannedRun

logger = logging.getLogger("gpflow_gvi")

Execute = Callable[[PlannedRun], Record]

MAX_DEATHS = 2
"""A run has failed when this number of workers have died while they executed it."""

POLL_SECONDS = 1.0
"""The time between two comparisons with the scheduler's list of workers."""

RESTART_SECONDS = 60.0
"""The time that a worker may take to restart."""


@dataclasses.dataclass
class _Worker:
    """The run that a worker executes, and those that it will execute next."""

    next: collections.deque[PlannedRun] = dataclasses.field(default_factory=collections.deque)
    run: PlannedRun | None = None
    future: Any = None
    started: float = 0.0


@dataclasses.dataclass(frozen=True)
class Engine:
    """Executes the runs of a sweep on the workers of a Dask client."""

    connect: Connect = local_client
    """Returns a context manager with a client, as `Client` of `distributed` itself is; it is called
    when there is something to run."""
    max_memory: float = dataclasses.field(default=2500.0, kw_only=True)
    """In megabytes. Each model that TensorFlow has traced stays in memory; a worker that has used
    more is restarted after its run."""
    run_timeout: float = dataclasses.field(default=6 * 3600.0, kw_only=True)
    """In seconds; a run that takes longer has failed, and its worker is restarted."""

    def __post_init__(self) -> None:
        require_positive("max_memory (--worker-memory)", self.max_memory)
        require_positive("run_timeout (--run-timeout)", self.run_timeout)

    def records(self, execute: Execute, batches: list[list[PlannedRun]]) -> Iterator[Record]:
        """Execute all runs, and yield the record of each when it is done.

        :param execute: what a worker calls with a run.
        :param batches: runs that the same worker should execute, one after the other.
        """
        if not any(batches):
            return
        with self.connect() as client:
            yield from _Dispatch(self, client, execute, batches).records()


class _Dispatch:
    """The runs of one call of `Engine.records`, and the workers that execute them."""

    def __init__(
        self, engine: Engine, client: Any, execute: Execute, batches: list[list[PlannedRun]]
    ) -> None:
        self.engine, self.client, self.execute = engine, client, execute
        self.waiting = collections.deque(collections.deque(batch) for batch in batches if batch)
        self.workers: dict[str, _Worker] = {}
        self.deaths: collections.Counter[str] = collections.Counter()
        self.restarts: dict[str, Any] = {}
        self.threads = ThreadPoolExecutor()
        self.returned = threading.Event()

    def records(self) -> Iterator[Record]:
        polled = -POLL_SECONDS
        try:
            while True:
                self.returned.clear()
                if time.monotonic() - polled >= POLL_SECONDS:
                    yield from self._update_workers()
                    yield from self._end_slow_runs()
                    polled = time.monotonic()
                for address, worker in list(self.workers.items()):
                    if worker.run is not None and worker.future.done():
                        yield from self._receive(address, worker)
                self._submit()
                if not self.waiting and all(w.run is None for w in self.workers.values()):
                    return
                self.returned.wait(POLL_SECONDS)
        finally:
            self.client.cancel([w.future for w in self.workers.values() if w.run is not None])
            self.threads.shutdown(wait=False, cancel_futures=True)

    def _submit(self) -> None:
        """Submit a run to each idle worker."""
        for address, worker in self.workers.items():
            if worker.run is not None:
                continue
            worker.next = worker.next or self._next_runs()
            if not worker.next:
                continue
            worker.run, worker.started = worker.next.popleft(), time.monotonic()
            worker.future = self.client.submit(
                _execute, self.execute, worker.run, workers=[address], pure=False
            )
            worker.future.add_done_callback(lambda _: self.returned.set())

    def _next_runs(self) -> collections.deque[PlannedRun]:
        """Return the next batch; when none is left, half of the longest queue of a worker."""
        if self.waiting:
            return self.waiting.popleft()
        longest = max((w.next for w in self.workers.values()), key=len)
        return collections.deque(longest.pop() for _ in range((len(longest) + 1) // 2))

    def _receive(self, address: str, worker: _Worker) -> Iterator[Record]:
        """Yield the record that a worker has returned."""
        run, future = worker.run, worker.future
        if run is None:
            return
        if future.status == "finished":
            record, megabytes = future.result()
            worker.run = worker.future = None
            if megabytes > self.engine.max_memory:
                self._restart(address)
            yield record
            return
        error = None if future.cancelled() else future.exception()
        if error is None or isinstance(error, KilledWorker):
            yield from self._remove(address)
        else:  # the code to execute could not be loaded
            worker.run = None
            yield failed(run, "".join(traceback.format_exception(error)))

    def _update_workers(self) -> Iterator[Record]:
        """Add the scheduler's new workers; remove and replace those that it has lost."""
        cluster = self.client.cluster
        # A worker that needs long to start again counts as lost to Dask, which closes it for good.
        if isinstance(cluster, SpecCluster) and len(cluster.requested) < len(cluster.plan):
            cluster.scale(len(cluster.plan))
        present = self.client.nthreads()
        self.restarts = {a: restart for a, restart in self.restarts.items() if not restart.done()}
        for address in self.workers.keys() - present.keys():
            yield from self._remove(address)
        for address in present.keys() - self.workers.keys() - self.restarts.keys():
            self.workers[address] = _Worker()

    def _end_slow_runs(self) -> Iterator[Record]:
        """Fail the runs that have exceeded their time, and restart their workers."""
        limit = self.engine.run_timeout
        for address, worker in list(self.workers.items()):
            if worker.run is not None and time.monotonic() - worker.started > limit:
                run, worker.run = worker.run, None
                self.client.cancel([worker.future])
                self._restart(address)
                yield failed(
                    run,
                    f"The run took longer than {limit:g} seconds and was stopped. Pass a larger "
                    "--run-timeout, and --retry to run it again.",
                )

    def _remove(self, address: str) -> Iterator[Record]:
        """Put the runs of a worker that has died back; a run fails at its second death."""
        worker = self.workers.pop(address)
        if worker.next:
            self.waiting.appendleft(worker.next)
        if worker.run is None:
            return
        self.client.cancel([worker.future])
        self.deaths[worker.run.name] += 1
        if self.deaths[worker.run.name] < MAX_DEATHS:
            self.waiting.appendleft(collections.deque([worker.run]))
        else:
            yield failed(worker.run, f"The process of the run died {MAX_DEATHS} times.")

    def _restart(self, address: str) -> None:
        """Let the nanny of a worker start a new process, while the others go on."""
        worker = self.workers.pop(address)
        if worker.next:
            self.waiting.appendleft(worker.next)
        self.restarts[address] = self.threads.submit(_restart, self.client, address)


def _restart(client: Any, address: str) -> None:
    try:
        client.restart_workers([address], timeout=RESTART_SECONDS, raise_for_error=False)
    except ValueError:
        logger.warning(
            "Worker %s has no nanny, so it ends instead of restarting; start workers with --nanny.",
            address,
        )
        client.retire_workers([address])


_one_run = threading.Lock()


def _execute(execute: Execute, run: PlannedRun) -> tuple[Record, float]:
    """Execute a run on a worker, where several threads must take turns."""
    with _one_run:
        return execute(run), _megabytes()


def _megabytes() -> float:
    """Return the maximal memory that this process has had; zero where that is not known."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
