"""Training by several processes of one machine: rows per second of each, beside one alone.

    python -m benchmarks.workers --workers 1 2

PGVI with 200 inducing points on 20,000 rows of 8 columns, one thread a process, by
`MultiWorkerMirroredStrategy`; a process has the same number of rows of each batch whatever the
number of processes. Times are of the wall clock: let nothing else run. With more processes than
cores they share these.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from gpflow_gvi.integrations.distributed import launch

if __package__:
    from .data import add_quick
    from .timing import table
else:
    from data import add_quick
    from timing import table

N, D, NUM_INDUCING = 20_000, 8, 200
SIZES = (500, 2_000, 5_000)
"""The numbers of rows that one process has of a batch."""


def work(output: Path, *, quick: bool) -> None:
    """Train as one of the processes; the first one writes the rows per second of one process."""
    num_rows, M, sizes = (400, 5, (50,)) if quick else (N, NUM_INDUCING, SIZES)
    os.environ.update(TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1")
    os.environ.update(OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="3")
    import tensorflow as tf

    workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    several = tf.distribute.MultiWorkerMirroredStrategy() if workers > 1 else None
    strategy = several or tf.distribute.get_strategy()
    import gpflow

    import gpflow_gvi as gvi

    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, D))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(num_rows, 1))
    rates = {}
    for B in sizes:
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(D, 2.0))
        P = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
        with strategy.scope():
            Z = gpflow.inducing_variables.InducingPoints(X[:M])
            mean = gvi.mean_functions.Inducing(kernel, Z)
            Q = gvi.GaussianProcess(mean, gvi.covariances.CholeskySVGP(kernel, Z))
            model = gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.1), num_data=num_rows)
            model.compile("adam")
        batch = B * workers
        steps = max(num_rows // batch, 1)
        model.fit((X, Y), batch_size=batch, epochs=1, verbose=0)  # traces
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            model.fit((X, Y), batch_size=batch, epochs=3, verbose=0)
            seconds.append(time.perf_counter() - start)
        rates[B] = 3 * min(steps * B, num_rows) / float(np.median(seconds))
    if several is None or several.extended.should_checkpoint:
        output.write_text(json.dumps(rates))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    add_quick(parser)
    options = parser.parse_args()
    if options.output:
        work(options.output, quick=options.quick)
        return
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in options.workers:
            file = Path(folder) / f"{count}.json"
            command = ["-m", "benchmarks.workers", "--output", str(file)]
            command += ["--quick"] if options.quick else []
            launch(command, workers=count, restarts=0)
            rates[count] = json.loads(file.read_text())
    first = options.workers[0]
    rows = [
        {
            "rows of a process": int(B),
            "processes": count,
            "rows/s of each": rates[count][B],
            "efficiency": rates[count][B] / rates[first][B],
        }
        for B in rates[first]
        for count in options.workers
    ]
    print(table(rows))


if __name__ == "__main__":
    main()
