"""How the cost of PGVI grows with B rows of a batch, M, D, J outputs, K classes, and N rows.

    python -m benchmarks.growth

It is that of a step, loss and gradient: the processor time, and the maximal memory of its tensors.
For N it is that of an epoch of `fit`, in batches of 1000 rows in memory. Slopes are of log-log fits
over the three largest sizes; 1 is linear growth. `--only D K` measures some of them alone.

    python -m benchmarks.growth --stream 100000 1000000

measures this number of rows of 8 columns in a file: `learn(effort="fast")` of the file as a
memory-mapped array, and as Parquet where pyarrow is installed; and an epoch of `fit` in shuffled
batches of 1000, read by `tf.data`; all with M = 200. Seconds, and the peaks of memory. The default
is 100,000. `--only-stream` leaves the other tables out.
With `--picture growth.png` time and memory are drawn on logarithmic axes.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import keras
import numpy as np
import tensorflow as tf

import gpflow_gvi as gvi

if __package__:
    from . import timing
    from .peers import D, can_import, inputs
    from .steps import kernel, network, step
    from .timing import Row
else:
    import timing
    from peers import D, can_import, inputs
    from steps import kernel, network, step
    from timing import Row

BATCH = 1000
SIZES: dict[str, Sequence[int]] = {
    "B": (500, 1000, 2000, 4000, 8000, 16000),
    "B, low_rank": (500, 1000, 2000, 4000, 8000, 16000),
    "M": (50, 100, 200, 400),
    "D": (1, 8, 50, 100, 250, 500),
    "J": (1, 2, 5, 10, 25, 50),
    "K": (2, 5, 10, 25, 50, 100),
    "N": (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000),
}
QUICK: dict[str, Sequence[int]] = {
    "B": (20, 40),
    "B, low_rank": (20, 40),
    "M": (2, 4),
    "D": (1, 3),
    "J": (1, 2),
    "K": (2, 3),
    "N": (40, 60),
}
LABELS = {
    "B": "B, rows of a batch",
    "M": "M, inducing points",
    "D": "D, features",
    "J": "J, outputs",
    "K": "K, classes",
    "N": "N, rows",
}


def model(M: int, *, num_data: int, D: int = D, J: int = 1, K: int = 1) -> gvi.models.PGVI:
    """Return PGVI with a Cholesky factor for each of J outputs, or of K classes."""
    P = gvi.GaussianProcess(gpflow.functions.Zero(), kernel(D))
    latents = max(J, K)
    r = gvi.covariances.CholeskySVGP(P.kernel, inputs(1, M, D)[2], num_latent_gps=latents)
    Q = gvi.GaussianProcess(network(latents, D), r)
    gaussian = gpflow.likelihoods.Gaussian(0.1)
    likelihood = gpflow.likelihoods.Softmax(K) if K > 1 else gaussian
    return gvi.models.PGVI(P, Q, likelihood, num_data=num_data)


def one_step(
    *, B: int = BATCH, M: int = 100, D: int = D, J: int = 1, K: int = 1, divergence: Any = None
) -> Callable[[], Any]:
    """Return a step, with PGVI's own divergence unless another one is given."""
    X, Y, _ = inputs(B, M, D)
    trained = model(M, D=D, J=J, K=K, num_data=10 * max(B, M))
    trained.divergence = trained.divergence if divergence is None else divergence
    labels = np.random.default_rng(1).integers(K, size=(B, 1)).astype(Y.dtype)
    return step(trained, X, labels if K > 1 else np.tile(Y, J))


def case(what: str, size: int) -> Callable[[], Any]:
    """Return what is measured at a size."""
    if what == "N":
        return one_epoch(N=size)
    if what == "B, low_rank":
        return one_step(B=size, divergence=gvi.divergences.GaussianWasserstein("low_rank"))
    return one_step(**{what: size})


def one_epoch(*, N: int, M: int = 32) -> Callable[[], Any]:
    """Return an epoch of `fit`."""
    X, Y, _ = inputs(N, M)
    trained = model(M, num_data=N)
    trained.compile(keras.optimizers.Adam(1e-4))
    return functools.partial(trained.fit, (X, Y), batch_size=BATCH, verbose=0)


def growth(sizes: dict[str, Sequence[int]], rounds: int) -> list[Row]:
    """Return the cost of each size."""
    rows = []
    for what, values in sizes.items():
        cases = {size: case(what, size) for size in values}
        measured = {str(size): timing.timed(run) for size, run in cases.items()}
        seconds = timing.medians(measured, rounds)
        for size, run in cases.items():
            row = {"of": what, "size": size, "ms": 1e3 * seconds[str(size)]}
            rows.append({**row, "MiB": timing.memory(run)})
    return rows


def slopes(rows: list[Row]) -> list[Row]:
    """Return the slopes of log-log fits over the three largest sizes of each kind."""
    found = []
    for what in dict.fromkeys(row["of"] for row in rows):
        last = [row for row in rows if row["of"] == what][-3:]
        sizes, ms, held = (np.array([row[key] for row in last]) for key in ("size", "ms", "MiB"))
        found.append(
            {
                "of": what,
                "slope of time": _slope(sizes, ms),
                "slope of memory": _slope(sizes, held),
            }
        )
    return found


def _slope(sizes: np.ndarray, values: np.ndarray) -> float:
    """Return NaN where a value is not known, or too small to be measured."""
    if not np.all(values > 0.0):
        return float("nan")
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def picture(rows: list[Row], path: Path) -> None:
    """Draw time and memory against size, on logarithmic axes, with a line of slope one."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    kinds = list(dict.fromkeys(row["of"] for row in rows))
    figure = Figure(figsize=(2.8 * len(kinds), 5.0), layout="constrained")
    axes = figure.subplots(2, len(kinds), sharex="col", squeeze=False)
    for column, what in zip(axes.T, kinds, strict=True):
        some = [row for row in rows if row["of"] == what]
        sizes = np.array([row["size"] for row in some])
        for axis, key in zip(column, ("ms", "MiB"), strict=True):
            values = np.array([row[key] for row in some])
            axis.loglog(sizes, values[-1] * sizes / sizes[-1], color="0.8")
            axis.loglog(sizes, np.where(values > 0.0, values, np.nan), "o-", markersize=3)
            axis.grid(alpha=0.3)
            axis.set_xticks(sizes[::2], [f"{size:,}" for size in sizes[::2]], fontsize="small")
            axis.xaxis.set_minor_formatter(NullFormatter())
            axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.yaxis.set_major_formatter("{x:,g}")
            axis.yaxis.set_minor_formatter(NullFormatter())
        column[0].set_title(f"{'an epoch' if what == 'N' else 'a step'}, by {what}")
        column[1].set_xlabel(LABELS[what[0]])
    axes[0, 0].set_ylabel("processor time, ms")
    axes[1, 0].set_ylabel("memory of tensors, MiB")
    figure.savefig(path, dpi=150)


def write_rows(path: Path, N: int) -> None:
    """Write rows of X and Y, about one million numbers at a time."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, N, 100_000):
            X = rng.normal(size=(min(100_000, N - start), D))
            Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.1 * rng.normal(size=(len(X), 1))
            file.write(np.hstack([X, Y]).tobytes())


def read_rows(path: Path) -> tf.data.Dataset:
    """Return shuffled batches (X, Y) of the rows of a file."""

    def parsed(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows = tf.reshape(tf.io.decode_raw(records, tf.float64), [-1, D + 1])
        return rows[:, :D], rows[:, D:]

    records = tf.data.FixedLengthRecordDataset(str(path), record_bytes=8 * (D + 1))
    return records.shuffle(10 * BATCH, seed=0).batch(BATCH).map(parsed).prefetch(2)


def write_parquet(path: Path, rows: Path) -> None:
    """Write the rows of a file as a Parquet file, with the columns x0, ..., y."""
    import pyarrow
    from pyarrow import parquet

    names = [*(f"x{d}" for d in range(D)), "y"]
    schema = pyarrow.schema([(name, pyarrow.float64()) for name in names])
    with rows.open("rb") as file, parquet.ParquetWriter(path, schema) as writer:
        while len(block := np.fromfile(file, count=100_000 * (D + 1))):
            columns = list(block.reshape(-1, D + 1).T.copy())
            writer.write_table(pyarrow.table(columns, schema=schema))


def stream(N: int, M: int = 200) -> list[Row]:
    """Return the cost of `learn` of rows on disk, and of an epoch of `fit`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        write_rows(path, N)
        rows = np.memmap(path, np.float64, mode="r", shape=(N, D + 1))
        learn = functools.partial(gvi.learn, effort="fast", num_inducing=M)
        found = [_cost("learn, memory-mapped", path, lambda: learn((rows[:, :D], rows[:, D:])))]
        if can_import("pyarrow", sys.executable):
            table = path.with_suffix(".parquet")
            write_parquet(table, path)
            found.append(_cost("learn, Parquet", table, lambda: learn(gvi.ParquetRows(table, "y"))))
        trained = model(M, num_data=N)
        trained.compile(keras.optimizers.Adam(1e-3))
        fit = functools.partial(trained.fit, read_rows(path), verbose=0)
        found.append(_cost("an epoch of fit", path, fit))
    return [{"N": N, **row} for row in found]


def _cost(what: str, path: Path, run: Callable[[], Any]) -> Row:
    start = time.process_time()
    held = timing.memory(run)
    return {
        "of": what,
        "seconds of processor time": time.process_time() - start,
        "MiB on disk": path.stat().st_size / 2**20,
        "MiB of tensors": held,
        "MiB of the process": timing.peak_memory(),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--stream",
        nargs="*",
        type=int,
        default=[100_000],
        metavar="ROWS",
        help="numbers of rows to stream from disk, for example 100000 1000000",
    )
    parser.add_argument("--only", nargs="+", choices=list(SIZES), help="what to measure alone")
    parser.add_argument("--only-stream", action="store_true", help="measure rows on disk alone")
    parser.add_argument("--picture", type=Path, help="the file of a picture of the growth")


def run(options: argparse.Namespace) -> dict[str, list[Row]]:
    """Measure, and return the tables."""
    found = {}
    if options.stream:  # first: peaks of memory are those of the process
        numbers = [2_000] if options.quick else options.stream
        found["Rows from disk"] = [row for N in numbers for row in stream(N)]
    if options.only_stream:
        return found
    sizes = QUICK if options.quick else SIZES
    some = {what: sizes[what] for what in options.only or sizes}
    cost = growth(some, timing.rounds(options))
    if options.picture:
        picture(cost, options.picture)
    return {**found, "Cost": cost, "Slopes": slopes(cost)}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    timing.add_arguments(parser)
    timing.one_core()
    for title, rows in run(parser.parse_args()).items():
        print(timing.titled(title, rows), flush=True)


if __name__ == "__main__":
    main()
