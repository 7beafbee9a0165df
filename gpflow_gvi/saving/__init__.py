"""Models written to a folder and read in another process, without pickle and without code.

The folder holds `structure.json`, which says what the objects are and how they hang together,
`values.npz`, their numbers, `networks/`, the networks as Keras writes them, and `estimators/`,
those of scikit-learn as skops writes them.
"""

from .model_folder import load, save

__all__ = ["load", "save"]
