# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # Regression
#
# The progress of diabetes in 442 patients, from ten measurements of each: scikit-learn brings the
# data along. They are learned by `learn`, compared with what scikit-learn makes of them, and then
# learned again step by step.

# %%
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
LOOKS = 20
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
# `learn` takes data in their own units. Its default kernel is made for tables of numbers; here we
# say what we think of these data, that the response is linear with a smooth deviation.

# %%
kernel = gpflow.kernels.Linear(np.full(D, 0.1)) + gpflow.kernels.SquaredExponential(
    0.3, np.full(D, 5.0)
)
learned = gvi.learn(training, kernel=kernel, num_inducing=INDUCING, epochs=LOOKS)

# %% [markdown]
# `metrics.evaluate` takes anything with `predict_y` and `predict_log_density`. Two methods make a
# model of scikit-learn one of these: its Gaussian process, with one lengthscale for each column,
# and Bayesian linear regression.


# %%
class OfScikitLearn:
    def __init__(self, model):
        self.model = make_pipeline(StandardScaler(), model)
        with warnings.catch_warnings():  # a lengthscale at its bound says: this column is not used
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
# `gvi.metrics.METRICS` says of each which way it points. `coverage` is that of intervals for 95 %.
# On these data the three are near to each other: most of what can be learned of them is linear.
#
# ## Are the intervals reliable?
#
# For every level between 0 and 1, the fraction of new patients whose response lies in the central
# interval of that level. A curve above the diagonal is of intervals that are too wide.

# %%
plt.figure(figsize=(4, 4))
plt.plot([0, 1], [0, 1], "k:")
for name, model in models.items():
    mean, variance = (np.asarray(part) for part in model.predict_y(new[0]))
    level = 2.0 * stats.norm.cdf(np.abs(new[1] - mean) / np.sqrt(variance)) - 1.0
    plt.plot(gvi.metrics.LEVELS, [np.mean(level <= one) for one in gvi.metrics.LEVELS], label=name)
plt.xlabel("level")
plt.ylabel("observed coverage")
plt.legend(fontsize="small")
plt.show()

# %% [markdown]
# Conformal prediction makes a promise that does not depend on the model: calibrated on n patients
# whom the model has not seen, an interval for 90 % holds a new one's response with a probability
# between 0.9 and 0.9 + 1/(n+1), on average over new patients and over calibration sets. Split the
# patients who were held out many times at random, and see. Any model with `predict_y` will do: the
# linear one, and the same when it thinks its deviations four times as small.


# %%
linear = models["BayesianRidge"]


class TooSure:
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
for name, model in {"BayesianRidge": linear, "four times too sure": TooSure()}.items():
    print(f"{name:<35}{plain_coverage(model):12.3f}{average_coverage(model, rng):12.3f}")

# %% [markdown]
# `learn(..., calibration_fraction=0.2)` sets data aside for this, and `predict_interval` of what it
# returns is conformal then. Otherwise it is the central interval of the predictive density.

# %%
lower, upper = learned.predict_interval(new[0][:5], coverage=0.9)
print(np.c_[new[1][:5], lower, upper].round(0))

# %% [markdown]
# ## Step by step
#
# What follows is what `learn` does, in short; [the procedure](../learning.md) says more. Models
# work in standard units, so the data are scaled first, and a part is held out.

# %%
scale = StandardScaler().fit(training[0])
center, spread = np.mean(training[1]), np.std(training[1])


def standard(X, Y):
    return scale.transform(X), (Y - center) / spread


held_out = standard(*(part[-ROWS // 5 :] for part in training))
seen = standard(*(part[: -ROWS // 5] for part in training))

# %% [markdown]
# **The regulariser P.** Inducing points Z are chosen by greedy variance, hyper-parameters are
# fitted by the greatest evidence of all data, and so on in turn.

# %%
regulariser = gvi.fit_regulariser(
    seen, kernel, INDUCING, evidence=gvi.evidence.DataEvidence(), max_rounds=ROUNDS
)
P, Z, noise = regulariser.posterior, regulariser.inducing_points, regulariser.likelihood.variance
print("-log evidence of each round:", [round(one.loss, 2) for one in regulariser.history])
print("standard deviation of the noise:", np.sqrt(noise.numpy()).round(3))

# %% [markdown]
# **The variational process Q.** Its mean is that of a sparse Gaussian process with a network of
# Keras added, which starts at zero, and its covariance is the one of an SVGP. See
# [the method](../method.md) for both.

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
# **Training**, as in Keras, with the divergence of projected GVI, weight 0.1, and any callback of
# Keras.

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

plt.figure(figsize=(8, 3))
plt.plot(np.divide(history["loss"], len(seen[0])), label="training")
plt.plot(np.divide(history["val_loss"], len(seen[0])), label="held out")
plt.axvline(stop.best_epoch, color="k", linestyle=":", label="kept")
plt.xlabel("epoch")
plt.ylabel("loss / N")
plt.legend()
plt.show()

# %% [markdown]
# **Tempering** scales the covariance by the factor that suits the held-out data best.

# %%
tempered = gvi.temper(model, held_out)
print("factor:", tempered.variational.kernel.factor.numpy().round(3))
unseen = standard(*new)
print(" " * 12 + "".join(f"{name:>18}" for name in SHOWN))
for name, one in {"untempered": model, "tempered": tempered}.items():
    scores = gvi.metrics.evaluate(one, unseen, Y_scale=spread)
    print(f"{name:<12}" + "".join(f"{scores[metric]:18.3f}" for metric in SHOWN))
