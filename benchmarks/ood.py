"""Inputs of another kind, and calibration: `learn` around a network beside scores of the network.

    GPFLOW_GVI_DATA=... python -m benchmarks.ood                 # small networks, on a few images
    GPFLOW_GVI_DATA=... python -m benchmarks.ood --rows 50000 --epochs 30 --scored 10000

Networks are trained on Fashion-MNIST and on MNIST, one for each seed. Each is left as it is, and
scores of its logits, or of what its last layer receives, tell test images from other ones: those of
the other data set, noise, and test images that were inverted, rotated, multiplied by three, or had
their pixels shuffled or Gaussian noise added. The first table has the AUROC on the average of all
networks, and the worst of them; the second the probabilities, beside what scales logits by the same
held-out images, and `learn` with the logits alone (`predictor=None`). With `--ensemble` there are
those of five such networks, too, and with `--laplace PYTHON`, an interpreter that has
laplace-torch, those of Laplace approximations: of the last layer and, with a diagonal, of all
layers of the networks with a dense one, the precision of the prior by the evidence or, of the last
layer, by the held-out images. With `--variational PYTHON`, one that has BayesiPy, there are those
of two processes around the networks with a dense layer, FMGP and VaLLA.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.model_selection import KFold

import gpflow_gvi as gvi
from gpflow_gvi import metrics

if __package__:
    from . import by_torch
    from .data import add_argument, add_quick, load_images
    from .peers import can_import
else:
    import by_torch
    from data import add_argument, add_quick, load_images
    from peers import can_import

NAMES = ("fashion_mnist", "mnist")
FEATURES: dict[str, Any] = {
    "penultimate": "penultimate",
    "layers": "layers",
    "penultimate, inputs": ["penultimate", "inputs"],
}
WAYS = ("network", "temperature", "vector", "Dirichlet")
"""What is done to the logits."""
MEASURES: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": metrics.accuracy,
    "NLL": metrics.cross_entropy,
    "Brier": metrics.brier,
    "ECE": metrics.ece,
    "AURC": metrics.aurc,
}
ENSEMBLE = 5
NEIGHBOUR = 10
"""The distance to this neighbour among the training images is kNN's score."""


class Images(NamedTuple):
    """Images [N, 28, 28, 1] and labels [N]."""

    X: np.ndarray
    Y: np.ndarray


class Task(NamedTuple):
    """Training, held-out and test images, and images of other kinds."""

    train: Images
    held_out: Images
    test: Images
    others: dict[str, np.ndarray]


class Outputs(NamedTuple):
    """What a network returns for images."""

    features: np.ndarray
    """What its last layer receives, [N, F]."""
    logits: np.ndarray
    """[N, K]."""


def load(folder: Path, name: str, seed: int, options: argparse.Namespace) -> Task:
    """Return the images of a seed."""
    rows, scored, unseen = options.rows, options.scored, options.held_out or options.rows // 3
    rng = np.random.default_rng(seed)
    (X, Y), (X_test, Y_test) = (load_images(folder, name, part=part) for part in ("train", "test"))
    (other,) = {*NAMES} - {name}
    order, tested = rng.permutation(len(X)), rng.permutation(len(X_test))[:scored]
    held_out, train = order[:unseen], order[unseen:][:rows]
    test = X_test[tested]
    return Task(
        Images(X[train], Y[train]),
        Images(X[held_out], Y[held_out]),
        Images(test, Y_test[tested]),
        {
            "other data": load_images(folder, other, part="test")[0][tested],
            "uniform": rng.uniform(size=test.shape).astype(test.dtype),
            "Gaussian": _clipped(test.mean() + test.std() * rng.normal(size=test.shape)),
            "inverted": 1.0 - test,
            "rotated": np.rot90(test, axes=(1, 2)).copy(),
            "times 3": 3.0 * test,
            "shuffled": rng.permuted(test.reshape(len(test), -1), axis=1).reshape(test.shape),
            "noisy": _clipped(test + 0.5 * rng.normal(size=test.shape)),
        },
    )


def _clipped(X: np.ndarray) -> np.ndarray:
    return np.clip(X, 0.0, 1.0).astype(np.float32)


def network(kind: str, seed: int) -> keras.Model:
    """Return a network with a dense layer in front of the last, or residual with an average."""
    keras.utils.set_random_seed(seed)
    L = keras.layers
    x = inputs = keras.Input((28, 28, 1))
    if kind == "dense":
        for channels in (8, 16):
            x = L.Conv2D(channels, 3, 2, activation="relu")(x)
        x = L.Dense(64, "relu")(L.Flatten()(x))
    else:
        for channels in (16, 32, 64):
            x = L.Conv2D(channels, 3, 2, padding="same", use_bias=False)(x)
            x = L.ReLU()(L.BatchNormalization()(x))
        x = L.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, L.Dense(10)(x))


def trained(task: Task, kind: str, seed: int, epochs: int) -> keras.Model:
    """Return a network that was trained by maximum likelihood."""
    net = network(kind, seed)
    net.compile(
        keras.optimizers.Adam(2e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    net.fit(*task.train, batch_size=64, epochs=epochs, verbose=0)
    return net


def scores(task: Task, net: keras.Model) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Return scores of the network alone, from images to [N]; unknown ones have the larger."""
    both = keras.Model(net.inputs, [net.layers[-1].input, net.outputs[0]])

    def at(X: np.ndarray) -> Outputs:
        return Outputs(*(part.astype(float) for part in both.predict(X, verbose=0)))

    train, labels = at(task.train.X), task.train.Y
    rows = _unit(train.features)
    means = np.stack([train.features[labels == k].mean(axis=0) for k in range(10)])
    within = _root_of_inverse(train.features - means[labels])
    centre = train.features.mean(axis=0)
    overall = _root_of_inverse(train.features - centre)

    def mahalanobis(features: np.ndarray) -> np.ndarray:
        return cdist(features @ within, means @ within, "sqeuclidean").min(axis=1)

    def relative(features: np.ndarray) -> np.ndarray:
        return mahalanobis(features) - np.sum(np.square((features - centre) @ overall), axis=1)

    W, b = (np.asarray(part, float) for part in net.layers[-1].get_weights())
    origin = -np.linalg.pinv(W).T @ b
    _, _, axes = np.linalg.svd(train.features - origin, full_matrices=False)
    rest = axes[len(axes) // 2 :].T

    def residual(features: np.ndarray) -> np.ndarray:
        return np.linalg.norm((features - origin) @ rest, axis=1)

    scale = train.logits.max(axis=1).mean() / residual(train.features).mean()
    return {
        "max softmax": lambda X: -softmax(at(X).logits, axis=1).max(axis=1),
        "energy": lambda X: -logsumexp(at(X).logits, axis=1),
        "Mahalanobis": lambda X: mahalanobis(at(X).features),
        "relative Mahalanobis": lambda X: relative(at(X).features),
        "kNN": lambda X: np.sort(cdist(_unit(at(X).features), rows), axis=1)[:, NEIGHBOUR - 1],
        "ViM": lambda X: scale * residual(at(X).features) - logsumexp(at(X).logits, axis=1),
    }


def _unit(features: np.ndarray) -> np.ndarray:
    return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-9)


def _root_of_inverse(rows: np.ndarray) -> np.ndarray:
    """Return W with W Wᵀ the inverse of the covariance of rows, of features that do not die."""
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    return vectors / np.sqrt(np.maximum(values, 1e-9 * values[-1]))


def scaled(task: Task, net: keras.Model, kind: str) -> np.ndarray:
    """Return the log probabilities of test images, of logits changed by the held-out ones.

    :param kind: "network" for none; "temperature", or "vector": a factor and a shift of each class
        (Guo, Pleiss, Sun and Weinberger 2017); or "Dirichlet": a matrix of log probabilities and a
        shift, with ridges off the diagonal and for the shift, chosen by three folds (Kull et al.
        2019, "Beyond temperature scaling").
    """
    held_out, test = (
        log_softmax(net.predict(part.X, verbose=0).astype(float), axis=1)
        for part in (task.held_out, task.test)
    )
    if kind != "Dirichlet":
        return _changed(test, kind, _fitted(held_out, task.held_out.Y, kind))
    losses = []
    ridges = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
    for ridge in ridges:
        of_folds = []
        for seen, left_out in KFold(3, shuffle=True, random_state=0).split(held_out):
            x = _fitted(held_out[seen], task.held_out.Y[seen], kind, ridge)
            log_p = _changed(held_out[left_out], kind, x)
            of_folds.append(-np.mean(log_p[np.arange(len(log_p)), task.held_out.Y[left_out]]))
        losses.append(np.mean(of_folds))
    ridge = ridges[int(np.argmin(losses))]
    return _changed(test, kind, _fitted(held_out, task.held_out.Y, kind, ridge))


def _changed(logits: np.ndarray, kind: str, x: np.ndarray) -> np.ndarray:
    """Return log probabilities by the parameters of a kind: [N, 10]."""
    if kind == "Dirichlet":
        logits = logits @ x[:100].reshape(10, 10) + x[100:]
    elif kind == "vector":
        logits = logits * x[:10] + x[10:]
    elif kind == "temperature":
        logits = logits * x
    return log_softmax(logits, axis=1)


def _fitted(logits: np.ndarray, labels: np.ndarray, kind: str, ridge: float = 0.0) -> np.ndarray:
    """Return the parameters of a kind with the least log loss."""
    start = {
        "network": np.ones(0),
        "temperature": np.ones(1),
        "vector": np.repeat([1.0, 0.0], 10),
        "Dirichlet": np.concatenate([np.eye(10).ravel(), np.zeros(10)]),
    }[kind]
    if not len(start):
        return start
    is_free = np.concatenate([np.eye(10).ravel() == 0.0, np.ones(10, bool)])
    codes = np.eye(10)[labels]

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        log_p = _changed(logits, kind, x)
        error = (np.exp(log_p) - codes) / len(labels)
        value = -np.sum(codes * log_p) / len(labels)
        if kind == "temperature":
            return value, np.array([np.sum(error * logits)])
        if kind == "vector":
            return value, np.concatenate([np.sum(error * logits, axis=0), error.sum(axis=0)])
        slope = np.concatenate([(logits.T @ error).ravel(), error.sum(axis=0)])
        weights = ridge * is_free * x
        return value + weights @ x, slope + 2.0 * weights

    return minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x


def ensemble(task: Task, kind: str, seed: int, epochs: int, first: keras.Model) -> np.ndarray:
    """Return the average probabilities of test images by five networks (Lakshminarayanan 2017)."""
    seeds = [1000 * seed + member for member in range(1, ENSEMBLE)]
    members = [first, *(trained(task, kind, each, epochs) for each in seeds)]
    logits = [net.predict(task.test.X, verbose=0).astype(float) for net in members]
    return softmax(np.stack(logits), axis=2).mean(axis=0)


def of_torch(
    task: Task, net: keras.Model, kind: str, options: argparse.Namespace
) -> dict[str, Callable[[], np.ndarray]]:
    """Return what others put around a network, to log probabilities of test images each."""
    layers = [layer for layer in net.layers if layer.get_weights()]
    hidden = keras.Model(net.inputs, net.layers[-1].input)

    def average(
        python: str,
        structure: str,
        held_out: Images | None = None,
        *,
        of_last: bool = False,
    ) -> np.ndarray:
        X = partial(hidden.predict, verbose=0) if of_last else lambda images: images
        known, unseen = (
            None if part is None else (X(part.X), part.Y) for part in (task.train, held_out)
        )
        used = layers[-1:] if of_last else layers
        found = by_torch.probabilities(python, used, known, structure, unseen, test=X(task.test.X))
        return np.log(found["test"].astype(float).mean(axis=0))

    found: dict[str, Callable[[], np.ndarray]] = {}
    if python := options.laplace:
        last = partial(average, python, "full", of_last=True)
        found["Laplace, last layer, evidence"] = last
        found["Laplace, last layer, held-out"] = partial(last, task.held_out)
        if kind == "dense":
            found["Laplace, diagonal, evidence"] = partial(average, python, "diag")
    if (python := options.variational) and kind == "dense":
        found |= {way: partial(average, python, way) for way in ("FMGP", "VaLLA")}
    return found


def compared(
    task: Task, net: keras.Model, kind: str, seed: int, options: argparse.Namespace
) -> tuple[dict[str, Callable[[np.ndarray], np.ndarray]], dict[str, tuple[np.ndarray, float]]]:
    """Return scores of how unlike the data images are, and log probabilities of test images.

    Beside these are the seconds that they took, without those of the network.
    """
    ways = scores(task, net)
    makers: dict[str, Callable[[], np.ndarray]] = {
        way: partial(scaled, task, net, way) for way in WAYS
    }
    if options.ensemble:
        makers["ensemble of five"] = lambda: np.log(ensemble(task, kind, seed, options.epochs, net))
    makers |= of_torch(task, net, kind, options)
    around = partial(
        gvi.learn, task.train, network=net, train_network=False, validation_data=task.held_out
    )

    def with_score(title: str, features: Any) -> np.ndarray:
        learned = around(features=features)
        ways[title] = learned.score_ood
        return np.log(learned.predict_proba(task.test.X))

    makers["learn, logits alone"] = lambda: np.log(
        around(predictor=None).predict_proba(task.test.X)
    )
    for name, features in FEATURES.items():
        title = f"learn, {name}"
        makers[title] = partial(with_score, title, features)
    found = {}
    for way, log_p in makers.items():
        start = time.perf_counter()
        found[way] = log_p(), time.perf_counter() - start
    return ways, found


def main() -> None:
    """Train the networks, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3000, help="training images")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--held-out", type=int, help="by default a third of the training images")
    parser.add_argument("--scored", type=int, default=1000, help="test images of each kind")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--networks", nargs="+", default=["dense", "average"])
    parser.add_argument("--ensemble", action="store_true", help="train five networks, too")
    parser.add_argument("--laplace", metavar="PYTHON", help="an interpreter with laplace-torch")
    parser.add_argument("--variational", metavar="PYTHON", help="an interpreter with BayesiPy")
    add_argument(parser)
    add_quick(parser)
    options = parser.parse_args()
    names = NAMES
    if options.quick:
        options.rows, options.epochs, options.scored, options.seeds = 120, 1, 40, 1
        options.held_out = None
        names, options.networks = NAMES[:1], ["dense"]
    if options.laplace and not can_import("laplace", options.laplace):
        print(f"{options.laplace} cannot import laplace: its rows are left out\n")
        options.laplace = None
    if options.variational and not can_import("bayesipy", options.variational):
        print(f"{options.variational} cannot import bayesipy: its rows are left out\n")
        options.variational = None
    found: dict[str, list[list[float]]] = {}
    probabilities: dict[str, list[list[float]]] = {}
    for name in names:
        for seed in range(options.seeds):
            task = load(Path(options.data_dir), name, seed, options)
            for kind in options.networks:
                net = trained(task, kind, seed, options.epochs)
                ways, logs = compared(task, net, kind, seed, options)
                for way, score in ways.items():
                    known = score(task.test.X)
                    row = [metrics.auroc(known, score(X)) for X in task.others.values()]
                    found.setdefault(way, []).append(row)
                for way, (log_p, seconds) in logs.items():
                    row = [measure(task.test.Y, np.exp(log_p)) for measure in MEASURES.values()]
                    probabilities.setdefault(way, []).append([*row, seconds])
    print(f"| score | {' | '.join(task.others)} | average | worst |")
    print(f"| --- |{' --: |' * (len(task.others) + 2)}")
    for way, rows in found.items():
        cells = [*np.mean(rows, axis=0), np.mean(rows), np.min(rows)]
        print(f"| {way} | {' | '.join(f'{cell:.3f}' for cell in cells)} |")
    print(f"\n| probabilities | {' | '.join(MEASURES)} | seconds |")
    print(f"| --- |{' --: |' * (len(MEASURES) + 1)}")
    for way, rows in probabilities.items():
        *cells, seconds = np.mean(rows, axis=0)
        print(f"| {way} | {' | '.join(f'{cell:.3f}' for cell in cells)} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
