"""The whole procedure in one call, from data in original units to predictions in original units.

    data → inducing points → regulariser P → variational Q → tempering → calibration

Each step is a function of its own, in a module of its own; this one joins them.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, RegressionData, TensorType
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.utilities import deepcopy
from scipy import stats

from . import checks, labels, recipe, serialisation
from .calibration import FEW_POINTS, temper, tempered_by
from .classification import class_probabilities
from .conformal_prediction import Conformal, ConformalSets, conformal, require_real_outputs
from .divergences import Divergence
from .errors import NumericsWarning
from .evidence import DataEvidence
from .gaussian_process import GaussianProcess
from .inducing import Select, greedy_variance
from .mean_functions import Network
from .models import GVI, PGVI
from .optimisation import lbfgs
from .regulariser import Regulariser, fit_regulariser
from .scaling import Scaling
from .stopping import Training, tempered_nll

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Learned:
    """A fitted, tempered model that takes and gives original units."""

    model: GVI
    """The model, in standard units."""
    regulariser: Regulariser
    """The regulariser, in standard units, as it was fitted."""
    inputs: Scaling
    """Standard units of X."""
    outputs: Scaling
    """Standard units of Y."""
    history: dict[str, list[float]]
    """Of each epoch of training Q: the loss, its terms, and the held-out density."""
    calibration: Conformal | ConformalSets | None = None
    """Intervals, or sets of classes, with a guarantee, if data were set aside for them; in standard
    units."""

    @property
    def likelihood(self) -> Likelihood:
        """p(y | f), in standard units."""
        return self.model.likelihood

    def predict_f(self, X: TensorType, full_cov: bool = False) -> MeanAndVariance:
        """Return mean and variance of f at X, [N, J] each (covariance [J, N, N])."""
        mean, variance = self.model.predict_f(self.inputs.standard(X), full_cov=full_cov)
        scale = self.outputs.scale[:, None, None] if full_cov else self.outputs.scale
        return self.outputs.original(mean), variance * scale**2

    def predict_y(self, X: TensorType) -> MeanAndVariance:
        """Return mean and variance of y at X: [N, J] each."""
        mean, variance = self.model.predict_y(self.inputs.standard(X))
        return self.outputs.original(mean), variance * self.outputs.scale**2

    def predict_log_density(self, data: RegressionData) -> tf.Tensor:
        """Return the log density of each observed y: [N]."""
        X, Y = self.inputs.standard(data[0]), self.outputs.standard(_column(data[1]))
        return self.model.predict_log_density((X, Y)) - float(np.sum(np.log(self.outputs.scale)))

    def predict_f_samples(self, X: TensorType, num_samples: int) -> tf.Tensor:
        """Return joint samples of f at X: [num_samples, N, J]."""
        samples = self.model.predict_f_samples(self.inputs.standard(X), num_samples)
        return self.outputs.original(samples)

    def predict_proba(self, X: TensorType) -> Array:
        """Return the probabilities of the classes at X, where Y are labels: [N, J]."""
        return class_probabilities(self.model, self.inputs.standard(X))

    def predict_set(self, X: TensorType, coverage: float = 0.95) -> Array:
        """Return which classes are in a set that holds the label with the given probability.

        [N, J], booleans. They need `calibration_fraction`.
        """
        if not isinstance(self.calibration, ConformalSets):
            raise ValueError(
                "predict_set: there are no sets of classes. Learn from labels, with a likelihood "
                "of classes and a calibration_fraction such as 0.2."
            )
        return self.calibration.predict_set(self.inputs.standard(X), coverage)

    def predict_interval(
        self, X: TensorType, coverage: float = 0.95
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the ends of an interval that holds y with the given probability: [N, J] each.

        With calibration data it has split conformal prediction's guarantee; without, it is the
        central interval of the predictive density.
        """
        require_real_outputs(self.model)
        if isinstance(self.calibration, Conformal):
            ends = self.calibration.predict_interval(self.inputs.standard(X), coverage)
            lower, upper = (self.outputs.original(end) for end in ends)
            return lower, upper
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage is {coverage}; it must lie between 0 and 1, as 0.95 does.")
        mean, variance = self.predict_y(X)
        half = stats.norm.ppf(0.5 + 0.5 * coverage) * tf.sqrt(variance)
        return mean - half, mean + half

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write everything to a folder, without pickle, for `gpflow_gvi.load`."""
        serialisation.save(self, folder, overwrite=overwrite)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, custom_objects: Mapping[str, Any] | None = None
    ) -> Learned:
        """Read what `save` wrote."""
        loaded = serialisation.load(folder, custom_objects=custom_objects)
        if not isinstance(loaded, cls):
            raise TypeError(f"folder {folder} holds a {type(loaded).__name__}, not a Learned.")
        return loaded


def learn(
    data: RegressionData,
    *,
    kernel: Kernel | Sequence[Kernel] | None = None,
    network: Any = None,
    likelihood: Likelihood | None = None,
    model: type[GVI] = PGVI,
    divergence: Divergence | None = None,
    divergence_weight: float = 0.1,
    num_inducing: int | None = None,
    select: Select = greedy_variance,
    validation_data: RegressionData | None = None,
    validation_fraction: float = 0.1,
    calibration_fraction: float = 0.0,
    standardise: bool = True,
    epochs: int = 20,
    batch_size: int = 200,
    learning_rate: float = 3e-3,
    seed: int = 0,
) -> Learned:
    """Learn a Gaussian process from data, end to end.

    The regulariser P is the sparse posterior under the hyper-parameters of the greatest evidence.
    Q starts there, with a network that starts at zero added to its mean. Q is trained for as long
    as held-out data gain by it, and tempered with them. Rows that this function held out, and not
    the caller, then join the others: P is conditioned on all rows, Q is trained on them for as long
    as was found best, and tempered by the factor that was found.

    :param data: (X, Y), [N, D] and [N, J] or [N], in any units; Y may be labels.
    :param kernel: k of the regulariser, with the hyper-parameters to start from; of several the one
        that predicts held-out data best is taken. By default `recipe.kernels`.
    :param network: what is added to the mean of Q, a function from [N, D] to [N, J] that should be
        zero at its start. By default `recipe.network`.
    :param likelihood: the noise to start from; or a `MultiClass`, `Softmax` or `Bernoulli`, which
        says that Y are labels 0, 1, ....
    :param model: `PGVI`, `GWI` or `GVI`.
    :param divergence: D, if it is not to be the model's own; a context of it is in the units that
        the model works in (`standardise`).
    :param divergence_weight: λ.
    :param num_inducing: M, the number of inducing points of P and Q; by default at most 200.
    :param select: how they are chosen.
    :param validation_data: (X, Y) to stop and to temper with; by default a part of the data.
    :param validation_fraction: how large a part.
    :param calibration_fraction: the part to set aside for conformal intervals, if any.
    :param standardise: whether to work in standard units, for which the defaults are made.
    :param epochs: at most so many looks at the held-out data, each after 50 steps, or after two
        passes over the data if that is more.
    :param batch_size: rows of a batch.
    :param learning_rate: Adam's at the start; it falls along a cosine.
    :param seed: of the split, the selection, the network and the order of batches.
    """
    checks.count("epochs", epochs, least=0)
    checks.count("batch_size", batch_size)
    if num_inducing is not None:
        checks.count("num_inducing", num_inducing)
    of_classes = labels.num_classes(likelihood) is not None
    X, Y = _arrays("X", "Y", data, likelihood)
    if not of_classes:
        _require_variation(Y)
    inputs = Scaling.of(X) if standardise else Scaling.none(X)
    outputs = Scaling.of(Y) if standardise and not of_classes else Scaling.none(Y)

    def standard(rows: Array) -> RegressionData:
        return inputs.standard(X[rows]), outputs.standard(Y[rows])

    rows = np.random.default_rng(seed).permutation(len(X))
    rows, aside = _split("calibration_fraction", calibration_fraction, rows)
    if validation_data is None:
        seen, unseen = _split("validation_fraction", validation_fraction, rows)
        held_out = standard(unseen) if len(unseen) else None
    else:
        X_held_out, Y_held_out = _arrays(
            "validation_data[0]", "validation_data[1]", validation_data, likelihood
        )
        seen, held_out = rows, (inputs.standard(X_held_out), outputs.standard(Y_held_out))

    M = recipe.NUM_INDUCING if num_inducing is None else num_inducing
    regulariser = _best_regulariser(
        standard(seen), held_out, kernel, M, likelihood=likelihood, select=select, seed=seed
    )
    J = regulariser.posterior.mean(inputs.standard(X[:1])).shape[-1]
    network = recipe.network(X.shape[-1], J, seed=seed) if network is None else network

    def start(data: RegressionData) -> GVI:
        points = select(np.asarray(data[0]), M, kernel=regulariser.prior.kernel, seed=seed).points
        P, Q = _start(regulariser, points, data, network)
        options: dict[str, Any] = {}
        if divergence is not None:  # each training starts from the same state of its context
            options["divergence"] = deepcopy(divergence)
        return model(
            P,
            Q,
            deepcopy(regulariser.likelihood),
            num_data=len(data[0]),
            divergence_weight=divergence_weight,
            **options,
        )

    training = Training(epochs, batch_size, learning_rate, seed)
    fitted = start(standard(seen))
    found = training.run(fitted, standard(seen), held_out)
    if held_out is not None:
        fitted = temper(fitted, held_out)
    if held_out is not None and validation_data is None:
        untempered = start(standard(rows))
        training.run(untempered, standard(rows), epochs=found.epochs)
        fitted = tempered_by(untempered, fitted.variational.kernel.factor)
    calibration = conformal(fitted, standard(aside)) if len(aside) else None
    return Learned(fitted, regulariser, inputs, outputs, found.history, calibration)


def _arrays(
    X_name: str, Y_name: str, data: RegressionData, likelihood: Likelihood | None
) -> tuple[Array, Array]:
    """Return inputs and outputs as arrays of the default float; a vector Y is one column."""
    X: Array = np.asarray(data[0], dtype=default_float())
    Y: Array = np.asarray(data[1], dtype=default_float())
    tensors = labels.data(likelihood, X, _column(Y), names=(X_name, Y_name))
    return np.asarray(tensors[0]), np.asarray(tensors[1], dtype=default_float())


def _require_variation(Y: Array) -> None:
    constant = np.flatnonzero(Scaling.of(Y).standard(Y).numpy().std(axis=0) < 0.5)
    if len(Y) > 1 and len(constant):
        raise ValueError(
            f"Y is constant in column {constant[0]} (it is {Y[0, constant[0]]}): there is nothing "
            "to learn, and no scale for errors. Leave such columns out."
        )


def _column(Y: TensorType) -> TensorType:
    """Return a vector as one column, and anything else as it is."""
    return Y[:, None] if len(Y.shape) == 1 else Y


def _split(name: str, fraction: float, rows: Array) -> tuple[Array, Array]:
    """Return the rows in two parts, the second of which has the given fraction, or is empty."""
    if not 0.0 <= fraction < 1.0:
        raise ValueError(f"{name} is {fraction}; it must be at least 0 and less than 1.")
    count = max(round(fraction * len(rows)), FEW_POINTS) if fraction else 0
    if count > len(rows) // 3:
        warnings.warn(
            f"{name}={fraction}: {len(rows)} rows are too few to hold out {count}, so none are, "
            "and predictions are neither stopped, tempered nor calibrated by unseen data.",
            NumericsWarning,
            stacklevel=3,
        )
        count = 0
    return rows[: len(rows) - count], rows[len(rows) - count :]


def _best_regulariser(
    data: RegressionData,
    held_out: RegressionData | None,
    kernel: Kernel | Sequence[Kernel] | None,
    num_inducing: int,
    *,
    likelihood: Likelihood | None,
    select: Select,
    seed: int,
) -> Regulariser:
    """Return the regulariser that predicts held-out data best, or that of the greatest evidence.

    Evidence alone can be misled: with many hyper-parameters there are optima of equal evidence that
    predict quite differently.
    """
    X, Y = (np.asarray(part)[: recipe.MOST_ROWS] for part in data)  # the rows are shuffled
    if kernel is None:
        kernel = recipe.kernels(X, np.asarray(labels.responses(likelihood, Y)))
    minimise = functools.partial(lbfgs, max_iterations=recipe.NUM_ITERATIONS)
    found = [
        fit_regulariser(
            (X, Y),
            start,
            num_inducing,
            likelihood=likelihood,
            evidence=DataEvidence(),
            select=select,
            minimise=minimise,
            max_rounds=1,
            seed=seed,
        )
        for start in ([kernel] if isinstance(kernel, Kernel) else kernel)
    ]
    if held_out is None:
        return max(found, key=lambda regulariser: regulariser.log_evidence)
    return min(
        found,
        key=lambda regulariser: float(
            tempered_nll(regulariser.posterior, regulariser.likelihood, held_out)
        ),
    )


def _start(
    regulariser: Regulariser, points: Array, data: RegressionData, network: Any
) -> tuple[GaussianProcess, GaussianProcess]:
    """Return P, conditioned on the data, and a Q that is P but for a network in its mean."""
    prior, noise = regulariser.prior, regulariser.noise.variance
    data = data[0], labels.responses(regulariser.likelihood, data[1])
    correction = Network(copy.deepcopy(network))
    columns, J = correction(data[0][:1]).shape[-1], data[1].shape[-1]
    if columns != J:
        raise ValueError(
            f"network returns {columns} columns, but there are {J} latent functions; give it {J} "
            "outputs."
        )
    P = DataEvidence().posterior(prior, noise, (points, None), data)
    # k and Z are trained in neither. As the same objects their matrices are computed once for both.
    parts = (getattr(P.kernel, name, None) for name in ("kernel", "inducing_variable"))
    Q = deepcopy(P, {id(part): part for part in parts if part is not None})
    return P, GaussianProcess(Q.mean_function + correction, Q.kernel)
