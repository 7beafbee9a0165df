# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # P, Q and a divergence
#
# Generalised variational inference trains a process Q by a loss, and holds it to a regulariser P by
# a divergence D[Q, P]. All three are chosen here on one curve: five divergences, five covariances
# of Q, and P before and after the data. [The method](../method.md) has the formulas.

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
ITERATIONS = 150
PAIR_ROWS = 1000
PIVOTS = 150

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

# %% [markdown]
# ## P
#
# The data are a curve with a gap. P is a Gaussian process whose hyper-parameters are fitted once,
# and never trained with Q. It may be the *prior*, which has not seen the data, or the *posterior*,
# which has.

# %%
rng = np.random.default_rng(1)
X = rng.uniform(-3.0, 3.0, size=(ROWS, 1))
X = X[(X[:, 0] < -0.2) | (X[:, 0] > 1.2)]


def truth(x):
    return np.sin(2.0 * x) + 0.5 * x


Y = truth(X) + 0.1 * rng.normal(size=X.shape)
regulariser = gvi.fit_regulariser((X, Y), gpflow.kernels.SquaredExponential(), 15)
kernel, noise = regulariser.prior.kernel, regulariser.likelihood.variance.numpy()
Z = regulariser.inducing_points
prior, posterior = regulariser.prior, regulariser.posterior
x = np.linspace(-4.0, 4.0, 200)[:, None]
gap = np.linspace(-0.2, 1.2, 100)[:, None]
of_gap = (gap, truth(gap) + 0.1 * rng.normal(size=gap.shape))


def draw(panel, process, color):
    mean, deviation = process.mean(x), np.sqrt(process.variance(x))
    panel.plot(x, mean, color)
    ends = (mean - 2.0 * deviation)[:, 0], (mean + 2.0 * deviation)[:, 0]
    panel.fill_between(x[:, 0], *ends, color=color, alpha=0.25)


def draw_each(models, P, rows):
    """A panel for each Q, blue, with the P that it was held to, orange."""
    columns = len(models) // rows
    figure, panels = plt.subplots(rows, columns, figsize=(9, 2.6 * rows), sharex=True, sharey=True)
    for panel, (name, model) in zip(panels.ravel(), models.items(), strict=True):
        draw(panel, P.get(name, posterior), "C1")
        draw(panel, model.variational, "C0")
        panel.plot(x, truth(x), "k:")
        panel.plot(X, Y, "k.", markersize=2)
        panel.set_title(name, fontsize="small")
        panel.set_ylim(-4.0, 4.0)
    figure.tight_layout()
    plt.show()


def tell(models):
    print(" " * 26 + "nll in gap  rmse in gap  sd of f in gap  sd of f at data")
    for name, model in models.items():
        scores = gvi.metrics.evaluate(model, of_gap)
        deviations = [float(np.mean(np.sqrt(model.predict_f(at)[1]))) for at in (gap, X)]
        row = (scores["nll"], scores["rmse"], *deviations)
        print(f"{name:<24}" + "".join(f"{value:13.3f}" for value in row))


# %% [markdown]
# ## Q, and five divergences
#
# Q has a network alone as its mean, with the same initial weights each time, and the covariance of
# an SVGP. Training minimises N (average loss + λ D[Q, P]) by L-BFGS, here with the posterior for P.
# D is an average over inputs: λ = 1 makes a projected divergence a sum over the data, and λ = 1/N
# is the scale of `GWI`. In the last panel the divergence is evaluated at points from -4 to 4 as
# well, a *context*.


# %%
def network():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(50, "tanh", dtype="float64") for _ in range(2)]
    readout = keras.layers.Dense(1, dtype="float64")
    return gvi.mean_functions.Network(
        keras.Sequential([keras.Input((1,), dtype="float64"), *layers, readout])
    )


def trained(P, divergence, *, mean=None, covariance=None, weight=1.0):
    likelihood = gpflow.likelihoods.Gaussian(noise)
    gpflow.set_trainable(likelihood, False)
    r = gvi.covariances.CholeskySVGP(kernel, Z) if covariance is None else covariance
    Q = gvi.GaussianProcess(network() if mean is None else mean, r)
    model = gvi.models.GVI(P, Q, likelihood, divergence, num_data=len(X), divergence_weight=weight)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure((X, Y)),
        model.trainable_variables,
        options={"maxiter": ITERATIONS},
    )
    return model


everywhere = gvi.contexts.TrainingInputs() + gvi.contexts.Inputs(x[::4])
with_context = divergences.ProjectedRenyi(0.5, context=everywhere)
models = {
    "KL(Q‖P)": trained(posterior, divergences.ProjectedKL()),
    "KL(P‖Q)": trained(posterior, divergences.ProjectedReverseKL()),
    "Rényi, α = ½": trained(posterior, divergences.ProjectedRenyi(0.5)),
    "squared Hellinger": trained(posterior, divergences.ProjectedHellinger()),
    "W₂², λ = 1/N": trained(posterior, divergences.GaussianWasserstein(), weight=1.0 / len(X)),
    "Rényi, with a context": trained(
        posterior, divergences.ProjectedRenyi(0.5, context=everywhere)
    ),
}
draw_each(models, {}, 2)
tell(models)
sd = np.sqrt(posterior.variance(gap)).mean()
print(f"{'P':<24}{'':13}{gvi.metrics.rmse(truth(gap), posterior.mean(gap)):13.3f}{sd:13.3f}")

# %% [markdown]
# All agree where there are data. In the gap a divergence at the data decides neither mean nor
# variance: the network goes its own way there, and another number of iterations gives another
# curve. What the divergence decides is how wide Q is at the data: KL(P‖Q), for which a small
# variance is expensive, leaves the widest Q, and W₂² with the weight 1/N the narrowest. A context
# holds Q to P in the gap as well.
#
# ## Five covariances
#
# Here Q has the mean of P, so that covariances alone are trained, with the context. P's standard
# deviation is dotted.

# %%
covariances = {
    "CholeskySVGP": gvi.covariances.CholeskySVGP(kernel, Z),
    "DiagonalSVGP": gvi.covariances.DiagonalSVGP(kernel, Z),
    "KernelisedSVGP": gvi.covariances.KernelisedSVGP(kernel, Z),
    "SparsePosterior": gvi.covariances.SparsePosterior(kernel, Z),
    "FixedSparsePosterior": gvi.covariances.FixedSparsePosterior(kernel, Z),
}
models = {
    name: trained(posterior, with_context, mean=posterior.mean_function, covariance=covariance)
    for name, covariance in covariances.items()
}
figure, panel = plt.subplots(figsize=(9, 3.5))
for name, model in models.items():
    panel.plot(x, np.sqrt(model.variational.variance(x)), label=name)
panel.plot(x, np.sqrt(posterior.variance(x)), "k:", label="P")
panel.plot(X, np.full_like(X, 2e-3), "k|", markersize=4)
panel.plot(Z, np.full_like(Z, 2e-3), "r|", markersize=9)
panel.set_yscale("log")
panel.set_ylabel("standard deviation of f")
panel.legend(fontsize="small", ncols=3)
plt.show()
tell(models)
for name, model in models.items():
    count = sum(int(tf.size(variable)) for variable in model.variational.kernel.trainable_variables)
    print(f"{name:<24}{count:5d} parameters")

# %% [markdown]
# `CholeskySVGP` has a number for every pair of inducing points (red) and follows P everywhere, also
# in the gap. The others have one for each point, or two hyper-parameters of a kernel of their own.
# What these are is decided where most points are, at the data, so that Q is too certain in the gap.
# A `SparsePosterior` is certain at its inducing points.
#
# ## Prior or posterior
#
# What Q learns from each: a prior has to be small beside the data, or it takes Q to zero; a
# posterior contains them.

# %%
models, held_to = {}, {}
for weight in (0.01, 1.0):
    for name, P in (("prior", prior), ("posterior", posterior)):
        title = f"{name}, λ = {weight}"
        models[title], held_to[title] = trained(P, with_context, weight=weight), P
draw_each(models, held_to, 2)
tell(models)

# %% [markdown]
# With λ = 0.01 neither is felt at the data. With λ = 1 a prior, which knows the scale of the
# function alone, makes Q wide at the data, too, and draws its mean to zero in the gap; a posterior,
# which knows the data, does neither.
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
    "marginal": "marginal",
}
exact = float(divergences.GaussianWasserstein()(Q, P, X))
print(" " * 22 + "     W₂²    error      ms")
for name, estimator in estimators.items():
    divergence = divergences.GaussianWasserstein(estimator)
    compiled = tf.function(functools.partial(divergence, Q, P), autograph=False)
    compiled(X)
    start = time.perf_counter()
    value = float(compiled(X))
    milliseconds = 1e3 * (time.perf_counter() - start)
    print(f"{name:<22}{value:8.4f}{value - exact:9.4f}{milliseconds:8.1f}")

# %% [markdown]
# `marginal` is an upper bound.
