"""Clients of Dask's workers: processes of this machine, or jobs of SGE or Slurm."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from .reading import ConfigError

JOB_QUEUES = {"sge": "SGECluster", "slurm": "SLURMCluster"}
"""The classes of dask-jobqueue by the names of the systems."""

WORKER_ENVIRONMENT = {
    # A process for each core: further threads would compete for the same cores.
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # Dask's profiler competes with the run for the core. Workers of jobs read this.
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
}

_SCHEDULER = {"dashboard_address": ":0"}
"""Dask opens a port even without a dashboard: any that is free, so that sweeps do not compete."""

_ONE_RUN_EACH = {
    "distributed.scheduler.allowed-failures": 1,  # a run has failed when two workers died with it
    "distributed.scheduler.worker-saturation": 1.0,  # a worker that dies has no other run
}
"""The configuration of a scheduler."""

_LOCAL_WORKERS = {
    **_ONE_RUN_EACH,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1 s",  # the default, 20 ms, wakes each worker for nothing
    # Dask sets a threshold (MALLOC_TRIM_THRESHOLD_) with which the allocator returns large blocks
    # at once. The matrices of each step then have new pages, which have to be cleared first.
    "distributed.nanny.pre-spawn-environ": {},
    # Dask closes a worker for good that takes longer to start again, as it imports TensorFlow.
    "distributed.deploy.lost-worker-timeout": "10 minutes",
}
"""Workers of this machine have the configuration of their parent, not that of their environment."""

_IGNORE_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""Ctrl-C reaches the whole group of processes; the parent ends its workers."""

_QUIET = """
from gpflow_gvi._core.quiet import quiet_start
with quiet_start():
    import tensorflow
"""
"""TensorFlow's messages would be in the midst of the progress bar."""


@contextlib.contextmanager
def local_client(workers: int | None = None) -> Iterator[Any]:
    """Yield a client with worker processes of this machine.

    :param workers: the number of processes; by default one for each core that they may use.
    """
    import dask
    from dask.system import CPU_COUNT
    from distributed import Client, LocalCluster

    workers = CPU_COUNT if workers is None else workers
    require_positive("workers (--workers)", workers)
    with (
        dask.config.set(_LOCAL_WORKERS),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,  # a worker is restarted between its runs, not within
            dashboard_address=None,
            scheduler_kwargs=_SCHEDULER,
            silence_logs=logging.CRITICAL,  # the records say which run failed, and why
            env=_environment(),
            preload=[_IGNORE_INTERRUPTS, _QUIET],
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextlib.contextmanager
def job_queue_client(
    system: str, jobs: int, options: Mapping[str, Any] | None = None
) -> Iterator[Any]:
    """Yield a client with workers that dask-jobqueue submits as jobs.

    :param system: a key of `JOB_QUEUES`.
    :param jobs: the number of jobs; those that end at their walltime are replaced.
    :param options: arguments of dask-jobqueue's class, as queue, walltime, memory; by default those
        of the user's Dask configuration, else 1 core and 4 GB.
    """
    require_positive("jobs (--jobs)", jobs)
    import dask
    import dask_jobqueue
    from distributed import Client

    exports = [f"export {name}={value}" for name, value in _environment().items()]
    defaults = {"cores": 1, "processes": 1, "memory": "4GB", "job_script_prologue": exports}
    configured = dask.config.get(f"jobqueue.{system}", {})
    unset = {name: value for name, value in defaults.items() if not configured.get(name)}
    try:
        with dask.config.set(_ONE_RUN_EACH):
            cluster = getattr(dask_jobqueue, JOB_QUEUES[system])(
                scheduler_options=_SCHEDULER | {"dashboard": False}, **unset | dict(options or {})
            )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"--job: {error}\nSee the arguments of dask-jobqueue.") from error
    with cluster, Client(cluster, set_as_default=False) as client:
        command = cluster.job_cls.submit_command.split()[0]
        if shutil.which(command) is None:
            raise ConfigError(
                f"--cluster {system}: {command} is not found; submit from a login node."
            )
        cluster.adapt(minimum_jobs=jobs, maximum_jobs=jobs)  # unlike `scale`, replaces ended ones
        yield client


def _environment() -> dict[str, str]:
    """Return the variables of workers, with the values that the user has set, if any."""
    return {name: os.environ.get(name, value) for name, value in WORKER_ENVIRONMENT.items()}


def require_positive(name: str, value: float) -> None:
    """Require that an option is a positive number."""
    if not value > 0:
        raise ConfigError(f"{name} is {value}; give a positive number, or leave it out.")
