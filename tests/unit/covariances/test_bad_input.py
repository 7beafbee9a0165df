"""What users get wrong is named, with the remedy; what can be mended is mended and told."""

from __future__ import annotations

import logging

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.kernels import LinearCoregionalization, SeparateIndependent, SquaredExponential

from gpflow_gvi.covariances import (
    CholeskySVGP,
    DiagonalSVGP,
    FixedSparsePosterior,
    KernelisedSVGP,
    SparsePosterior,
    Tempered,
)
from tests import catalogue, references
from tests.tolerances import ITERATIVE, ROUNDING, assert_close

Z = np.array([[-1.0], [0.0], [1.5]])
M = len(Z)
SE = SquaredExponential(variance=1.3, lengthscales=0.7)
TWO, THREE = (catalogue.kernels(J)["separate"] for J in (2, 3))
MIXED = LinearCoregionalization([SE], W=np.ones((2, 1)))
TWO_SETS = SeparateIndependentInducingVariables([InducingPoints(Z), InducingPoints(Z + 0.1)])

WRONG = {
    "q_sqrt with too few rows": (
        r"q_sqrt has shape \(1, 2, 2\); it must be \(1, 3, 3\)",
        lambda: CholeskySVGP(SE, Z, q_sqrt=np.eye(2)[None]),
    ),
    "q_sqrt of another J than asked for": (
        r"q_sqrt has shape \(1, 3, 3\); it must be \(2, 3, 3\)",
        lambda: CholeskySVGP(SE, Z, q_sqrt=np.eye(M)[None], num_latent_gps=2),
    ),
    "q_sqrt of another J than the kernel's": (
        r"different numbers of outputs: \[2, 3\]",
        lambda: CholeskySVGP(THREE, Z, q_sqrt=np.stack([np.eye(M)] * 2)),
    ),
    "v of another J than the kernel's": (
        r"different numbers of outputs: \[2, 3\]",
        lambda: DiagonalSVGP(THREE, Z, v=np.ones((M, 2))),
    ),
    "v with too few rows": (
        r"v has shape \(2, 1\); it must be \(3, 1\)",
        lambda: DiagonalSVGP(SE, Z, v=np.ones((2, 1))),
    ),
    "v with a zero": (
        "(?s)v is .* it must be positive",
        lambda: DiagonalSVGP(SE, Z, v=np.eye(M)[:, :1]),
    ),
    "v negative": (
        "(?s)v is .* it must be positive",
        lambda: DiagonalSVGP(SE, Z, v=-np.ones((M, 1))),
    ),
    "v NaN": ("(?s)v is .*nan.* finite", lambda: DiagonalSVGP(SE, Z, v=np.full((M, 1), np.nan))),
    "factor zero": ("factor is 0.0; it must be positive", lambda: Tempered(SE, 0.0)),
    "factor negative": ("factor is .* it must be positive", lambda: Tempered(TWO, [1.0, -1.0])),
    "factor infinite": ("factor is inf.* finite", lambda: Tempered(SE, np.inf)),
    "factors for other outputs": (
        r"factor has shape \(2,\), but the kernel has 3",
        lambda: Tempered(THREE, np.ones(2)),
    ),
    "factor a matrix": (r"factor has shape \(1, 1\)", lambda: Tempered(SE, np.ones((1, 1)))),
    "rows a vector": (
        r"X has shape \(3,\), .*rank 2",
        lambda: CholeskySVGP.from_data(SE, Z, Z[:, 0], 0.1),
    ),
    "rows of other columns": (
        r"X has shape \(3, 2\), but one input has 1 columns",
        lambda: CholeskySVGP.from_data(SE, Z, np.tile(Z, 2), 0.1),
    ),
    "no output": (
        "num_latent_gps is 0; .* at least 1",
        lambda: DiagonalSVGP(SE, Z, num_latent_gps=0),
    ),
    "noise zero": (
        "noise_variance is 0.0; it must be positive",
        lambda: CholeskySVGP.from_data(SE, Z, Z, 0.0),
    ),
    "noise negative": (
        "noise_variance is -0.1; it must be positive",
        lambda: DiagonalSVGP.from_data(SE, Z, Z, -0.1),
    ),
    "noise of each row as a vector": (
        r"noise_variance has shape \(3,\); .*\[N, 1\]",
        lambda: CholeskySVGP.from_data(SE, Z, Z, np.ones(M)),
    ),
    "noise of other outputs": (
        r"noise_variance has shape \(2,\); .*\[J\]",
        lambda: DiagonalSVGP.from_data(THREE, Z, Z, np.ones(2)),
    ),
    "q_sqrt of one output without its axis": (
        r"q_sqrt has shape \(3, 3\); it must be \[J, M, M\]",
        lambda: CholeskySVGP(SE, Z, q_sqrt=np.eye(M)),
    ),
    "v a vector": (
        r"v has shape \(3,\); it must be \[M, J\]",
        lambda: DiagonalSVGP(SE, Z, v=np.ones(M)),
    ),
    "points a vector": (
        r"inducing_variable has shape \(3,\), .*rank 2",
        lambda: CholeskySVGP(SE, Z[:, 0]),
    ),
    "no points": (
        r"inducing_variable has shape \(0, 1\): there are no data points",
        lambda: CholeskySVGP(SE, Z[:0]),
    ),
    "points NaN": (
        "inducing_variable has NaN or infinite values in 3 of 3 rows",
        lambda: SparsePosterior(SE, np.nan * Z),
    ),
    "J of kernel and points": (
        r"different numbers of outputs: \[2, 3\]",
        lambda: CholeskySVGP(THREE, TWO_SETS),
    ),
    "J of kernel and num_latent_gps": (
        r"different numbers of outputs: \[2, 3\]",
        lambda: DiagonalSVGP(THREE, Z, num_latent_gps=2),
    ),
    "J of both kernels": (
        r"different numbers of outputs: \[2, 3\]",
        lambda: KernelisedSVGP(THREE, Z, base_kernel=TWO),
    ),
    "J of both kernels, sparse": (
        r"different numbers of outputs: \[2, 3\]",
        lambda: SparsePosterior(THREE, Z, base_kernel=TWO),
    ),
    "J of both kernels, fixed": (
        r"different numbers of outputs: \[2, 3\]",
        lambda: FixedSparsePosterior(THREE, Z, base_kernel=TWO),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_and_shapes_are_named(case):
    message, construct = WRONG[case]
    with pytest.raises(ValueError, match=message):
        construct()


@pytest.mark.parametrize(
    "make",
    [
        lambda of: CholeskySVGP(SE, Z, q_sqrt=of(np.eye(M)[None])),
        lambda of: DiagonalSVGP(SE, Z, v=of(np.ones((M, 1)))),
        lambda of: DiagonalSVGP.from_data(SE, Z, of(Z), 0.1),
        lambda of: CholeskySVGP.from_data(SE, Z, of(Z), 0.1),
    ],
)
@pytest.mark.parametrize("of", [np.ndarray.tolist, lambda array: array.astype("f4")])
def test_lists_and_other_floats_are_taken(make, of):
    assert_close(make(of)(Z), make(lambda array: array)(Z))


@pytest.mark.parametrize("name", catalogue.COVARIANCES)
def test_correlated_outputs_are_refused_with_a_remedy(name):
    for kernel in (MIXED, MIXED + SE):
        with pytest.raises(TypeError, match=r"(?s)correlated.*SeparateIndependent.*condition"):
            catalogue.COVARIANCES[name](kernel, Z)


@pytest.mark.parametrize(
    "construct",
    [KernelisedSVGP, SparsePosterior, FixedSparsePosterior],
    ids=lambda construct: construct.__name__,
)
def test_a_correlated_kernel_of_its_own_is_refused(construct):
    with pytest.raises(TypeError, match="LinearCoregionalization"):
        construct(SE, Z, base_kernel=MIXED)


@pytest.mark.parametrize("name", catalogue.COVARIANCES)
def test_repeated_inducing_points_are_harmless(name, rng):
    X = rng.uniform(-2.0, 2.0, size=(5, 1))
    doubled = catalogue.COVARIANCES[name](SE, Z[[0, 1, 1, 2, 2]])
    found = doubled(X).numpy()
    assert np.linalg.eigvalsh(found).min() > -ROUNDING.float64 * np.trace(found)
    # The start of these two depends on how often a point occurs, not only on where it is.
    if name not in ("DiagonalSVGP", "CholeskySVGP(unwhitened)"):
        assert_close(found, catalogue.COVARIANCES[name](SE, Z)(X), ITERATIVE)


def test_a_fixed_sparse_posterior_that_left_the_safe_set_is_floored_and_reported(caplog):
    """With r_0 = 1.1 k the formula gives 1.1 k - 1.21 k = -0.11 k at Z."""
    r = FixedSparsePosterior(SE, Z)
    with caplog.at_level(logging.WARNING, logger="gpflow_gvi"):
        assert np.all(r.K_diag(Z) > 0.0)
    assert not caplog.records
    r.base_kernel.variance.assign(1.1 * 1.3)
    removed = np.sum(r.factors(Z)[0][0].numpy() ** 2, axis=0)
    assert_close(removed, 1.21 * 1.3, ITERATIVE)
    # Two of the points are at Z, and one is so far off that nothing is taken away there.
    X = np.concatenate([Z[:2], [[50.0]]])
    for variance in (r.K_diag, lambda X: tf.linalg.diag_part(r.K(X))):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="gpflow_gvi"):
            floored = variance(X).numpy()
        assert np.all(np.isfinite(floored))
        assert np.all(floored > 0.0)
        assert_close(floored, [0.0, 0.0, 1.43], ITERATIVE)
        (record,) = caplog.records
        assert record.name == "gpflow_gvi"
        assert "2 marginal variances of FixedSparsePosterior" in record.getMessage()


@pytest.mark.parametrize("kind", catalogue.kernels(3))
def test_a_tempered_own_kernel_stays_in_the_safe_set(kind, caplog, rng):
    """The composition that the docstring offers; s k ⪯ k for every s that a Sigmoid can give."""
    k = catalogue.kernels(3)[kind]
    factor = gpflow.Parameter(0.9, transform=tfp.bijectors.Sigmoid())
    r = FixedSparsePosterior(k, Z, base_kernel=Tempered(k, factor), num_latent_gps=3)
    X = np.concatenate([Z, rng.normal(size=(4, 1))])
    singles = getattr(k, "latent_kernels", (k,))
    for s in (0.01, 0.5, 0.9, 0.999):
        factor.assign(s)
        with caplog.at_level(logging.WARNING, logger="gpflow_gvi"):
            found = r.output_covariance(X).numpy()
        for j in range(3):
            single = singles[j % len(singles)]
            gram = references.padded(single(Z))
            nystrom = single(X, Z) @ np.linalg.solve(gram, single(Z, X))
            assert_close(found[j], s * single(X) - s**2 * nystrom)
        # At Z this is s (1 - s) k but for the jitter: positive without the floor.
        K = singles[0](Z).numpy()
        assert_close(found[0][:M, :M], s * (1.0 - s) * K, ITERATIVE, scale=K.max())
    assert not caplog.records
    assert any(variable is factor.unconstrained_variable for variable in r.trainable_variables)


def test_separate_kernels_in_a_list_are_counted_once():
    """Two kernels and two sets of points are two outputs, not four and not one."""
    kernel = SeparateIndependent([SquaredExponential(), SquaredExponential(2.0)])
    assert CholeskySVGP(kernel, TWO_SETS).num_outputs == 2


def test_kernels_are_objects():
    for kernel in (SquaredExponential, "rbf", None):
        with pytest.raises(TypeError, match=r"kernel is .*; it must be a Kernel of gpflow"):
            CholeskySVGP(kernel, Z)
