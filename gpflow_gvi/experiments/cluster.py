"""Runs on a Dask cluster: of this machine, of SGE or Slurm through dask-jobqueue, or any other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from .results import Record
from .tasks import Kept, Task, failed

BATCH = 8
"""So many runs are one task of Dask; what a worker has finished when it dies is in its folders."""

_kept = Kept()
_alone = threading.Lock()


class Cluster:
    """Workers of a Dask cluster, which all see the folder of the sweep.

    :param client: of Dask's `distributed`, or the address of a scheduler, "tcp://host:8786".
    """

    def __init__(self, client: Any) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise ImportError(
                "--scheduler needs Dask: pip install 'gpflow-gvi[cluster]', here and where the "
                "workers are."
            ) from error
        self._own = isinstance(client, str)
        self.client = Client(client) if self._own else client

    def records(self, batches: list[list[Task]]) -> Iterator[Record]:
        """Do all tasks, and yield the record of each when it is done."""
        from distributed import as_completed

        parts = [b[i : i + BATCH] for b in batches for i in range(0, len(b), BATCH)]
        futures = {self.client.submit(do, part, pure=False): part for part in parts}
        try:
            for future in as_completed(list(futures)):
                part = futures.pop(future)
                error = future.exception()
                if error is None:
                    yield from future.result()
                else:  # its workers died, more often than Dask allows
                    yield from (failed(task, f"{type(error).__name__}: {error}") for task in part)
                future.release()
        finally:
            if self._own:
                self.client.close()


def do(tasks: list[Task]) -> list[Record]:
    """Do tasks one after the other; a worker with several threads does one at a time."""
    with _alone:
        return [_kept.record(task) for task in tasks]
