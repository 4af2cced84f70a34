"""Self-play: games, the replay window, and the loop that gets stronger by them.

In: a model. Out: games with the visits and values of their searches (`ginkgo selfplay`); from them,
generation by generation, stronger models (`ginkgo reinforce`).

The parts, each testable alone: `game` (one game in progress) -> `worker`, `run` (hundreds of
them in each of several processes) -> `store` (run folders); `resign` (the threshold),
`audit` (are the results right), `window` (what to train on next), `learn` (the trainer as a
process), `gate` (is the new model better), `loop` (all of it in turn), `report`.

Nothing here imports TensorFlow but `learn`, in a process of its own.
"""
