"""The reinforcement loop: self-play, training, gate, and again.

In: a `ReinforceConfig`. Out: a run folder:

    RUNS/NAME/reinforce.json            the options
              generations.jsonl         an object for each generation, written last
              training_data/run_001/    games of generation 0, with which generation 1 is trained …
              window/00001.json .npz    what generation 1 trains on; how often positions were used
              models/NAME-b3c48-s…-d…/  a model directory for each generation
              gates/00001/              its match
              report/, logs/            for people

There is no other state. Whatever is missing of the next generation is done, in this order, and each
file appears under its name only when it is whole: so the loop goes on wherever it was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from ginkgo.errors import GinkgoError
from ginkgo.models.directory import CONFIG, find_model, load_config, model_name
from ginkgo.records.files import make_folder, read_object, write_text
from ginkgo.selfplay import gate, learn, report
from ginkgo.selfplay.config import PlayOptions, SelfplayConfig
from ginkgo.selfplay.reinforce import ReinforceConfig, play_config
from ginkgo.selfplay.run import play_run
from ginkgo.selfplay.store import RunFolder, alone, figures_of, run_folder, run_folders
from ginkgo.selfplay.window import Uses, WindowOptions, make_plan
from ginkgo.training.config import TrainConfig

#: Options that must stay what they were when a run goes on.
_LASTING = ("network", "from_", "seed", "evaluator")
#: Learning rate: factor of a change, and how far it may go in all.
_FACTOR, _RANGE = 1.5, (0.05, 20.0)
#: Runs before, whose games tell when to resign.
_CALIBRATED_BY = 3


class Loop:
    """A run of reinforcement.

    Raises:
        GinkgoError: the run began with other options, or another process works on it.
    """

    def __init__(self, config: ReinforceConfig) -> None:
        self.config = config
        self.folder = config.runs / config.run
        make_folder(self.folder)

    def run(self) -> None:
        """Generation after generation, until the limits that were asked for."""
        with alone(self.folder):
            self._same_options()
            lines = self._lines()
            if not lines:
                lines.append(self._first())
            report.complete(self.folder, lines)
            while self._goes_on(lines):
                started = time.monotonic()
                line = self._generation(lines)
                line |= {"seconds": round(time.monotonic() - started, 1), "ended": time.time()}
                self._keep(lines, line)
                report.complete(self.folder, lines)
                self._tidy(lines)

    def _goes_on(self, lines: list[dict[str, Any]]) -> bool:
        config = self.config
        if config.generations and lines[-1]["generation"] >= config.generations:
            return False
        spent = sum(line["seconds"] for line in lines)
        return not config.minutes or spent + lines[-1]["seconds"] <= 60 * config.minutes

    # --- what is on disk ----------------------------------------------------------------------

    def _same_options(self) -> None:
        path = self.folder / "reinforce.json"
        now = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self.config).items()
        }
        if path.exists():
            before = read_object(path)
            for name in _LASTING:
                if before.get(name) != now[name]:
                    option = name.rstrip("_").replace("_", "-")
                    raise GinkgoError(
                        f"--{option}: the run began with {before.get(name)}, not {now[name]}"
                    )
        write_text(path, json.dumps(now, indent=1) + "\n")

    @property
    def _generations(self) -> Path:
        return self.folder / "generations.jsonl"

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = self._generations.read_text("utf-8")
            lines = [json.loads(line) for line in text.splitlines()]
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise GinkgoError(f"{self._generations}: cannot be read: {error}") from None
        for number, line in enumerate(lines, 1):
            if not isinstance(line, dict) or not {"generation", "model", "seconds"} <= line.keys():
                raise GinkgoError(f"{self._generations}:{number}: expected a generation")
        return lines

    def _keep(self, lines: list[dict[str, Any]], line: dict[str, Any]) -> None:
        """Add a generation: from now on it is done."""
        lines.append(line)
        text = "".join(json.dumps(one) + "\n" for one in lines)
        write_text(self._generations, text)
        _say(report.summary(line))

    # --- generation 0 -------------------------------------------------------------------------

    def _first(self) -> dict[str, Any]:
        """The model that it all starts from."""
        config, started = self.config, time.monotonic()
        if config.from_ is None:
            network, samples = config.network, 0
        else:
            described = load_config(find_model(config.from_))
            network = described["network"]
            samples = described.get("trained_on", {}).get("samples", 0)
        name = model_name(config.run, network, samples, 0)
        directory = self.folder / "models" / name
        if not (directory / CONFIG).is_file():
            _say(f"generation 0: {'random weights' if config.from_ is None else config.from_}")
            first = learn.FirstModel(
                directory, name, network, config.evaluator, config.seed, config.from_
            )
            learn.finish(learn.start(first))
        line: dict[str, Any] = {
            **{"generation": 0, "model": str(directory), "samples": 0, "positions": 0, "games": 0},
            **{"elo": 0.0, "elo_low": 0.0, "elo_high": 0.0, "accepted": True},
            **{"mean_plies": None, "draws": None, "resign_false_rate": None, "max_use": 0},
            **{"steps": 0, "rate_factor": 1.0, "kl": None},
            **{"seconds": round(time.monotonic() - started, 1), "ended": time.time()},
        }
        lines: list[dict[str, Any]] = []
        self._keep(lines, line)
        return line

    # --- a generation -------------------------------------------------------------------------

    def _generation(self, lines: list[dict[str, Any]]) -> dict[str, Any]:
        number = lines[-1]["generation"] + 1
        playing = next(line for line in reversed(lines) if line["accepted"])
        times: dict[str, float] = {}
        with _timed(times, "selfplay_seconds"):
            games = self._play(number, playing)
        plan = self._plan(number, lines, games)
        directory = self.folder / "models" / plan["name"]
        with _timed(times, "training_seconds"):
            self._learn(number, lines, plan, directory, playing)
        lesson = json.loads((directory / learn.RESULT).read_text())
        steps = playing["steps"]
        done = lines[-1]["steps"] + lesson["steps"]
        with _timed(times, "gate_seconds"):
            accepted, shown = gate.judge(
                self.config,
                directory,
                Path(playing["model"]),
                play_config(self.config, directory, done),
                self.folder / "gates" / f"{number:05d}",
                number,
                done - steps,
                self._match,
            )
        player = games.options["options"]["model"]
        figures = figures_of(games, games.options["resign_threshold"])
        error = (shown.error**2 + ((playing["elo_high"] - playing["elo_low"]) / 2) ** 2) ** 0.5
        elo = playing["elo"] + shown.elo
        return {
            "generation": number,
            "model": str(directory),
            "samples": plan["uses"]["samples"],
            "positions": plan["uses"]["recorded"],
            "games": lines[-1]["games"] + figures.pop("games"),
            "elo": elo,
            "elo_low": elo - error,
            "elo_high": elo + error,
            "accepted": accepted,
            **{name: figures[name] for name in ("mean_plies", "draws", "resign_false_rate")},
            "max_use": plan["max_use"],
            "mean_use": plan["mean_use"],
            "steps": done,
            "window": plan["window"],
            "tokens": plan["uses"]["tokens"],
            "trained_on": plan["samples"],
            "match_games": shown.games,
            "match_score": None if shown.score != shown.score else shown.score,
            "played_by": next(line["generation"] for line in lines if line["model"] == player),
            "playouts": games.options["options"]["playouts"],
            "resign_threshold": games.options["resign_threshold"],
            **{name: figures[name] for name in ("first_move", "endings", "resign_judged")},
            "rate_factor": plan["rate_factor"],
            **{name: value for name, value in lesson.items() if name not in ("steps", "heldout")},
            **times,
        }

    def _play(self, number: int, playing: dict[str, Any]) -> RunFolder:
        """The games of a generation: those that are not there yet."""
        run = run_folder(self.folder, number)
        config = play_config(self.config, Path(playing["model"]), playing["steps"])
        begun = run.options
        if begun:  # with which model and options it was begun
            known = {name: value for name, value in begun["options"].items()}
            if known.get("openings"):
                known["openings"] = Path(known["openings"])
            config = replace(config, **known, games=begun["games"])
        self._play_on(config, run)
        return run

    def _play_on(self, config: SelfplayConfig, run: RunFolder) -> None:
        earlier = [one for one in run_folders(self.folder) if one.number < run.number]
        run.look()
        if run.options and run.complete:
            return
        _say(f"run {run.number}: {config.games:,} games of {Path(config.model).name}")
        self._fill(config, run, earlier[-_CALIBRATED_BY:])

    def _fill(self, config: SelfplayConfig, run: RunFolder, earlier: Sequence[RunFolder]) -> None:
        """Have the games of a run played that are not there yet."""
        play_run(config, run, earlier, say=_say, trusted=self._trusted)

    @property
    def _trusted(self) -> bool:
        """Whether the first model's win rates mean something.

        Random weights would resign at random, and the next model would learn that from the results.
        """
        return self.config.from_ is not None

    def _match(
        self,
        new: Path,
        old: Path,
        play: PlayOptions,
        games: int,
        folder: Path,
        seed: int,
        sprt: tuple[float, float] | None = None,
    ) -> dict[str, Any]:
        """Have a match played; see `gate.play_match`."""
        return gate.play_match(self.config, new, old, play, games, folder, seed, sprt)

    def _plan(self, number: int, lines: list[dict[str, Any]], games: RunFolder) -> dict[str, Any]:
        """What the generation trains on, chosen once."""
        path = self.folder / "window" / f"{number:05d}.json"
        if path.exists():
            return read_object(path, "name", "samples", "runs")
        config, before = self.config, path.with_name(f"{number - 1:05d}.npz")
        uses = Uses.load(before) if number > 1 else Uses()
        runs = [one for one in run_folders(self.folder) if one.number <= number]
        for run in runs:
            run.look()
        options = WindowOptions(
            config.window, config.reuse, config.batch_size, config.steps, config.exponent
        )
        found = make_plan(runs, uses, options, self._data(number), (config.seed, number))
        after = found.uses
        after.save(path.with_suffix(".npz"))
        network = load_config(lines[0]["model"])["network"]
        start = load_config(lines[0]["model"]).get("trained_on", {}).get("samples", 0)
        used = sum(int(counts.sum()) for counts in after.counts.values())
        there = sum(int(run.recorded) for run in runs)
        plan = {
            "name": model_name(
                config.run, network, start + after.samples, after.recorded
            ),
            "samples": found.samples,
            "window": found.window,
            "held_out": found.held_out,
            "runs": found.runs,
            "max_use": after.most,
            "mean_use": used / max(1, there),
            "rate_factor": rate_factor(lines[-1], config.kl_target),
            "uses": {
                "samples": after.samples, "recorded": after.recorded, "tokens": after.tokens,
            },
        }  # fmt: skip
        write_text(path, json.dumps(plan, indent=1) + "\n")
        return plan

    def _data(self, number: int) -> Path:
        return self.folder / "window" / f"data_{number:05d}"

    def _learn(
        self,
        number: int,
        lines: list[dict[str, Any]],
        plan: dict[str, Any],
        directory: Path,
        playing: dict[str, Any],
    ) -> None:
        """Train the model, where that is not done yet; meanwhile play, where that was asked for."""
        exported = directory / learn.EXPORTED[self.config.evaluator]
        if (directory / learn.RESULT).is_file() and exported.is_file():
            return
        process = learn.start(
            learn.Lesson(
                self._train_config(lines, plan, directory, self._data(number)),
                plan["name"],
                self.config.evaluator,
                self.config.kl_target,
            )
        )
        try:
            if self.config.side_by_side:
                run = run_folder(self.folder, number + 1)
                model = Path(playing["model"])
                self._play_on(play_config(self.config, model, playing["steps"]), run)
        except BaseException:
            process.kill()
            process.join()
            raise
        learn.finish(process)

    def _train_config(
        self, lines: list[dict[str, Any]], plan: dict[str, Any], directory: Path, data: Path
    ) -> TrainConfig:
        config = self.config
        steps = plan["samples"] // config.batch_size
        start = Path(lines[-1]["model"])
        return TrainConfig(
            data=(data / "train",),
            val=(data / "val",),
            val_fraction=0.0,
            run=directory.name,
            runs=directory.parent,
            heads=("policy", "value"),
            features=load_config(start)["features"],
            init=start,
            steps=steps,
            batch_size=config.batch_size,
            learning_rate=config.learning_rate * plan["rate_factor"],
            schedule="constant",
            warmup=0.1,
            weight_decay=config.weight_decay,
            mirror=config.mirror,
            value_weight=config.value_weight,
            root_share=config.root_share,
            pool=max(config.batch_size, plan["samples"]),
            seed=config.seed,
            workers=1,
            eval_every=steps,
            checkpoint_every=max(1, -(-steps // 4)),
            # The few held-out games of a window tell no scale, and the factors of generation after
            # generation, each of which starts from the weights before, would multiply.
            calibrate=False,
            coverage=False,  # the window keeps count of the uses of each position
            resume=any((directory / "checkpoints").glob("step-*.npz")),
        )

    # --- afterwards ---------------------------------------------------------------------------

    def _tidy(self, lines: list[dict[str, Any]]) -> None:
        """Remove what no later generation needs, and more where the disk budget asks for it."""
        done = lines[-1]["generation"]
        window = self.folder / "window"
        for pattern in ("*/.gone-*", "models/*/.gone-*"):  # a kill has left them
            for path in self.folder.glob(pattern):
                shutil.rmtree(path, ignore_errors=True)
        for path in window.glob("data_*"):
            shutil.rmtree(path, ignore_errors=True)
        for path in sorted(window.glob("*.npz")):
            if int(path.stem) < done:
                path.unlink(missing_ok=True)
        needed = set(json.loads((window / f"{done:05d}.json").read_text())["runs"])
        budget = self.config.disk * 1e9
        removable = [
            *(
                run.path
                for run in run_folders(self.folder)
                if run.number < min(needed, default=0) and run.number <= done - _CALIBRATED_BY
            ),
            *(Path(line["model"]) / "logs" for line in lines[:-1]),
            *(self.folder / "gates" / f"{line['generation']:05d}" for line in lines[:-1]),
        ]
        size = _size(self.folder)
        for path in removable:
            if size <= budget:
                return
            size -= _size(path)
            # Renamed first: a folder half removed must not be taken for a run.
            gone = path.with_name(f".gone-{path.name}")
            with contextlib.suppress(OSError):
                path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
        if size > budget:
            _say(f"{self.folder}: {size / 1e9:.2f} GB, above --disk {self.config.disk:g}")


def rate_factor(line: dict[str, Any], target: float) -> float:
    """The factor of the learning rate of the generation after `line`.

    >>> rate_factor({"rate_factor": 1.0, "kl": 0.05}, 0.02)
    0.6667
    """
    factor, moved = line["rate_factor"], line["kl"]
    if target and moved is not None:
        if moved > 2 * target:
            factor /= _FACTOR
        elif moved < target / 2:
            factor *= _FACTOR
    return round(min(_RANGE[1], max(_RANGE[0], factor)), 4)


@contextlib.contextmanager
def _timed(times: dict[str, float], name: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    times[name] = round(time.monotonic() - start, 1)


def _size(path: Path) -> int:
    """Bytes of a folder with all in it."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


_say = partial(print, file=sys.stderr, flush=True)
