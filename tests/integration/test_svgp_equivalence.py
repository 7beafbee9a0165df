"""The Bayesian special case is GPflow's own model: SVGP, and SGPR at the optimum."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.keras import tf_keras

import gpflow_gvi as gvi
from tests.tolerances import assert_close

from .. import catalogue
from ..designs import each_value

N, M = 20, 5
_RNG = np.random.default_rng(17)
X = _RNG.normal(size=(N, 2))
Y = np.sin(X @ [[1.0, 0.5, -1.0], [1.0, -0.7, 0.3]]) + 0.1 * _RNG.normal(size=(N, 3))
Z = X[:M] + 0.05
XNEW = _RNG.normal(size=(4, 2))

# GPflow maps over outputs, and AutoGraph converts what it calls: longer than all else here.
unconverted = tf.autograph.experimental.do_not_convert

LIKELIHOODS = {
    "Gaussian": lambda: gpflow.likelihoods.Gaussian(0.1),
    "Bernoulli": gpflow.likelihoods.Bernoulli,
    "StudentT": gpflow.likelihoods.StudentT,
}


def data(likelihood: str, J: int) -> tuple[np.ndarray, np.ndarray]:
    return X, (Y[:, :J] > 0.0) * 1.0 if likelihood == "Bernoulli" else Y[:, :J]


def pair(
    likelihood: str = "Gaussian",
    J: int = 1,
    sharing: str = "single",
    whiten: bool = True,
    num_data: int = N,
) -> tuple[gvi.models.GVI, gpflow.models.SVGP]:
    """Return our model and GPflow's, apart from one another but with the same values."""

    def common() -> tuple[Any, ...]:
        mean = gpflow.functions.Linear(A=[[0.3], [-0.2]], b=[0.5])
        return mean, catalogue.kernels(J)[sharing], catalogue.inducing_points(Z)

    rng = np.random.default_rng(4)
    q = {
        "q_mu": rng.normal(size=(M, J)),
        "q_sqrt": np.tril(0.3 * rng.normal(size=(J, M, M))) + np.eye(M),
    }
    mean, k, inducing_variable = common()
    P = gvi.GaussianProcess(mean, k)
    Q = gvi.GaussianProcess(
        gvi.mean_functions.Inducing(
            k, inducing_variable, mean_function=mean, q_mu=q["q_mu"], whiten=whiten
        ),
        gvi.covariances.CholeskySVGP(k, inducing_variable, q_sqrt=q["q_sqrt"], whiten=whiten),
    )
    ours = gvi.models.GVI(
        P, Q, LIKELIHOODS[likelihood](), gvi.divergences.InducingKL(), num_data=num_data
    )
    mean, k, inducing_variable = common()
    if sharing != "single":
        shared = gpflow.inducing_variables.SharedIndependentInducingVariables
        inducing_variable = shared(inducing_variable)
    theirs = gpflow.models.SVGP(
        k,
        LIKELIHOODS[likelihood](),
        inducing_variable,
        mean_function=mean,
        num_latent_gps=J,
        whiten=whiten,
        num_data=num_data,
        **q,
    )
    # P is frozen in ours.
    gpflow.set_trainable(theirs.kernel, False)
    gpflow.set_trainable(theirs.mean_function, False)
    return ours, theirs


MARGINAL = ((False, False),)
ALL_SHAPES = (*MARGINAL, (True, False), (False, True), (True, True))
"""The values of full_cov and full_output_cov."""


def assert_same_predictions(ours: Any, theirs: Any, shapes: Any = MARGINAL) -> None:
    for flags in shapes:
        for our, their in zip(
            ours.predict_f(XNEW, *flags), theirs.predict_f(XNEW, *flags), strict=True
        ):
            assert our.shape == their.shape
            assert_close(our, their)
    for our, their in zip(ours.predict_y(XNEW), theirs.predict_y(XNEW), strict=True):
        assert_close(our, their)


@unconverted
def test_a_law_of_u_that_outputs_of_the_mean_share_counts_for_each_of_them() -> None:
    mean, k = gpflow.functions.Constant(np.zeros(3)), gpflow.kernels.RBF()
    q_mu = np.ones((M, 1))
    ours = gvi.models.GVI(
        gvi.GaussianProcess(mean, k),
        gvi.GaussianProcess(
            gvi.mean_functions.Inducing(k, Z, mean_function=mean, q_mu=q_mu),
            gvi.covariances.CholeskySVGP(k, Z),
        ),
        gpflow.likelihoods.Gaussian(0.1),
        gvi.divergences.InducingKL(),
        num_data=N,
    )
    theirs = gpflow.models.SVGP(
        k,
        gpflow.likelihoods.Gaussian(0.1),
        Z,
        mean_function=mean,
        num_latent_gps=3,
        q_mu=np.tile(q_mu, 3),
        num_data=N,
    )
    assert_close(ours.prior_kl(), 7.5)
    assert_close(ours.prior_kl(), theirs.prior_kl())
    assert_close(ours.divergence(ours.variational, ours.regulariser, X), 7.5 / N)
    assert_close(ours.elbo((X, Y)), theirs.elbo((X, Y)))


OUTPUTS = [(1, "single"), *((3, sharing) for sharing in catalogue.kernels(3))]
# Covariances of f do not depend on the likelihood: one case is enough for each of the others.
CASES = [
    *(("Gaussian", outputs, whiten) for outputs, whiten in each_value(OUTPUTS, [True, False])),
    ("Bernoulli", (3, "separate"), True),
    ("StudentT", (3, "shared"), True),
]


@pytest.mark.parametrize(("likelihood", "outputs", "whiten"), CASES)
@unconverted
def test_svgp(likelihood: str, outputs: tuple[int, str], whiten: bool) -> None:
    J, sharing = outputs
    ours, theirs = pair(likelihood, J, sharing, whiten, num_data=3 * N)
    X, Y = data(likelihood, J)
    for rows in (slice(None), slice(7)):  # all there are, and a minibatch
        batch = X[rows], Y[rows]
        elbo = theirs.elbo(batch)
        assert_close(-ours.training_loss(batch), elbo)
        assert_close(ours.elbo(batch), elbo)
    assert_close(ours.prior_kl(), theirs.prior_kl())
    shapes = ALL_SHAPES if likelihood == "Gaussian" else MARGINAL
    assert_same_predictions(ours, theirs, shapes)


@pytest.mark.parametrize("sharing", ["single", "separate"])
@unconverted
def test_gradients_are_those_of_svgp(sharing: str) -> None:
    """Those of the inducing points as well, which enter Q through its mean and its covariance."""
    ours, theirs = pair("Gaussian", 3, sharing, whiten=False)
    batch = data("Gaussian", 3)
    gradients = []
    for model in (ours, theirs):
        Z = model.inducing_variable
        Z = getattr(Z, "inducing_variable", Z).Z
        variables = [
            parameter.unconstrained_variable
            for parameter in (model.q_mu, model.q_sqrt, Z, model.likelihood.variance)
        ]
        assert {id(v) for v in variables} == {id(v) for v in model.trainable_variables}
        with tf.GradientTape() as tape:
            loss = model.training_loss(batch)
        gradients.append(tape.gradient(loss, variables))
    for our, their in zip(*gradients, strict=True):
        assert_close(our, their)


def exact_optimum(whiten: bool, sharing: str = "single", J: int = 1) -> gvi.models.GVI:
    k = catalogue.kernels(J)[sharing]
    mean = gpflow.functions.Constant([0.5])
    start = gvi.mean_functions.Inducing.from_data(
        k, Z, (X, Y[:, :J]), 0.1, mean_function=mean, whiten=whiten
    )
    r = gvi.covariances.CholeskySVGP.from_data(k, Z, X, 0.1, whiten=whiten, num_latent_gps=J)
    return gvi.models.GVI(
        gvi.GaussianProcess(mean, k),
        gvi.GaussianProcess(start, r),
        gpflow.likelihoods.Gaussian(0.1),
        gvi.divergences.InducingKL(),
        num_data=N,
    )


@pytest.mark.parametrize(("J", "whiten"), [(1, True), (3, False)])
def test_sgpr_is_the_start_from_data(whiten: bool, J: int) -> None:
    ours = exact_optimum(whiten, J=J)
    theirs = gpflow.models.SGPR(
        (X, Y[:, :J]),
        catalogue.kernels(1)["single"],
        catalogue.inducing_points(Z),
        mean_function=gpflow.functions.Constant([0.5]),
        noise_variance=0.1,
        num_latent_gps=J,
    )
    assert_close(ours.elbo((X, Y[:, :J])), theirs.elbo())
    for full_cov in (False, True):
        for our, their in zip(
            ours.predict_f(XNEW, full_cov), theirs.predict_f(XNEW, full_cov), strict=True
        ):
            assert_close(our, their)


@pytest.mark.parametrize(("sharing", "whiten"), [("single", False), ("separate", True)])
def test_one_natural_gradient_step_reaches_the_optimum(whiten: bool, sharing: str) -> None:
    J = 1 if sharing == "single" else 3
    model, optimum = (exact_optimum(whiten, sharing, J) for _ in range(2))
    rng = np.random.default_rng(8)
    model.q_mu.assign(rng.normal(size=(M, J)))
    model.q_sqrt.assign(np.tril(0.3 * rng.normal(size=(J, M, M))) + np.eye(M))
    batch = (X, Y[:, :J])
    best = optimum.elbo(batch)
    assert model.elbo(batch) < best - 1.0
    gpflow.optimizers.NaturalGradient(gamma=1.0).minimize(
        model.training_loss_closure(batch, compile=False), [(model.q_mu, model.q_sqrt)]
    )
    assert_close(model.elbo(batch), best)
    assert_same_predictions(model, optimum)


@pytest.mark.slow
@pytest.mark.parametrize("of_p", [False, True], ids=["P frozen", "P's variables named"])
def test_training_takes_the_same_course(of_p: bool) -> None:
    models = pair("StudentT", 3, whiten=True)
    batch = data("StudentT", 3)
    courses = []
    for model in models:
        closure = model.training_loss_closure(batch)
        for part in (model.kernel, model.mean_function):
            gpflow.set_trainable(part, of_p or model is models[0])
        if of_p:
            # GPflow's jitter is absolute, and ours relative where a variance is less than one.
            model.kernel.variance.assign(3.0)
            prior = tfp.distributions.LogNormal(np.float64(1.0), np.float64(0.1))
            model.kernel.trainable_parameters[0].prior = prior
        variables = model.trainable_variables
        if of_p and model is models[0]:
            variables += model.regulariser.trainable_variables
        optimizer = tf_keras.optimizers.Adam(0.05)
        course = []
        for _ in range(20):
            with tf.GradientTape() as tape:
                loss = closure()
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            course.append(float(loss))
        courses.append(course)
    assert courses[0][-1] < courses[0][0] - 5.0
    assert_close(courses[0], courses[1])
    assert_same_predictions(*models)
