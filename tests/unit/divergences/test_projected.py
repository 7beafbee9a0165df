"""Divergences between one-dimensional Gaussians: their definitions, identities and gradients."""

from __future__ import annotations

from fractions import Fraction

import gpflow
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from hypothesis import assume, example, given, settings

import gpflow_gvi as gvi
from gpflow_gvi import divergences
from tests import references
from tests.catalogue import PROJECTED
from tests.designs import each_value
from tests.tolerances import ITERATIVE, ROUNDING, assert_close

Array = np.ndarray
Normal = tuple[float, float]

NAMES = pytest.mark.parametrize("name", PROJECTED)
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
SYMMETRIC = ("Bhattacharyya", "Hellinger", "Wasserstein", "SquaredDifference")
INVARIANT = [name for name in PROJECTED if name not in ("Wasserstein", "SquaredDifference")]

SAMPLED = settings(max_examples=25, deadline=None)
# Multiples of 1/8: differences, shifts and scalings by powers of two round nothing.
MEANS = st.integers(-80, 80).map(lambda eighths: eighths / 8)
NORMALS = st.tuples(MEANS, st.floats(-3.0, 3.0).map(lambda exponent: 10.0**exponent))


def between(
    divergence: divergences.ProjectedDivergence, q: Normal, p: Normal, dtype: type = np.float64
) -> Array:
    value = divergence.between(*(tf.constant(number, dtype=dtype) for number in (*q, *p)))
    assert value.dtype == dtype
    return value.numpy()


def rounded(normal: Normal, dtype: type) -> Normal:
    return float(dtype(normal[0])), float(dtype(normal[1]))


def terms(q: Normal, p: Normal) -> float:
    """The size of the logarithms and of the constant that are added up."""
    return 1 + abs(np.log(q[1])) + abs(np.log(p[1]))


def gradients(divergence: divergences.ProjectedDivergence, *moments: Array) -> list[Array]:
    tensors = [tf.constant(moment) for moment in moments]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = tf.reduce_sum(divergence.between(*tensors))
    return [gradient.numpy() for gradient in tape.gradient(value, tensors)]


@pytest.mark.parametrize(
    "make", [divergences.ProjectedRenyi, divergences.RegularisedKL, gvi.losses.BetaLoss]
)
@pytest.mark.parametrize("order", [np.array([0.5, 0.6]), "a", None])
def test_an_order_is_one_number(make, order):
    with pytest.raises(ValueError, match=r"is .*; it must be one real number"):
        make(order)


def test_whole_numbers_and_arrays_of_other_floats_are_taken():
    kl = divergences.ProjectedKL()
    expected = [0.5 * (0.5 - 1.0 + np.log(2.0)), 0.5 * (0.5 + 0.5 - 1.0 + np.log(2.0))]
    assert_close(kl.between([0, 1], [1, 1], np.array([0, 0]), [2, 2]), expected)
    assert_close(kl.between(np.float32([0, 1]), [1.0, 1.0], [0.0, 0.0], 2), expected)


# --- values -------------------------------------------------------------------------------------


@NAMES
def test_between_against_the_integral_that_defines_it(rng, name):
    p_mean, q_mean = rng.uniform(-4.0, 4.0, size=(2, 10))
    p = np.exp(rng.uniform(-3.0, 3.0, size=10))
    q = p * np.exp(np.linspace(-5.0, 5.0, 10))
    if name == "Renyi(2)":
        q = np.minimum(q, 1.8 * p)  # beyond 2p the integral is infinite
    value = PROJECTED[name]().between(q_mean, q, p_mean, p)
    marginals = zip(zip(q_mean, q, strict=True), zip(p_mean, p, strict=True), strict=True)
    expected = [references.PROJECTED[name](*pair) for pair in marginals]
    assert_close(value, expected, scale=np.abs(expected))


@pytest.mark.parametrize("reverse", [False, True], ids=["KL", "ReverseKL"])
def test_kl_against_tensorflow_probability(rng, reverse):
    means, deviations = rng.normal(size=(2, 20)), np.exp(2.0 * rng.normal(size=(2, 20)))
    q, p = (tfp.distributions.Normal(*pair) for pair in zip(means, deviations, strict=True))
    expected = tfp.distributions.kl_divergence(*((p, q) if reverse else (q, p)))
    divergence = divergences.ProjectedReverseKL() if reverse else divergences.ProjectedKL()
    value = divergence.between(q.mean(), q.variance(), p.mean(), p.variance())
    assert_close(value, expected, scale=expected)


def test_between_takes_numbers_and_broadcasts(rng):
    q, p = rng.uniform(0.5, 2.0, size=(4, 1)), rng.uniform(0.5, 2.0, size=3)
    kl = divergences.ProjectedKL()
    table = kl.between(0.5, q, 0.0, p).numpy()
    assert table.shape == (4, 3)
    assert_close(table[2, 1], kl.between(0.5, q[2, 0], 0, p[1]))


@pytest.mark.parametrize("alpha", [0.0, -0.5, np.nan, np.inf], ids=str)
def test_order_of_renyi_must_be_positive(alpha):
    with pytest.raises(ValueError, match=f"alpha is {alpha}; it must be positive"):
        divergences.ProjectedRenyi(alpha)


# --- identities ---------------------------------------------------------------------------------


@NAMES
@DTYPES
@SAMPLED
@given(q=NORMALS, p=NORMALS)
def test_divergence_is_zero_for_equals_and_positive_otherwise(name, dtype, q, p):
    q, p = rounded(q, dtype), rounded(p, dtype)
    divergence = PROJECTED[name]()
    nothing = between(divergence, q, q, dtype)
    assert nothing >= 0.0
    assert_close(nothing, 0.0, scale=terms(q, q))
    value = between(divergence, q, p, dtype)
    assert value >= 0.0
    if abs(q[0] - p[0]) > 0.05 * np.sqrt(p[1]) or abs(np.log(q[1] / p[1])) > 0.05:
        assert value > 0.0
    if name in SYMMETRIC:
        assert_close(value, between(divergence, p, q, dtype))


@DTYPES
@SAMPLED
@given(q=NORMALS, p=NORMALS)
def test_affinity_in_its_three_guises(dtype, q, p):
    """Bhattacharyya is minus the logarithm of what Hellinger and Rényi of order ½ measure."""
    bhattacharyya = between(divergences.ProjectedBhattacharyya(), q, p, dtype)
    hellinger = between(divergences.ProjectedHellinger(), q, p, dtype)
    renyi = between(divergences.ProjectedRenyi(0.5), q, p, dtype)
    # Not absolute: a small distance has all its digits.
    assert_close(hellinger, -np.expm1(-bhattacharyya))
    assert_close(renyi, 2 * bhattacharyya, scale=2 * bhattacharyya + terms(q, p))


@DTYPES
@SAMPLED
@given(q=NORMALS, p=NORMALS, alphas=st.lists(st.floats(0.05, 4.0), min_size=2, max_size=2))
def test_renyi_does_not_decrease_in_its_order(dtype, q, p, alphas):
    low, high = (between(divergences.ProjectedRenyi(a), q, p, dtype) for a in sorted(alphas))
    assert low <= high + ROUNDING.of(dtype) * (high + terms(q, p))


@SAMPLED
@given(q=NORMALS, p=NORMALS)
def test_renyi_of_order_one_is_kl_and_a_limit(q, p):
    kl = between(divergences.ProjectedKL(), q, p)
    of_order_one = between(divergences.ProjectedRenyi(1.0), q, p)
    assert_close(of_order_one, kl, scale=kl + terms(q, p))
    # dD_α/dα at 1 is half of the variance of log(q/p) under Q.
    ratio, shift = q[1] / p[1], (q[0] - p[0]) ** 2 / p[1]
    variance = 0.5 * (ratio - 1) ** 2 + ratio * shift
    h = 1e-4 / (1 + ratio)
    below, above = (between(divergences.ProjectedRenyi(1.0 + step), q, p) for step in (-h, h))
    lost = ROUNDING.float64 * (kl + terms(q, p)) / h  # in the difference
    scale = 0.5 * variance + lost
    assert_close((above - below) / (2 * h), 0.5 * variance, ITERATIVE, scale=scale)


@pytest.mark.parametrize(
    ("alpha", "dtype"),
    [(1.25, np.float64), (2.0, np.float32), (2.0, np.float64), (5.0, np.float32)],
)
@SAMPLED
@given(p=NORMALS, delta=MEANS, stretch=st.floats(0.1, 10.0))
@example(p=(0.0, 1.0), delta=0.0, stretch=1.0)  # s is zero, exactly
def test_renyi_is_infinite_where_s_is_not_positive(alpha, dtype, p, delta, stretch):
    """s = αp + (1-α)q, in exact arithmetic, vanishes at q = p α/(α-1)."""
    p = rounded(p, dtype)
    q = rounded((p[0] + delta, stretch * p[1] * alpha / (alpha - 1)), dtype)
    s = Fraction(alpha) * Fraction(p[1]) + (1 - Fraction(alpha)) * Fraction(q[1])
    assume(s == 0 or abs(s) > 10 * np.finfo(dtype).eps * alpha * p[1])
    divergence = divergences.ProjectedRenyi(alpha)
    assert np.isinf(between(divergence, q, p, dtype)) == (s <= 0)
    moments = [dtype(moment) for moment in (*q, *p)]
    assert np.all(np.isfinite(gradients(divergence, *moments)))


@pytest.mark.parametrize("name", INVARIANT)
@DTYPES
@SAMPLED
@given(q=NORMALS, p=NORMALS, shift=MEANS, exponent=st.integers(-5, 5))
def test_invariance_under_a_common_affine_map(name, dtype, q, p, shift, exponent):
    scale = 2.0**exponent
    moved = [(scale * (mean + shift), scale**2 * variance) for mean, variance in (q, p)]
    divergence = PROJECTED[name]()
    expected = between(divergence, q, p, dtype)
    scale = expected + terms(q, p) + terms(*moved)
    assert_close(between(divergence, *moved, dtype), expected, scale=scale)


# --- gradients ----------------------------------------------------------------------------------


@NAMES
def test_gradient_against_finite_differences(rng, name):
    p = np.exp(rng.uniform(-2.0, 2.0, size=8))
    q = p * np.exp(rng.uniform(-3.0, 0.5, size=8))
    moments = [rng.normal(size=8), q, rng.normal(size=8), p]
    divergence, h = PROJECTED[name](), 1e-6
    for i, gradient in enumerate(gradients(divergence, *moments)):
        up, down = (
            divergence.between(*moments[:i], moments[i] * (1 + step), *moments[i + 1 :])
            for step in (h, -h)
        )
        assert_close(gradient, (up - down) / (2 * h * moments[i]), ITERATIVE)


@NAMES
@DTYPES
@pytest.mark.parametrize("delta", [0.0, 0.3], ids=["equal means", "different means"])
def test_gradient_is_finite_as_q_vanishes(name, dtype, delta):
    p = np.array([1e-3, 1.0, 1e3], dtype=dtype)
    q = p * dtype(1e-12 if dtype is np.float64 else 1e-6)
    moments = delta * np.ones_like(p), q, np.zeros_like(p), p
    assert np.all(np.isfinite(PROJECTED[name]().between(*moments)))
    assert np.all(np.isfinite(gradients(PROJECTED[name](), *moments)))


@NAMES
@DTYPES
def test_gradient_vanishes_at_the_minimum(name, dtype):
    p = np.array([1e-3, 0.7, 1.0, 1e3], dtype=dtype)
    mean = np.ones_like(p)
    of_means_and_variances = gradients(PROJECTED[name](), mean, p, mean, p)
    # In units of p: what is left of two terms of size 1/p that cancel.
    scaled = np.array(of_means_and_variances) * np.minimum(p, 1.0)
    assert_close(scaled, 0.0, scale=1.0)


@NAMES
def test_gradient_near_the_minimum_has_its_digits_though_the_value_has_none(name):
    """In float32 a D of 1e-7 is rounding, but its gradient is not, and training follows it."""
    p = np.geomspace(1e-3, 1e3, 101, dtype=np.float32)
    moments = [np.float32(1e-4) * np.sqrt(p), p * np.float32(1.0005), np.zeros_like(p), p]
    precise = gradients(PROJECTED[name](), *(moment.astype(np.float64) for moment in moments))
    for ours, expected in zip(gradients(PROJECTED[name](), *moments), precise, strict=True):
        assert_close(ours, expected, ITERATIVE, scale=np.abs(expected))


# --- processes ----------------------------------------------------------------------------------


def process(rng: np.random.Generator, J: int, variance: float) -> gvi.GaussianProcess:
    """A mean and a variance that differ from input to input and from output to output."""
    kernels = [
        gpflow.kernels.Linear(0.1 * variance * (j + 1)) + gpflow.kernels.Constant(variance)
        for j in range(J)
    ]
    kernel = gpflow.kernels.SeparateIndependent(kernels) if J > 1 else kernels[0]
    return gvi.GaussianProcess(gpflow.functions.Linear(rng.normal(size=(2, J)), np.ones(J)), kernel)


@pytest.mark.parametrize(("name", "J"), [*((name, 3) for name in PROJECTED), ("KL", 1)])
def test_processes_are_compared_by_the_product_of_their_marginals(rng, name, J):
    """The average over inputs of the divergence of the product over outputs."""
    q, p, X = process(rng, J, 0.6), process(rng, J, 1.0), rng.uniform(-1.0, 1.0, size=(3, 2))
    divergence, of_inputs = PROJECTED[name](), []
    moments = [(gp.mean(X).numpy(), gp.variance(X).numpy()) for gp in (q, p)]
    for n in range(3):
        marginals = [[(m[n, j], v[n, j]) for m, v in moments] for j in range(J)]
        values = np.array([references.PROJECTED[name](*pair) for pair in marginals])
        of_inputs.append(1 - np.prod(1 - values) if name == "Hellinger" else np.sum(values))
    assert_close(divergence(q, p, X), np.mean(of_inputs))


@NAMES
def test_average_over_all_minibatches_is_that_of_the_full_batch(rng, name):
    q, p, X = process(rng, 2, 0.6), process(rng, 2, 1.0), rng.uniform(-1.0, 1.0, size=(12, 2))
    divergence = PROJECTED[name]()
    of_minibatches = [divergence(q, p, batch) for batch in np.split(X, 3)]
    assert np.ptp(of_minibatches) > 0
    assert_close(np.mean(of_minibatches), divergence(q, p, X))


@pytest.mark.parametrize(("name", "shared"), each_value(PROJECTED, ["p", "q"]))
def test_one_output_is_compared_with_each_of_several(rng, name, shared):
    several, one = process(rng, 3, 0.6), process(rng, 1, 0.8)
    mean = one.mean_function
    repeated = gvi.GaussianProcess(
        gpflow.functions.Linear(np.tile(mean.A, (1, 3)), np.tile(mean.b, 3)),
        gpflow.kernels.SharedIndependent(one.kernel, 3),
    )
    X, divergence = rng.normal(size=(4, 2)), PROJECTED[name]()
    value, expected = (
        divergence(several, other, X) if shared == "p" else divergence(other, several, X)
        for other in (one, repeated)
    )
    assert_close(value, expected)


@NAMES
def test_wrong_processes_are_refused(rng, name):
    q, p, X = process(rng, 3, 0.6), process(rng, 2, 1.0), rng.normal(size=(4, 2))
    with pytest.raises(ValueError, match="Q has 3 outputs and P has 2"):
        PROJECTED[name]()(q, p, X)
    with pytest.raises(TypeError, match=r"p is .*must be a GaussianProcess"):
        PROJECTED[name]()(q, p.kernel, X)


@NAMES
def test_float32_throughout(name):
    def value() -> tf.Tensor:
        rng = np.random.default_rng(0)
        q, p = process(rng, 2, 0.6), process(rng, 2, 1.0)
        X = rng.uniform(-1.0, 1.0, size=(4, 2)).astype(gpflow.default_float())
        return PROJECTED[name]()(q, p, X)

    precise = value()
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        single = value()
    assert single.dtype == tf.float32
    assert_close(single, precise)
