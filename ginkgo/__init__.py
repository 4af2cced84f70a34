"""ginkgo trains shogi networks in TensorFlow.

A position travels once round a ring, and each room does one part of the way::

    records -> features -> pipeline -> models -> training

Imports point one way only: a room may import the rooms before it, never one after it.
Nothing here imports TensorFlow; the rooms that need it do so themselves.
"""

__version__ = "0.1.0"
