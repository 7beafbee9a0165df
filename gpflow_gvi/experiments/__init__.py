"""Experiments: one YAML file describes a run completely, from the data to the calibration.

The configuration is read without TensorFlow, so that mistakes in it are reported at once; each part
of it builds one object of the package. It needs the extra `experiments`.
"""

from .config import Experiment, read
from .reading import ConfigError

__all__ = ["ConfigError", "Experiment", "read"]
