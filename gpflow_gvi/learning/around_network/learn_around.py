"""A Gaussian process around a network: what it predicts, and how far to trust that.

h is the network, of which nothing is trained any further, and k a kernel on features of it. P is
GP(h, k) given the training rows, whose mean stays h, and whose covariance is

    r(x, x') = k(x, x') - k_xX (k_XX + I/W)⁻¹ k_Xx',

by the inducing points of a sparse posterior (Ortega, Rodríguez-Santana and Hernández-Lobato 2024,
"Fixed-mean Gaussian processes for post-hoc Bayesian deep learning"). It is small where features are
like those of training rows, and k elsewhere. k is as wide as h varies among the training rows, and
wider beyond their `reach`, where h grows and k has to outgrow it: far away classes are as probable
as they are frequent, and numbers are lost in the variance. W is the curvature of -log p(y | f):
1/σ² of numbers, and of labels the largest that there is, ½ under a softmax and ¼ under a sigmoid
(Böhning 1992, "Multinomial logistic regression algorithm"). That at h, as Laplace's approximation
has it, vanishes where the network is certain of labels that it was trained with. r is the same for
all classes, so that none overtakes another.

    Q = GP(τ h, τ² α r)

has a temperature 1/τ of the logits (Guo, Pleiss, Sun and Weinberger 2017), or else the variance of
the noise, and α chosen by the density of rows that the network has not seen.
"""

from __future__ import annotations

import dataclasses
import warnings
from functools import singledispatch
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, RegressionData, TensorType
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, Softmax
from gpflow.utilities import positive, set_trainable

from ..._core import labels, network_layers, progress
from ..._core.data import Data
from ..._core.errors import NumericsWarning, shown
from ..._core.graphs import deepcopy
from ..._core.network_graph import flat, head, parts_of
from ..._core.notices import logger
from ..._core.row_blocks import by_blocks
from ...calibration.conformal_prediction import conformal
from ...covariances import CholeskySVGP, Tempered
from ...gaussian_process import GaussianProcess
from ...kernels.columns import on_columns
from ...losses import Marginals
from ...mean_functions import NetworkOutputs
from ...models import GVI, PGVI
from ...prediction.class_probabilities import BLOCK
from ...regulariser.expectations import log_predictive_density
from ...regulariser.fit import Regulariser
from ...regulariser.lbfgs import lbfgs
from ..learned import Learned
from ..rows.scaling import Scaling
from ..rows.split import Split
from ..settings import Settings
from .curvature import inverse_curvature
from .feature_kernel import feature_kernel, widening
from .network_checks import order_of, require_order, scale_that_fits, warn_of_units
from .network_data import inputs_of
from .network_rows import Inputs, NetworkInputs, NetworkRows, Outputs, network_rows
from .network_training import NetworkTraining
from .reach import leaning, reach_of

MAX_ROWS_OF_SCALES = 5000
"""The scales are fitted to not more rows than these."""


def is_meant(network: Any, features: Any, train_network: bool | None, data: Any) -> bool:
    """Return True if a process is put around a network, not a network into Q's mean.

    It is for inputs that are not rows of numbers, such as images, word indices or several
    inputs; where the network is not to be trained; where features are asked for; and for several
    networks.
    """
    if network is None:
        return False
    X = inputs_of(data)
    is_of_images = isinstance(X, dict) or len(getattr(X, "shape", ())) > 2
    is_fixed = train_network is not None and not train_network
    asked = features is not None or is_fixed or isinstance(network, list | tuple)
    return asked or is_of_images or network_layers.embeds(network) or bool(parts_of(network))


def learn_around(
    data: RegressionData,
    network: Any,
    settings: Settings,
    *,
    features: Any,
    kernel: Any,
    training: NetworkTraining | None,
    validation_data: RegressionData | None,
    columns: Any = None,
    output: str | int | None = None,
) -> Learned:
    """Train the network on request, and learn how far to trust it.

    Its outputs and features are computed once.

    :param data: (X, Y), in any units.
    :param network: h, from inputs [N, D...] to [N, J]; or a list of networks, whose average h is.
    :param settings: the split, the likelihood, and the choice of inducing points.
    :param features: what the kernel is on, as `network_rows` takes it.
    :param kernel: k on the features; `feature_kernel` if not given.
    :param training: how the network is trained; None to leave it as it is.
    :param validation_data: (X, Y) that the network has not been trained with.
    :param columns: the class of each column of the network, if they are not sorted.
    :param output: which output of the network is h, if it has several.
    """
    if not (kernel is None or isinstance(kernel, Kernel)):
        raise TypeError(f"kernel is {shown(kernel)}; around a network it must be one kernel.")
    X, Y = _pair("data", data)
    networks = [head(each, output) for each in network_layers.members(network)]
    parts = parts_of(networks[0])
    networks = [flat(each, parts) for each in networks] if parts else networks
    inputs = Inputs.of(networks[0], X, parts)
    X = inputs.validated("X", X)
    outputs = Outputs.of_all(networks, inputs, X)
    likelihood = _likelihood(settings, networks[0], outputs, Y)
    settings = dataclasses.replace(settings, likelihood=likelihood)
    if training is None and settings.of_classes:
        numbers = np.reshape(labels.validated("Y", Y, max(outputs.columns, 2)), [-1, 1])
        inputs = scale_that_fits(networks[0], inputs, X, numbers)
    if inputs.scales_pixels and X.dtype == np.uint8:
        logger.warning("X has pixels in bytes, 0 to 255; they become numbers from 0 to 1.")
    if not settings.of_classes:
        outputs = outputs._replace(kind=None)  # whatever they are, they are numbers
    split = _split((X, Y), settings, inputs, validation_data, trains=training is not None)
    classes = np.unique(split.train[1])
    if settings.of_classes and len(classes) < 2:
        raise ValueError(
            f"Y has examples of class {classes[0]:.0f} alone: there is nothing to tell apart. Give "
            "examples of at least two classes."
        )
    history: dict[str, list[float]] = {}
    units = Scaling(np.zeros(outputs.columns), np.ones(outputs.columns))
    if training is not None:
        networks, history = training.of_all(networks, inputs, split, outputs.kind)
    else:
        units = units if settings.of_classes else split.outputs.linear
        if validation_data is None and (split.holds_out or split.calibration is not None):
            _warn_of_seen_rows()
    features = network_layers.LAYERS if features is None else features
    progress.now("outputs and features of all rows")
    named = settings.classes
    if named is None and settings.of_classes:
        named = np.arange(max(outputs.columns, 2))
    reach = reach_of(split.train[0], inputs.floats)
    rows = network_rows(networks, features, inputs, outputs, order_of(columns, named), reach)
    split = split.with_inputs(lambda part: np.asarray(rows(part)))
    h = split.train[0][:, : outputs.columns]
    if training is None and not settings.of_classes:
        warn_of_units(h, split.train[1])
    elif training is None and columns is None:
        require_order(h, split.train[1], settings.classes)
    scaling = rows.scaling(split.train[0], units, standardise=settings.standardise)
    split = dataclasses.replace(split, inputs=scaling)
    progress.now(f"P around the network, {len(split.train[0])} rows")
    learned = _learned(split, settings, rows, kernel)
    units_of_rows = NetworkInputs(rows, split.inputs)
    named = named if settings.of_classes else None
    return dataclasses.replace(learned, inputs=units_of_rows, history=history, classes_=named)


def _learned(split: Split, settings: Settings, rows: NetworkRows, kernel: Kernel | None) -> Learned:
    """Learn from rows [h(x), φ(x)]."""
    X, Y = split.standard(split.train)
    held_out = None if split.validation is None else split.standard(split.validation)
    features = range(rows.num_outputs, rows.num_outputs + sum(rows.num_features))
    b = None
    if kernel is not None:
        k = on_columns(kernel, features)
    else:
        k = widening(feature_kernel(X, rows), X.shape[1])
        if settings.of_classes:
            counts = np.bincount(Y[:, 0].astype(int), minlength=max(rows.num_outputs, 2))
            b = leaning(counts, rows.num_outputs) * np.sqrt(k(X[:1], full_cov=False))
    progress.now("the covariance of P, and its scales")
    M = settings.regulariser.count(len(X))
    Z, _ = settings.regulariser.select(X, M, kernel=k, seed=settings.seed)
    h = NetworkOutputs(rows.num_outputs, beyond=b)
    likelihood = _with_noise(settings.likelihood, h, (X, Y) if held_out is None else held_out)
    noise = inverse_curvature(likelihood, X, rows.num_outputs)
    r = CholeskySVGP.from_data(k, Z, X, noise, num_latent_gps=len(noise))
    prior, posterior = GaussianProcess(h, k), GaussianProcess(h, r)
    model = PGVI(posterior, GaussianProcess(h, r), likelihood, num_data=len(X))
    if held_out is not None:
        model = _scaled_by(model, held_out)
    calibration = None
    if split.calibration is not None:
        calibration = conformal(model, split.standard(split.calibration))
    regulariser = Regulariser(prior, posterior, likelihood, Z, None, np.nan, True)
    return Learned(model, regulariser, split.inputs, split.outputs, {}, calibration)


def _with_noise(
    likelihood: Likelihood | None, h: NetworkOutputs, rows: RegressionData
) -> Likelihood:
    """Return the likelihood; by default a Gaussian whose noise is the mean squared error."""
    if likelihood is not None:
        return deepcopy(likelihood)
    errors = np.mean(np.square(rows[1] - np.asarray(h(rows[0]))), axis=0)  # [J]
    variance = np.maximum(errors, np.finfo(errors.dtype).eps)
    return Gaussian(variance, variance_lower_bound=0.0)


def _scaled_by(model: GVI, validation_data: RegressionData) -> GVI:
    """Return a model whose mean is a network's with its scales fitted to held-out rows.

    For labels they are τ and α in f ~ GP(τ h, τ² α r), for all classes; for numbers α_j and the
    variance of the noise in y_j ~ N(h_j, α_j r_j + σ_j²). They maximise the predictive density of
    the rows with the prior log τ, log α ~ N(0, 1), so that a few rows leave them as they are.

    :param model: with `NetworkOutputs` for its mean; it is not changed.
    :param validation_data: rows that the network has not seen.
    """
    X, Y = Data.of([part[:MAX_ROWS_OF_SCALES] for part in validation_data], model.likelihood)
    mean, variance = by_blocks(model.predict_f, X, size=BLOCK)
    at = Marginals(X, tf.constant(mean), tf.constant(variance), Y)
    factor, alpha, likelihood = _scales(model.likelihood, at)
    scaled = deepcopy(model)
    Q = scaled.variational
    b = Q.mean_function.beyond
    h = NetworkOutputs(mean.shape[-1], factor, None if b is None else b * np.sqrt(alpha))
    alpha = Parameter(alpha, transform=positive(lower=0.0), trainable=False)
    scaled.variational = GaussianProcess(h, Tempered(Q.kernel, alpha))
    scaled.likelihood = likelihood
    return scaled


Scales = tuple[TensorType, TensorType, Likelihood]
"""What the mean and the variance of f are multiplied by, and the likelihood."""


@singledispatch
def _scales(likelihood: Likelihood, at: Marginals) -> Scales:
    """Return the scales under a likelihood of classes."""
    logs = tf.Variable(tf.zeros([2], at.f_mean.dtype))  # of τ and α

    @tf.function(autograph=False)
    def loss() -> tf.Tensor:
        factor, alpha = tf.unstack(tf.exp(logs))
        variance = factor**2 * alpha * at.f_variance
        density = log_predictive_density(likelihood, at.X, factor * at.f_mean, variance, at.Y)
        return -tf.reduce_mean(density) + 0.5 * tf.reduce_sum(tf.square(logs)) / len(at.Y)

    lbfgs(loss, [logs])
    factor, alpha = np.exp(logs.numpy())
    return factor, factor**2 * alpha, likelihood


@_scales.register
def _(likelihood: Gaussian, at: Marginals) -> Scales:
    errors = tf.square(at.Y - at.f_mean)  # [N, J]
    alpha = tf.Variable(tf.zeros_like(errors[0]))  # its logarithm, [J]
    fixed = likelihood.conditional_variance(at.X[:1], at.f_mean[:1])[0]
    noise = tf.Variable(tf.math.log(fixed + tf.zeros_like(alpha)))  # its logarithm, [J]

    @tf.function(autograph=False)
    def loss() -> tf.Tensor:
        variance = tf.exp(alpha) * at.f_variance + tf.exp(noise)
        density = tf.math.log(variance) + errors / variance
        return 0.5 * tf.reduce_sum(tf.reduce_mean(density, 0) + tf.square(alpha) / len(at.Y))

    lbfgs(loss, [alpha, noise] if likelihood.trainable_variables else [alpha])
    variance = Parameter(np.exp(noise.numpy()), transform=positive(lower=0.0))
    set_trainable(variance, bool(likelihood.trainable_variables))
    return 1.0, np.exp(alpha.numpy()), Gaussian(variance, variance_lower_bound=0.0)


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
        split = Split.of(
            (numbers, Y), dataclasses.replace(settings, calibration_fraction=0.0), held_out
        ).calibrated_by_validation(settings)

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
    given = settings.likelihood
    J, shape = outputs.columns, np.shape(Y)
    P = shape[1] if len(shape) > 1 else 1
    likelihood = given
    if given is None and P == 1 and J > 1:
        likelihood = Softmax(J)
    elif (
        given is None
        and P == J == 1
        and (outputs.kind == "probabilities" or (settings.classes is not None and outputs.kind))
    ):
        likelihood = Bernoulli(invlink=tf.math.sigmoid)
    classes = labels.num_classes(likelihood)
    wanted = P if classes is None else 1 if isinstance(likelihood, Bernoulli) else classes
    if wanted != J:
        raise ValueError(
            f"network returns {J} columns, but Y, of shape {shape}, under "
            f"{'Gaussian noise' if likelihood is None else type(likelihood).__name__} has {wanted} "
            f"latent functions; give it {wanted} outputs."
        )
    if classes is None and not (likelihood is None or isinstance(likelihood, Gaussian)):
        raise TypeError(
            f"likelihood is {shown(likelihood)}; around a network it must be a Gaussian, or a "
            "MultiClass, Softmax or Bernoulli of labels."
        )
    if likelihood is None and J > 1 and outputs.kind == "probabilities":
        raise ValueError(
            f"network returns probabilities, and Y has {P} columns. Pass labels, as "
            "Y.argmax(axis=1) makes them of a one-hot code."
        )
    if classes is not None and outputs.kind is None:
        raise ValueError(
            f"network {shown(getattr(network, 'name', network))} returns numbers from 0 to 1, or "
            "ends with an activation, so that it is not clear whether they are probabilities or "
            'logits. End it with activation="softmax" ("sigmoid" for one column), or with no '
            "activation, which returns logits."
        )
    return likelihood


def _warn_of_seen_rows() -> None:
    warnings.warn(
        "train_network=False without validation_data: how far the network is to be trusted is "
        "learned from rows held out of the data. If it was trained with them, its errors there are "
        "smaller than elsewhere; pass validation_data=(X, Y) that it has not seen.",
        NumericsWarning,
        stacklevel=5,
    )
