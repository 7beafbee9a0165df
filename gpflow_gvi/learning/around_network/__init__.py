"""A Gaussian process around a network: its training, its rows, and how far to trust it."""
