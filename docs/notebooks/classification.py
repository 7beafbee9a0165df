# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # Classification and unfamiliar inputs
#
# The data are the handwritten digits of 8 × 8 pixels of scikit-learn. The classes are 0 to 7;
# eights and nines are not in the training data and should be detected as out-of-distribution.
# [Classification](../classification.md) is the reference of the functions used here.

# %% tags=["hide-input"]
import gpflow
import keras
import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.distance import pdist
from sklearn.datasets import load_digits

import gpflow_gvi as gvi
from gpflow_gvi import metrics

ROWS = 800
HELD_OUT = 150
INDUCING = 200
EPOCHS = 60
J = 8

images, labels = load_digits(return_X_y=True)
images = images / 16.0
order = np.random.default_rng(0).permutation(len(images))
order = order[labels[order] < J]
training, held_out, calibration, test = (
    (images[rows], labels[rows]) for rows in np.split(order, np.cumsum([ROWS, HELD_OUT, HELD_OUT]))
)
out_of_distribution = images[labels >= J]

# %% [markdown]
# ## P has a variance that grows with the distance from the data
#
# P is a regression of one-hot responses on pixels, at inducing points that k-means chooses. As a
# classifier it is mediocre; its variance is what the model uses.

# %%
likelihood = gpflow.likelihoods.MultiClass(J)
distance = np.median(pdist(training[0]))
regulariser = gvi.fit_regulariser(
    training,
    gpflow.kernels.SquaredExponential(0.1, distance),
    INDUCING,
    likelihood=likelihood,
    evidence=gvi.evidence.DataEvidence(),
    select=gvi.inducing.kmeans,
    max_rounds=1,
)
P = regulariser.posterior

# %% [markdown]
# ## Q has the mean of a network and the covariance of P
#
# The network has a logit for each class. One copy is trained by maximum likelihood; the other is
# the mean of Q, whose covariance is that of P and is not trained. The loss is the cross entropy of
# the predicted probabilities.


# %%
def network():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(J)]
    )


alone = network()
alone.compile(
    keras.optimizers.Adam(3e-3),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    steps_per_execution=10,
)
alone.fit(*training, epochs=EPOCHS, batch_size=100, verbose=0)

kernel = gpflow.utilities.deepcopy(P.kernel)
gpflow.set_trainable(kernel, False)
Q = gvi.GaussianProcess(gvi.mean_functions.Network(network()), kernel)
untempered = gvi.models.PGVI(
    P,
    Q,
    likelihood,
    gvi.divergences.ProjectedKL(),
    loss=gvi.losses.PredictiveLogLoss(),
    num_data=ROWS,
    divergence_weight=0.03,
)
untempered.compile(keras.optimizers.Adam(3e-3))
untempered.fit(training, epochs=EPOCHS, batch_size=100, verbose=0)
model = gvi.temper(untempered, held_out)

# %% [markdown]
# ## Accuracy, calibration and detection
#
# The table has accuracy, negative log likelihood and expected calibration error on test digits 0 to
# 7, and how well a score separates eights and nines from them, by the area under the receiver
# operating characteristic (AUROC; one half is chance).

# %%
probabilities = {
    "network alone": keras.ops.softmax(alone.predict(test[0], verbose=0)),
    "Q": gvi.classification.class_probabilities(model, test[0]),
}
outside = keras.ops.softmax(alone.predict(out_of_distribution, verbose=0))
kinds = (test[0], out_of_distribution)
known, unknown = (gvi.classification.entropies(model, X) for X in kinds)
variances = [np.sum(model.predict_f(X)[1], axis=1) for X in kinds]


def entropy(p):
    p = np.maximum(p, 1e-12)
    return -np.sum(p * np.log(p), axis=1)


entropies = {
    "network alone": (entropy(probabilities["network alone"]), entropy(outside)),
    "Q": (known.total, unknown.total),
}
print("               accuracy    NLL    ECE   AUROC of entropy   of variance")
for name, p in probabilities.items():
    scores = [score(test[1], p) for score in (metrics.accuracy, metrics.cross_entropy, metrics.ece)]
    print(f"{name:<14}" + "".join(f"{score:8.3f}" for score in scores), end="")
    print(f"{metrics.auroc(*entropies[name]):15.3f}", end="")
    print(f"{metrics.auroc(*variances):15.3f}" if name == "Q" else "")

# %% [markdown]
# Q is as accurate and better calibrated. Its NLL is higher, as a certain error costs more:
# `RobustMax` gives all other classes a thousandth together. The entropies detect
# out-of-distribution images about equally well. The variance of f, which only Q has, is a score
# that depends on distances and not on classes.

# %%
figure, panels = plt.subplots(1, 3, figsize=(10, 3))
for panel, (title, pair) in zip(
    panels,
    {
        "entropy, network alone": entropies["network alone"],
        "entropy, Q": entropies["Q"],
        "variance of f, Q": variances,
    }.items(),
    strict=True,
):
    bins = np.linspace(0.0, max(np.max(part) for part in pair), 30)
    for part, name in zip(pair, ("0 to 7", "8 and 9"), strict=True):
        panel.hist(part, bins, density=True, alpha=0.5, label=name)
    panel.set_title(title, fontsize="small")
    panel.set_yticks([])
panels[0].legend(fontsize="small")
plt.show()

# %% [markdown]
# ## Aleatoric and epistemic entropy
#
# The entropy of a prediction is the sum of the *aleatoric* entropy, the noise of labels that
# remains if f is known, and the *epistemic* entropy, the information that f has about the label.
# Under `RobustMax` the former is constant, so that the epistemic entropy detects
# out-of-distribution images as well as the total does.

# %%
print("mean entropy       total   aleatoric   epistemic")
for name, of in {"digits 0 to 7": known, "digits 8 and 9": unknown}.items():
    print(f"{name:<15}" + "".join(f"{np.mean(part):9.3f}   " for part in of))
kept = metrics.selective(test[1], probabilities["Q"], known.epistemic)
for fraction in (1.0, 0.9, 0.8):
    row = round(fraction * len(kept.accuracy)) - 1
    print(f"accuracy on the {100 * fraction:.0f} % of least epistemic entropy:", end=" ")
    print(f"{kept.accuracy[row]:.3f}")

# %% [markdown]
# ## Sets of classes
#
# A conformal predictor returns a set of classes that contains the correct one with probability
# 0.99. Where the model is certain it is one class. The picture shows the test images with the
# largest sets.

# %%
sets = gvi.conformal(model, calibration)
named = sets.predict_set(test[0], coverage=0.99)
print("sets with the correct class:", np.mean(named[np.arange(len(named)), test[1]]).round(3))
print("images by size of the set:", np.bincount(named.sum(axis=1)))

doubtful = np.argsort(-named.sum(axis=1), kind="stable")[:8]
figure, panels = plt.subplots(1, 8, figsize=(10, 1.8))
for panel, row in zip(panels, doubtful, strict=True):
    panel.imshow(test[0][row].reshape(8, 8), cmap="gray_r")
    panel.set_title(
        f"{{{''.join(map(str, np.flatnonzero(named[row])))}}}\nis {test[1][row]}", fontsize="small"
    )
    panel.axis("off")
plt.show()
