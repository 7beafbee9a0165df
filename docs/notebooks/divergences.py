# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # Divergences compared
#
# A divergence D[Q, P] penalises the difference between the variational process Q and the
# regulariser P. This notebook shows the divergences of the package, their effect in a gap of the
# data, and their cost. [The method](../method.md) has the formulas.

# %% tags=["hide-input"]
import functools
import time

import gpflow
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi import divergences

ROWS = 200
EPOCHS = 1500
PAIR_ROWS = 1000
PIVOTS = 150
BLOCKS = 10

# %% [markdown]
# ## Divergences of marginals
#
# A projected divergence averages a divergence of two normal distributions on the line over the
# inputs. `between` is the divergence of the two distributions. With equal means and p = 1 it is a
# function of the ratio of variances q/p.

# %%
ratio = np.geomspace(1e-2, 1e2, 200)
projected = {
    "KL(Q‖P)": divergences.ProjectedKL(),
    "KL(P‖Q)": divergences.ProjectedReverseKL(),
    "Rényi, α = ½": divergences.ProjectedRenyi(0.5),
    "Bhattacharyya": divergences.ProjectedBhattacharyya(),
    "squared Hellinger": divergences.ProjectedHellinger(),
    "W₂²": divergences.ProjectedWasserstein(),
    "squared difference": divergences.ProjectedSquaredDifference(),
}
plt.figure(figsize=(8, 4))
for name, divergence in projected.items():
    plt.plot(ratio, divergence.between(0.0, ratio, 0.0, np.ones_like(ratio)), label=name)
plt.xscale("log")
plt.ylim(0.0, 3.0)
plt.xlabel("q / p")
plt.legend(fontsize="small")
plt.show()

# %% [markdown]
# Only the reverse divergence KL(P‖Q) grows fast as the variance of Q becomes too small (left), only
# KL(Q‖P), W₂² and the squared difference as it becomes too large (right). The others grow slowly on
# both sides; the squared Hellinger distance is bounded by one. W₂² and the squared difference
# depend on the unit of y, the others do not.
#
# ## In a gap
#
# The data are a curve with a gap. Hyper-parameters are fitted once; P is the posterior, except for
# the SVGP, whose divergence is finite only from the prior.

# %%
rng = np.random.default_rng(1)
X = rng.uniform(-3.0, 3.0, size=(ROWS, 1))
X = X[(X[:, 0] < -0.2) | (X[:, 0] > 1.2)]


def truth(x):
    return np.sin(2.0 * x) + 0.5 * x


Y = truth(X) + 0.1 * rng.normal(size=X.shape)
data = (X, Y)
regulariser = gvi.fit_regulariser(data, gpflow.kernels.SquaredExponential(), 15)
kernel, noise = regulariser.prior.kernel, regulariser.likelihood.variance.numpy()
Z = gpflow.inducing_variables.InducingPoints(regulariser.inducing_points)
gpflow.set_trainable(Z, False)

# %% [markdown]
# Q has the covariance of an SVGP, with the prior kernel, and a network as its mean, with the same
# initial weights in all models. The SVGP itself has the mean of a sparse process instead.


# %%
def network():
    keras.utils.set_random_seed(0)
    return gvi.mean_functions.Network(
        keras.Sequential(
            [
                keras.Input((1,)),
                keras.layers.Dense(50, "tanh"),
                keras.layers.Dense(50, "tanh"),
                keras.layers.Dense(1),
            ]
        )
    )


def trained(P, mean, divergence):
    """Return a model, and milliseconds of a step."""
    likelihood = gpflow.likelihoods.Gaussian(noise)
    gpflow.set_trainable(likelihood, False)
    Q = gvi.GaussianProcess(mean, gvi.covariances.CholeskySVGP(kernel, Z))
    model = gvi.models.GVI(P, Q, likelihood, divergence, num_data=len(X))
    model.compile(keras.optimizers.Adam(5e-3))
    options = {"batch_size": None, "verbose": 0}
    model.fit(data, epochs=EPOCHS // 10, steps_per_epoch=1, **options)  # also traces the step
    start = time.perf_counter()
    model.fit(data, epochs=10, steps_per_epoch=EPOCHS // 10, **options)
    return model, 100.0 * (time.perf_counter() - start) / (EPOCHS // 10)


context = gvi.contexts.TrainingInputs() + gvi.contexts.UniformBox([-4.0], [4.0], num_points=100)
prior, posterior = regulariser.prior, regulariser.posterior
models = {
    "SVGP": trained(prior, gvi.mean_functions.Inducing(kernel, Z), divergences.InducingKL()),
    "pGVI, Rényi": trained(posterior, network(), divergences.ProjectedRenyi(0.5)),
    "GWI": trained(posterior, network(), divergences.GaussianWasserstein()),
    "pGVI, with context": trained(
        posterior, network(), divergences.ProjectedRenyi(0.5, context=context)
    ),
}

# %%
x = np.linspace(-4.0, 4.0, 200)[:, None]
figure, panels = plt.subplots(2, 2, figsize=(9, 5), sharex=True, sharey=True)
for panel, (name, (model, _)) in zip(panels.ravel(), models.items(), strict=True):
    for process, color in ((posterior, "C1"), (model.variational, "C0")):
        mean, deviation = process.mean(x), np.sqrt(process.variance(x))
        panel.plot(x, mean, color)
        panel.fill_between(
            x[:, 0],
            (mean - 2.0 * deviation)[:, 0],
            (mean + 2.0 * deviation)[:, 0],
            color=color,
            alpha=0.25,
        )
    panel.plot(x, truth(x), "k:")
    panel.plot(X, Y, "k.", markersize=2)
    panel.set_title(name, fontsize="small")
    panel.set_ylim(-4.0, 4.0)
figure.tight_layout()
plt.show()

gap = np.linspace(-0.2, 1.2, 100)[:, None]
of_gap = (gap, truth(gap) + 0.1 * rng.normal(size=gap.shape))
print(" " * 20 + "  nll in gap  rmse in gap  sd of f in gap   ms/step")
for name, (model, milliseconds) in models.items():
    scores = gvi.metrics.evaluate(model, of_gap)
    sd = float(np.mean(np.sqrt(model.predict_f(gap)[1])))
    print(f"{name:<20}{scores['nll']:12.3f}{scores['rmse']:13.3f}{sd:16.3f}{milliseconds:10.2f}")
sd = np.sqrt(posterior.variance(gap)).mean()
print(f"{'P':<20}{'':12}{gvi.metrics.rmse(truth(gap), posterior.mean(gap)):13.3f}{sd:16.3f}")

# %% [markdown]
# Blue is Q, orange P, with two standard deviations of each. All agree where there are data. A
# divergence at the data hardly constrains Q in the gap: neither the network nor the covariance. The
# Wasserstein divergence also compares correlations between the data on both sides, and leaves less
# uncertainty, here around a mean that is wrong. The context, points drawn anew in each step from -4
# to 4, gives Q the uncertainty of P in the gap, and a mean near to P's.
#
# The step of GWI takes longer because the distance costs O(N³) in a batch of N.
#
# ## Estimators of the Wasserstein distance
#
# The estimators approximate the exact distance in less time. They are compared on one pair of
# processes in four dimensions, the posterior of a sparse process and its prior.

# %%
X = rng.normal(size=(PAIR_ROWS, 4))
kernel = gpflow.kernels.SquaredExponential(lengthscales=2.0)
Z = gvi.inducing.greedy_variance(X, 50, kernel=kernel).points
P = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
Q = gvi.GaussianProcess(
    gpflow.functions.Zero(), gvi.covariances.CholeskySVGP.from_data(kernel, Z, X, 0.1)
)
estimators = {
    "exact": "exact",
    "low_rank, at Z": "low_rank",
    f"low_rank, {PIVOTS} pivots": divergences.wasserstein.LowRank(PIVOTS),
    f"blocks, {BLOCKS}": divergences.wasserstein.Blocks(BLOCKS),
    "marginal": "marginal",
}
exact = float(divergences.GaussianWasserstein()(Q, P, X))
print(" " * 22 + "     W₂²    error  error bound      ms")
for name, estimator in estimators.items():
    divergence = divergences.GaussianWasserstein(estimator)
    compiled = tf.function(functools.partial(divergence, Q, P), autograph=False)
    compiled(X)
    start = time.perf_counter()
    value = float(compiled(X))
    milliseconds = 1e3 * (time.perf_counter() - start)
    bounded = name.startswith(("low_rank", "marginal"))
    bound = f"{float(divergence.error_bound(Q, P, X)):.4f}" if bounded else ""
    print(f"{name:<22}{value:8.4f}{value - exact:9.4f}{bound:>13}{milliseconds:8.1f}")

# %% [markdown]
# `blocks` is a lower bound and `marginal` an upper one. `error_bound` holds for every kernel, up to
# rounding, and is several times the error.
