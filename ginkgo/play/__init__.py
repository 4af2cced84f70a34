"""A board in the browser to play against a network.

In: a person's clicks. Out: the engine's moves, its win rate move by move, and what it thinks of.
"""
