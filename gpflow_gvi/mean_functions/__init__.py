"""Means m_Q of the variational process. Each is a GPflow mean function."""

from .inducing import Inducing
from .network import Network, NetworkOutputs
from .output_as_input import MeanOfOutputs
from .predictor import CrossFitted, Predictor

__all__ = ["CrossFitted", "Inducing", "MeanOfOutputs", "Network", "NetworkOutputs", "Predictor"]
