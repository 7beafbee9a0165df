"""The measurements of the benchmarks: alternately, in seconds of processor time, by medians.

Other processes of the machine then have little influence, the same on all candidates: compare
ratios, not seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import threadpoolctl

if __package__:
    from .data import add_quick
else:
    from data import add_quick

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what all benchmarks that measure times have: `--rounds`, and `--quick`."""
    parser.add_argument("--rounds", type=int, default=9, help="turns of each for a median")
    add_quick(parser)


def rounds(options: argparse.Namespace) -> int:
    """Return the number of turns."""
    return 1 if options.quick else options.rounds


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


WIDE = {
    "Steps": (("B", "M"), "model"),
    "Distance and gradient": (("B",), "estimator"),
    "Steps with a distance on function space": (("covariance", "B"), "divergence"),
}
"""By its title, what a table is printed by: the columns that name a row, and that of its cells."""


def titled(title: str, rows: Sequence[Row]) -> str:
    """Return a table below its title."""
    printed = wide(rows, *WIDE[title]) if title in WIDE else rows
    return f"\n{title}\n\n{table(printed)}\n"


def wide(rows: Sequence[Row], by: Sequence[str], name: str) -> list[Row]:
    """Return a row for each of what is measured, with the milliseconds of all in its columns.

    :param by: what is measured.
    :param name: the column with the names of the new columns. Ratios other than 1 are in brackets.
    """
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[part] for part in by)
        ratio = row.get("ratio", 1.0)
        cell = f"{row['ms']:.3g}" + (f" ({ratio:.3g})" if ratio != 1.0 else "")
        found.setdefault(key, dict(zip(by, key, strict=True)))[row[name]] = cell
    return list(found.values())


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
