"""Internal modules of several packages: linear algebra, checks, shapes of inputs, files."""

__all__: list[str] = []
