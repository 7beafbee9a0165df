"""Means m_Q of the variational process. Each is a GPflow mean function."""

from .inducing import Inducing
from .mean_of_outputs import MeanOfOutputs
from .network import Network, NetworkOutputs
from .predictor import CrossFitted, Predictor

__all__ = ["CrossFitted", "Inducing", "MeanOfOutputs", "Network", "NetworkOutputs", "Predictor"]
