"""Loops that numpy cannot do, compiled by numba. Imported by what uses it, never at the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

#: No function is handed to C code: wrappers for that would be compiled for nothing.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}


def compiled(function: Callable) -> Callable:
    """Compile at the first call, with divisions that are not checked for zero.

    What was compiled is kept on disk between runs, where there is a place for it.
    """
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # neither the code's folder nor the user's cache can be written to
        return njit(**_OPTIONS)(function)


def inner(function: Callable) -> Callable:
    """The same for a function that only compiled ones call: it becomes a part of each of them.

    Compiling takes seconds, so they are called with the same types everywhere: a plain 0 would be
    a type of its own, hence `int64` and `float64` in their callers.
    """
    options: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True}
    return njit(**options)(function)
