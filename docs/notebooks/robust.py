# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # Robust regression with outliers
#
# The log loss of an observation grows with the square of its distance, so that a few outliers can
# determine the fit. In generalised variational inference the loss is a choice: the β- and the
# γ-loss depend on a power of the density p(y | f) instead of its logarithm,
#
# $$ \ell_\beta = -\frac{p(y \mid f)^{\beta-1}}{\beta-1}
#    + \frac{1}{\beta} \int p(y' \mid f)^\beta dy',
#    \qquad
#    \ell_\gamma = -\frac{\gamma}{\gamma-1}\, p(y \mid f)^{\gamma-1}
#    \Big( \int p(y' \mid f)^\gamma dy' \Big)^{-\frac{\gamma-1}{\gamma}}. $$
#
# Both become the log loss, up to a constant, as the parameter tends to one.

# %% tags=["hide-input"]
import gpflow
import keras
import matplotlib.pyplot as plt
import numpy as np

import gpflow_gvi as gvi
from gpflow_gvi import losses

ROWS = 200
EPOCHS = 1000
SEEDS = (0, 1)
FRACTIONS = (0.0, 0.15, 0.3)

# %% [markdown]
# ## The loss of an observation
#
# The three losses under noise of standard deviation 1, minus their values at y = f:

# %%
likelihood = gpflow.likelihoods.Gaussian(1.0)
y = np.linspace(-6.0, 6.0, 201)[:, None]
zero = np.zeros_like(y)
plt.figure(figsize=(6, 3))
kinds = {"log": losses.LogLoss(), "β = 1.5": losses.BetaLoss(1.5), "γ = 1.5": losses.GammaLoss(1.5)}
for name, loss in kinds.items():
    values = loss(likelihood, y, zero, zero, y)
    plt.plot(y, values - np.min(values), label=name)
plt.ylim(0.0, 4.0)
plt.xlabel("y - f")
plt.legend()
plt.show()

# %% [markdown]
# Beyond a few standard deviations the robust losses are nearly constant: such an observation has no
# influence.
#
# ## Regression with outliers
#
# The data are a smooth function with noise of standard deviation 0.1; 0 %, 15 % or 30 % of the
# observations are too high by two to four. The models differ in the loss alone: they have the same
# P, a prior fitted to the contaminated data, the same Q, that of an SVGP, and the divergence of the
# evidence lower bound. The noise is trained with Q.


# %%
def truth(x):
    return np.sin(2.0 * x) + 0.3 * x


def contaminated(seed, fraction):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(ROWS, 1))
    Y = truth(X) + 0.1 * rng.normal(size=X.shape)
    outliers = rng.random(X.shape) < fraction
    return X, Y + outliers * rng.uniform(2.0, 4.0, size=X.shape)


def fitted(data, loss):
    regulariser = gvi.fit_regulariser(
        data,
        gpflow.kernels.SquaredExponential(),
        20,
        evidence=gvi.evidence.DataEvidence(),
        max_rounds=1,
    )
    kernel, noise = regulariser.prior.kernel, regulariser.likelihood.variance.numpy()
    Z = gpflow.inducing_variables.InducingPoints(regulariser.inducing_points)
    gpflow.set_trainable(Z, False)
    Q = gvi.GaussianProcess(
        gvi.mean_functions.Inducing.from_data(kernel, Z, data, noise),
        gvi.covariances.CholeskySVGP.from_data(kernel, Z, data[0], noise),
    )
    model = gvi.models.GVI(
        regulariser.prior,
        Q,
        regulariser.likelihood,
        gvi.divergences.InducingKL(),
        loss=loss,
        num_data=len(data[0]),
    )
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit(data, epochs=EPOCHS // 100, steps_per_epoch=100, batch_size=None, verbose=0)
    return model


models = {
    (fraction, name): [fitted(contaminated(seed, fraction), loss) for seed in SEEDS]
    for fraction in FRACTIONS
    for name, loss in kinds.items()
}

# %%
x = np.linspace(-3.0, 3.0, 200)[:, None]
figure, panels = plt.subplots(1, 3, figsize=(12, 3.5), sharey=True, layout="constrained")
for panel, name in zip(panels, kinds, strict=True):
    mean, variance = models[FRACTIONS[-1], name][0].predict_f(x)
    data = contaminated(SEEDS[0], FRACTIONS[-1])
    gvi.plots.CurveDisplay.from_predictions(x, mean, np.sqrt(variance), of="f", data=data, ax=panel)
    panel.plot(x, truth(x), "k:")
    panel.set_title(name, pad=20)
plt.show()

# %% [markdown]
# The table has the root mean squared distance from the function without outliers and noise, and the
# trained standard deviation of the noise, each averaged over the data sets.

# %%
print("outliers   loss          RMSE   noise")
for (fraction, name), members in models.items():
    rmse = np.mean([gvi.metrics.rmse(truth(x), model.predict_f(x)[0]) for model in members])
    noise = np.mean([np.sqrt(model.likelihood.variance) for model in members])
    print(f"{fraction:8.2f}   {name:<10}{rmse:8.3f}{noise:8.3f}")

# %% [markdown]
# The log loss explains outliers by more noise, and its mean is too high. The robust losses find
# function and noise as if there were no outliers, and without outliers they are as good here. They
# are not convex, so the start matters: here it is the optimum of the log loss.
