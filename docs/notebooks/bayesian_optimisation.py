# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # Bayesian optimisation
#
# Bayesian optimisation finds the minimum of a function that is costly to evaluate. A model of the
# evaluations so far has a mean and a variance everywhere; an acquisition function computes from
# them the use of an evaluation; the next evaluation is at its maximum. [Bayesian
# optimisation](../bayesian_optimisation.md) is the reference.

# %% tags=["hide-input"]
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.integrations import bayesian_optimisation as bo

BRANIN_STEPS = 20
HARTMANN_STEPS = 40


# %% [markdown]
# ## One step in detail
#
# The picture shows six values of a curve, the default model of `minimise`, and three acquisitions,
# each scaled to a maximum of one. A line marks the maximum of expected improvement: the next input.


# %%
def curve(x):
    """Return a curve with two minima."""
    return np.sin(9.0 * x) + 2.0 * (x - 0.6) ** 2


X = np.array([[0.03], [0.2], [0.38], [0.55], [0.8], [0.97]])
Y = curve(X)
model = bo.fit_pgvi((X, Y), seed=0)

x = np.linspace(0.0, 1.0, 300)[:, None]
mean, variance = (np.asarray(part)[:, 0] for part in model.predict_f(x))
figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True)
gvi.plots.CurveDisplay.from_predictions(x, mean, np.sqrt(variance), of="f", ax=above)
above.plot(x, curve(x), "k:", label="objective")
above.plot(X, Y, "ko")
above.set_xlabel("")
above.legend(fontsize="small")
for acquisition in (
    bo.ExpectedImprovement(),
    bo.ProbabilityOfImprovement(),
    bo.LowerConfidenceBound(),
):
    function = acquisition(model, (X, Y))
    values = function(tf.constant(x)).numpy()
    span = np.ptp(values)
    below.plot(x, (values - values.min()) / span, label=type(acquisition).__name__)
following = bo.maximise(bo.ExpectedImprovement()(model, (X, Y)), [(0.0, 1.0)])
below.axvline(following[0], color="k", linewidth=0.5)
below.legend(fontsize="small")
plt.show()

# %% [markdown]
# ## Branin
#
# Two inputs, three minima of 0.397887 (Dixon and Szegő 1978). Evaluations are numbered in their
# order.


# %%
def branin(x):
    """Return the function of Branin on [-5, 10] × [0, 15]."""
    quadratic = x[1] - 5.1 / (4 * np.pi**2) * x[0] ** 2 + 5 / np.pi * x[0] - 6
    return quadratic**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x[0]) + 10


box = [(-5.0, 10.0), (0.0, 15.0)]
found = bo.minimise(branin, box, num_steps=BRANIN_STEPS, seed=0)
print(f"minimum {found.fun:.4f} at {found.x.round(3)} after {found.nfev} evaluations")

grid = np.stack(np.meshgrid(np.linspace(-5, 10, 100), np.linspace(0, 15, 100)))
plt.figure(figsize=(6, 5))
plt.contour(*grid, np.log(branin(grid)), levels=20, linewidths=0.7)
for i, row in enumerate(found.X):
    plt.text(*row, str(i + 1), ha="center", va="center", fontsize="small")
plt.show()


# %% [markdown]
# ## Hartmann-6
#
# This function has six inputs, six local minima, and a minimum of -3.32237. The regret is the
# difference between the best value so far and the minimum; it is compared with the same number of
# random inputs.


# %%
def hartmann(x):
    """Return the function of Hartmann on the unit cube of six dimensions."""
    A = np.array(
        [
            [10, 3, 17, 3.5, 1.7, 8],
            [0.05, 10, 17, 0.1, 8, 14],
            [3, 3.5, 1.7, 10, 17, 8],
            [17, 8, 0.05, 10, 0.1, 14],
        ]
    )
    P = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    return -np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-np.sum(A * (x - P) ** 2, axis=1))


found = bo.minimise(hartmann, [(0.0, 1.0)] * 6, num_steps=HARTMANN_STEPS, seed=0)
rng = np.random.default_rng(0)
at_random = [hartmann(row) for row in rng.uniform(size=(found.nfev, 6))]

for name, values in (("GVI, expected improvement", found.Y[:, 0]), ("at random", at_random)):
    regret = np.minimum.accumulate(values) + 3.32237
    plt.semilogy(np.arange(1, len(regret) + 1), regret, label=name)
    print(f"{name:<28} regret {regret[-1]:.4f} after {len(regret)} evaluations")
plt.xlabel("evaluations")
plt.ylabel("regret")
plt.legend()
plt.show()

# %% [markdown]
# Trieste has many more acquisitions and takes a GVI model as its surrogate.
# `benchmarks/results/bayesian_optimisation.md` compares the regrets of both, and of Trieste's own
# exact and sparse models, on the same seeds.
