"""Worker processes on this machine: each does one run after the other, until it grows too large."""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing import connection
from typing import Any, Protocol

from .results import Record
from .tasks import Kept, Task, failed

MOST_MEMORY = 2500.0
"""In megabytes."""

MOST_DEATHS = 2
"""So many workers may die of a run before it counts as failed."""

_ONE_THREAD = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
"""A process for each core: threads beyond that are in each other's way."""


class Doer(Protocol):
    """What does tasks, and keeps what it likes from one to the next."""

    def record(self, task: Task) -> Record:
        """Do a task, and return its record."""
        ...


class Worker:
    """A process, the tasks that it has before it, and the one that it is at."""

    def __init__(self, doer: type[Doer]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, doer), daemon=True)
        with _environment(_ONE_THREAD):
            self.process.start()
        theirs.close()
        self.tasks: collections.deque[Task] = collections.deque()
        self.task: Task | None = None

    def start(self) -> None:
        """Give it its next task."""
        self.task = self.tasks.popleft()
        self.pipe.send(self.task)

    def stop(self) -> None:
        """Let it go, in the middle of a run if it is at one."""
        self.pipe.close()
        if self.task is not None:
            self.process.terminate()
        self.process.join()


class Crew:
    """Some workers.

    :param size: how many.
    :param most_memory: in megabytes; a worker that has used more is replaced after its run, because
        each model that TensorFlow has traced stays in memory.
    :param doer: what each of them makes one of, to do its tasks.
    """

    def __init__(
        self, size: int, most_memory: float = MOST_MEMORY, *, doer: type[Doer] = Kept
    ) -> None:
        self.size = size
        self.doer = doer
        self.most_memory = most_memory
        self._workers: list[Worker] = []
        self._deaths: collections.Counter[str] = collections.Counter()

    def records(self, batches: list[list[Task]]) -> Iterator[Record]:
        """Do all tasks, and yield the record of each when it is done.

        :param batches: tasks that are better done by the same worker, one after the other.
        """
        waiting = collections.deque(collections.deque(batch) for batch in batches)
        try:
            while True:
                self._hire(waiting)
                if not self._workers:
                    return
                ready = set(connection.wait([worker.pipe for worker in self._workers]))
                for worker in [w for w in self._workers if w.pipe in ready]:
                    record = self._hear(worker, waiting)
                    if record is not None:
                        yield record
        finally:
            for worker in self._workers:
                worker.stop()
            self._workers.clear()

    def _hire(self, waiting: collections.deque[collections.deque[Task]]) -> None:
        """Give idle workers something to do, with new ones where there is room for them."""
        for worker in [w for w in self._workers if w.task is None]:
            if not worker.tasks:
                worker.tasks = self._share(waiting)
            if worker.tasks:
                worker.start()
            else:
                worker.stop()
                self._workers.remove(worker)
        while len(self._workers) < self.size and (tasks := self._share(waiting)):
            worker = Worker(self.doer)
            worker.tasks = tasks
            self._workers.append(worker)
            worker.start()

    def _share(
        self, waiting: collections.deque[collections.deque[Task]]
    ) -> collections.deque[Task]:
        """Return the next tasks: of those that wait, or else half of somebody's."""
        if waiting:
            return waiting.popleft()
        busiest = max((w.tasks for w in self._workers), key=len, default=collections.deque())
        return collections.deque(busiest.pop() for _ in range((len(busiest) + 1) // 2))

    def _hear(
        self, worker: Worker, waiting: collections.deque[collections.deque[Task]]
    ) -> Record | None:
        """Return what a worker has done; if it has died, none, and its tasks wait again."""
        task, worker.task = worker.task, None
        try:
            record, megabytes = worker.pipe.recv()
        except (EOFError, OSError):
            self._dismiss(worker, waiting)
            if task is None:
                return None
            self._deaths[task.name] += 1
            if self._deaths[task.name] < MOST_DEATHS:
                waiting.appendleft(collections.deque([task]))
                return None
            code = worker.process.exitcode
            return failed(task, f"The process of the run died {MOST_DEATHS} times (exit {code}).")
        if megabytes > self.most_memory:
            self._dismiss(worker, waiting)
        return dict(record)

    def _dismiss(self, worker: Worker, waiting: collections.deque[collections.deque[Task]]) -> None:
        if worker.tasks:
            waiting.appendleft(worker.tasks)
        worker.stop()
        self._workers.remove(worker)


def _work(pipe: Any, doer: type[Doer]) -> None:
    """Do the tasks that come through a pipe, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it goes to the whole group; the parent decides
    kept = doer()
    with contextlib.suppress(EOFError, OSError):
        while True:
            record = kept.record(pipe.recv())
            pipe.send((record, _megabytes()))


def _megabytes() -> float:
    """Return the most memory that this process has had; zero where that is not known."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Have variables of the environment, where the user has not set them, for a moment."""
    own = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]
