"""What others put around networks of Keras, by PyTorch in an environment of its own."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import keras
import numpy as np


def probabilities(
    python: str,
    layers: list[keras.Layer],
    data: tuple[np.ndarray, np.ndarray],
    structure: str,
    held_out: tuple[np.ndarray, np.ndarray] | None = None,
    **at: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return samples of class probabilities at rows, by their names: [S, N, J] each.

    :param python: an interpreter that has laplace-torch, or BayesiPy.
    :param layers: those with weights, the last of which returns logits.
    :param data: what the first of them receives for the training images, and their labels.
    :param structure: of the Hessian, "full" or "diag", or the way of BayesiPy, "FMGP" or "VaLLA".
    :param held_out: the same of images that choose the precision of the prior by the cross entropy;
        by default that is chosen by the marginal likelihood.
    :param at: what the first layer receives for the rows to predict at.
    """
    X, Y = data
    arrays = {"X": X, "Y": Y, "structure": np.array(structure), **at}
    if held_out is not None:
        arrays |= {"held_out_X": held_out[0], "held_out_Y": held_out[1]}
    for number, layer in enumerate(layers):
        arrays[f"kernel_{number}"], arrays[f"bias_{number}"] = layer.get_weights()
    with tempfile.TemporaryDirectory() as folder:
        given, returned = Path(folder) / "given.npz", Path(folder) / "returned.npz"
        np.savez(given, **arrays)
        name = "variational" if structure in ("FMGP", "VaLLA") else "laplace"
        script = Path(__file__).with_name(f"{name}_by_torch.py")
        subprocess.run([python, script, given, returned], check=True)
        with np.load(returned) as file:
            return {name: file[name] for name in at}
