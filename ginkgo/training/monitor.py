"""What a person sees of a run: progress lines, TensorBoard, and how long the input kept it waiting.

In: the logs of each step, as Keras callbacks get them. Out: scalars and images in
`logs/`, a progress bar on a terminal, plain lines elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from ginkgo.training.metrics import FULL_NAMES

#: Seconds between plain progress lines.
PLAIN_EVERY = 15.0


#: What tags of curves by source begin with.
SOURCE_CURVES = "mix_"

_silent = False


def silence(silent: bool = True) -> None:
    """Print no progress: of several processes that train together only one talks."""
    global _silent
    _silent = silent


def plain(text: str) -> None:
    """One line of progress, at once."""
    if not _silent:
        print(text, file=sys.stderr, flush=True)


class ScalarLog(keras.callbacks.Callback):
    """TensorBoard: every step's scalars, evaluations, plots.

    Metrics stay on the device for `every` steps, so that writing them does not make each step
    wait for the device.
    """

    def __init__(self, directory: Path, trainer: Any, every: int) -> None:
        super().__init__()
        self._trainer, self._every = trainer, every
        self._writer = tf.summary.create_file_writer(str(directory))
        self._pending: list[tuple[int, dict[str, Any]]] = []
        self._mark = time.perf_counter()

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Write the configuration and the layout; the clock starts."""
        from ginkgo.training import dashboard
        from ginkgo.training.same_run import as_json

        run = self._trainer
        with self._going_on(), self._writer.as_default(step=run.step):
            tf.summary.text("run/config", "```json\n" + as_json(run.config) + "```")
            dashboard.write(
                run.config,
                run.step,
                network=run.network.name,
                activation=run.network.activation,
                precision=run.precision,
                steps=run.steps,
            )
        self._mark = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Keep the step's figures, and write those of several at once."""
        self._pending.append((batch, dict(logs or {})))
        if len(self._pending) >= self._every:
            with self._going_on():
                self._flush()

    def flush(self) -> None:
        """Put everything on disk, so that no checkpoint is ahead of the curves."""
        with self._going_on():
            self._flush()
            self._writer.flush()

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Curves that cannot be written do not end a run."""
        try:
            yield
        except (tf.errors.OpError, OSError) as error:
            self._pending.clear()
            reason = str(error).splitlines()[0]
            plain(f"warning: cannot write curves: {reason}; training goes on")

    def _flush(self) -> None:
        if not self._pending:
            return
        now = time.perf_counter()
        seconds, self._mark = now - self._mark, now
        positions = sum(logs["positions"] for _, logs in self._pending)
        wait = sum(logs["wait"] for _, logs in self._pending)
        with self._writer.as_default():
            for step, logs in self._pending:
                for name in logs:
                    if name in _TRAIN_NAMES:
                        tf.summary.scalar(_TRAIN_NAMES[name], logs[name], step)
                    elif name.startswith(SOURCE_CURVES):
                        tf.summary.scalar(name, logs[name], step)
            step, last = self._pending[-1]
            tf.summary.scalar("train/learning_rate", last["learning_rate"], step)
            tf.summary.scalar("input/positions_per_second", positions / seconds, step)
            fraction = min(1.0, max(0.0, wait / seconds))
            tf.summary.scalar("input/wait_fraction", fraction, step)
            tf.summary.scalar("input/pool_fill", last["pool_fill"], step)
            tf.summary.scalar("input/epoch", last["epoch"], step)
            tf.summary.scalar("input/dropped_lines", self._trainer.loader.dropped.total, step)
        self._pending.clear()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """After an evaluation; `epoch` is the step."""
        with self._going_on():
            self._evaluated(epoch, logs or {})
        self._mark = time.perf_counter()

    def _evaluated(self, step: int, logs: dict) -> None:
        self._flush()
        with self._writer.as_default(step=step):
            for name, value in logs.items():
                if isinstance(value, (int, float)):
                    tf.summary.scalar(name, value)
            evaluation = self._trainer.evaluation
            for name, image in (evaluation.plots() | evaluation.boards()).items():
                tf.summary.image(name, image[None])
            if self._trainer.config.histograms:
                for weight in self._trainer.model.weights:
                    tf.summary.histogram(f"weights/{weight.path}", weight.value)
        self._writer.flush()

    def on_train_end(self, logs: dict | None = None) -> None:
        """Write what is left."""
        self.flush()

    def final(self, report: dict[str, Any], evaluation: Any) -> None:
        """The figures and plots of the test games."""
        with self._going_on():
            with self._writer.as_default(step=self._trainer.step):
                for name, value in report.get("heldout", {}).items():
                    if isinstance(value, (int, float)):
                        tf.summary.scalar(f"test/{FULL_NAMES.get(name, name)}", value)
                for name, image in evaluation.plots("test").items():
                    tf.summary.image(name, image[None])
            self._writer.flush()


_TRAIN_NAMES = {
    "loss": "train/loss",
    "value_loss": "train/value_loss",
    "value_accuracy": "train/value_accuracy",
    "policy_loss": "train/policy_loss",
    "policy_accuracy": "train/policy_accuracy",
    "gradient_norm": "train/gradient_norm",
}


class Progress(keras.callbacks.Callback):
    """A bar on a terminal; elsewhere a line now and then."""

    _SMOOTH = 0.9

    def __init__(self, trainer: Any) -> None:
        super().__init__()
        self._trainer = trainer
        self._bar: Bar | None = None
        self._last = 0.0
        self._shown: dict[str, float] = {}
        self._window = [0, 0.0, time.perf_counter()]

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Show the bar, on a terminal."""
        if sys.stderr.isatty():
            from rich.console import Console

            self._bar = Bar(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(),
                TextColumn("{task.description}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(
                "", total=self._trainer.steps, completed=self._trainer.step
            )
            self._bar.start()
        self._window = [0, 0.0, time.perf_counter()]
        self._last = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Show how it goes, when that is due."""
        logs = logs or {}
        self._window[0] += logs["positions"]
        self._window[1] += logs["wait"]
        now = time.perf_counter()
        due = 0.5 if self._bar is not None else PLAIN_EVERY
        if now - self._last < due and batch != self._trainer.steps:
            return
        seconds = max(1e-9, now - self._window[2])
        rate, wait = self._window[0] / seconds, self._window[1] / seconds
        self._last, self._window = now, [0, 0.0, now]
        parts = [f"loss {float(logs['loss']):.4f}"]
        for head, name in (("value", "win acc"), ("policy", "move acc")):
            if f"{head}_accuracy" in logs:
                value = float(logs[f"{head}_accuracy"])
                old = self._shown.get(head, value)
                self._shown[head] = self._SMOOTH * old + (1 - self._SMOOTH) * value
                parts.append(f"{name} {self._shown[head]:.3f}")
        parts += [f"{rate:,.0f} pos/s", f"wait {min(1.0, max(0.0, wait)):.1%}"]
        text = "  ".join(parts)
        if self._bar is not None:
            self._bar.update(self._task, completed=batch, description=text)
        else:
            plain(f"step {batch:,}/{self._trainer.steps:,}  {text}")

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """A line about the evaluation."""
        summary = (logs or {}).get("summary")
        if summary:
            plain(f"step {epoch:,}  {summary}")
        self._window = [0, 0.0, time.perf_counter()]

    def on_train_end(self, logs: dict | None = None) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
