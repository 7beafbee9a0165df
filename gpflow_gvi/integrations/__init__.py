"""Other libraries: scikit-learn, GPflux, Trieste, SavedModel and `tf.distribute`.

Each module needs the library that it is named after, and is imported by itself.
"""

__all__: list[str] = []
