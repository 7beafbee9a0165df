"""Means m_Q of the variational process. Each is a GPflow mean function."""

from .inducing import Inducing
from .network import Network, NetworkOutputs
from .predictor import CrossFitted, Predictor

__all__ = ["CrossFitted", "Inducing", "Network", "NetworkOutputs", "Predictor"]
