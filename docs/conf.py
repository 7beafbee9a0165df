"""Configuration of the documentation; build it with ``make docs``."""

from importlib.metadata import version as installed_version

project = "gpflow_gvi"
author = "The gpflow_gvi contributors"
copyright = author
release = installed_version("gpflow-gvi")
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_nb",  # brings myst_parser, and runs docs/notebooks
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "conf.py"]  # it too is Python

# Notebooks are scripts in cells, and are executed when the documentation is built.
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 1200
# A Keras progress bar or a warning of TensorFlow's is not part of the page.
nb_output_stderr = "remove"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

# Source order puts a base class before what builds on it.
autodoc_member_order = "bysource"
# TensorFlow's aliases of NumPy types are unreadable when written out.
autodoc_typehints_format = "short"

html_theme = "furo"
html_title = f"{project} {release}"
