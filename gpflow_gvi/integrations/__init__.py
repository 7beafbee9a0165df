"""Other libraries: scikit-learn, GPflux, SavedModel; and Bayesian optimisation.

Each module needs the library that it is named after, and is imported by itself.
"""

__all__: list[str] = []
