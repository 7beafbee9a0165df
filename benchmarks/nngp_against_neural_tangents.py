"""The NNGP kernels of gpflow-gvi and neural-tangents, on the same architectures and inputs.

neural-tangents does not import with current JAX, so the two parts run in two environments:

    pip install neural-tangents "jax<0.6" "tf2jax<0.3.7"                   # in its own environment
    python -m benchmarks.nngp_against_neural_tangents reference nt.npz       # there
    python -m benchmarks.nngp_against_neural_tangents compare nt.npz         # in that of gpflow-gvi

    python -m benchmarks.nngp_against_neural_tangents memory                 # there as well

The second prints tables in Markdown: for each architecture the largest relative difference between
the two Gram matrices, and for the larger ones the seconds of CPU time. Each part runs on one core.
The third prints the memory that a Gram matrix of 1000 × 1000 images and its gradient take.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

if __package__:
    from .data import add_quick
else:
    from data import add_quick

Layer = tuple[Any, ...]
"""For example ("dense", σ_w², σ_b²) or ("conv", size, strides, padding, σ_w², σ_b²)."""

RELU, ERF, FLATTEN, GLOBAL = ("relu",), ("erf",), ("flatten",), ("global",)


def conv(size: int = 3, strides: int = 1, padding: str = "same", w: float = 1.7, b: float = 0.2):
    """Describe a convolution."""
    return ("conv", size, strides, padding, w, b)


ARCHITECTURES: dict[str, tuple[tuple[int, ...], list[Layer]]] = {
    "dense, ReLU × 3": ((20,), [*3 * [("dense", 1.8, 0.1), RELU], ("dense", 1.0, 0.0)]),
    "dense, Erf × 2": ((20,), [*2 * [("dense", 2.5, 0.3), ERF], ("dense", 1.3, 0.1)]),
    "convolution, same": ((9, 8, 2), [conv(), RELU, conv(), ERF, FLATTEN, ("dense", 1.0, 0.1)]),
    "convolution, valid": (
        (9, 8, 2),
        [conv(padding="valid"), RELU, conv(2, padding="valid"), RELU, FLATTEN, ("dense", 1.5, 0.0)],
    ),
    "convolution, strides": (
        (9, 8, 2),
        [conv(3, 2), RELU, conv(2, 2), RELU, FLATTEN, ("dense", 1.5, 0.1), RELU],
    ),
    "average pooling": (
        (9, 8, 2),
        [conv(), RELU, ("pool", 2, 2), conv(), RELU, ("pool", 2, 1), FLATTEN, ("dense", 1.0, 0.0)],
    ),
    "global pooling": (
        (9, 8, 2),
        [conv(), RELU, conv(3, 2, "valid"), RELU, GLOBAL, ("dense", 1.0, 0.1)],
    ),
    "average, then global pooling": (
        (9, 8, 2),
        [conv(), ERF, ("pool", 3, 2), conv(2), RELU, GLOBAL, ("dense", 1.0, 0.1)],
    ),
}

_BODY = [conv(b=0.0), RELU, conv(b=0.0), RELU]

TIMED: dict[str, tuple[int, tuple[int, ...], list[Layer]]] = {
    "dense, ReLU × 3, 1000 × 1000, D = 784": (
        1000,
        (784,),
        [*3 * [("dense", 2.0, 0.1), RELU], ("dense", 1.0, 0.0)],
    ),
    "two convolutions, Flatten, 100 × 100 of 28 × 28": (
        100,
        (28, 28, 1),
        [*_BODY, FLATTEN, ("dense", 1.0, 0.0)],
    ),
    "two convolutions, global pooling, 10 × 10 of 28 × 28": (
        10,
        (28, 28, 1),
        [*_BODY, GLOBAL, ("dense", 1.0, 0.0)],
    ),
    "two convolutions, each with pooling, Flatten, 10 × 10 of 28 × 28": (
        10,
        (28, 28, 1),
        [*_BODY[:2], ("pool", 2, 2), *_BODY[2:], ("pool", 2, 2), FLATTEN, ("dense", 1.0, 0.0)],
    ),
}


def main() -> None:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(required=True)
    for part in (reference, compare):
        half = parts.add_parser(part.__name__, help=part.__doc__)
        half.add_argument("file", help="the file with the results of the first part")
        half.set_defaults(run=part)
    parts.add_parser("memory", help=memory.__doc__).set_defaults(run=memory)
    for part in parts.choices.values():
        add_quick(part)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    file = [arguments.file] if "file" in arguments else []
    arguments.run(*file, quick=arguments.quick)


def inputs(number: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the same random inputs in both parts."""
    return np.random.default_rng(0).normal(size=(number, *shape))


def _timed(*, quick: bool) -> dict[str, tuple[int, tuple[int, ...], list[Layer]]]:
    """Return the larger Gram matrices, or one of them with few inputs."""
    if not quick:
        return TIMED
    name, (_, shape, layers) = next(iter(TIMED.items()))
    return {name: (10, shape, layers)}


def reference(file: str, *, quick: bool = False) -> None:
    """Write the Gram matrices and times of neural-tangents."""
    if importlib.util.find_spec("neural_tangents") is None:
        print("neural-tangents is not installed, left out")
        return
    import jax

    jax.config.update("jax_enable_x64", True)
    results: dict[str, Any] = {
        "versions": f"neural-tangents {_version('neural-tangents')}, jax {_version('jax')}"
    }
    for name, (shape, layers) in ARCHITECTURES.items():
        X = inputs(8, shape)
        kernel = _neural_tangents(layers)
        results[f"{name}/cross"] = np.asarray(kernel(X[:5], X[5:]))
        results[f"{name}/gram"] = np.asarray(kernel(X, None))
    for name, (number, shape, layers) in _timed(quick=quick).items():
        X = jax.numpy.asarray(inputs(number, shape))
        kernel = jax.jit(_neural_tangents(layers), static_argnums=1)
        results[f"{name}/gram"] = np.asarray(kernel(X, None))
        results[f"{name}/seconds"] = best(lambda: kernel(X, None).block_until_ready())  # noqa: B023
    np.savez(file, **results)
    print(f"wrote {file}")


def compare(file: str, *, quick: bool = False) -> None:
    """Print the differences."""
    theirs = np.load(file)
    versions = [f"{package} {_version(package)}" for package in ("gpflow", "tensorflow")]
    print(f"{theirs['versions']}; {', '.join(versions)}; float64.\n")
    print("| architecture | largest relative difference |\n| --- | --- |")
    for name, (shape, layers) in ARCHITECTURES.items():
        X = inputs(8, shape)
        kernel = _ours(layers, shape)
        ours = {"cross": kernel(X[:5], X[5:]), "gram": kernel(X)}
        worst = max(_difference(ours[part], theirs[f"{name}/{part}"]) for part in ours)
        print(f"| {name} | {worst:.1e} |")
    print(
        "\n| Gram matrix | largest relative difference | neural-tangents (s) | gpflow-gvi (s) "
        "| ratio |\n| --- | --- | --- | --- | --- |"
    )
    for row in times(file, quick=quick):
        name, *figures = row.values()
        print(f"| {name} | {' | '.join(f'{figure:.2g}' for figure in figures)} |")


def times(file: str, *, quick: bool = False) -> list[dict[str, Any]]:
    """Return seconds of larger Gram matrices beside those in the file."""
    import tensorflow as tf

    theirs, rows = np.load(file), []
    for name, (number, shape, layers) in _timed(quick=quick).items():
        X = tf.constant(inputs(number, shape))
        kernel = tf.function(_ours(layers, shape))
        reference, own = float(theirs[f"{name}/seconds"]), best(lambda: kernel(X).numpy())  # noqa: B023
        rows.append(
            {
                "Gram matrix": name,
                "largest relative difference": _difference(kernel(X), theirs[f"{name}/gram"]),
                "neural-tangents (s)": reference,
                "gpflow-gvi (s)": own,
                "ratio": own / reference,
            }
        )
    return rows


def memory(*, quick: bool = False) -> None:
    """Print the peak of memory for a large Gram matrix of images, and for its gradient."""
    import tensorflow as tf

    kernel = _ours([*_BODY, FLATTEN, ("dense", 1.0, 0.0)], (28, 28, 1))
    X = tf.constant(inputs(10 if quick else 1000, (28, 28, 1)))
    gram = tf.function(kernel)

    @tf.function
    def gradient() -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(kernel(X))
        return tape.gradient(value, kernel.trainable_variables)

    print("| | peak of the process | CPU time |\n| --- | --- | --- |")
    print(f"| after the imports | {_peak():.2f} GiB | |")
    for name, function in {"Gram matrix": lambda: gram(X), "gradient": gradient}.items():
        start = time.process_time()
        function()
        seconds = time.process_time() - start
        print(f"| {name} | {_peak():.2f} GiB | {seconds:.0f} s |", flush=True)


def _peak() -> float:
    unit = 2**20 if sys.platform.startswith("linux") else 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def best(function: Callable[[], Any], repeats: int = 5) -> float:
    """Return the least CPU time of several calls, after one that compiles."""
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def _neural_tangents(layers: list[Layer]) -> Callable[..., Any]:
    from neural_tangents import stax

    def affine(w: float, b: float) -> dict[str, Any]:
        return {"W_std": w**0.5, "b_std": b**0.5 or None, "parameterization": "standard"}

    make = {
        "dense": lambda w, b: stax.Dense(1, **affine(w, b)),
        "conv": lambda size, strides, padding, w, b: stax.Conv(
            1, (size, size), (strides, strides), padding.upper(), **affine(w, b)
        ),
        "relu": stax.Relu,
        "erf": stax.Erf,
        "flatten": stax.Flatten,
        "pool": lambda size, strides: stax.AvgPool((size, size), (strides, strides), "VALID"),
        "global": stax.GlobalAvgPool,
    }
    _, _, kernel = stax.serial(*(make[kind](*options) for kind, *options in layers))
    return lambda X, X2: kernel(X, X2, "nngp")


def _ours(layers: list[Layer], shape: tuple[int, ...]) -> Any:
    from gpflow_gvi.kernels import nngp

    make = {
        "dense": nngp.Dense,
        "conv": lambda size, strides, padding, w, b: nngp.Conv2D(
            size, strides=strides, padding=padding, weight_variance=w, bias_variance=b
        ),
        "relu": nngp.ReLU,
        "erf": nngp.Erf,
        "flatten": nngp.Flatten,
        "pool": nngp.AveragePooling2D,
        "global": nngp.GlobalAveragePooling2D,
    }
    return nngp.NNGP([make[kind](*options) for kind, *options in layers], input_shape=shape)


def _difference(ours: Any, theirs: np.ndarray) -> float:
    return float(np.max(np.abs(np.asarray(ours) / theirs - 1.0)))


def _version(package: str) -> str:
    return importlib.metadata.version(package)


if __name__ == "__main__":
    main()
