# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # Kernels from neural networks
#
# A network defines a kernel in two ways. With infinitely many units and random weights it *is* a
# Gaussian process, whose kernel is `NNGP`. The outputs of a trained network can be the features of
# a kernel, `FeatureMap`.

# %% tags=["hide-input"]
import functools

import gpflow
import keras
import matplotlib.pyplot as plt
import numpy as np

import gpflow_gvi as gvi
from gpflow_gvi.kernels import NNGP, FeatureMap
from gpflow_gvi.kernels.nngp import Dense, Erf, ReLU
from gpflow_gvi.regulariser.lbfgs import lbfgs

WIDTHS = (3, 10, 30, 100)
NETWORKS = 5000
ITERATIONS = 200

# %% [markdown]
# ## The kernel of a model of Keras
#
# `NNGP.from_keras` reads the layers and ignores the widths. The variances of the weights and biases
# of each layer are the hyper-parameters, which can be fitted like those of other kernels.

# %%
model = keras.Sequential(
    [
        keras.Input((2,)),
        keras.layers.Dense(64, "relu"),
        keras.layers.Dense(64, "tanh"),
        keras.layers.Dense(1),
    ]
)
kernel = NNGP.from_keras(model)
print([type(layer).__name__ for layer in kernel.layers])
for path, value in gpflow.utilities.read_values(kernel).items():
    print(f"{path:<28}{float(value):.2f}")

# %% [markdown]
# The first layer has the covariance $\sigma_b^2 + \sigma_w^2\, x^\top x' / D$, and each that
# follows $\sigma_b^2 + \sigma_w^2\, \mathrm{E}[\phi(u)\,\phi(v)]$, where u and v have the
# covariance of the previous layer. For ReLU, and erf in place of tanh, it is in closed form.
#
# ## Samples of the prior
#
# Functions from the prior, for one to three hidden layers:

# %%
x = np.linspace(-4.0, 4.0, 200)[:, None]
figure, panels = plt.subplots(2, 3, figsize=(9, 4.5), sharex=True)
for row, (phi, weight) in zip(panels, ((ReLU, 2.0), (Erf, 4.0)), strict=True):
    for depth, panel in enumerate(row, start=1):
        layers = [part for _ in range(depth) for part in (Dense(weight, 1.0), phi())]
        prior = gvi.GaussianProcess(gpflow.functions.Zero(), NNGP([*layers, Dense()]))
        functions = prior.sample(x, 5, seed=depth)
        panel.plot(x, functions[:, :, 0].numpy().T, linewidth=1)
        panel.set_title(f"{phi.__name__}, depth {depth}", fontsize="small")
figure.tight_layout()
plt.show()

# %% [markdown]
# ReLU networks grow in proportion to |x| and are nearly straight away from the origin; erf networks
# level off, and with depth vary faster around the origin, as these weights are large.
#
# ## Convergence of wide networks
#
# The following cell evaluates many random finite networks at a few inputs, with weights of variance
# $\sigma_w^2$ / width. Their covariance is close to the kernel at every width. Only wide networks
# have normally distributed outputs, with an excess kurtosis of zero.

# %%
rng = np.random.default_rng(0)
weight_variance, bias_variance = 2.0, 0.1
kernel = NNGP(
    [
        Dense(weight_variance, bias_variance),
        ReLU(),
        Dense(weight_variance, bias_variance),
        ReLU(),
        Dense(weight_variance, bias_variance),
    ]
)
X = rng.normal(size=(6, 2))


def random_network(width):
    values = X
    for layer, size in enumerate((width, width, 1)):
        values = values if layer == 0 else np.maximum(values, 0.0)
        W = rng.normal(size=(values.shape[1], size)) * np.sqrt(weight_variance / values.shape[1])
        values = values @ W + rng.normal(size=size) * np.sqrt(bias_variance)
    return values[:, 0]


K = kernel(X).numpy()
print("width   relative error of the covariance   excess kurtosis of an output")
for width in WIDTHS:
    outputs = np.array([random_network(width) for _ in range(NETWORKS)])
    error = np.linalg.norm(outputs.T @ outputs / NETWORKS - K) / np.linalg.norm(K)
    standard = outputs / np.sqrt(np.diag(K))
    kurtosis = np.mean(standard**4) / np.mean(standard**2) ** 2 - 3.0
    print(f"{width:5d}{error:35.3f}{kurtosis:31.2f}")

# %% [markdown]
# ## Features of a trained network
#
# `FeatureMap(k₀, h)` is k₀(h(x), h(x')), and its network is trained together with k₀, here by the
# evidence of the data. With a linear k₀ it is Bayesian linear regression on the features h(x),
#
# $$ f(x) = \phi(x)^\top w, \quad w \sim \mathcal{N}(0, I), \quad
#    \phi(x) = (\sigma_1 h(x), \sigma_0). $$

# %%
X = rng.uniform(-3.0, 3.0, size=(150, 1))
Y = np.sin(2.0 * X) + 0.1 * rng.normal(size=X.shape)

keras.utils.set_random_seed(0)
features = keras.Sequential(
    [keras.Input((1,)), keras.layers.Dense(20, "tanh"), keras.layers.Dense(20, "tanh")]
)
regulariser = gvi.fit_regulariser(
    (X, Y),
    FeatureMap(gpflow.kernels.Linear() + gpflow.kernels.Constant(), features),
    21,
    evidence=gvi.evidence.DataEvidence(),
    minimise=functools.partial(lbfgs, max_iterations=ITERATIONS),
    max_rounds=1,
)
kernel, noise = regulariser.prior.kernel, regulariser.likelihood.variance.numpy()
posterior = regulariser.prior.condition(X, Y, noise)
print("standard deviation of the noise:", np.sqrt(noise).round(3))

# %% [markdown]
# With fewer features than observations `condition` works with the weights: their posterior has the
# precision $A = I + \sigma_n^{-2}\, \Phi^\top \Phi$, and
#
# $$ \mathrm{E} f(x) = \sigma_n^{-2}\, \phi(x)^\top A^{-1} \Phi^\top y, \qquad
#    \mathrm{Var} f(x) = \phi(x)^\top A^{-1} \phi(x). $$
#
# In function space the mean is $k(x, X) (k(X, X) + \sigma_n^2 I)^{-1} y$, with a system of N
# equations. Both agree.

# %%
x = np.linspace(-5.0, 5.0, 200)[:, None]
mean, variance = posterior.mean(x).numpy(), posterior.variance(x).numpy()
K, k = kernel(X).numpy(), kernel(X, x).numpy()
weights = np.linalg.solve(K + noise * np.eye(len(X)), np.hstack([Y, k]))
in_function_space = k.T @ weights[:, :1]
print("largest difference of the means:    ", np.abs(mean - in_function_space).max())
of_variances = kernel(x, full_cov=False).numpy() - np.sum(k * weights[:, 1:], axis=0)
print("largest difference of the variances:", np.abs(variance[:, 0] - of_variances).max())

display = gvi.plots.CurveDisplay.from_predictions(x, mean, np.sqrt(variance), of="f", data=(X, Y))
display.ax_.plot(x, np.sin(2.0 * x), "k:")
display.ax_.set_ylim(-4.0, 4.0)
plt.show()

# %% [markdown]
# Among the data the features fit well. Beyond them the mean departs from the truth, and the
# variance is too small: the evidence has not trained the features there, and there are only twenty.
# This is a reason to give Q the mean of a network and the covariance of another kernel.
