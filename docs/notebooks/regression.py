# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # Regression on a table: calibration and intervals
#
# The data are the progress of diabetes in 442 patients, with ten measurements of each, from
# scikit-learn. This notebook fits them by `learn`, compares the result with models of scikit-learn,
# and then repeats the procedure step by step.

# %% tags=["hide-input"]
import warnings

import gpflow
import keras
import matplotlib.pyplot as plt
import numpy as np
from scipy import stats
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gpflow_gvi as gvi

ROWS = 242
INDUCING = 100
MAX_EPOCHS = 20
ROUNDS = 3
EPOCHS = 100
SPLITS = 400

X, y = load_diabetes(return_X_y=True, scaled=False)
order = np.random.default_rng(0).permutation(len(X))
X, Y = X[order], y[order, None]
training, new = (X[:ROWS], Y[:ROWS]), (X[ROWS:], Y[ROWS:])
D = X.shape[1]

# %% [markdown]
# ## In one call
#
# `learn` takes data in their original units. Its default kernel is for tables of numbers; the
# kernel here states a prior belief, that the response is linear with a smooth deviation.

# %%
kernel = gpflow.kernels.Linear(np.full(D, 0.1)) + gpflow.kernels.SquaredExponential(
    0.3, np.full(D, 5.0)
)
learned = gvi.learn(training, kernel=kernel, num_inducing=INDUCING, epochs=MAX_EPOCHS)

# %% [markdown]
# `metrics.evaluate` takes any object with `predict_y` and `predict_log_density`. A class with these
# two methods wraps models of scikit-learn: its Gaussian process, with one lengthscale for each
# column, and Bayesian linear regression.


# %%
class OfScikitLearn:
    def __init__(self, model):
        self.model = make_pipeline(StandardScaler(), model)
        with warnings.catch_warnings():  # a lengthscale at its bound: its column is not used
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model.fit(training[0], training[1][:, 0])

    def predict_y(self, X):
        mean, deviation = self.model.predict(X, return_std=True)
        return mean[:, None], np.square(deviation)[:, None]

    def predict_log_density(self, data):
        mean, variance = self.predict_y(data[0])
        return stats.norm.logpdf(data[1], mean, np.sqrt(variance))[:, 0]


gaussian_process = GaussianProcessRegressor(
    RBF(np.full(D, 5.0), (1e-1, 1e3)) + WhiteKernel(0.5), normalize_y=True
)
models = {
    "learn": learned,
    "GaussianProcessRegressor": OfScikitLearn(gaussian_process),
    "BayesianRidge": OfScikitLearn(BayesianRidge()),
}
SHOWN = ("nll", "rmse", "crps", "coverage", "width", "calibration_error")
print(" " * 25 + "".join(f"{name:>18}" for name in SHOWN))
for name, model in models.items():
    scores = gvi.metrics.evaluate(model, new)
    print(f"{name:<25}" + "".join(f"{scores[metric]:18.3f}" for metric in SHOWN))

# %% [markdown]
# `gvi.metrics.METRICS` has the orientation of each metric. `coverage` is that of 95 % intervals. On
# these data the three models are similar, as the response is mostly linear.
#
# ## Are the intervals reliable?
#
# For every p between 0 and 1, the fraction of new patients whose response lies below the p-quantile
# that was predicted. A curve that is flatter than the diagonal in the middle means that the
# intervals are too narrow. Curves of calibrated predictions stay in the grey band mostly.

# %%
figure, panels = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
for panel, (name, model) in zip(panels, models.items(), strict=True):
    mean, variance = (np.asarray(part) for part in model.predict_y(new[0]))
    gvi.plots.QuantileDisplay.from_predictions(new[1], mean, np.sqrt(variance), ax=panel)
    panel.get_legend().remove()
    panel.set_title(name)
plt.show()

# %% [markdown]
# Conformal prediction has a guarantee that does not depend on the model: calibrated on n patients
# outside the training set, a 90 % interval contains a new response with a probability between 0.9
# and 0.9 + 1/(n+1), on average over new patients and over calibration sets. The following cell
# measures it on many random splits of the held-out patients, for two models with `predict_y`: the
# linear one, and the same with standard deviations divided by four.


# %%
linear = models["BayesianRidge"]


class Overconfident:
    def predict_y(self, X):
        mean, variance = linear.predict_y(X)
        return mean, variance / 16.0


def average_coverage(model, rng):
    found = []
    for _ in range(SPLITS):
        rows = rng.permutation(len(new[0]))
        calibration, rest = rows[:49], rows[49:]
        intervals = gvi.conformal(model, (new[0][calibration], new[1][calibration]))
        found.append(
            gvi.metrics.coverage(new[1][rest], *intervals.predict_interval(new[0][rest], 0.9))
        )
    return np.mean(found)


def plain_coverage(model):
    mean, variance = (np.asarray(part) for part in model.predict_y(new[0]))
    half = stats.norm.ppf(0.95) * np.sqrt(variance)
    return gvi.metrics.coverage(new[1], mean - half, mean + half)


rng = np.random.default_rng(0)
print("coverage of intervals for 90 %     as predicted   conformal")
for name, model in {"BayesianRidge": linear, "deviations divided by four": Overconfident()}.items():
    print(f"{name:<35}{plain_coverage(model):12.3f}{average_coverage(model, rng):12.3f}")

# %% [markdown]
# With `learn(..., calibration_fraction=0.2)` a calibration set is held out, and `predict_interval`
# is conformal. Without, it is the central interval of the predictive density.

# %%
lower, upper = learned.predict_interval(new[0][:5], coverage=0.9)
print(np.c_[new[1][:5], lower, upper].round(0))

# %% [markdown]
# ## Step by step
#
# These are the steps of `learn` in a short form; [the procedure](../learning.md) describes them.
# Models work in standard units, so the data are standardised first, and a validation set is held
# out.

# %%
scale = StandardScaler().fit(training[0])
center, spread = np.mean(training[1]), np.std(training[1])


def standard(X, Y):
    return scale.transform(X), (Y - center) / spread


held_out = standard(*(part[-ROWS // 5 :] for part in training))
seen = standard(*(part[: -ROWS // 5] for part in training))

# %% [markdown]
# **The regulariser P.** `fit_regulariser` alternates the selection of inducing points Z by greedy
# variance with the fit of hyper-parameters, which maximise the evidence of all data.

# %%
regulariser = gvi.fit_regulariser(
    seen, kernel, INDUCING, evidence=gvi.evidence.DataEvidence(), max_rounds=ROUNDS
)
P, Z, noise = regulariser.posterior, regulariser.inducing_points, regulariser.likelihood.variance
print("-log evidence of each round:", [round(one.loss, 2) for one in regulariser.history])
print("standard deviation of the noise:", np.sqrt(noise.numpy()).round(3))

# %% [markdown]
# **The variational process Q.** Its mean is that of a sparse Gaussian process plus a network of
# Keras that starts at zero, and its covariance is that of an SVGP. [The method](../method.md) has
# both.

# %%
keras.utils.set_random_seed(0)
network = keras.Sequential(
    [
        keras.Input((D,)),
        keras.layers.Dense(20, "tanh"),
        keras.layers.Dense(1, kernel_initializer="zeros"),
    ]
)
kernel = regulariser.prior.kernel
Z = gpflow.inducing_variables.InducingPoints(Z)
Q = gvi.GaussianProcess(
    gvi.mean_functions.Inducing.from_data(kernel, Z, seen, noise)
    + gvi.mean_functions.Network(network),
    gvi.covariances.CholeskySVGP.from_data(kernel, Z, seen[0], noise),
)

# %% [markdown]
# **Training** works as in Keras, with any of its callbacks. The divergence is that of projected
# GVI, with weight 0.1.

# %%
model = gvi.models.PGVI(P, Q, regulariser.likelihood, num_data=len(seen[0]), divergence_weight=0.1)
model.compile(keras.optimizers.Adam(1e-3))
stop = keras.callbacks.EarlyStopping(patience=EPOCHS // 4, restore_best_weights=True)
history = model.fit(
    seen,
    epochs=EPOCHS,
    batch_size=50,
    validation_data=held_out,
    callbacks=[stop],
    verbose=0,
).history

print("best epoch:", stop.best_epoch + 1)
gvi.plots.HistoryDisplay.from_history(history)
plt.show()

# %% [markdown]
# **Tempering** scales the covariance by the factor that maximises the density of the validation
# set. The scores are in standard units.

# %%
tempered = gvi.temper(model, held_out)
print("factor:", tempered.variational.kernel.factor.numpy().round(3))
unseen = standard(*new)
print(" " * 12 + "".join(f"{name:>18}" for name in SHOWN))
for name, one in {"untempered": model, "tempered": tempered}.items():
    scores = gvi.metrics.evaluate(one, unseen)
    print(f"{name:<12}" + "".join(f"{scores[metric]:18.3f}" for metric in SHOWN))
