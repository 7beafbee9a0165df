"""Fashion-MNIST: accuracy, calibration, and detection of MNIST as out-of-distribution.

    GPFLOW_GVI_DATA=... python -m benchmarks.fashion                 # a subset, on two cores
    GPFLOW_GVI_DATA=... python -m benchmarks.fashion --rows 55000 --epochs 30 --width 64   # a GPU
    python -m benchmarks.fashion ... --weights FOLDER --laplace PYTHON --models network ensemble

The same residual network, on augmented images, is trained by maximum likelihood, five times for an
ensemble, and as the mean of a generalised variational posterior, for several weights λ of the
divergence, with and without context points. `learn` puts a Gaussian process around the first of
them, which it leaves as it is. P and GPflow's SVGP, both on pixels, are scored as well, and SVGP on
the network's features. Every network is trained on the same images for the same number of epochs.
Five thousand training images are held out for what is fitted to unseen images: temperatures,
tempering factors. A folder of weights keeps the trained networks, and the time of their training,
for another run. PYTHON is an interpreter that has laplace-torch.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import keras
import numpy as np
import tensorflow as tf
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import pdist
from scipy.special import softmax

import gpflow_gvi as gvi
from gpflow_gvi import metrics
from gpflow_gvi.divergences import contexts
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.prediction.class_probabilities import Entropies, class_probabilities, entropies

if __package__:
    from . import by_torch
    from .data import add_argument, add_quick, load_images
    from .peers import can_import
else:
    import by_torch
    from data import add_argument, add_quick, load_images
    from peers import can_import

J = 10
BATCH = 128
DROPOUT = 0.1
"""Of what the last layer receives."""
KINDS = ("entropy", "epistemic", "variance")
"""Scores of out-of-distribution inputs."""


class Images(NamedTuple):
    """Images [N, 28, 28, 1] in [0, 1] and labels."""

    X: np.ndarray
    Y: np.ndarray


class Task(NamedTuple):
    """Training, validation, test and out-of-distribution data, and the size of the training."""

    train: Images
    held_out: Images
    test: Images
    out_of_distribution: Images
    epochs: int
    width: int


class Prediction(NamedTuple):
    """Class probabilities of the test images, and uncertainties in and out of distribution."""

    probabilities: np.ndarray
    scores: dict[str, tuple[np.ndarray, np.ndarray]]


def network(width: int, seed: int) -> keras.Model:
    """Return the network: three residual blocks on augmented images, and logits."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers

    def normalised(x: Any, channels: int, size: int, strides: int = 1) -> Any:
        return layers.BatchNormalization()(
            layers.Conv2D(channels, size, strides, padding="same", use_bias=False)(x)
        )

    inputs = x = keras.Input((28, 28, 1))
    x = layers.RandomFlip("horizontal", seed=seed)(x)
    x = layers.ReLU()(normalised(x, width, 3))
    for channels in (width, 2 * width, 4 * width):
        y = layers.ReLU()(normalised(x, channels, 3, 2))
        x = layers.ReLU()(normalised(y, channels, 3) + normalised(x, channels, 1, 2))
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(DROPOUT, seed=seed)(x)
    return keras.Model(inputs, layers.Dense(J)(x))


def trained(task: Task, seed: int, folder: Path | None = None) -> tuple[keras.Model, float]:
    """Return the network, trained by maximum likelihood, and the seconds that it took.

    :param folder: of weights: they are read if they are there, and written otherwise.
    """
    net = network(task.width, seed)
    name = f"{len(task.train.X)}-{task.epochs}-{task.width}-{seed}"
    weights = folder and folder / f"{name}.weights.h5"
    times = folder and folder / f"{name}.json"
    if times and times.exists():
        net.load_weights(weights)
        return net, json.loads(times.read_text())
    start = time.perf_counter()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(_optimiser(task), loss, steps_per_execution=20)
    net.fit(*task.train, batch_size=BATCH, epochs=task.epochs, verbose=0)
    seconds = time.perf_counter() - start
    if weights and times:
        weights.parent.mkdir(parents=True, exist_ok=True)
        net.save_weights(weights)
        times.write_text(json.dumps(seconds))
    return net, seconds


def alone(task: Task, members: list[keras.Model]) -> Prediction:
    """The first network, as it is."""
    return _ensemble(task, members[:1], tempered=False)


def maximum_likelihood(task: Task, members: list[keras.Model]) -> Prediction:
    """The first network, its logits divided by the best temperature for the held-out images."""
    return _ensemble(task, members[:1])


def ensemble(task: Task, members: list[keras.Model]) -> Prediction:
    """The average of all networks (Lakshminarayanan, Pritzel and Blundell 2017)."""
    return _ensemble(task, members)


def svgp(task: Task, members: list[keras.Model]) -> Prediction:
    """GPflow's SVGP on pixels, a squared exponential and 200 trained inducing points."""
    return _svgp(task, lambda images: images.reshape(len(images), -1))


def svgp_on_features(task: Task, members: list[keras.Model]) -> Prediction:
    """GPflow's SVGP on what the last layer of the first network receives, standardised."""
    units = Scaling.of(_features(members[0], task.train.X))
    return _svgp(task, lambda images: units.standard(_features(members[0], images)).numpy())


def dropout(task: Task, members: list[keras.Model], samples: int = 50) -> Prediction:
    """The first network with dropout in its predictions, too (Gal and Ghahramani 2016)."""
    last = members[0].layers[-1]
    rng = np.random.default_rng(0)

    def probabilities(images: np.ndarray) -> np.ndarray:
        features = _features(members[0], images)
        kept = rng.uniform(size=(samples, *features.shape)) > DROPOUT
        logits = [last(part * features / (1.0 - DROPOUT)).numpy() for part in kept]
        return softmax(np.stack(logits).astype(np.float64), axis=-1)

    return _of_members(probabilities(task.test.X), probabilities(task.out_of_distribution.X))


def laplace(python: str) -> Callable[[Task, list[keras.Model]], Prediction]:
    """The Laplace approximation of the last layer, by laplace-torch (Daxberger et al. 2021).

    :param python: an interpreter that has laplace-torch.
    """

    def predict(task: Task, members: list[keras.Model]) -> Prediction:
        train, test, outside = (
            _features(members[0], part.X)
            for part in (task.train, task.test, task.out_of_distribution)
        )
        of = by_torch.probabilities(
            python,
            members[0].layers[-1:],
            (train, task.train.Y),
            "full",
            test=test,
            outside=outside,
        )
        return _of_members(of["test"], of["outside"])

    return predict


def _features(net: keras.Model, images: np.ndarray) -> np.ndarray:
    """Return what the last layer receives [N, D]."""
    hidden = keras.Model(net.inputs, net.layers[-1].input)
    return hidden.predict(images, batch_size=1000, verbose=0)


def _svgp(task: Task, rows: Callable[[np.ndarray], np.ndarray]) -> Prediction:
    X = rows(task.train.X)
    Z = gvi.inducing.kmeans(X, 200).points
    distance = np.median(pdist(X[:1000]))
    kernel = gpflow.kernels.SquaredExponential(variance=10.0, lengthscales=distance)
    model = gpflow.models.SVGP(
        kernel, gpflow.likelihoods.Softmax(J), Z, num_latent_gps=J, num_data=len(X)
    )
    Y = task.train.Y[:, None]
    data = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(len(X), seed=0).repeat().batch(BATCH)
    closure = model.training_loss_closure(iter(data))
    steps = _steps(task)
    optimiser = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-2, steps))
    variables = list(model.trainable_variables)
    optimiser.build(variables)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = closure()
        optimiser.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for _ in range(steps):
        step()
    return _gaussian_process(task, model, rows)


def mirrored(members: list[keras.Model]) -> list[keras.Model]:
    """Return what networks return for the mirror image."""
    x = keras.Input((28, 28, 1))
    return [keras.Model(x, net(keras.ops.flip(x, axis=2))) for net in members]


def mirrored_ensemble(task: Task, members: list[keras.Model]) -> Prediction:
    """The average of all networks, for an image and for its mirror image."""
    return _ensemble(task, [*members, *mirrored(members)])


def around(features: Any, count: int = 1, *, mirror: bool = False) -> Callable[..., Prediction]:
    """A Gaussian process around the first networks, which are not trained any further.

    :param mirror: whether an image is predicted together with its mirror image.
    """

    def predict(task: Task, members: list[keras.Model]) -> Prediction:
        networks = members[:count]
        learned = gvi.learn(
            task.train,
            network=[*networks, *mirrored(networks)] if mirror else networks,
            train_network=False,
            features=features,
            validation_data=task.held_out,
        )
        inside, outside = task.test.X, task.out_of_distribution.X
        known, unknown = learned.entropies(inside), learned.entropies(outside)
        scores = {
            "entropy": (known.total, unknown.total),
            "epistemic": (known.epistemic, unknown.epistemic),
            "variance": (learned.score_ood(inside), learned.score_ood(outside)),
        }
        return Prediction(learned.predict_proba(inside), scores)

    return predict


def pgvi(
    divergence_weight: float, context: contexts.Context | None = None
) -> Callable[..., Prediction]:
    """The network as the mean of Q, which has the covariance of P, a sparse posterior on pixels."""

    def predict(task: Task, members: list[keras.Model]) -> Prediction:
        P = _regulariser(task)
        Q = gvi.GaussianProcess(
            gvi.mean_functions.Network(network(task.width, seed=0)),
            gpflow.utilities.deepcopy(P.kernel),
        )
        gpflow.set_trainable(Q.kernel, False)
        model = gvi.models.PGVI(
            P,
            Q,
            gpflow.likelihoods.MultiClass(J),
            gvi.divergences.ProjectedKL(context=context),
            loss=gvi.losses.PredictiveLogLoss(),
            num_data=len(task.train.X),
            divergence_weight=divergence_weight,
        )
        model.compile(_optimiser(task), steps_per_execution=20)
        model.fit(task.train, batch_size=BATCH, epochs=task.epochs, verbose=0)
        return _gaussian_process(task, gvi.temper(model, task.held_out), lambda images: images)

    return predict


def regulariser(task: Task, members: list[keras.Model]) -> Prediction:
    """P alone: no network."""
    P = _regulariser(task)
    likelihood = gpflow.likelihoods.MultiClass(J)
    model = gvi.models.PGVI(P, gpflow.utilities.deepcopy(P), likelihood, num_data=len(task.train.X))
    return _gaussian_process(task, gvi.temper(model, task.held_out), lambda images: images)


def _regulariser(task: Task) -> gvi.GaussianProcess:
    """Return P: regression of one-hot responses on the pixels of 5,000 images."""
    part = Images(*(values[:5000] for values in task.train))
    rows = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten()])
    distance = np.median(pdist(rows.predict(part.X[:1000], verbose=0)))
    kernel = gpflow.kernels.SquaredExponential(variance=0.1, lengthscales=distance)
    return gvi.fit_regulariser(
        part,
        gvi.kernels.FeatureMap(kernel, rows),
        200,
        likelihood=gpflow.likelihoods.MultiClass(J),
        evidence=gvi.evidence.DataEvidence(),
        select=gvi.inducing.kmeans,
        max_rounds=1,
    ).posterior


def _gaussian_process(
    task: Task, model: Any, rows: Callable[[np.ndarray], np.ndarray]
) -> Prediction:
    inside, outside = rows(task.test.X), rows(task.out_of_distribution.X)
    known, unknown = entropies(model, inside), entropies(model, outside)
    variances = (
        np.concatenate(
            [np.sum(model.predict_f(X[i : i + 1000])[1], axis=1) for i in range(0, len(X), 1000)]
        )
        for X in (inside, outside)
    )
    low, high = variances
    return Prediction(
        class_probabilities(model, inside),
        {
            "entropy": (known.total, unknown.total),
            "epistemic": (known.epistemic, unknown.epistemic),
            "variance": (low, high),
        },
    )


def _ensemble(task: Task, members: list[keras.Model], *, tempered: bool = True) -> Prediction:
    held_out = _logits(members, task.held_out.X)

    def nll(log_temperature: float) -> float:
        p = softmax(held_out / np.exp(log_temperature), axis=-1).mean(axis=0)
        return metrics.cross_entropy(task.held_out.Y, p / p.sum(axis=1, keepdims=True))

    temperature = 1.0
    if tempered:
        temperature = np.exp(minimize_scalar(nll, bounds=(-3.0, 3.0), method="bounded").x)
    known, unknown = (
        softmax(_logits(members, images.X) / temperature, axis=-1)
        for images in (task.test, task.out_of_distribution)
    )
    return _of_members(known, unknown)


def _of_members(known: np.ndarray, unknown: np.ndarray) -> Prediction:
    """Return the average of probabilities [S, N, J], and what their differences tell."""
    low, high = Entropies.of_members(known), Entropies.of_members(unknown)
    scores = {"entropy": (low.total, high.total)}
    if len(known) > 1:
        scores["epistemic"] = (low.epistemic, high.epistemic)
        scores["variance"] = (known.var(axis=0).sum(axis=-1), unknown.var(axis=0).sum(axis=-1))
    p = known.mean(axis=0)
    return Prediction(p / p.sum(axis=1, keepdims=True), scores)


def _logits(members: list[keras.Model], X: np.ndarray) -> np.ndarray:
    logits = [net.predict(X, batch_size=1000, verbose=0) for net in members]
    return np.stack(logits).astype(np.float64)


def _optimiser(task: Task) -> keras.optimizers.Optimizer:
    """Return the optimiser of a network: AdamW, its rate rises and falls (Smith 2018)."""
    steps = _steps(task)
    rise = steps // 5
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps - rise, warmup_target=5e-3, warmup_steps=rise
    )
    return keras.optimizers.AdamW(rate, weight_decay=0.01)


def _steps(task: Task) -> int:
    return task.epochs * len(task.train.X) // BATCH


def context_of(X: np.ndarray) -> contexts.Context:
    """Return the context: the batch, and as many training images with permuted patches."""
    rng = np.random.default_rng(0)
    patches = X[:5000].reshape(-1, 4, 7, 4, 7).swapaxes(2, 3).reshape(-1, 16, 49)
    mixed = np.stack([rng.permutation(image) for image in patches])
    images = mixed.reshape(-1, 4, 4, 7, 7).swapaxes(2, 3).reshape(-1, 28, 28, 1)
    return contexts.TrainingInputs() + contexts.Inputs(images, BATCH)


def load(
    folder: Path, rows: int, num_held_out: int = 5000
) -> tuple[Images, Images, Images, Images]:
    """Return the training, held-out and test images of Fashion-MNIST, and those of MNIST."""
    X, Y = load_images(folder, "fashion_mnist")
    order = np.random.default_rng(0).permutation(len(X))
    train, held_out = order[num_held_out : num_held_out + rows], order[:num_held_out]
    test = Images(*load_images(folder, "fashion_mnist", part="test"))
    outside = Images(*load_images(folder, "mnist", part="test"))
    return Images(X[train], Y[train]), Images(X[held_out], Y[held_out]), test, outside


def _row(name: str, figures: dict[str, float]) -> str:
    """Return a row of the table, with the score that detects MNIST best."""
    kind = max((kind for kind in KINDS if kind in figures), key=figures.__getitem__)
    accuracy, nll, ece = (f"{figures[key]:.3f}" for key in ("accuracy", "nll", "ece"))
    found = f"{figures[kind]:.3f} ({kind}) | {figures[f'{kind} fpr95']:.2f}"
    return f"| {name} | {accuracy} | {nll} | {ece} | {found} | {figures['seconds']:,.0f} |"


def main() -> None:
    """Run the models and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="training images")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=int, default=16, help="channels of the first convolution")
    parser.add_argument("--members", type=int, default=5, help="networks of the ensemble")
    parser.add_argument("--scored", type=int, default=10_000, help="test images of each kind")
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    parser.add_argument("--weights", type=Path, help="a folder for the weights of the networks")
    parser.add_argument("--laplace", help="an interpreter that has laplace-torch")
    parser.add_argument("--models", nargs="+", help="rows of the table (default: all)")
    add_argument(parser)
    add_quick(parser)
    options = parser.parse_args()
    num_held_out = 5000
    if options.quick:
        options.rows, num_held_out, options.scored = 200, 60, 40
        options.epochs, options.width, options.members = 1, 2, 1
        options.models = options.models or ["network", "MC dropout", "learn"]
    gpflow.config.set_default_float(np.float32)
    train, held_out, test, outside = load(Path(options.data_dir), options.rows, num_held_out)
    test, outside = (Images(*(v[: options.scored] for v in part)) for part in (test, outside))
    task = Task(train, held_out, test, outside, options.epochs, options.width)
    pairs = [trained(task, seed, options.weights) for seed in range(options.members)]
    members, all_seconds = [net for net, _ in pairs], sum(seconds for _, seconds in pairs)
    seconds = all_seconds / options.members
    models: dict[str, tuple[Callable[..., Prediction], float]] = {
        "network": (alone, seconds),
        "network, temperature": (maximum_likelihood, seconds),
        "MC dropout": (dropout, seconds),
        "ensemble": (ensemble, all_seconds),
        "ensemble, mirrored": (mirrored_ensemble, all_seconds),
        "learn": (around("layers"), seconds),
        "learn, mirrored": (around("layers", mirror=True), seconds),
        "learn, three networks": (around("layers", 3), 3 * seconds),
        "learn, three networks, mirrored": (around("layers", 3, mirror=True), 3 * seconds),
        "learn, four networks, mirrored": (around("layers", 4, mirror=True), 4 * seconds),
        "learn, penultimate": (around("penultimate"), seconds),
        "learn, penultimate and inputs": (around(["penultimate", "inputs"]), seconds),
        "SVGP on features": (svgp_on_features, seconds),
        "SVGP on pixels": (svgp, 0.0),
        "P on pixels": (regulariser, 0.0),
        "PGVI, 0.01": (pgvi(0.01), 0.0),
        "PGVI, 0.03": (pgvi(0.03), 0.0),
        "PGVI, 0.03, context": (pgvi(0.03, context_of(train.X)), 0.0),
    }
    if options.laplace and can_import("laplace", options.laplace):
        models["last-layer Laplace"] = (laplace(options.laplace), seconds)
    elif options.laplace:
        print(f"last-layer Laplace: {options.laplace} cannot import laplace, left out\n")
    if options.models:
        models = {name: models[name] for name in options.models}
    print("| model | accuracy | NLL | ECE | AUROC of MNIST | FPR at 95 % TPR | seconds |")
    print("| --- | --: | --: | --: | --- | --: | --: |")
    figures: dict[str, Any] = {}
    for name, (predict, before) in models.items():
        start = time.perf_counter()
        prediction = predict(task, members)
        figures[name] = {
            "accuracy": metrics.accuracy(test.Y, prediction.probabilities),
            "nll": metrics.cross_entropy(test.Y, prediction.probabilities),
            "ece": metrics.ece(test.Y, prediction.probabilities),
            **{key: metrics.auroc(*pair) for key, pair in prediction.scores.items()},
            **{f"{k} fpr95": metrics.fpr_at_tpr(*pair) for k, pair in prediction.scores.items()},
            "seconds": time.perf_counter() - start + before,
        }
        print(_row(name, figures[name]), flush=True)
        if options.output:
            options.output.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
