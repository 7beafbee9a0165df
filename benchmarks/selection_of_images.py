"""Time and memory of `greedy_variance` on images.

    GPFLOW_GVI_DATA=... python -m benchmarks.selection_of_images

Each case is a process of its own, on one core. Memory is the peak of the process (`getrusage`)
minus the memory before the call, when TensorFlow and the data were loaded.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_gvi.regulariser.inducing_points import greedy_variance

if __package__:
    from . import image_kernels
    from .data import add_argument, add_quick, load_images
else:
    import image_kernels
    from data import add_argument, add_quick, load_images

KERNELS = {
    "SquaredExponential ARD": lambda X, y: gpflow.kernels.SquaredExponential(
        lengthscales=np.linspace(4.0, 16.0, 784)
    ),
    "FC-NNGP": lambda X, y: image_kernels.fully_connected(),
    "FeatureMap": lambda X, y: image_kernels.feature_map(X[:5000], y[:5000], epochs=1),
    "CNN-NNGP": lambda X, y: image_kernels.convolutional(),
}
CASES = [
    *((name, 60_000, 100) for name in ("SquaredExponential ARD", "FC-NNGP", "FeatureMap")),
    ("CNN-NNGP", 5_000, 10),
    ("CNN-NNGP", 5_000, 100),
]


def measure(name: str, N: int, M: int, dtype: type, folder: Path) -> str:
    """Return one row of the table."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    gpflow.config.set_default_float(dtype)
    X, labels = load_images(folder, "mnist", dtype)
    X = X[:N]
    kernel = KERNELS[name](X, labels)
    greedy_variance(X[:64], 2, kernel=KERNELS["FC-NNGP"](X, labels))  # TensorFlow's own first call
    before = memory()
    wall, cpu = time.perf_counter(), time.process_time()
    indices = greedy_variance(X, M, kernel=kernel).indices
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return (
        f"| {name} | {N:,} | {len(indices)} | {np.dtype(dtype).name} | {cpu:.1f} | {wall:.1f} "
        f"| {X.nbytes / 2**20:.0f} | {memory() - before:.0f} |"
    )


def memory() -> float:
    """Return the peak of this process's memory, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main() -> None:
    """Print the table, or one row of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_argument(parser)
    parser.add_argument("--case", type=int, help="measure this case alone, in this process")
    parser.add_argument("--dtype", default=None, choices=("float32", "float64"))
    add_quick(parser)
    options = parser.parse_args()
    if options.case is not None:
        dtype = np.dtype(options.dtype or "float32").type
        name, N, M = CASES[options.case]
        N, M = (100, 5) if options.quick else (N, M)
        print(measure(name, N, M, dtype, options.data_dir), flush=True)
        return
    print("| kernel | N | M | precision | CPU (s) | wall (s) | X (MiB) | memory above (MiB) |")
    print("|---|--:|--:|---|--:|--:|--:|--:|", flush=True)
    for case in range(1 if options.quick else len(CASES)):
        for dtype in ("float32", "float64") if options.dtype is None else (options.dtype,):
            case_options = ["--case", str(case), "--dtype", dtype]
            command = [sys.executable, __file__, "--data-dir", str(options.data_dir)]
            quick = ["--quick"] if options.quick else []
            subprocess.run([*command, *case_options, *quick], check=True)


if __name__ == "__main__":
    main()
