"""Text: classes of sentences by an embedding that is trained here, and how certain they are."""

from __future__ import annotations

import keras
import numpy as np

import gpflow_gvi as gvi

rng = np.random.default_rng(0)
GOOD = ["good", "great", "lovely", "excellent", "charming", "fine", "splendid", "delightful"]
BAD = ["bad", "poor", "dull", "awful", "tedious", "weak", "dreadful", "boring"]
NOUNS = ["film", "plot", "actor", "scene", "story", "ending", "music", "script"]


def reviews(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sentences, and whether each praises its film."""
    labels = rng.integers(2, size=count)
    sentences = [
        f"the {rng.choice(NOUNS)} was {rng.choice(GOOD if label else BAD)} and the "
        f"{rng.choice(NOUNS)} {rng.choice(GOOD if label ^ (rng.random() < 0.1) else BAD)}"
        for label in labels
    ]
    return np.array(sentences), labels


sentences, labels = reviews(600)
words = keras.layers.TextVectorization(max_tokens=200, output_sequence_length=10)
words.adapt(sentences)

network = keras.Sequential(
    [
        keras.Input((10,), dtype="int32"),
        keras.layers.Embedding(200, 16),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(16, "relu"),
        keras.layers.Dense(2),
    ]
)
learned = gvi.learn(
    (np.asarray(words(sentences)), labels), network=network, epochs=6, calibration_fraction=0.1
)

new, truth = reviews(200)
X = np.asarray(words(new))
probabilities = learned.predict_proba(X)
print(f"accuracy  {gvi.metrics.accuracy(truth, probabilities):.3f}")
print(f"NLL       {gvi.metrics.cross_entropy(truth, probabilities):.3f}")
print(f"ECE       {gvi.metrics.ece(truth, probabilities):.3f}")
print(f"members of sets of 90 %: {learned.predict_set(X, 0.9).sum(axis=1).mean():.2f}")

texts = [
    "the plot was awful and the script boring",
    "the plot was lovely and the script dreadful",
    "splendid splendid splendid splendid",
]
X = np.asarray(words(np.array(texts)))
for text, p, epistemic, score in zip(
    texts,
    learned.predict_proba(X)[:, 1],
    learned.entropies(X).epistemic,
    learned.score_ood(X),
    strict=True,
):
    print(f"{text:45s} good {p:.2f}, epistemic {epistemic:.3f}, variance of f {score:.2f}")
