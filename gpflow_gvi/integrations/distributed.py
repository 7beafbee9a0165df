"""Start the workers of one training, and restart all of them when one fails.

A program that builds its model in the scope of a `tf.distribute.MultiWorkerMirroredStrategy` and
fits it with Keras's `BackupAndRestore` resumes after the last complete epoch. This module starts
its processes, each with the `TF_CONFIG` that TensorFlow requires; it needs no TensorFlow itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

logger = logging.getLogger("gpflow_gvi")

POLL_SECONDS = 0.1
"""The time between two checks of the workers."""


def launch(
    command: Sequence[str],
    *,
    workers: int | None = None,
    cluster: Sequence[str] = (),
    index: int | None = None,
    restarts: int = 3,
) -> int:
    """Run the workers until all are done, and return 0; or the status of a failure (1 of a signal).

    When one ends with another status than 0, the others are ended and all of them are restarted.
    With a cluster this runs the one worker of this machine. When another one fails, TensorFlow ends
    this one with an error too, so that each machine restarts its own.

    :param command: a Python program with its arguments.
    :param workers: the number of workers on this machine; by default 2.
    :param cluster: instead, all workers of several machines, as `host:port`.
    :param index: the index of this worker in the cluster; by default 0, the first.
    :param restarts: the maximal number of restarts.
    """
    if not command:
        raise ValueError("command is empty; name the Python program to run.")
    if cluster and workers is not None:
        raise ValueError(
            f"workers is {workers}, but cluster names {len(cluster)}, of which this machine has "
            "one: leave out one of them."
        )
    if index is not None and not cluster:
        raise ValueError(f"index is {index}, a place in a cluster: pass cluster, or leave it out.")
    workers = 2 if workers is None else workers
    index = 0 if index is None else index
    for name, value, least in (("workers", workers, 1), ("restarts", restarts, 0)):
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}.")
    if cluster and not 0 <= index < len(cluster):
        raise ValueError(f"index is {index}; it must be from 0 to {len(cluster) - 1}.")
    for left in range(restarts, -1, -1):
        addresses = list(cluster) or _free_addresses(workers)
        status = _run(command, addresses, [index] if cluster else range(workers))
        if status == 0:
            return 0
        logger.warning("A worker ended with status %d; %d restarts are left.", status, left)
    return max(status, 1)


def _run(command: Sequence[str], addresses: list[str], own: Sequence[int]) -> int:
    """Run own workers once; return the first status that is not 0, after all have ended."""
    with contextlib.ExitStack() as stack:
        processes = []
        for index in own:
            task = {"type": "worker", "index": index}
            config = json.dumps({"cluster": {"worker": addresses}, "task": task})
            # No shell, this interpreter, and the caller's own program.
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, *command], env={**os.environ, "TF_CONFIG": config}
            )
            processes.append(process)
            stack.callback(process.wait)
            stack.callback(process.kill)  # first; one that waits for a dead one ignores SIGTERM
        while True:
            statuses = [process.poll() for process in processes]
            failed = [status for status in statuses if status]
            if failed or None not in statuses:
                return failed[0] if failed else 0
            time.sleep(POLL_SECONDS)


def _free_addresses(count: int) -> list[str]:
    """Return addresses on this machine with currently free ports."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
