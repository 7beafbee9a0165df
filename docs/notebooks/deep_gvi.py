# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # Deep Gaussian processes
#
# A single stationary Gaussian process fits a step badly: the short lengthscale that fits the edge
# gives oscillations elsewhere. A deep one transforms its inputs first. GPflux composes the layers;
# `GVILayer` is a layer with any divergence from its prior.

# %% tags=["hide-input"]
import gpflow
import gpflux
import matplotlib.pyplot as plt
import numpy as np
from gpflow.keras import tf_keras

import gpflow_gvi as gvi

ROWS = 150
EPOCHS = 250
DRAWS = 50
INDUCING = 15

tf_keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)


def step(count):
    """Return inputs on [-1, 1] and noisy values of a step."""
    X = rng.uniform(-1.0, 1.0, size=(count, 1))
    return X, np.sign(X) + 0.05 * rng.normal(size=X.shape)


X, Y = step(ROWS)
X_new, Y_new = step(400)

# %% [markdown]
# Each layer has a frozen P and a Q that starts near it. Hidden layers have the identity as their
# mean, so that they keep the information of their input (Salimbeni and Deisenroth 2017).


# %%
def layer(mean, divergence):
    """Return a layer with inducing points on a grid."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.5)
    Z = gpflow.inducing_variables.InducingPoints(np.linspace(-1.0, 1.0, INDUCING)[:, None])
    P = gvi.GaussianProcess(mean, kernel)
    Q = gvi.GaussianProcess(
        gvi.mean_functions.Inducing(kernel, Z, mean_function=mean),
        gvi.covariances.CholeskySVGP(kernel, Z, q_sqrt=0.1 * np.eye(INDUCING)[None]),
    )
    return gvi.layers.GVILayer(P, Q, divergence, num_data=ROWS, divergence_weight=0.01)


def trained(layers):
    """Return a deep model after training, and its history."""
    model = gpflux.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.1))
    training = model.as_training_model()
    training.compile(tf_keras.optimizers.Adam(0.02))
    data = {"inputs": X, "targets": Y}
    return model, training.fit(data, batch_size=75, epochs=EPOCHS, verbose=0).history


identity, zero = gpflow.functions.Identity(), gpflow.functions.Zero()
models = {
    "one layer, Rényi": [layer(zero, gvi.divergences.ProjectedRenyi())],
    "two layers, Rényi": [
        layer(identity, gvi.divergences.ProjectedRenyi()),
        layer(zero, gvi.divergences.ProjectedRenyi()),
    ],
    "two layers, KL of GPflux": [
        layer(identity, gvi.divergences.InducingKL()),
        layer(zero, gvi.divergences.InducingKL()),
    ],
}
fitted = {name: trained(layers) for name, layers in models.items()}

# %% [markdown]
# The law of y under a deep model is a mixture, one normal law for each draw of the hidden layers.


# %%
def predict(model, x):
    """Return means and variances of y for draws of the hidden layers: [draws, N]."""
    prediction = model.as_prediction_model()
    draws = [prediction(x) for _ in range(DRAWS)]
    return tuple(
        np.stack([np.asarray(getattr(draw, name))[:, 0] for draw in draws])
        for name in ("y_mean", "y_var")
    )


x = np.linspace(-1.5, 1.5, 200)[:, None]
figure, axes = plt.subplots(1, len(fitted), figsize=(12, 3.5), sharey=True, layout="constrained")
for axis, (name, (model, _)) in zip(axes, fitted.items(), strict=True):
    means, variances = predict(model, x)
    mean = means.mean(0)
    deviation = np.sqrt(means.var(0) + variances.mean(0))
    gvi.plots.CurveDisplay.from_predictions(x, mean, deviation, data=(X, Y), ax=axis)
    axis.set_title(name, pad=20)
plt.show()

# %% [markdown]
# The negative log density of the mixture on a test set:

# %%
for name, (model, _) in fitted.items():
    means, variances = predict(model, X_new)
    log_normal = -0.5 * (np.log(2 * np.pi * variances) + (Y_new[:, 0] - means) ** 2 / variances)
    nll = np.mean(np.log(DRAWS) - np.logaddexp.reduce(log_normal, axis=0))
    print(f"{name:<28}{nll:7.3f}")

# %% [markdown]
# The second layer models the edge; the choice between the two divergences matters far less here. In
# training, Keras reports the loss and the divergence of each layer.

# %%
_, history = fitted["two layers, Rényi"]
plt.figure()
for name, values in history.items():
    plt.plot(values, label=name)
plt.yscale("symlog", linthresh=0.1)
plt.xlabel("epoch")
plt.legend(fontsize="small")
plt.show()
