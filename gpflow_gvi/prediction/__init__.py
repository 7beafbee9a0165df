"""Predictions of a Gaussian process: samples, derivatives, integrals, class probabilities."""

__all__: list[str] = []
