"""Several outputs learned together: correlated ones, and rows with some of their values missing.

The outputs are one function of x and of the number j of the output, and an observation y_nj is one
of that function at [x_n, j]: what was not observed has no row. Candidates for the kernel of P are

    k(x, x') B_ij,    Σ_q k_q(x, x') B^q_ij,    Σ_j k_j(x, x') δ_ij:

intrinsic and linear coregionalisation (Álvarez, Rosasco and Lawrence 2012, "Kernels for
vector-valued functions: a review", section 4.2), and independent outputs. Each output has noise of
its own. The greatest evidence chooses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import AnyNDArray, RegressionData, TensorType
from gpflow.config import default_float
from gpflow.functions import Function, Zero
from gpflow.kernels import Coregion, Kernel, Sum
from gpflow.likelihoods import Gaussian
from gpflow.utilities import positive, set_trainable

from .._core import checks, images, labels, outputs
from .._core.data import Data, as_floats
from .._core.graphs import deepcopy
from ..calibration.conformal_prediction import conformal
from ..gaussian_process import GaussianProcess
from ..kernels import OutputAsInput
from ..kernels.active_columns import on_columns, require_columns
from ..kernels.output_as_input import at_output
from ..mean_functions import MeanOfOutputs
from ..models import PGVI
from . import starts
from .learned import Learned
from .procedure import Procedure
from .recipe import Recipe
from .refusals import require_pair
from .row_facts import left_out_together
from .rows.scaling import Scaling
from .rows.split import Split, hold_out, require_variation
from .settings import Settings
from .updating import update

MAX_INDUCING_FACTOR = 3
"""All outputs share at most this many times the inducing points of one."""

OWN_VARIANCE = 0.1
"""The median of κ under its prior: the variance of what an output shares with no other."""

INDEPENDENT = 1e-6
"""The variance in B of outputs that a term leaves out."""


class NoiseOfOutput(Function):
    """σ²([x, j]) = σ_j², for rows with the number of the output in the last column."""

    def __init__(self, variance: Any) -> None:
        super().__init__()
        self.variance = Parameter(variance, transform=positive(lower=1e-6))

    @check_shapes("X: [N, D]", "return: [N, 1]")
    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return the noise variance of each row: [N, 1]."""
        return tf.gather(self.variance, tf.cast(X[:, -1], tf.int32))[:, None]


def observed(data: Any) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """Return X and Y [N, J] of the rows that have a value which is not NaN, and their numbers.

    Each column has such a value as well. Labels stay as they are.

    :param data: (X, Y), with NaN, None or a mask in Y where there is no observation.
    """
    require_pair(data, "missing='ignore'")
    rows = labels.labelled_rows(data[1])
    if rows is not None:
        X, _ = Data.of((data[0], np.zeros(len(data[1]))))
        Y = np.asarray(data[1]) if isinstance(data[1], list | tuple) else data[1]
        return np.asarray(X)[rows], getattr(Y, "iloc", Y)[rows], rows
    Y = with_nan("Y", data[1])
    missing = np.isnan(Y)
    X, _ = Data.of((data[0], np.where(missing, 0.0, Y)))  # what is not missing must be finite
    if np.any(empty := missing.all(axis=0)):
        raise ValueError(
            f"Y has no value in column {np.flatnonzero(empty)[0]}: all are missing. Leave such "
            "columns out."
        )
    rows = np.flatnonzero(~missing.all(axis=1))
    return np.asarray(X)[rows], Y[rows], rows


def with_nan(name: str, Y: Any) -> AnyNDArray:
    """Return observations as numbers, with NaN where there is none; a vector is one column."""
    if isinstance(Y, np.ma.MaskedArray):
        Y = np.where(Y.mask, np.nan, Y.data)
    values: AnyNDArray = np.asarray(Y)
    if values.dtype.kind == "O":
        values = np.where(checks.are_missing(values), np.nan, values)
        with contextlib.suppress(TypeError, ValueError):  # other values are named below
            values = values.astype(default_float())
    values = as_floats(name, values)
    return values[:, None] if values.ndim == 1 else values


def learn_jointly(
    data: RegressionData,
    kernels: Sequence[Kernel] | None,
    settings: Settings,
    validation_data: RegressionData | None = None,
) -> Learned:
    """Learn all outputs together; rows to calibrate with are among those with no value missing.

    :param data: (X, Y), [N, D] and [N, J], of `observed`.
    :param kernels: kernels of x, with initial hyper-parameters; those of the recipe if None.
    :param validation_data: (X, Y) to temper with, which may have NaN in Y.
    """
    X, Y = data
    images.refuse_sets(X, are_images=False)
    J = Y.shape[1]
    complete = np.flatnonzero(~np.isnan(Y).any(axis=1))
    order = np.random.default_rng(settings.seed).permutation(complete)
    groups = left_out_together(X)
    _, held_out = hold_out("calibration_fraction", settings, order, groups)
    calibration = X[held_out], Y[held_out]
    rows = np.delete(settings.numbers_of(X), held_out)
    X, Y = np.delete(X, held_out, axis=0), np.delete(Y, held_out, axis=0)
    units = Scaling.none(X), Scaling.none(Y)
    if settings.standardise:
        require_variation(Y)
        units = Scaling.of(X), Scaling.of(Y)
    P = settings.regulariser
    joint = dataclasses.replace(
        settings,
        regulariser=dataclasses.replace(
            P,
            kernels=lambda data: joint_kernels(data.X, data.responses[:, 0], J, kernels, P.recipe),
            predictors=None,
            noise="constant",
            heavy_tails=False,
            num_inducing=min(J, MAX_INDUCING_FACTOR) * P.count(len(X)),
        ),
        likelihood=_noise_of_outputs(settings.likelihood, J),
        standardise=False,
        calibration_fraction=0.0,
        row_numbers=np.repeat(rows, J)[~np.isnan(Y).reshape(-1)],
    )
    unseen = None
    if validation_data is not None:
        require_pair(validation_data, "outputs that are learned together", "validation_data")
        unseen = _rows(units, *observed(validation_data)[:2])
    learned = Procedure(Split.of(_rows(units, X, Y), joint, unseen), joint).run()
    learned = _with_outputs(learned, units)
    if not len(held_out):
        return learned
    standard = units[0].standard(calibration[0]), units[1].standard(calibration[1])
    return dataclasses.replace(learned, calibration=conformal(learned.model, standard))


def _noise_of_outputs(start: Any, J: int) -> Gaussian:
    """Return noise of each output that starts, or stays, where a `Gaussian` has it."""
    variance = 0.1 if start is None else np.asarray(start.variance)
    noise = NoiseOfOutput(np.broadcast_to(np.asarray(variance, default_float()), J))
    if start is not None:
        set_trainable(noise, bool(start.trainable_variables))
    return Gaussian(noise)


def joint_kernels(
    rows: AnyNDArray, y: AnyNDArray, J: int, given: Sequence[Kernel] | None, recipe: Recipe
) -> list[Kernel]:
    """Return kernels of [x, j] to choose among.

    :param rows: [N, D + 1], with j in the last column.
    :param y: the observations, [N].
    :param given: kernels of x to make them of; those of one function if None.
    """
    X, D = rows[:, :-1], rows.shape[1] - 1
    terms = [] if given is None else given
    require_columns(terms, D)
    if given is None:
        given = [starts.one_kernel(D)]
        if D > 1 and len(X) >= recipe.min_rows_of_relevance:
            given.append(starts.relevant_first(X, y[:, None]))
        shorter = deepcopy(given[0])
        shorter.lengthscales.assign(0.3 * shorter.lengthscales)
        terms = [given[0], shorter]
    if J == 1:
        return [on_columns(kernel, range(D)) for kernel in given]
    W = _loadings(rows, y, J)
    mixed = [_mixed(kernel, W, D) for kernel in given]
    if len(terms) > 1:
        mixed.append(Sum([_mixed(kernel, W / np.sqrt(len(terms)), D) for kernel in terms]))
    return [*mixed, Sum([on_columns(given[0], range(D)) * _alone(j, J, D) for j in range(J)])]


def _mixed(kernel: Kernel, W: AnyNDArray, D: int) -> Kernel:
    """Return k(x, x') B_ij, where k leaves its variance to B, which starts near WWᵀ."""
    kernel = on_columns(kernel, range(D))
    if isinstance(getattr(kernel, "variance", None), Parameter):
        kernel.variance.assign(1.0)
        set_trainable(kernel.variance, False)
    of_outputs = Coregion(*W.shape, active_dims=[D])
    of_outputs.W.assign(W)
    of_outputs.kappa.assign(np.maximum(1.0 - np.sum(np.square(W), axis=1), OWN_VARIANCE))
    # Without priors the evidence takes what all outputs share in some rows for what they are.
    of_outputs.W.prior = tfp.distributions.Normal(*np.array([0.0, 1.0], default_float()))
    of_outputs.kappa.prior = tfp.distributions.LogNormal(
        *np.array([np.log(OWN_VARIANCE), 1.0], default_float())
    )
    return kernel * of_outputs


def _loadings(rows: AnyNDArray, y: AnyNDArray, J: int) -> AnyNDArray:
    """Return W of two columns, [J, 2], for a start of B = WWᵀ + diag κ near the correlations.

    They are those of the outputs that are observed at the same x.
    """
    table = np.full((len(rows), J), np.nan)
    _, where = np.unique(rows[:, :-1], axis=0, return_inverse=True)
    table[np.reshape(where, -1), rows[:, -1].astype(int)] = y
    correlation = np.eye(J)
    for pair in itertools.combinations(range(J), 2):
        both = table[:, pair][np.isfinite(table[:, pair]).all(axis=1)]
        if len(both) > 2 and np.all(np.std(both, axis=0) > 0.0):
            correlation[pair] = correlation[pair[::-1]] = np.corrcoef(both.T)[0, 1]
    values, vectors = np.linalg.eigh(correlation)
    found = vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0.0))
    return 0.9 * found[:, : min(J, 2)] + 0.01


def _alone(j: int, J: int, D: int) -> Coregion:
    """Return the kernel that is one for output j, and zero for the others."""
    kernel = Coregion(J, 1, active_dims=[D])
    kernel.W.assign(np.zeros([J, 1]))
    kernel.kappa.assign(np.where(np.arange(J) == j, 1.0, INDEPENDENT))
    set_trainable(kernel, False)
    return kernel


def _rows(units: tuple[Scaling, Scaling], X: AnyNDArray, Y: AnyNDArray) -> RegressionData:
    """Return observations in the units of the model, one a row: [N', D + 1] and [N', 1]."""
    J = units[1].shift.shape[0]
    rows = np.asarray(at_output(units[0].standard(X), tf.range(J)))
    y = np.reshape(units[1].scaled(Y), [-1, 1])
    seen = ~np.isnan(y[:, 0])
    return rows[seen], y[seen]


def updated_jointly(learned: Learned, X: Any, Y: Any, num_inducing: int) -> Learned:
    """Return the result of `learn_jointly` conditioned on new rows as well, with NaN in Y."""
    X, Y = np.asarray(learned.inputs.validated(X)), with_nan("Y", Y)
    units: Any = learned.inputs, learned.outputs
    (J,) = learned.outputs.input_shape
    if Y.shape != (len(X), J):
        raise ValueError(
            f"Y has shape {Y.shape}; it must be {(len(X), J)}, a row for each row of X and a "
            "column for each output, NaN where there is no observation."
        )
    noise = learned.regulariser.likelihood
    P = learned.regulariser._replace(likelihood=Gaussian(NoiseOfOutput(noise.variance)))
    stack = _stacked, functools.partial(_of_outputs, J=J)
    rows = Data.of(_rows(units, X, Y))
    model, P = update(learned.model, P, rows, num_inducing, *stack)
    inputs = np.unique(P.inducing_points[:, :-1], axis=0)
    P = P._replace(likelihood=noise, inducing_points=inputs)
    return dataclasses.replace(learned, model=model, regulariser=P, history={}, calibration=None)


def _stacked(process: GaussianProcess) -> GaussianProcess:
    """Return the process of rows [x, j] of which a process of J outputs is made."""
    mean: Any = getattr(process.mean_function, "mean_function", Zero())
    return GaussianProcess(mean, process.kernel.kernel)


def _of_outputs(stacked: GaussianProcess, J: int) -> GaussianProcess:
    """Return a process of rows [x, j] as one of x with J outputs."""
    mean = stacked.mean_function
    mean = Zero(J) if isinstance(mean, Zero) else MeanOfOutputs(mean, J)
    return GaussianProcess(mean, OutputAsInput(stacked.kernel, J))


def _with_outputs(learned: Learned, units: tuple[Scaling, Scaling]) -> Learned:
    """Return a model learned from rows [x, j] as a model of x with J outputs."""
    J, D = len(units[1].shift), len(units[0].shift)
    each = at_output(tf.zeros([1, D], default_float()), tf.range(J))

    def noise(likelihood: Gaussian) -> Gaussian:
        variance = Parameter(
            outputs.noise_variance_at(likelihood, each, 1)[:, 0], transform=positive(lower=0.0)
        )
        return Gaussian(variance, variance_lower_bound=0.0)

    P, model = learned.regulariser, learned.model
    return dataclasses.replace(
        learned,
        model=PGVI(
            _of_outputs(model.regulariser, J),
            _of_outputs(model.variational, J),
            noise(model.likelihood),
            num_data=int(model.num_data),
            divergence_weight=float(model.divergence_weight),
        ),
        regulariser=P._replace(
            prior=_of_outputs(P.prior, J),
            posterior=_of_outputs(P.posterior, J),
            likelihood=noise(P.likelihood),
            inducing_points=np.unique(P.inducing_points[:, :-1], axis=0),
            inducing_outputs=None,
        ),
        inputs=units[0],
        outputs=units[1],
    )
