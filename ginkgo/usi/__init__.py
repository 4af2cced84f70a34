"""The engine that a shogi GUI talks to, and a client that talks to other engines.

In: lines of the USI protocol. Out: moves, with what the search found of them.

Nothing heavy is imported before `isready`, so that `usi` is answered at once.
"""
