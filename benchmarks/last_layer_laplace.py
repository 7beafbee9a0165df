"""The Laplace approximation of a network's last layer, by laplace-torch, elsewhere.

    PYTHON benchmarks/last_layer_laplace.py GIVEN.npz RETURNED.npz

`fashion.py` calls it with an interpreter that has laplace-torch. GIVEN holds `kernel` [D, J] and
`bias` [J] of the layer, the features `X` [N, D] with their labels `Y` of the training images, and
the features `test` and `outside`; RETURNED, class probabilities [S, N, J] of both under S samples
of the weights. The Hessian is full; the prior's precision has the largest marginal likelihood.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from laplace import Laplace


def main(given: str, returned: str, samples: int = 100) -> None:
    """Fit the approximation and write the samples of the probabilities."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with np.load(given) as file:
        data = {name: torch.as_tensor(file[name]) for name in file.files}
    layer = torch.nn.Linear(*data["kernel"].shape)
    with torch.no_grad():
        layer.weight.copy_(data["kernel"].T)
        layer.bias.copy_(data["bias"])
    rows = torch.utils.data.TensorDataset(data["X"], data["Y"].long().reshape(-1))
    loader = torch.utils.data.DataLoader(rows, batch_size=1000)
    posterior = Laplace(
        torch.nn.Sequential(torch.nn.Identity(), layer),
        "classification",
        subset_of_weights="all",
        hessian_structure="full",
    )
    posterior.fit(loader)
    posterior.optimize_prior_precision(method="marglik")
    np.savez(
        returned,
        **{
            name: torch.cat(
                [
                    posterior.predictive_samples(part, n_samples=samples).detach()
                    for part in torch.split(data[name], 1000)
                ],
                dim=1,
            ).numpy()
            for name in ("test", "outside")
        },
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
