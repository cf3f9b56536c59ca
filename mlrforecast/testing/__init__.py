"""Checks for parts of your own: subclass a contract, and each of its methods is a test.

The checks are plain assertions, so that any test runner, or none, can run them.
"""

from mlrforecast.testing.matrices import MatrixExample, StructuredMatrixContract

__all__ = ["MatrixExample", "StructuredMatrixContract"]
