"""Processes around a network of images, fitted by variational inference in BayesiPy, elsewhere.

    PYTHON benchmarks/variational_by_torch.py GIVEN.npz RETURNED.npz

`ood.py` calls it with an interpreter that has BayesiPy, `github.com/Ludvins/BayesiPy`, and
laplace-torch. GIVEN and RETURNED are as those of `laplace_by_torch.py`; the `structure` is "FMGP",
a fixed-mean process (Ortega, Rodríguez-Santana and Hernández-Lobato 2024), by a kernel on images
and features of the last layer, or "VaLLA", the variational linearised Laplace approximation (the
same authors, 2024). Settings are those of the library's page, but for a hundred inducing points, a
learning rate ten times as large, as losses fall slowly otherwise, and the precision of VaLLA's
prior, which is learned from 100 on.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from bayesipy.fmgp import FMGP
from bayesipy.laplace import VaLLA
from laplace_by_torch import images, network, read

NUM_INDUCING = 100

BATCH = 100

ITERATIONS = {"FMGP": 3000, "VaLLA": 200}
"""VaLLA takes thirty times as long for each."""

LEARNING_RATE = 1e-2

PRECISION = 100.0


def main(given: str, returned: str, samples: int = 100) -> None:
    """Fit the process and write samples of the probabilities."""
    arrays = read(given)
    X, labels, structure = (arrays.pop(name) for name in ("X", "Y", "structure"))
    net, kind = network(arrays), str(structure)
    rows = torch.utils.data.TensorDataset(images(X), torch.as_tensor(labels).long().reshape(-1, 1))
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH, shuffle=True)
    options = {
        "likelihood": "classification",
        "inducing_locations": "kmeans",
        "num_inducing": NUM_INDUCING,
    }
    if kind == "FMGP":
        model = FMGP(embedding=net[:-1], classifier=net[-1], kernel="RBFxNTK", **options)
    else:
        model = VaLLA(net, prior_precision=PRECISION, **options)
    losses = model.fit(ITERATIONS[kind], LEARNING_RATE, loader, verbose=False)
    tenth = len(losses) // 10
    print(f"{kind}, loss of tenths: {np.mean(np.reshape(losses[: 10 * tenth], [10, -1]), axis=1)}")
    model.eval()
    inputs = {k: v for k, v in arrays.items() if not k.startswith(("kernel_", "bias_"))}
    np.savez(returned, **{name: predicted(model, at, samples) for name, at in inputs.items()})


def predicted(model: torch.nn.Module, at: np.ndarray, samples: int) -> np.ndarray:
    """Return samples of the probabilities at images: [S, N, J]."""
    found = []
    for part in torch.split(images(at), BATCH):
        mean, covariance = (each.detach() for each in model.predict(part))
        values, vectors = torch.linalg.eigh(covariance)
        root = vectors * values.clamp(min=0.0).sqrt()[:, None, :]
        z = torch.randn(samples, *mean.shape, dtype=mean.dtype)
        found.append((mean + torch.einsum("nij,snj->sni", root, z)).softmax(dim=-1))
    return torch.cat(found, dim=1).numpy()


if __name__ == "__main__":
    main(*sys.argv[1:])
