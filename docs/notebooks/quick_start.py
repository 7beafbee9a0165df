# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # Quick start
#
# `learn` selects inducing points, fits several regularisers P, and takes the one that predicts each
# row best from all the others; Q starts there. The data here have a gap.

# %% tags=["hide-input"]
import matplotlib.pyplot as plt
import numpy as np

import gpflow_gvi as gvi

ROWS = 200

# %%
rng = np.random.default_rng(0)
X = rng.uniform(-3.0, 3.0, size=(ROWS, 1))
X = X[(X[:, 0] < 0.5) | (X[:, 0] > 1.5)]
Y = np.sin(2.0 * X) + 0.1 * rng.normal(size=X.shape)

learned = gvi.learn((X, Y))

# %% [markdown]
# The result predicts in the units of the data. `predict_f` predicts the function, and
# `predict_interval` observations, noise included. `plot` draws both; the dotted line is the truth.

# %%
x = np.linspace(-5.0, 5.0, 300)[:, None]
mean, variance = learned.predict_f(x)
lower, upper = learned.predict_interval(x, coverage=0.9)

learned.plot(X, Y, coverage=0.9, margin=1 / 3).plot(x, np.sin(2.0 * x), "k:")
plt.show()

# %% [markdown]
# `metrics.evaluate` computes all metrics on a test set. `plot_calibration` compares predicted
# quantiles with the fractions of its observations below them.

# %%
new = rng.uniform(-3.0, 3.0, size=(500, 1))
test = (new, np.sin(2.0 * new) + 0.1 * rng.normal(size=new.shape))
learned.plot_calibration(*test)
plt.show()
{name: round(float(value), 3) for name, value in gvi.metrics.evaluate(learned, test).items()}

# %% [markdown]
# Functions drawn from the posterior, jointly at all of x, agree where there are data.

# %%
functions = learned.predict_f_samples(x, 5)
plt.figure(figsize=(8, 3))
plt.plot(x, np.asarray(functions)[:, :, 0].T, linewidth=1)
plt.plot(X, Y, "k.", markersize=3)
plt.show()

# %% [markdown]
# `save` writes the model to a folder, without pickle, and `load` reads it.

# %%
import tempfile

with tempfile.TemporaryDirectory() as folder:
    learned.save(f"{folder}/model")
    same = gvi.load(f"{folder}/model")
np.allclose(same.predict_f(x)[0], mean)
