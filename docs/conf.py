"""Configuration of the documentation; build it with ``make docs``."""

from importlib.metadata import version as installed_version

project = "gpflow_gvi"
author = "The gpflow_gvi contributors"
copyright = author
release = installed_version("gpflow-gvi")
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2

# Source order puts a base class before what builds on it.
autodoc_member_order = "bysource"
# TensorFlow's aliases of NumPy types are unreadable when written out.
autodoc_typehints_format = "short"

html_theme = "furo"
html_title = f"{project} {release}"
