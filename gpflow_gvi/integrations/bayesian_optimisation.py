"""Bayesian optimisation: the minimum of a function that is costly to evaluate, in few evaluations.

A model of what was evaluated so far says, by an acquisition function, where to evaluate next; it is
fitted again, and so on (Jones, Schonlau and Welch 1998, "Efficient global optimization of expensive
black-box functions"; Shahriari et al. 2016, "Taking the human out of the loop").

    result = minimise(objective, [(-5.0, 10.0), (0.0, 15.0)], num_steps=20)
    result.x, result.fun

The model sees inputs in the unit cube and outputs in standard units.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import scipy.optimize
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import RegressionData, TensorType
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian
from gpflow.models import BayesianModel
from scipy.stats import qmc

from .._core import checks
from .._core.data import Data
from ..errors import short_repr
from ..gaussian_process import GaussianProcess
from ..learning import (
    LBFGS,
    FullBatchTraining,
    ModelSettings,
    Procedure,
    RegulariserSettings,
    Scaling,
    Settings,
    Split,
    TrainingData,
    VariationalSettings,
    inducing_mean,
)
from ..models import GVI
from ..prediction.acquisition import (
    expected_improvement,
    probability_of_improvement,
    upper_confidence_bound,
)
from ..prediction.samples import draw_functions
from ..regulariser.evidence import InducingEvidence

Array = np.ndarray[Any, Any]
Function = Callable[[tf.Tensor], tf.Tensor]
"""From inputs [N, D] to a number for each: [N]."""

NUM_CANDIDATES, NUM_STARTS = 1024, 5
"""The number of inputs at which an acquisition is computed, and how many of them are improved."""


class Acquisition(abc.ABC):
    """How much is gained by an evaluation at an input, as a model of the objective knows it.

    By default by its mean m and variance s² there and by η, the smallest mean at the inputs that
    were evaluated, which noise moves little.
    """

    def __call__(self, model: BayesianModel, data: RegressionData, *, seed: int = 0) -> Function:
        """Return the function of inputs whose maximum is where to evaluate next.

        :param model: a model of the objective, with one output; any model of GPflow.
        :param data: (X, Y), what it was fitted to.
        :param seed: the seed of everything random in it.
        """
        X, Y = Data.of(data)
        if Y.shape[-1] != 1:
            raise ValueError(f"Y has {Y.shape[-1]} columns; an objective has one, [N, 1].")
        predict = model.posterior().predict_f if hasattr(model, "posterior") else model.predict_f
        best = tf.reduce_min(predict(X)[0])

        def function(X: tf.Tensor) -> tf.Tensor:
            mean, variance = predict(X)
            # At an evaluated input the variance may round to zero, where its root has no slope.
            least = tf.constant(np.finfo(variance.dtype.as_numpy_dtype).eps, variance.dtype)
            return self.of_marginals(mean[:, 0], tf.maximum(variance[:, 0], least), best)

        return function

    @abc.abstractmethod
    def of_marginals(self, mean: TensorType, variance: TensorType, best: TensorType) -> tf.Tensor:
        """Return the acquisition of marginals N(m, s²), where η is the best: [N]."""


class ExpectedImprovement(Acquisition):
    """E[max(η - f(x), 0)]."""

    of_marginals = staticmethod(expected_improvement)


class ProbabilityOfImprovement(Acquisition):
    """P[f(x) < η]."""

    of_marginals = staticmethod(probability_of_improvement)


class LowerConfidenceBound(Acquisition):
    """β s - m, how low f(x) may well be: `upper_confidence_bound`."""

    def __init__(self, beta: float = 2.0) -> None:
        checks.positive_number("beta", beta, or_zero=True)
        self.beta = beta

    def of_marginals(self, mean: TensorType, variance: TensorType, best: TensorType) -> tf.Tensor:
        """Return it: [N]."""
        return upper_confidence_bound(mean, variance, self.beta)


class ThompsonSampling:
    """Minus a function drawn from the model, pathwise, so that it has a slope everywhere.

    Thompson (1933); Wilson et al. (2020), "Efficiently sampling functions from Gaussian process
    posteriors".
    """

    def __call__(self, model: BayesianModel, data: RegressionData, *, seed: int = 0) -> Function:
        """Return the function of inputs, as of an `Acquisition`."""
        X, _ = Data.of(data)
        process = getattr(model, "variational", None)
        if not isinstance(process, GaussianProcess):
            raise TypeError(
                f"model is a {type(model).__name__}; functions are drawn from the `variational` of "
                "a GVI model. The other acquisitions take any model of GPflow."
            )
        options = {"num_features": 1024, "seed": seed, "input_dim": int(X.shape[-1])}
        drawn = draw_functions(process, 1, **options)
        return lambda X: -drawn(X)[0, :, 0]


def maximise(
    function: Function,
    bounds: Sequence[tuple[float, float]],
    *,
    near: Array | None = None,
    seed: int = 0,
) -> Array:
    """Return the input within bounds at which a function is largest: [D].

    The best of many candidates are improved by L-BFGS-B, with gradients, each for itself.

    :param function: from inputs [N, D] to values [N], each of which depends on its own input.
    :param bounds: (lower, upper) of each column.
    :param near: an input about which a tenth of the candidates lie, closely; the others are a
        Sobol sequence in the whole box.
    """
    lower, width = _box(bounds)
    D = len(lower)
    evaluate = tf.function(
        functools.partial(tfp.math.value_and_gradient, function, use_gradient_tape=True),
        input_signature=[tf.TensorSpec([None, D], default_float())],
        autograph=False,
    )

    def at(U: Array) -> tuple[Array, Array]:
        X = np.clip(lower + width * U, lower, lower + width)
        values, gradients = evaluate(tf.constant(X, default_float()))
        return np.asarray(values, float), width * np.asarray(gradients, float)

    rng = np.random.default_rng(seed)
    U = qmc.Sobol(D, seed=rng).random(NUM_CANDIDATES)
    if near is not None:
        close = (near - lower) / width + 0.03 * rng.standard_normal((NUM_CANDIDATES // 10, D))
        U = np.concatenate([U, np.clip(close, 0.0, 1.0)])
    values, _ = at(U)
    if not np.any(np.isfinite(values)):
        raise ValueError("function is finite at none of the candidates; check the model's data.")
    order = np.argsort(np.where(np.isfinite(values), -values, np.inf))[:NUM_STARTS]
    best, best_value = U[order[0]], values[order[0]]
    # L-BFGS-B takes a slope below 1e-5 for none; an acquisition may be far smaller everywhere.
    scale = np.max(np.abs(values[order])) or 1.0

    def loss(u: Array) -> tuple[float, Array]:
        [value], [gradient] = at(u[None])
        return -value / scale, -gradient / scale

    for start in U[order]:
        found = scipy.optimize.minimize(
            loss, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * D
        )
        if -found.fun * scale > best_value:
            best, best_value = found.x, -found.fun * scale
    return lower + width * best


def fit_pgvi(data: RegressionData, *, seed: int = 0, iterations: int = 20) -> GVI:
    """Return a `PGVI` of an objective: the default model of `minimise`.

    The regulariser P is the posterior under a Matérn kernel of one lengthscale for each column,
    whose hyper-parameters are fitted with wide priors; all inputs are inducing points. Q starts
    there, and is trained for some iterations of L-BFGS.

    :param data: (X, Y) in the unit cube and in standard units.
    :param iterations: how long to train Q.
    """
    settings = Settings(
        regulariser=RegulariserSettings(
            kernels=_matern_kernels,
            predictors=None,
            noise="constant",
            num_inducing=len(data[0]),
            max_rows=None,
            evidence=InducingEvidence(),
            minimise=LBFGS(50),
        ),
        variational=VariationalSettings(mean=inducing_mean),
        # The noise was fitted by the evidence, as the kernel was.
        model=ModelSettings(divergence_weight=1.0, train_likelihood=False),
        training=FullBatchTraining(LBFGS(iterations)),
        validation_fraction=0.0,
        likelihood=Gaussian(1e-3),
        standardise=False,
        seed=seed,
    )
    return Procedure(Split.of(data, settings), settings).run().model


def _matern_kernels(data: TrainingData) -> list[Kernel]:
    """Return a Matérn kernel for the unit cube, with wide priors."""
    kernel = gpflow.kernels.Matern52(lengthscales=np.full(data.D, 0.3 * data.D**0.5))
    for parameter in (kernel.lengthscales, kernel.variance):
        location = tf.math.log(tf.convert_to_tensor(parameter))
        parameter.prior = tfp.distributions.LogNormal(location, tf.ones_like(location))
    return [kernel]


def minimise(
    objective: Callable[[Array], float],
    bounds: Sequence[tuple[float, float]],
    *,
    num_initial: int | None = None,
    num_steps: int,
    acquisition: Acquisition | ThompsonSampling | None = None,
    fit: Callable[..., BayesianModel] = fit_pgvi,
    seed: int = 0,
) -> scipy.optimize.OptimizeResult:
    """Minimise a function within bounds in `num_initial` + `num_steps` evaluations.

    Returns SciPy's `OptimizeResult` with `x` and `fun`, the best input that was evaluated and the
    value there; `X` [N, D] and `Y` [N, 1], all of them in their order; `nfev`; `model`, the last
    one, whose inputs are in the unit cube and whose outputs are in standard units.

    :param objective: from an input [D] to a number.
    :param bounds: (lower, upper) of each coordinate.
    :param num_initial: evaluations at a Latin hypercube to start with; 2 D + 1 if not given.
    :param num_steps: evaluations where the acquisition is largest.
    :param acquisition: `ExpectedImprovement()` if not given.
    :param fit: what makes a model of the data in standard units, (X, Y) and `seed=`, at each step.
    :param seed: the seed of the Latin hypercube and of each step.
    """
    lower, width = _box(bounds)
    D = len(lower)
    num_initial = 2 * D + 1 if num_initial is None else num_initial
    checks.count("num_initial", num_initial, least=2)
    checks.count("num_steps", num_steps, least=0)
    acquisition = ExpectedImprovement() if acquisition is None else acquisition
    if isinstance(acquisition, type) or not callable(acquisition):
        raise TypeError(
            f"acquisition is {short_repr(acquisition)}; it must be an object, such as "
            "ExpectedImprovement()."
        )
    U: Array = qmc.LatinHypercube(D, seed=seed).random(num_initial)
    Y: Array = np.array([[_value(objective, lower + width * u)] for u in U])
    model: BayesianModel | None = None
    for step in range(num_steps):
        data = tf.constant(U, default_float()), Scaling.of(Y).standard(Y)
        model = fit(data, seed=seed + step)
        function = acquisition(model, data, seed=seed + step)
        u = maximise(function, [(0.0, 1.0)] * D, near=U[np.argmin(Y)], seed=seed + step)
        U, Y = np.r_[U, u[None]], np.r_[Y, [[_value(objective, lower + width * u)]]]
    best = int(np.argmin(Y))
    X = lower + width * U
    return scipy.optimize.OptimizeResult(
        x=X[best], fun=float(Y[best, 0]), X=X, Y=Y, nfev=len(X), nit=num_steps, model=model
    )


def _box(bounds: Sequence[tuple[float, float]]) -> tuple[Array, Array]:
    """Return the lower ends and the widths: [D] each."""
    box = np.asarray(bounds, dtype=float)
    if box.ndim != 2 or box.shape[-1] != 2 or not np.all(np.isfinite(box)):
        raise ValueError(f"bounds is {bounds}; it must be (lower, upper) of each coordinate.")
    if not np.all(box[:, 0] < box[:, 1]):
        raise ValueError(f"bounds is {bounds}; each lower end must be below the upper one.")
    return box[:, 0], box[:, 1] - box[:, 0]


def _value(objective: Callable[[Array], float], x: Array) -> float:
    value = float(np.squeeze(objective(x)))
    if not np.isfinite(value):
        raise ValueError(
            f"objective is {value} at {x}; it must be finite. Return a large number where it fails."
        )
    return value
