"""A board in the browser to play against a network, and the analysis of games.

In: a person's clicks; kifu. Out: the engine's moves, its win rate move by move and what it thinks
of; games with evaluations in their comments, and graphs.
"""
