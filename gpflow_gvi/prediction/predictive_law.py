"""The law of an observation, p(y | x) = E_Q[p(y | f(x))]: its distribution function and quantiles.

Under Gaussian noise it is Gaussian, or Student's t (`likelihoods.HeavyTailed`). Under any other
likelihood it is computed as a mixture: over one latent function by the trapezoidal rule, whose
error decreases exponentially with the distance of its points (others where y says much of f), and
over several by quasi-random points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, RegressionData, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import Gaussian, Likelihood, ScalarLikelihood

from .._core.data import Data, inputs
from .._core.domains import Domain
from .._core.normal_points import normal_points
from .._core.row_blocks import by_blocks
from ..likelihoods import are_labels, domain, law, with_moments

NUM_POINTS = 121
"""The number of points of a latent function, from -6 to 6 standard deviations."""

NUM_SAMPLES = 1024
"""The number of points of several latent functions that one observation has."""

MAX_STEP = 0.3
"""The maximal change of the probability between points of an even grid that resolve it."""

NUM_POINTS_OF_STEP = 151
"""The number of points around a step."""

REACH = 13.0
"""The largest distance of points from a step, in standard deviations of f."""

NUM_GRIDS = 4
"""The number of grids, each within two or more panels of the one before, that look for a step."""

NUM_PANELS = 32
"""The number of panels of such a grid. What the last of them does not resolve makes no difference
above some 1e-6."""


@dataclass(frozen=True)
class PredictiveLaw:
    """Σ_s w_s p(y | f_s), for each row and output.

    :param given_f: p(y | f_s), a distribution of batch shape [S, N, P].
    :param weights: w, [S].
    :param values: those that y may have.
    :param z: values of one latent function, (f_s - m) / s, [S].
    :param given_z: p(y | m + s z) as a function of z, [S, N, P].
    """

    given_f: Any
    weights: tf.Tensor
    values: Domain
    z: tf.Tensor | None = None
    given_z: Callable[[tf.Tensor], Any] | None = None

    @check_shapes("Y: [N, P]", "return: [N, P]")
    def cdf(self, Y: TensorType) -> tf.Tensor:
        """Return the probability of not more than y: [N, P]."""
        Y = tf.convert_to_tensor(Y, self.weights.dtype)
        inside = tf.clip_by_value(Y, *(tf.cast(end, Y.dtype) for end in self.values[1:3]))
        at_f = self.given_f.cdf(inside)
        probability = tf.tensordot(self.weights, at_f, 1)
        if self.given_z is not None:
            given_z = self.given_z
            probability = _sharpened(lambda z: given_z(z).cdf(inside), self.z, at_f, probability)
        # Laws of positive numbers that users register may be NaN elsewhere.
        undefined = tf.math.is_nan(probability) & (Y <= 0.0)
        return tf.where((self.values.least > Y) | undefined, tf.zeros_like(Y), probability)

    @check_shapes("Y: [N, P]", "uniform: [N, P]", "return: [N, P]")
    def pit(self, Y: TensorType, uniform: TensorType) -> tf.Tensor:
        """Return F(y), or of whole numbers F(y - 1) + u p(y), u ~ U(0, 1).

        The (randomised) probability integral transform, uniform if the law is right: Czado,
        Gneiting and Held (2009), "Predictive model assessment for count data".
        """
        if not self.values.whole:
            return self.cdf(Y)
        below = self.cdf(Y - 1.0)
        return below + uniform * (self.cdf(Y) - below)

    @check_shapes("level: [broadcast N, broadcast P]", "return: [N, P]")
    def quantile(self, level: TensorType) -> tf.Tensor:
        """Return the smallest y with F(y) ≥ level: [N, P].

        :param level: a probability for each row and output, or the same for some of them.
        """
        shape = self.given_f.batch_shape[1:]
        level = tf.broadcast_to(tf.convert_to_tensor(level, self.weights.dtype), shape)
        if len(self.weights) == 1:
            return self.given_f.quantile(level)[0]
        lower, upper = self._around(level)
        found = (_first_whole if self.values.whole else _root)(self.cdf, level, lower, upper)
        found = tf.where(level <= 0.0, tf.cast(self.values.least, found.dtype), found)
        return tf.where(level >= 1.0, tf.cast(self.values.most, found.dtype), found)

    def _around(self, level: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return numbers below and above the quantile: [N, P] each."""
        one, ends = tf.ones_like(level), self.values
        bounded_below, bounded_above = np.isfinite(ends.least), np.isfinite(ends.most)
        lower = (ends.least - ends.whole) * one if bounded_below else -one
        upper = ends.most * one if bounded_above else one
        reached = (level > 0.0) & (level < 1.0)
        for _ in range(int(np.log2(np.finfo(level.dtype.as_numpy_dtype).max)) // 2):
            too_high = reached & (self.cdf(lower) > level) & (not bounded_below)
            too_low = reached & (self.cdf(upper) < level) & (not bounded_above)
            if not tf.reduce_any(too_high | too_low):
                break
            lower = tf.where(too_high, 2.0 * lower, lower)
            upper = tf.where(too_low, 2.0 * upper, upper)
        return lower, upper


def _root(cdf: Any, level: tf.Tensor, lower: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
    """Return the points at which a continuous distribution function has a level."""
    return tfp.math.find_root_chandrupatla(
        lambda Y: cdf(Y) - level,
        lower,
        upper,
        position_tolerance=0.0,
        value_tolerance=10.0 * float(np.finfo(level.dtype.as_numpy_dtype).eps),
    ).estimated_root


def _first_whole(cdf: Any, level: tf.Tensor, lower: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
    """Return the first whole number above `lower` where a distribution function has a level."""
    # The probability of all values is one but for rounding.
    level = level * (1.0 - 10.0 * float(np.finfo(level.dtype.as_numpy_dtype).eps))
    while tf.reduce_any(upper - lower > 1.0):
        middle = tf.floor(0.5 * (lower + upper))
        enough = cdf(middle) >= level
        lower, upper = tf.where(enough, lower, middle), tf.where(enough, middle, upper)
    return upper


def _sharpened(
    probability: Callable[[tf.Tensor], tf.Tensor], z: tf.Tensor, at_z: tf.Tensor, mean: tf.Tensor
) -> tf.Tensor:
    """Return the expectations over z ~ N(0, 1), anew where an even grid is too wide: [N, P].

    Where y says much of f the probability is a step. Its place and width are found by finer and
    finer grids, and points lie around it, the further away the further from each other,

        z_k = c + w sinh(k τ),

    so that the trapezoidal rule sees the step of width w as well as the density of z; that the
    integrand is smooth in k makes its error decrease exponentially (Trefethen and Weideman 2014,
    "The exponentially convergent trapezoidal rule", section 14).

    :param probability: that of y ≤ t as a function of z, [S, N, P] to [S, N, P].
    :param z: an even grid, [S].
    :param at_z: the probabilities there, [S, N, P].
    :param mean: the expectations by that grid, [N, P].
    """
    change = at_z[1:] - at_z[:-1]
    slack = 100.0 * np.finfo(change.dtype.as_numpy_dtype).eps
    monotone = tf.reduce_all(change <= slack, axis=0) | tf.reduce_all(change >= -slack, axis=0)
    steep = monotone & (tf.reduce_max(tf.abs(change), axis=0) > MAX_STEP)
    if not tf.reduce_any(steep):
        return mean
    first, last = at_z[0], at_z[-1]
    lower, upper = _middle_half(z[:, None, None] + tf.zeros_like(at_z), at_z, first, last)
    share = tf.cast(np.linspace(0.0, 1.0, NUM_PANELS + 1)[:, None, None], z.dtype)
    for _ in range(NUM_GRIDS):
        grid = lower + share * (upper - lower)
        lower, upper = _middle_half(grid, probability(grid), first, last)
    return tf.where(steep, _around_step(probability, lower, upper), mean)


def _middle_half(
    grid: tf.Tensor, values: tf.Tensor, first: tf.Tensor, last: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return points of a grid [S, N, P] between which lies a half of a change, the middle one."""
    change = tf.where(first == last, tf.ones_like(first), last - first)
    progress = (values - first) / change
    before = tf.where(progress < 0.25, grid, grid[:1])
    behind = tf.where(progress > 0.75, grid, grid[-1:])
    return tf.reduce_max(before, axis=0), tf.reduce_min(behind, axis=0)


def _around_step(
    probability: Callable[[tf.Tensor], tf.Tensor], lower: tf.Tensor, upper: tf.Tensor
) -> tf.Tensor:
    """Return the expectations by points around a step between two places: [N, P]."""
    least = 100.0 * np.finfo(lower.dtype.as_numpy_dtype).eps
    centre, width = 0.5 * (lower + upper), tf.maximum(upper - lower, least)
    furthest = tf.math.asinh(REACH / width)
    k = tf.cast(np.linspace(-1.0, 1.0, NUM_POINTS_OF_STEP)[:, None, None], lower.dtype) * furthest
    z = centre + width * tf.sinh(k)  # [S, N, P]
    weights = tf.exp(-0.5 * tf.square(z)) * tf.cosh(k)
    total = tf.reduce_sum(weights * probability(z), axis=0)
    return total / tf.reduce_sum(weights, axis=0)


def half_width(likelihood: Gaussian, coverage: float) -> AnyNDArray:
    """Return half the width of central intervals of y, in standard deviations: [J] or [1]."""
    zero = tf.zeros([1], default_float())
    return np.asarray(with_moments(likelihood, zero, zero + 1.0).quantile(0.5 + 0.5 * coverage))


@check_shapes("X: [N, D...]", "f_mean: [N, J]", "f_variance: [N, J]")
def predictive_law(
    likelihood: Likelihood, X: TensorType, f_mean: TensorType, f_variance: TensorType
) -> PredictiveLaw:
    """Return the law of y at inputs where f has independent Gaussian marginals."""
    m, v = tf.convert_to_tensor(f_mean), tf.convert_to_tensor(f_variance)
    if isinstance(likelihood, Gaussian):
        variance = v + likelihood.conditional_variance(X, m)
        of_y = with_moments(likelihood, m[None], variance[None])
        return PredictiveLaw(of_y, tf.ones([1], m.dtype), domain(likelihood))
    if not isinstance(likelihood, ScalarLikelihood):
        points = normal_points(NUM_SAMPLES, m.shape[-1], m.dtype.as_numpy_dtype)[:, None, :]
        weights = tf.fill([NUM_SAMPLES], tf.constant(1.0 / NUM_SAMPLES, m.dtype))
        given_f = law(likelihood, X, m + tf.sqrt(v) * points)
        return PredictiveLaw(given_f, weights, _values_of(likelihood, given_f))
    z, s = np.linspace(-6.0, 6.0, NUM_POINTS), tf.sqrt(v)
    weights = np.exp(-0.5 * np.square(z))
    weights, z = (tf.cast(part, m.dtype) for part in (weights / np.sum(weights), z))

    def given_z(z: tf.Tensor) -> Any:
        return law(likelihood, X, m + s * z)

    given_f = given_z(z[:, None, None])
    return PredictiveLaw(given_f, weights, _values_of(likelihood, given_f), z, given_z)


def _values_of(likelihood: Likelihood, given_f: Any) -> Domain:
    """Return the values that y may have; whether they are whole numbers, by the law if need be."""
    values = domain(likelihood)
    is_known = domain.dispatch(type(likelihood)) is not domain.dispatch(object)
    return values if is_known else values._replace(whole=_is_whole(given_f))


def _is_whole(law: Any) -> bool:
    """Return True if a law is one of whole numbers, or a mixture with such a part."""
    if isinstance(law, tfp.distributions.Mixture):
        return any(map(_is_whole, law.components))
    if isinstance(law, tfp.distributions.MixtureSameFamily):
        return _is_whole(law.components_distribution)
    # No bijector goes from real to whole numbers.
    return law.experimental_default_event_space_bijector() is None


def pit(model: Any, data: RegressionData, *, name: str = "data") -> AnyNDArray:
    """Return the (randomised) probability integral transforms of observations: [N, P].

    :param data: (X, Y) that it has not seen, in its units.
    :param name: what the data are called in messages.
    """
    likelihood = model.likelihood
    if are_labels(likelihood) and likelihood.latent_dim is not None:
        raise TypeError(
            f"the model's likelihood is {type(likelihood).__name__}, whose classes have no order, "
            "so that there is no probability of not more than y. Take their probabilities."
        )
    X, Y = Data.of(data, likelihood, name=name)
    uniform = np.random.default_rng(0).uniform(size=Y.shape).astype(Y.dtype.as_numpy_dtype)

    def of_rows(X: Any, Y: Any, uniform: Any) -> tuple[tf.Tensor]:
        return (predictive_law(likelihood, X, *model.predict_f(X)).pit(Y, uniform),)

    (values,) = by_blocks(of_rows, X, Y, tf.constant(uniform))
    return values


@check_shapes("X: [N, D...]", "return[0]: [N, P]", "return[1]: [N, P]")
def central_interval(model: Any, X: InputData, coverage: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the quantiles of levels (1 ∓ coverage) / 2 of a model's predictions: [N, P] each.

    A whole number y lies between them with at least this probability. Under a `SwitchedLikelihood`
    there are the columns of each likelihood, one after the other, as in `predict_y`.

    :param coverage: the probability, or that of each output: [P].
    """
    X = inputs("X", X)
    f_mean, f_variance = model.predict_f(X)
    parts: Sequence[Likelihood] = getattr(model.likelihood, "likelihoods", [model.likelihood])
    laws = [predictive_law(part, X, f_mean, f_variance) for part in parts]
    ends: list[tf.Tensor] = []
    for level in (0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage):
        levels = tf.reshape(tf.convert_to_tensor(level, f_mean.dtype), [1, -1])
        ends.append(tf.concat([law.quantile(levels) for law in laws], axis=-1))
    return ends[0], ends[1]
