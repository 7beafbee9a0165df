"""The measurements of the benchmarks: alternately, in seconds of processor time, by medians.

Other processes of the machine then have little influence, the same on all candidates: compare
ratios, not seconds.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import threadpoolctl

Timed = Callable[[int], float]
"""From a number of calls to the seconds of processor time that they took."""

Row = dict[str, Any]


_clocks = [time.process_time]


@contextlib.contextmanager
def by_the_wall() -> Iterator[None]:
    """Measure by the wall clock: a GPU works beside the processor."""
    _clocks.append(time.perf_counter)
    try:
        yield
    finally:
        _clocks.pop()


def timed(function: Callable[[], Any]) -> Timed:
    """Return a timer of calls of a function in this process."""

    def run(calls: int) -> float:
        clock = _clocks[-1]
        start = clock()
        for _ in range(calls):
            function()
        return clock() - start

    return run


def medians(cases: Mapping[str, Timed], rounds: int, at_least: float = 0.05) -> dict[str, float]:
    """Return the seconds of one call of each, measured in turns.

    :param rounds: the number of turns, over which medians are taken.
    :param at_least: the seconds that a turn of each should last.
    """
    counts = {}
    for name, run in cases.items():
        run(2)  # traces and compiles
        counts[name] = max(1, round(at_least / max(run(3) / 3, 1e-5)))
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, run in cases.items():
            found[name].append(run(counts[name]) / counts[name])
    return {name: statistics.median(values) for name, values in found.items()}


def one_core() -> None:
    """Restrict this process and its children to one core, where the system can.

    Threads of NumPy's BLAS would wait for each other there, and the waiting count as work.
    """
    threadpoolctl.threadpool_limits(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def peak_memory() -> float:
    """Return the peak of this process's resident memory, in MiB."""
    unit = 2**10 if sys.platform.startswith("linux") else 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def table(rows: Sequence[Row]) -> str:
    """Return rows of the same columns as a table in Markdown."""
    head = list(rows[0])
    cells = [[_cell(row[name]) for name in head] for row in rows]
    rule = ["---" if isinstance(rows[0][name], str) else "--:" for name in head]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *cells))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def memory(function: Callable[[], Any], device: str = "CPU:0") -> float:
    """Return the MiB of tensors that a call holds at once; NaN where TensorFlow does not count."""
    import tensorflow as tf

    counter = tf.config.experimental
    try:
        counter.reset_memory_stats(device)
        before = counter.get_memory_info(device)["current"]
        function()
        return (counter.get_memory_info(device)["peak"] - before) / 2**20
    except ValueError:  # its allocator is not the one that counts
        return float("nan")
