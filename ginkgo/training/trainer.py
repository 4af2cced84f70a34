"""The training loop.

In: a `TrainConfig`. Out: a model directory (`model.keras`, `config.json`, `checkpoints/`,
`logs/`), and a dictionary of final figures.

One small loop (next batch, compiled step) drives Keras callbacks; everything that is not the
loop itself (TensorBoard, progress, evaluation, checkpoints) hangs on it as a callback.
"""

from __future__ import annotations

import dataclasses
import json
import math
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ginkgo.errors import GinkgoError
from ginkgo.models import (
    NONE_SEEN,
    build_network,
    load_config,
    load_games,
    parse_network,
    save_model,
    start_from,
)
from ginkgo.pipeline.batch import Dropped
from ginkgo.pipeline.load import epoch_positions
from ginkgo.pipeline.tfdata import dataset_of
from ginkgo.records.files import write_text
from ginkgo.records.split import Split
from ginkgo.training.checkpoint import (
    latest_checkpoint,
    load_checkpoint,
    pack_data,
    read_progress,
    save_checkpoint,
    unpack_data,
)
from ginkgo.training.clock import InputClock, Speed
from ginkgo.training.config import (
    DEFAULT_ACTIVATION,
    DEFAULT_NETWORK,
    TrainConfig,
    kept_by_name,
    sources_by_name,
)
from ginkgo.training.description import description
from ginkgo.training.distribution import choose, split_packed
from ginkgo.training.evaluation import Evaluation
from ginkgo.training.heldout import find_data
from ginkgo.training.monitor import Progress, ScalarLog, plain, silence
from ginkgo.training.reading import (
    describe,
    describe_mix,
    loader_config,
    open_loader,
    parse_options,
)
from ginkgo.training.recipe import WeightAverage, choose_precision, learning_rate, make_optimizer
from ginkgo.training.report import without_nan
from ginkgo.training.same_run import as_json, check_alike, check_same_run, lasting
from ginkgo.training.sources import Sources, state_path
from ginkgo.training.step import TrainStep, channels_of

#: What TensorFlow raises where another process does not answer any more.
_LOST = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError),
    *(tf.errors.DeadlineExceededError, tf.errors.FailedPreconditionError),
)
#: Steps between looks at the metrics on the device; each look waits for the device.
LOG_EVERY = 10
#: Steps between points of the curves by source.
SOURCES_EVERY = 50


class Interrupted(Exception):
    """Ctrl-C or SIGTERM arrived; if a step had been trained, there is a checkpoint of it."""


class Trainer:
    """A training run, from the first look at the data to the final report.

    Args:
        config: of the run.
        callbacks: further Keras callbacks.

    Raises:
        GinkgoError: unusable data, a run that exists already, a checkpoint that does not fit.
    """

    def __init__(
        self, config: TrainConfig, callbacks: list[keras.callbacks.Callback] | None = None
    ) -> None:
        self.config = config
        self.directory = config.runs / config.run
        self._extra = callbacks or []
        self.checkpoints = self.directory / "checkpoints"
        found = latest_checkpoint(self.checkpoints)
        if found and not config.resume:
            raise GinkgoError(
                f"{self.directory}: this run exists already; give another --run, or --resume"
            )
        if config.resume and not found:
            raise GinkgoError(f"{self.checkpoints}: no checkpoint to resume from")
        self.step = self.samples = 0
        self._saved = 0
        self._stop_signal = 0
        self._stopped = False
        self._log: ScalarLog | None = None
        self._resume_from = found
        if config.distribute == "multiworker":
            plain("waiting until all workers of TF_CONFIG are there")
        self.distribution = choose(config.distribute)
        self.local_batch = self.distribution.local_batch(config.batch_size)
        silence(not self.distribution.chief)
        self._setup_keras()
        self.parse = parse_options(config)
        #: The games that the weights at the start have seen.
        self._seen = load_games(config.init) if config.init else NONE_SEEN
        named = {name: one.paths for name, one in sources_by_name(config).items()}
        plain(f"reading {', '.join(map(str, (*config.data, *config.source)))}")
        before = read_progress(found) if found else {}
        self.indices = find_data(
            config.data,
            config.val,
            config.test,
            config.val_fraction,
            progress=lambda source: plain(f"  {source}"),
            seen=self._seen,
            named=named,
            splits={name: Split(**split) for name, split in before.get("split", {}).items()},
        )
        self.parse = replace(
            self.parse,
            keep_from=self._keep_from(),
            policies="policy" in config.heads and self.indices["train"].policies,
        )
        with self._together():
            self._build()

    def _keep_from(self) -> tuple[int | None, ...]:
        """`--keep-from` by number of the source."""
        wanted, names = kept_by_name(self.config), self.indices["train"].names
        for name in wanted:
            if name not in names:
                raise GinkgoError(f"--keep-from {name}: expected one of {' '.join(names)}")
        return tuple(wanted.get(name) for name in names) if wanted else ()

    def _setup_keras(self) -> None:
        keras.utils.set_random_seed(self.config.seed)
        if self.config.deterministic:
            tf.config.experimental.enable_op_determinism()
        self.precision = choose_precision(self.config.precision)

    def _build(self) -> None:
        config, train = self.config, self.indices["train"]
        #: What the model that the run starts from says of itself.
        self._like = like = load_config(config.init) if config.init else {}
        self.network = parse_network(
            config.network or like.get("network", DEFAULT_NETWORK),
            config.activation or like.get("activation", DEFAULT_ACTIVATION),
        )
        with self.distribution.strategy.scope():
            channels = channels_of(config.features)
            self.model = build_network(self.network, channels, config.heads, self.precision)
            self.model.stop_training = False  # what Keras' callbacks set to end a run
            if config.init is not None and self._resume_from is None:
                self._start_from(config.init)
            self.optimizer = make_optimizer(config, self.model)
        self.average = WeightAverage(self.model, config.ema) if config.ema else None
        epoch = epoch_positions(train, self.parse)
        per_epoch = math.ceil(max(1.0, sum(epoch)) / config.batch_size)
        self.steps = config.steps or max(1, config.epochs or 3) * per_epoch
        self.eval_every = config.eval_every or max(1, self.steps // 20)
        self.checkpoint_every = config.checkpoint_every or self.eval_every
        describe(self.indices, self.parse)
        self.evaluation = Evaluation(
            config, self.parse, self.indices, self.network, self.model, self.average
        )
        loader_state, known = None, None
        part = train.part(self.distribution.worker, self.distribution.workers)
        self.speed = Speed()
        if self._resume_from is not None:
            ours = lasting(config, self.network)
            check_same_run(ours, read_progress(self._resume_from)["options"])
            progress, states, best = load_checkpoint(
                self._resume_from, self.model, self.optimizer, self.average
            )
            if len(states) != self.distribution.workers:
                raise GinkgoError(
                    f"{self._resume_from}: a run of {len(states)} processes, not of "
                    f"{self.distribution.workers}"
                )
            loader_state = states[self.distribution.worker]
            known = progress.get("sources")
            self._saved = progress["step"]
            self.step, self.samples = progress["step"], progress["samples"]
            self.evaluation.restore(progress["evaluation"], best)
            plain(f"resuming after step {self.step:,} from {self._resume_from}")
        check_alike(config, self.distribution, self.step, train.names, part)
        reading = loader_config(config, self.parse, self.local_batch, train, epoch)
        say = self._of_loader
        self.loader = open_loader(reading, part, train, loader_state, known, say)
        self.sources = None
        if config.coverage:
            path = state_path(self.directory)
            with_chief = known if self.distribution.chief else None
            self.sources = Sources(train, self.loader, self.distribution, path, with_chief)
        describe_mix(reading, train, self.loader)

    def _start_from(self, directory: Path) -> None:
        network, features = self.network, self.config.features
        fresh = start_from(self.model, directory, network.name, network.activation, features)
        new = f"; fresh: {' '.join(fresh)}" if fresh else ""
        plain(f"starting from the weights of {directory}{new}")

    def _of_loader(self, text: str) -> None:
        """What a loader says is said by every process: each reads other lines."""
        if self.distribution.chief:
            plain(text)
        else:
            print(f"worker {self.distribution.worker}: {text}", file=sys.stderr, flush=True)

    # --- the loop -----------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Train to the end, evaluate on the test games, write everything.

        Returns:
            the figures of `--report`.

        Raises:
            Interrupted: Ctrl-C; a checkpoint has been written.
        """
        config = self.config
        try:
            parts = list(self._extra)
            if self.distribution.chief:
                write_text(self.directory / "train.json", as_json(config))
                self._log = ScalarLog(self.directory / "logs", self, LOG_EVERY)
                parts = [self._log, Progress(self), *parts]
            callbacks = keras.callbacks.CallbackList(parts, model=self.model)
            scale = self.evaluation.score_scale
            if config.score_share:
                if not math.isfinite(scale):
                    raise GinkgoError(
                        f"--score-share {config.score_share}: the training data carry no search "
                        "scores that foretell results"
                    )
                plain(f"search scores become win rates by 1 / (1 + exp(-score / {scale:.0f}))")
            train_step = TrainStep(
                self.model,
                self.optimizer,
                self.average,
                config,
                scale,
                self.parse.ragged,
                self.distribution,
                len(self.indices["train"].sources) if self.sources is not None else 0,
            )
            with self._signals(), self._together():
                callbacks.on_train_begin()
                try:
                    self._loop(train_step, callbacks)
                finally:
                    callbacks.on_train_end()
        finally:
            self.loader.close()
        if self._stopped:
            raise Interrupted
        with self._together():
            dropped = self._dropped()
            report = self._finish(self._log, dropped) if self._log is not None else {}
            self.distribution.anywhere(False)  # nobody leaves before the chief is done
        return report

    def _dropped(self) -> Dropped:
        """Lines that could not be used, in all processes."""
        dropped = Dropped()
        own = json.dumps(self.loader.dropped.as_dict()).encode()
        for text in self.distribution.gathered(own):
            for kind, entry in json.loads(text).items():
                dropped.counts[kind] = dropped.counts.get(kind, 0) + entry["count"]
                dropped.first.setdefault(kind, entry["first"])
        return dropped

    def _loop(self, train_step: TrainStep, callbacks: keras.callbacks.CallbackList) -> None:
        config = self.config
        together = self.distribution
        data = dataset_of(lambda: self.loader, self.parse.ragged, close=False, packed=True)
        parts = together.replicas_here
        if parts > 1:
            data = data.map(lambda *packed: tuple(split_packed(packed, parts)))
        iterator = iter(data)
        clock = InputClock(iterator)
        if self.step < self.steps and not self._stop_signal:
            callbacks.on_epoch_begin(0)
        number = 0
        for packed in self._batches(clock):
            if self.step >= self.steps or (self._stop_signal and together.workers == 1):
                break  # this batch was not trained on: the checkpoint below is of the one before
            rate = learning_rate(config, self.step, self.steps)
            numbers = packed[1] if parts == 1 else packed[0][1]
            spread = packed if parts == 1 else together.spread(list(packed))
            metrics = train_step.on_packed(spread, rate, self.step)
            self.step += 1
            self.samples += config.batch_size
            number, epoch, pool_fill = numbers.numpy().tolist()
            self.loader.acknowledge(number)
            curves = self._tell_sources(number, metrics)
            logs = {
                **metrics,
                "learning_rate": rate,
                "positions": config.batch_size,
                "epoch": epoch,
                "pool_fill": pool_fill,
                "wait": clock.last_wait - clock.floor,
                **curves,
            }
            callbacks.on_train_batch_end(self.step, logs)
            self.speed.count(config.batch_size, clock)
            done, stop = self.step >= self.steps, self._told_to_stop()
            done |= self.model.stop_training
            if self.step % self.eval_every == 0 or done:
                result = self.evaluation.validate(self.step) if together.chief else {}
                callbacks.on_epoch_end(self.step, result)
                clock.restart()
                out_of_patience = self.evaluation.since_best >= config.patience
                if config.patience and together.anywhere(out_of_patience and together.chief):
                    plain(f"no better held-out loss in {config.patience} evaluations: stopping")
                    done = True
            if self.step % self.checkpoint_every == 0 or done or stop:
                self._checkpoint(number, must=done or stop)
                clock.restart()
            if done or stop:
                break
        if together.workers == 1:
            self._stopped = bool(self._stop_signal)
            if self._stopped and self.step > self._saved:
                self._checkpoint(number, must=True)

    def _tell_sources(self, batch: int, metrics: dict[str, tf.Tensor]) -> dict[str, float]:
        """Hand on what a step says of the sources; now and then points of their curves."""
        if self.sources is None:
            return {}
        self.sources.add(batch, metrics.pop("by_source"))
        if self.step % SOURCES_EVERY == 0 or self.step >= self.steps:
            return self.sources.curves()
        if self.step % LOG_EVERY == 0:
            self.sources.look()
        return {}

    def _told_to_stop(self) -> bool:
        """Whether the run ends with this step; asked once a step.

        Several processes look at it together, every few steps: each then does as many steps.
        """
        if self.distribution.workers == 1:
            self._stopped = bool(self._stop_signal)
        elif self.step % LOG_EVERY == 0:
            self._stopped = self.distribution.anywhere(bool(self._stop_signal))
        return self._stopped

    def _batches(self, clock: InputClock) -> Iterator[tuple[tf.Tensor, ...]]:
        """The clock's batches. What went wrong in the loader's thread is raised as it was there."""
        try:
            yield from clock
        except tf.errors.OpError:
            if self.loader.error is not None:
                raise self.loader.error from None
            raise

    @contextmanager
    def _together(self) -> Iterator[None]:
        """What TensorFlow says when another process has gone becomes one line."""
        try:
            yield
        except _LOST as error:
            if self.distribution.workers == 1:
                raise
            kept = latest_checkpoint(self.checkpoints)
            again = " with --resume" if kept else ""
            raise GinkgoError(
                f"another worker has gone ({type(error).__name__}); start all of them again{again}"
            ) from None

    @property
    def saved(self) -> int:
        """The step of the latest checkpoint; 0: there is none."""
        return self._saved

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the loop after the step; a second one ends it at once."""

        def stop(number: int, _frame: object) -> None:
            if self._stop_signal:
                raise KeyboardInterrupt
            self._stop_signal = number

        old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    # --- what is written ----------------------------------------------------------------------

    def _checkpoint(self, batch: int, must: bool) -> None:
        progress = {
            "step": self.step,
            "samples": self.samples,
            "options": lasting(self.config, self.network),
            "evaluation": self.evaluation.state(),
            "split": {
                source.name: dataclasses.asdict(source.split)
                for source in self.indices["train"].sources
            },
        }
        if self.sources is not None:
            self.sources.look()
        states = self.distribution.gathered(pack_data(self.loader.state(batch)))
        if self._log is None:
            return
        self._log.flush()
        if self.sources is not None:
            progress["sources"] = self.sources.document(list(map(unpack_data, states)), self.step)
        try:
            save_checkpoint(
                self.checkpoints,
                self.step,
                self.model,
                self.optimizer,
                self.average,
                self.evaluation.best,
                progress,
                states,
            )
            self._saved = self.step
            if self.sources is not None:
                self.sources.write()
        except GinkgoError as error:
            if must:
                raise
            plain(f"warning: {error}; training goes on, the checkpoint before is whole")

    def _finish(self, log: ScalarLog, dropped: Dropped) -> dict[str, Any]:
        config = self.config
        self.evaluation.use_best()
        final = self.evaluation.test()
        report = {
            **final,
            "wait_fraction": self.speed.wait_fraction,
            "positions_per_second": self.speed.positions_per_second,
            "positions": self.samples,
            "steps": self.step,
            "dropped": dropped.as_dict(),
            "dropped_lines": dropped.total,
            "sources": self.sources.report() if self.sources is not None else {},
            "precision": self.precision,
            "split": {
                source.name: dataclasses.asdict(source.split)
                for source in self.indices["train"].sources
            },
        }
        log.final(report, self.evaluation)
        save_model(
            self.directory,
            self.evaluation.model,
            description(config, self.network, self.indices["train"], report, self._like),
            self.evaluation.baselines.to_dict(),
            self._seen.joined(self.indices["train"].known, self.indices["val"].known),
        )
        if config.report is not None:
            write_text(config.report, json.dumps(without_nan(report), indent=2) + "\n")
        return report
