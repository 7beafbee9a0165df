"""Models: GVI and its two special cases. Each is a GPflow SVGP with another objective."""

from .gvi import GVI
from .gwi import GWI
from .pgvi import PGVI
from .posterior import GVIPosterior

__all__ = ["GVI", "GWI", "PGVI", "GVIPosterior"]
