"""Tests: `unit` mirrors the package, `integration` joins its parts."""
