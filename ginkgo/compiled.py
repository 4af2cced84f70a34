"""Loops that numpy cannot do, compiled by numba. Imported by what uses it, never at the start."""

from __future__ import annotations

from collections.abc import Callable

from numba import njit


def compiled(function: Callable) -> Callable:
    """Compile at the first call, with divisions that are not checked for zero.

    What was compiled is kept on disk between runs, where there is a place for it.
    """
    try:
        return njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # neither the code's folder nor the user's cache can be written to
        return njit(error_model="numpy")(function)
