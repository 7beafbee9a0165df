"""Ten of 5,000 images of each MNIST digit, chosen by greedy variance under several kernels.

    GPFLOW_GVI_DATA=... python -m benchmarks.digits --picture digits.png
    GPFLOW_GVI_DATA=... python -m benchmarks.digits --digit 3 --picture three.png

A selection has two scores, each in two distances:

* coverage, the mean distance of the 5,000 images to the nearest selected one: less is better. It is
  the purpose of inducing points, and an outlier in the selection does not improve it.
* spread, the mean distance between two of the selected ones, a measure of diversity. Outliers,
  which greedy variance prefers by design, increase it, so that it has little meaning without the
  coverage.

The distances are independent of the kernels: Euclidean between pixels, and Euclidean between the
features (in [-1, 1]) of a network of another architecture, trained on other images than those of
the selection and of the feature map. Both scores are relative to random selections. The images
nearest to the centres of k-means are scored as well, as a reference for the possible coverage.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import keras
import numpy as np
import tensorflow as tf
from scipy.spatial.distance import cdist, pdist

from gpflow_gvi.regulariser.inducing_points import greedy_variance, kmeans, uniform

if __package__:
    from . import image_kernels
    from .data import add_argument, add_quick, load_images
else:
    import image_kernels
    from data import add_argument, add_quick, load_images

NUM_CHOSEN = 10
NUM_IMAGES = 5_000
Choose = Callable[[np.ndarray], np.ndarray]
"""From the images of a digit to the positions of the chosen ones."""


def methods(X: np.ndarray, labels: np.ndarray, rows: int = 500) -> dict[str, Choose]:
    """Return the methods of selection; trained kernels are trained on these images.

    :param rows: how many of them ARD is fitted to.
    """
    kernels = {
        "ARD": image_kernels.ard(X, labels, rows=rows),
        "FC-NNGP": image_kernels.fully_connected(),
        "CNN-NNGP": image_kernels.convolutional(),
        "FeatureMap": image_kernels.feature_map(X, labels),
    }

    def by(kernel: gpflow.kernels.Kernel) -> Choose:
        return lambda X: greedy_variance(X, NUM_CHOSEN, kernel=kernel).indices

    greedy = {name: by(kernel) for name, kernel in kernels.items()}
    return {"uniform": lambda X: uniform(X, NUM_CHOSEN).indices, **greedy, "k-means": centres}


def centres(X: np.ndarray) -> np.ndarray:
    """Return the images nearest to the centres of k-means."""
    rows = X.reshape(len(X), -1)
    return cdist(kmeans(rows, NUM_CHOSEN).points, rows).argmin(axis=1)


def independent_features(X: np.ndarray, labels: np.ndarray) -> keras.Model:
    """Return the features of a network of tanh units with strides, and its accuracy."""
    keras.utils.set_random_seed(100)
    features = keras.Sequential(
        [
            keras.Input(image_kernels.SHAPE),
            keras.layers.Conv2D(12, 5, strides=2, activation="tanh"),
            keras.layers.Conv2D(24, 5, strides=2, activation="tanh"),
            keras.layers.Flatten(),
            keras.layers.Dense(48, activation="tanh"),
        ]
    )
    image_kernels.train(features, X, labels, epochs=4)
    return features


def score(V: np.ndarray, chosen: np.ndarray) -> tuple[float, float]:
    """Return coverage and spread of the chosen rows of V."""
    return cdist(V, V[chosen]).min(axis=1).mean(), pdist(V[chosen]).mean()


def table(scores: dict[str, np.ndarray], baseline: np.ndarray) -> str:
    """Return the table of scores relative to the baseline, ± their deviation between digits.

    :param scores: of each method, [digits, 4].
    :param baseline: of uniform choices, [seeds, digits, 4].
    """
    mean = baseline.mean(axis=0)
    by_seed = (baseline / mean).mean(axis=1)  # [seeds, 4], each averaged over the digits
    lines = [
        "| method | coverage, pixels | coverage, features | spread, pixels | spread, features |",
        "|---|--:|--:|--:|--:|",
        f"| uniform, {len(baseline)} seeds | "
        + " | ".join(f"1 ± {sd:.3f}" for sd in by_seed.std(axis=0, ddof=1))
        + " |",
    ]
    for name, values in scores.items():
        ratios = values / mean
        cells = [f"{mean:.3f}" for mean in ratios.mean(axis=0)]
        if len(ratios) > 1:
            cells = [f"{c} ± {sd:.3f}" for c, sd in zip(cells, ratios.std(0, ddof=1), strict=True)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(chosen: dict[str, list[np.ndarray]], digits: list[int], path: Path) -> None:
    """Draw a panel for each digit: a row for each method, the images in the order of choice."""
    from matplotlib.figure import Figure

    columns = min(len(digits), 2)
    rows = -(-len(digits) // columns)
    zoom = 1 if len(digits) > 1 else 2
    figure = Figure(figsize=(3.8 * columns * zoom, 1.5 * rows * zoom), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for i, (panel, digit) in enumerate(zip(panels, digits, strict=True)):
        grid = [np.hstack(list(images[i][..., 0])) for images in chosen.values()]
        panel.imshow(np.vstack(grid), cmap="gray_r", interpolation="none")
        panel.set_xticks([])
        ticks = 28 * np.arange(len(grid)) + 14
        panel.set_yticks(ticks, chosen, fontsize=7)
        panel.tick_params(length=0)
        panel.set_ylabel(digit, fontsize=11, fontweight="bold", rotation=0, labelpad=10)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Choose, print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_argument(parser)
    parser.add_argument("--digit", type=int, choices=range(10), help="one digit; all ten if left")
    parser.add_argument("--seeds", type=int, default=20, help="of the uniform choices")
    parser.add_argument("--picture", type=Path, help="where to write the grid")
    add_quick(parser)
    options = parser.parse_args()
    per_digit, rows = (20, 30) if options.quick else (NUM_IMAGES, 500)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    gpflow.config.set_default_float(np.float32)
    gpflow.config.set_default_jitter(1e-4)

    X, labels = load_images(options.data_dir, "mnist")
    of_digit = [np.flatnonzero(labels == digit) for digit in range(10)]
    candidates = [of_one[:per_digit] for of_one in of_digit]
    others = np.random.default_rng(0).permutation(
        np.concatenate([of_one[per_digit:] for of_one in of_digit])
    )
    seen = np.random.default_rng(1).permutation(np.concatenate(candidates))[: len(others)]
    ways = methods(X[seen], labels[seen], rows)
    features = independent_features(X[others], labels[others])

    digits = list(range(10)) if options.digit is None else [options.digit]
    digits = digits[: 1 if options.quick else None]
    chosen: dict[str, list[np.ndarray]] = {name: [] for name in ways}
    scores: dict[str, list[np.ndarray]] = {name: [] for name in ways if name != "uniform"}
    baseline = []
    for digit in digits:
        images = X[candidates[digit]]
        V = np.asarray(features(images))
        spaces = (images.reshape(len(images), -1), V)

        def scored(indices: np.ndarray, spaces: tuple[np.ndarray, ...] = spaces) -> np.ndarray:
            pixels, of_features = (score(space, indices) for space in spaces)
            return np.array([pixels[0], of_features[0], pixels[1], of_features[1]])

        for name, choose in ways.items():
            indices = choose(images)
            chosen[name].append(images[indices])
            if name in scores:
                scores[name].append(scored(indices))
        seeds = range(options.seeds)
        baseline.append([scored(uniform(images, NUM_CHOSEN, seed=s).indices) for s in seeds])
    print(table({k: np.array(v) for k, v in scores.items()}, np.swapaxes(baseline, 0, 1)))
    if options.picture:
        draw(chosen, digits, options.picture)


if __name__ == "__main__":
    main()
