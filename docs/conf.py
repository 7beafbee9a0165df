"""Configuration of the documentation; build it with ``make docs``."""

import logging
from importlib.metadata import version as installed_version

project = "gpflow_gvi"
author = "The gpflow_gvi contributors"
copyright = author
release = installed_version("gpflow-gvi")
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_nb",  # brings myst_parser, and runs docs/notebooks
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",  # formulas render without a network
]
templates_path = ["_templates"]
# Names of these libraries link to their pages.
intersphinx_mapping = {
    "gpflow": ("https://gpflow.github.io/GPflow/2.11.2/", None),
    "numpy": ("https://numpy.org/doc/stable/", None),
    "python": ("https://docs.python.org/3/", None),
    "sklearn": ("https://scikit-learn.org/stable/", None),
    "tensorflow": (
        "https://www.tensorflow.org/api_docs/python",
        "https://github.com/GPflow/tensorflow-intersphinx/raw/master/tf2_py_objects.inv",
    ),
}
exclude_patterns = [
    "_build",
    "_templates",
    "conf.py",
    "thumbnails.py",
]  # Python files that are no pages

# Without a network the pages have no links to those of other libraries, and are built.
logging.getLogger("sphinx.sphinx.ext.intersphinx").addFilter(
    lambda record: not str(record.msg).startswith("failed to reach")
)

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
# X and Y of a type are no references.
suppress_warnings = ["ref.python"]
# The full names of TensorFlow's aliases of NumPy types are unreadable.
autodoc_typehints_format = "short"

html_theme = "furo"
html_title = f"{project} {release}"
