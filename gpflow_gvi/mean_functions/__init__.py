"""Means m_Q of the variational process. Each is a GPflow mean function."""

from .inducing import Inducing
from .network import Network

__all__ = ["Inducing", "Network"]
