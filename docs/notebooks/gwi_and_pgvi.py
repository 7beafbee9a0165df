# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # Inducing points, GWI and PGVI
#
# How P chooses its inducing points, what the Wasserstein distance of whole processes costs beside a
# divergence of marginals, and a convolutional network that is held to an infinitely wide one.

# %% tags=["hide-input"]
import time

import gpflow
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import gpflow_gvi as gvi

ROWS = 300
ITERATIONS = 200
FITTED = 500
BATCHES = (50, 100, 200, 400, 800)
IMAGES = 300
EPOCHS = 40

# %% [markdown]
# ## Inducing points over the rounds
#
# Which points are informative depends on the kernel, and the kernel is fitted to observations at
# these points: points and hyper-parameters are found in turn, until the points repeat (Wu 2023,
# Algorithm 2). Each row of the picture is a round. The first has a lengthscale that is too large,
# and points that are spread evenly; the better the lengthscale, the more of them go to the middle.

# %%
rng = np.random.default_rng(0)


def truth(x):
    return np.sin(6.0 / (0.4 + np.abs(x))) + 0.3 * x


X = rng.uniform(-2.0, 2.0, size=(ROWS, 1))
X = X[(X[:, 0] < 0.9) | (X[:, 0] > 1.5)]
Y = truth(X) + 0.1 * rng.normal(size=X.shape)
kernel = gpflow.kernels.SquaredExponential(lengthscales=0.5)
regulariser = gvi.fit_regulariser((X, Y), kernel, 25, evidence=gvi.evidence.DataEvidence())
figure, panels = plt.subplots(2, 1, figsize=(9, 5), sharex=True, layout="constrained")
for number, each in enumerate(regulariser.history):
    chosen = X[each.indices, 0]
    panels[0].plot(chosen, np.full_like(chosen, number + 1), "r|", markersize=12)
    print(f"round {number + 1}: evidence {-each.loss:.1f}")
panels[0].set_ylabel("round")
panels[0].invert_yaxis()
panels[0].yaxis.get_major_locator().set_params(integer=True)
x = np.linspace(-2.4, 2.4, 400)[:, None]


def draw(panel, process, color, label):
    mean, deviation = process.mean(x)[:, 0], np.sqrt(process.variance(x)[:, 0])
    panel.plot(x, mean, color, label=label)
    panel.fill_between(
        x[:, 0], mean - 2.0 * deviation, mean + 2.0 * deviation, color=color, alpha=0.25
    )


draw(panels[1], regulariser.posterior, "C1", "P")
panels[1].plot(X, Y, "k.", markersize=2)
panels[1].plot(x, truth(x), "k:")
panels[1].set_ylim(-3.0, 3.0)
plt.show()

# %% [markdown]
# ## GWI and PGVI in the gap
#
# GWI holds Q to P by the 2-Wasserstein distance of the processes at all inputs of a batch together,
# PGVI by a divergence of the marginals at each. Both train the same network for a mean, here with
# L-BFGS on all rows, from where it was fitted to the mean of P, and both are given points beyond
# the data (a context) or are not.


# %%
def network():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(50, "tanh", dtype="float64") for _ in range(2)]
    readout = keras.layers.Dense(1, dtype="float64")
    return keras.Sequential([keras.Input((1,), dtype="float64"), *layers, readout])


first = network()
first.compile(keras.optimizers.Adam(1e-2), "mse")
first.fit(X, regulariser.posterior.mean(X).numpy(), epochs=FITTED, batch_size=50, verbose=0)


def model_of(kind, divergence=None):
    P = regulariser.posterior
    r = gvi.covariances.CholeskySVGP(regulariser.prior.kernel, regulariser.inducing_points)
    mean = network()
    mean.set_weights(first.get_weights())
    Q = gvi.GaussianProcess(gvi.mean_functions.Network(mean), r)
    likelihood = gpflow.likelihoods.Gaussian(regulariser.likelihood.variance.numpy())
    options = {} if divergence is None else {"divergence": divergence}
    return kind(P, Q, likelihood, num_data=len(X), **options)


with_context = gvi.contexts.TrainingInputs() + gvi.contexts.Inputs(x[::8])
models = {
    "GWI": model_of(gvi.models.GWI),
    "GWI, with a context": model_of(
        gvi.models.GWI, gvi.divergences.GaussianWasserstein(context=with_context)
    ),
    "PGVI": model_of(gvi.models.PGVI),
    "PGVI, with a context": model_of(
        gvi.models.PGVI, gvi.divergences.ProjectedRenyi(0.5, context=with_context)
    ),
}
gap = np.linspace(0.9, 1.5, 100)[:, None]
of_gap = gap, truth(gap) + 0.1 * rng.normal(size=gap.shape)
figure, panels = plt.subplots(2, 2, figsize=(9, 5), sharex=True, sharey=True, layout="constrained")
print(" " * 22 + "nll in gap  sd of f in gap  sd of f at data  seconds")
for panel, (name, model) in zip(panels.ravel(), models.items(), strict=True):
    start = time.perf_counter()
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure((X, Y)),
        model.trainable_variables,
        options={"maxiter": ITERATIONS},
    )
    seconds = time.perf_counter() - start
    nll = gvi.metrics.evaluate(model, of_gap)["nll"]
    deviations = [float(np.mean(np.sqrt(model.predict_f(at)[1]))) for at in (gap, X)]
    print(f"{name:<22}{nll:10.3f}{deviations[0]:16.3f}{deviations[1]:17.3f}{seconds:9.1f}")
    draw(panel, regulariser.posterior, "C1", "P")
    draw(panel, model.variational, "C0", "Q")
    panel.plot(X, Y, "k.", markersize=2)
    panel.set_title(name, fontsize="small")
    panel.set_ylim(-3.0, 3.0)
plt.show()

# %% [markdown]
# Both follow the data, GWI more closely: the weight of W₂² is 1/N by default, that of PGVI's
# divergence 1. In the gap the variance of Q is that of P, as the inducing points of both are the
# same; the mean is what the network makes of it, and few points of a context change little of that
# at these weights ([choose a divergence](../how_to/choose_a_divergence.md)).
#
# ## What they cost
#
# A divergence of marginals takes time in proportion to the rows of a batch; the distance of
# processes has the trace of (R^½ K R^½)^½ for B × B matrices, and so a term in B³. Below are the
# divergences alone, with their gradients.

# %%
of_batch = {name: [] for name in ("GWI", "PGVI")}
for B in BATCHES:
    rows = rng.uniform(-2.0, 2.0, size=(B, 1))
    for name, seconds in of_batch.items():
        model = models[name]

        @tf.function(autograph=False)
        def step(rows, model=model):
            with tf.GradientTape() as tape:
                loss = model.divergence(model.variational, model.regulariser, rows)
            return tape.gradient(loss, model.trainable_variables)

        step(rows)
        start = time.perf_counter()
        for _ in range(3):
            step(rows)
        seconds.append((time.perf_counter() - start) / 3)
figure, panel = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, seconds in of_batch.items():
    panel.loglog(BATCHES, 1e3 * np.array(seconds), "o-", label=name)
panel.set(xlabel="rows of a batch", ylabel="milliseconds")
panel.legend()
plt.show()

# %% [markdown]
# ## A convolutional network, held to an infinitely wide one
#
# The same call takes images. The mean of Q is a convolutional network; P is the process that this
# network would be with infinitely many channels, `NNGP.from_keras(cnn)`; W₂² is between the two.
# Beside it are the network alone, trained by Keras for as many epochs, and P alone. Of inputs that
# are noise nothing was learned: a classifier that knows so has a confidence of a tenth there.

# %%
digits = load_digits()
images = digits.images[..., None] / 16.0
train, test = np.split(rng.permutation(len(images))[: 2 * IMAGES], 2)


def cnn():
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )


alone = cnn()
alone.compile(
    keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
)
alone.fit(images[train], digits.target[train], epochs=EPOCHS, batch_size=50, verbose=0)
data = images[train], digits.target[train]
wide = gvi.kernels.NNGP.from_keras(cnn())
P = gvi.learn(data, kernel=wide, likelihood=gpflow.likelihoods.Softmax(10))
Q = gvi.learn(data, mean=cnn(), kernel=wide, model=gvi.models.GWI, epochs=EPOCHS)
probabilities = {
    "network": keras.ops.softmax(alone(images[test])).numpy(),
    "P": P.predict_proba(images[test]),
    "Q by GWI": Q.predict_proba(images[test]),
}
noise = rng.uniform(size=(200, 8, 8, 1))
of_noise = {
    "network": keras.ops.softmax(alone(noise)).numpy(),
    "P": P.predict_proba(noise),
    "Q by GWI": Q.predict_proba(noise),
}
print(" " * 10 + "accuracy    nll     ece  confidence in noise")
for name, p in probabilities.items():
    y = digits.target[test]
    scores = [of(y, p) for of in (gvi.metrics.accuracy, gvi.metrics.cross_entropy, gvi.metrics.ece)]
    print(f"{name:<10}" + "".join(f"{value:8.3f}" for value in scores), end="")
    print(f"{np.mean(np.max(of_noise[name], axis=1)):15.3f}")

# %% [markdown]
# The process is more accurate than the network and knows that noise is no digit; Q, whose mean is
# the network and whose covariance comes from P, is as accurate as P, and less sure of noise.
