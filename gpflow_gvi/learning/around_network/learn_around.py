"""A Gaussian process around a network: what it predicts, and how far to trust that.

h is the network, of which nothing is trained any further, and k a kernel on features of it. For
labels h has a `correction`, where that predicts rows better that the network has not seen. P is
GP(h, k) given the training rows, whose mean stays h, and whose covariance is

    r(x, x') = k(x, x') - k_xX (k_XX + I/W)⁻¹ k_Xx',

times w(x) w(x') (`reach`), by the inducing points of a sparse posterior (Ortega, Rodríguez-Santana
and Hernández-Lobato 2024, "Fixed-mean Gaussian processes for post-hoc Bayesian deep learning"). It
is small where features are like those of training rows, and k elsewhere, as wide as h varies among
the training rows: far away classes are as probable as they are frequent, and numbers are lost in
the variance. W is the curvature of -log p(y | f): 1/σ² of numbers, and of labels the largest that
there is, ½ under a softmax and ¼ under a sigmoid (Böhning 1992, "Multinomial logistic regression
algorithm"). That at h, as Laplace's approximation has it, vanishes where the network is certain of
labels that it was trained with. r is the same for all classes, so that none overtakes another.

    Q = GP(τ h, τ² α r)

has a temperature 1/τ of the logits (Guo, Pleiss, Sun and Weinberger 2017), or else the variance of
the noise, and α chosen by the density of rows that the network has not seen.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, Softmax
from gpflow.utilities import positive

from ..._core import checks, labels, network_layers, progress
from ..._core.data import Data, as_floats
from ..._core.graphs import deepcopy
from ..._core.network_function import is_keras
from ..._core.network_graph import as_graph, flat, head, parts_of
from ..._core.notices import logger
from ..._core.row_blocks import by_blocks
from ...calibration.conformal_prediction import conformal
from ...covariances import CholeskySVGP, Tempered
from ...errors import NumericsWarning, short_repr
from ...gaussian_process import GaussianProcess
from ...kernels.active_columns import on_columns
from ...likelihoods import is_gaussian
from ...mean_functions import NetworkOutputs
from ...models import GVI, PGVI
from ...prediction.class_probabilities import BLOCK
from ...regulariser.expectations import log_predictive_density
from ...regulariser.fit import Regulariser
from ...regulariser.lbfgs import lbfgs
from ..arguments import Arguments
from ..learned import Learned
from ..rows.scaling import Scaling
from ..rows.split import Rows, Split
from ..settings import Settings
from .correction import correction, inverse_curvature, principal_axes, unseen_rows
from .network_checks import columns_of, order_of, require_order, scale_that_fits, warn_of_units
from .network_rows import (
    Inputs,
    NetworkInputs,
    Outputs,
    feature_kernel,
    kernels_of_groups,
    network_rows,
    widening,
)
from .network_training import is_of_two_classes, units_of_training
from .reach import Classes, leaning, reach_of

MAX_ROWS_OF_SCALES = 5000
"""The scales are fitted to not more rows than these."""


def learn_around(
    data: RegressionData,
    validation_data: RegressionData | None,
    settings: Settings,
    given: Arguments,
) -> Learned:
    """Train the network on request, and learn how far to trust it.

    Its outputs and features are computed once.

    :param validation_data: (X, Y) that the network has not been trained with.
    """
    kernel, training = given.kernel, given.training
    if not (kernel is None or isinstance(kernel, Kernel)):
        raise TypeError(f"kernel is {short_repr(kernel)}; around a network it must be one kernel.")
    X, Y = _pair("data", data)
    networks = [head(each, given.output) for each in network_layers.members(given.network)]
    if parts := parts_of(networks[0]):
        networks = [flat(each, parts) for each in networks]
    inputs = Inputs.of(networks[0], X, parts)
    X = inputs.validated("X", X)
    networks = [as_graph(each, inputs.floats(X[:1])) for each in networks]
    outputs = Outputs.of_all(networks, inputs, X)
    likelihood = _likelihood(settings, networks[0], outputs, Y)
    settings = dataclasses.replace(settings, likelihood=likelihood)
    K = max(outputs.columns, 2) if settings.of_classes else 0
    if K == 0:
        outputs = outputs._replace(kind=None)  # whatever they are, they are numbers
    features = network_layers.LAYERS if given.features is None else given.features
    if is_keras(networks[0]):
        network_layers.require_layers(networks[0], features)
    classes = np.arange(K) if settings.classes is None else settings.classes
    order = order_of(given.classes, classes if K else None, K)
    if training is None:
        of_rows = labels.validated("Y", Y, K) if K else as_floats("Y", checks.array("Y", Y))
        of_rows = of_rows.reshape(len(of_rows), -1)
        inputs = scale_that_fits(networks[0], inputs, X, of_rows, outputs.kind)
    if inputs.scales_pixels and X.dtype == np.uint8:
        logger.warning("X has pixels in bytes, 0 to 255; they become numbers from 0 to 1.")
    split = _split((X, Y), settings, inputs, validation_data, trains=training is not None)
    if K:
        labels.require_two_classes(np.unique(split.train[1].astype(int)))
    history: dict[str, list[float]] = {}
    units_of_h = Scaling.none(split.train[1])
    if training is not None:
        if K == 0:
            units_of_h = units_of_training(networks, split.outputs.linear)
        targets = columns_of(order) if K else units_of_h.standard
        networks, history = training.of_all(networks, inputs, split, outputs, targets)
    elif validation_data is None and (split.holds_out or split.calibration is not None):
        _warn_of_seen_rows()
    progress.now("outputs and features of all rows")
    reach = reach_of(split.train[0], inputs.floats)
    rows = network_rows(networks, features, inputs, outputs, order, reach)
    corrected_by = None
    if K and given.predictor is not None and split.validation is not None:
        corrected_by = unseen_rows(split.validation[0], split.train[0])
        embed = (network_layers.has_layer(each, "Embedding") for each in networks)
        if not rows.with_inputs and not any(embed):
            axes = principal_axes(split.train[0], inputs.floats, reach)
            rows = dataclasses.replace(rows, axes=axes)
    split = split.with_inputs(lambda part: np.asarray(rows(part)))
    h = split.train[0][:, : outputs.columns]
    of_outputs = Scaling.none(h)
    if K == 0:
        to = split.outputs.linear
        shift, scale = to.shift - units_of_h.shift, units_of_h.scale
        of_outputs = Scaling(shift / scale, to.scale / scale)
    if training is None and K == 0:
        warn_of_units(h, split.train[1])
    elif training is None and given.classes is None:
        require_order(h, split.train[1], classes)
    units = rows.scaling(split.train[0], of_outputs, standardise=settings.standardise)
    found = None
    if K and kernel is None and rows.last is not None:
        found = Classes.of(split.train[0][:, rows.columns_of_last], split.train[1][:, 0])
    rows = dataclasses.replace(rows, units=units, classes=found)
    split = split.with_inputs(lambda part: np.asarray(rows.scaled(part)))
    progress.now(f"P around the network, {len(split.train[0])} rows")
    learned = _learned(split, settings, rows, kernel, corrected_by)
    return dataclasses.replace(
        learned, inputs=rows, history=history, classes_=classes if K else None
    )


def _learned(
    split: Split,
    settings: Settings,
    rows: NetworkInputs,
    kernel: Kernel | None,
    corrected_by: AnyNDArray | None,
) -> Learned:
    """Learn from rows [h(x), φ(x), w(x), s(x)].

    :param corrected_by: which rows for validation tell how logits are corrected, if any.
    """

    def standard(part: Rows) -> Rows:
        return part[0], np.asarray(split.outputs.standard(part[1]))

    X, Y = standard(split.train)
    held_out = None if split.validation is None else standard(split.validation)
    b = None
    if kernel is not None:
        features = range(rows.num_outputs, rows.num_outputs + sum(rows.num_features))
        k = of_features = on_columns(kernel, features)
    else:
        of_features = feature_kernel(X, rows)
        k, b = widening(of_features, X.shape[1]), np.zeros(rows.num_outputs)
        if settings.of_classes:
            counts = np.bincount(Y[:, 0].astype(int), minlength=max(rows.num_outputs, 2))
            deviation = np.sqrt(of_features(X[:1], full_cov=False))
            b = leaning(counts, rows.num_outputs) * deviation
    progress.now("the covariance of P, and its scales")
    M = settings.regulariser.most_inducing(len(X))
    among = X[: settings.regulariser.recipe.max_rows_of_choice]
    Z, _ = settings.regulariser.select(among, M, kernel=of_features, seed=settings.seed)
    c = None
    if corrected_by is not None and held_out is not None and settings.likelihood is not None:
        unseen = held_out[0][corrected_by], held_out[1][corrected_by]
        kernels, seed = kernels_of_groups(X, rows), settings.seed
        c = correction((X, Y), _first(unseen), kernels, settings.likelihood, M, seed)
    h = NetworkOutputs(rows.num_outputs, beyond=b, correction=c)
    likelihood = _with_noise(settings.likelihood, h, (X, Y) if held_out is None else held_out)
    noise = inverse_curvature(likelihood)
    of_rows = noise * np.asarray(h.variance_scale(X))[:, None]  # [N, J], or [N, 1] for all classes
    r = CholeskySVGP.from_data(k, Z, X, of_rows, num_latent_gps=len(noise))
    prior, posterior = GaussianProcess(h, k), GaussianProcess(h, r)
    model = PGVI(posterior, GaussianProcess(h, r), likelihood, num_data=len(X))
    if held_out is not None:
        model = _scaled_by(model, held_out)
    calibration = None
    if split.calibration is not None:
        calibration = conformal(model, standard(split.calibration))
    regulariser = Regulariser(prior, posterior, likelihood, Z, None, (), True)
    return Learned(model, regulariser, split.inputs, split.outputs, {}, calibration)


def _with_noise(
    likelihood: Likelihood | None, h: NetworkOutputs, rows: RegressionData
) -> Likelihood:
    """Return the likelihood; of numbers, with a noise variance for each column: by default MSE."""
    if likelihood is not None and labels.num_classes(likelihood):
        return deepcopy(likelihood)
    if likelihood is None:
        variance = np.mean(np.square(rows[1] - np.asarray(h(rows[0]))), axis=0)  # [J]
        variance = np.maximum(variance, np.finfo(variance.dtype).eps)
    else:
        f = np.zeros_like(rows[0][:1, : h.num_outputs])
        variance = likelihood.conditional_variance(rows[0][:1], f)[0]
    trainable = likelihood is None or bool(likelihood.trainable_variables)
    variance = Parameter(variance, transform=positive(base="exp"), trainable=trainable)
    return Gaussian(variance, variance_lower_bound=0.0)


def _scaled_by(model: GVI, validation_data: RegressionData) -> GVI:
    """Return a model whose mean is a network's with its scales fitted to held-out rows.

    For labels they are τ and α in f ~ GP(τ h, τ² α r), for all classes; for numbers α_j and the
    variance of the noise in y_j ~ N(h_j, α_j r_j + σ_j²). They maximise the predictive density of
    the rows with the prior log τ, log α ~ N(0, 1), so that a few rows leave them as they are.
    """
    scaled = deepcopy(model)
    Q, likelihood = scaled.variational, scaled.likelihood
    X, Y = Data.of(_first(validation_data), likelihood)
    mean, variance = map(tf.constant, by_blocks(model.predict_f, X, size=BLOCK))
    of_classes = labels.num_classes(likelihood) is not None
    log_factor = tf.Variable(tf.zeros([], mean.dtype))  # log τ
    log_alpha = tf.Variable(tf.zeros([] if of_classes else mean.shape[1:], mean.dtype))
    scales = [log_factor, log_alpha] if of_classes else [log_alpha]

    @tf.function(autograph=False)
    def loss() -> tf.Tensor:
        factor, alpha = tf.exp(log_factor), tf.exp(log_alpha)
        of_f = factor * mean, factor**2 * alpha * variance
        density = log_predictive_density(likelihood, X, *of_f, Y)
        prior = tf.add_n([tf.reduce_sum(tf.square(each)) for each in scales])
        return -tf.reduce_mean(density) + 0.5 * prior / len(Y)

    lbfgs(loss, [*scales, *likelihood.trainable_variables])
    factor = np.exp(log_factor.numpy())
    alpha = np.square(factor) * np.exp(log_alpha.numpy())
    b = Q.mean_function.beyond
    b = None if b is None else b * np.sqrt(alpha)
    h = NetworkOutputs(mean.shape[-1], factor, b, Q.mean_function.correction)
    alpha = Parameter(alpha, transform=positive(lower=0.0), trainable=False)
    scaled.variational = GaussianProcess(h, Tempered(Q.kernel, alpha))
    return scaled


def _first(rows: RegressionData) -> Rows:
    """Return as many rows as scales are fitted to."""
    X, Y = rows
    return X[:MAX_ROWS_OF_SCALES], Y[:MAX_ROWS_OF_SCALES]


def _split(
    data: RegressionData, settings: Settings, inputs: Inputs, validation_data: Any, *, trains: bool
) -> Split:
    """Return the split of data whose inputs stay as they are: of the numbers of the rows.

    A network that is not trained here may have seen the data: rows that calibrate it are a part of
    `validation_data`, where these are given.

    :param trains: whether the network is trained with the rows of the split.
    """
    X, Y = data
    N = len(X)
    numbers, held_out = np.arange(N, dtype=float)[:, None], None
    if validation_data is not None:
        unseen, Y_unseen = _pair("validation_data", validation_data)
        unseen = inputs.validated("validation_data[0]", unseen)
        held_out = N + np.arange(len(unseen), dtype=float)[:, None], Y_unseen
    if trains or held_out is None:
        split = Split.of((numbers, Y), settings, held_out)
    else:
        without = dataclasses.replace(settings, calibration_fraction=0.0)
        split = Split.of((numbers, Y), without, held_out).calibrated_by_validation(settings)

    def at(part: AnyNDArray) -> AnyNDArray:
        places = part[:, 0].astype(int)
        return X[places] if places[0] < N else unseen[places - N]

    return split.with_inputs(at)


def _pair(name: str, data: Any) -> tuple[Any, Any]:
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(f"{name} is a {type(data).__name__}; it must be the pair (X, Y).")
    return data[0], data[1]


def _likelihood(settings: Settings, network: Any, outputs: Outputs, Y: Any) -> Likelihood | None:
    """Return the likelihood that the outputs of the network and Y are for."""
    J, shape = outputs.columns, np.shape(Y)
    P = shape[1] if len(shape) > 1 else 1
    likelihood, of_two = settings.likelihood, settings.classes is not None
    of_two = bool(outputs.kind) and (of_two or is_of_two_classes(network))
    if likelihood is None and P == 1 < J:
        likelihood = Softmax(J)
    elif likelihood is None and P == J == 1 and (outputs.kind == "probabilities" or of_two):
        _require_whole(Y)
        likelihood = Bernoulli(invlink=tf.math.sigmoid)
    classes = labels.num_classes(likelihood)
    wanted = P if classes is None else getattr(likelihood, "latent_dim", None) or 1
    if wanted != J:
        raise ValueError(
            f"network returns {J} columns, but Y, of shape {shape}, under "
            f"{'Gaussian noise' if likelihood is None else type(likelihood).__name__} has {wanted} "
            f"latent functions; give it {wanted} outputs."
        )
    if classes is None and not is_gaussian(likelihood):
        raise TypeError(
            f"likelihood is {short_repr(likelihood)}; around a network it must be a Gaussian, or a "
            "MultiClass, Softmax or Bernoulli of labels."
        )
    if likelihood is None and J > 1 and outputs.kind == "probabilities":
        raise ValueError(
            f"network returns probabilities, and Y has {P} columns. Pass labels, as "
            "Y.argmax(axis=1) makes them of a one-hot code."
        )
    if classes is not None and outputs.kind is None:
        raise ValueError(
            f"network {short_repr(getattr(network, 'name', network))} returns numbers from 0 to "
            "1, or ends with an activation, so that it is not clear whether they are probabilities "
            'or logits. End it with activation="softmax" ("sigmoid" for one column), or with no '
            "activation, which returns logits."
        )
    return likelihood


def _require_whole(Y: Any) -> None:
    """Raise if Y, for a network that ends with a sigmoid, are fractions and no labels."""
    values = np.asarray(Y)
    fractions = values[np.isfinite(values) & (values % 1 != 0)] if values.dtype.kind == "f" else []
    if len(fractions):
        raise ValueError(
            f"network returns probabilities, and Y has values that are no labels (the first is "
            f"{fractions[0]:.6g}). If they are numbers pass "
            "likelihood=gpflow.likelihoods.Gaussian(); if classes, labels 0 and 1."
        )


def _warn_of_seen_rows() -> None:
    warnings.warn(
        "train_network=False without validation_data: how far the network is to be trusted is "
        "learned from rows held out of the data. If it was trained with them, its errors there are "
        "smaller than elsewhere; pass validation_data=(X, Y) that it has not seen.",
        NumericsWarning,
        stacklevel=6,
    )
