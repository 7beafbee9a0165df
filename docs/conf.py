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
exclude_patterns = ["_build", "conf.py", "thumbnails.py"]  # Python files that are no pages

# Notebooks are scripts in cells; the build executes them.
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 1200
nb_code_prompt_show = "Imports and constants"
nb_code_prompt_hide = "Hide"
# Omit Keras's progress bars and TensorFlow's warnings from the pages.
nb_output_stderr = "remove"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

# Source order puts a base class before its subclasses.
autodoc_member_order = "bysource"
# The full names of TensorFlow's aliases of NumPy types are unreadable.
autodoc_typehints_format = "short"

html_theme = "furo"
html_title = f"{project} {release}"
