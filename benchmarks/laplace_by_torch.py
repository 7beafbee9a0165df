"""Laplace approximations of a network of images or of its last layer, by laplace-torch, elsewhere.

    PYTHON benchmarks/laplace_by_torch.py GIVEN.npz RETURNED.npz

`fashion.py` and `ood.py` call it with an interpreter that has laplace-torch (Daxberger et al.
2021). GIVEN holds `kernel_0`, `bias_0`, `kernel_1`, ... of the layers, as Keras has them:
convolutions of stride two, then dense layers, with rectified units between; `X` and labels `Y` that
it was trained with; the `structure` of the Hessian, "full" or "diag"; and rows to predict at, under
other names. RETURNED has class probabilities [S, N, J] of these, under S samples of the linearised
network. The prior's precision has the largest marginal likelihood; if there are rows `held_out_X`
with labels `held_out_Y`, the least cross entropy of these.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping

import numpy as np
import torch
from laplace import Laplace

PRECISIONS = np.logspace(-2, 5, 22)
"""Of the prior, where held-out rows choose among them."""

MAX_DERIVATIVES = 40_000_000
"""The derivatives of logits in weights that there are at a time."""


class FlatPixels(torch.nn.Module):
    """Images as rows, in the order of Keras: the channels of a pixel are neighbours."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the rows: [..., C, H, W] → [..., H W C]."""
        return images.movedim(-3, -1).flatten(-3)


def network(arrays: Mapping[str, np.ndarray]) -> torch.nn.Sequential:
    """Return the network of these kernels and biases."""
    parts: list[torch.nn.Module] = []
    was_image = False
    for number in itertools.count():
        if (kernel := arrays.get(f"kernel_{number}")) is None:
            return torch.nn.Sequential(*parts[:-1])
        is_image = kernel.ndim == 4
        layer: torch.nn.Module
        if is_image:
            size, _, inputs, outputs = kernel.shape
            layer, weight = torch.nn.Conv2d(inputs, outputs, size, 2), kernel.transpose(3, 2, 0, 1)
        else:
            layer, weight = torch.nn.Linear(*kernel.shape), kernel.T
        with torch.no_grad():
            layer.weight.copy_(torch.as_tensor(weight.copy()))
            layer.bias.copy_(torch.as_tensor(arrays[f"bias_{number}"]))
        parts += [*([FlatPixels()] if was_image and not is_image else []), layer, torch.nn.ReLU()]
        was_image = is_image


def read(given: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file, which one thread works on, from one seed."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with np.load(given) as file:
        return {name: file[name] for name in file.files}


def main(given: str, returned: str, samples: int = 100) -> None:
    """Fit the approximation and write the samples of the probabilities."""
    arrays = read(given)
    X, labels, structure = (arrays.pop(name) for name in ("X", "Y", "structure"))
    net = network(arrays)
    count = sum(each.numel() for each in net.parameters())
    batch = max(1, min(1000, MAX_DERIVATIVES // (count * len(net[-1].bias))))
    rows = torch.utils.data.TensorDataset(images(X), torch.as_tensor(labels).long().reshape(-1))
    posterior = Laplace(
        net, "classification", subset_of_weights="all", hessian_structure=str(structure)
    )
    posterior.fit(torch.utils.data.DataLoader(rows, batch_size=batch))

    def predicted(at: np.ndarray) -> np.ndarray:
        parts = torch.split(images(at), batch)
        found = [posterior.predictive_samples(part, n_samples=samples).detach() for part in parts]
        return torch.cat(found, dim=1).numpy()

    if "held_out_X" in arrays:
        held_out, y = arrays.pop("held_out_X"), arrays.pop("held_out_Y").ravel().astype(int)
        losses = []
        for precision in PRECISIONS:
            posterior.prior_precision = float(precision)
            of_rows = predicted(held_out).astype(float).mean(axis=0)[np.arange(len(y)), y]
            losses.append(-np.mean(np.log(of_rows)))
        posterior.prior_precision = float(PRECISIONS[np.argmin(losses)])
        print(f"prior precision {posterior.prior_precision.item():.3g} of {np.round(losses, 3)}")
    else:
        posterior.optimize_prior_precision(method="marglik")
    inputs = {k: v for k, v in arrays.items() if not k.startswith(("kernel_", "bias_"))}
    np.savez(returned, **{name: predicted(at) for name, at in inputs.items()})


def images(X: np.ndarray) -> torch.Tensor:
    """Return rows, or images with their channels first."""
    return torch.as_tensor(X if X.ndim == 2 else X.transpose(0, 3, 1, 2).copy())


if __name__ == "__main__":
    main(*sys.argv[1:])
