"""The fit loop, its recipe, metrics, checkpoints and TensorBoard.

In: a `TrainConfig`. Out: a model directory, curves, and a report of held-out figures beside their
baselines. `trainer` is the loop; open it first.

Only `step`, `recipe`, `monitor`, `trainer` and what they use import TensorFlow.
"""
