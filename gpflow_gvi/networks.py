"""Networks of Keras as functions that a mean or a kernel is made of."""

from ._core.network_function import NetworkFunction, in_precision

__all__ = ["NetworkFunction", "in_precision"]
