"""Thinking about one move: search, clock, mate search and reports together.

In: a position, a `go` command, the options. Out: info lines while it thinks, then the move.
"""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import cshogi

from ginkgo.errors import GinkgoError
from ginkgo.search.config import SearchConfig
from ginkgo.search.evaluators import make_evaluator
from ginkgo.search.queue import Queue
from ginkgo.search.rules import Line
from ginkgo.search.search import Candidate, Search, leaves_at_once, mate_only, run
from ginkgo.search.tree import nodes_in
from ginkgo.usi.book import Book, read_book
from ginkgo.usi.clock import FOREVER, Budget, Go, budget
from ginkgo.usi.mate import MateProcess, is_mating_line

#: Centipawns of a win rate w are -PONANZA · log(1 / w - 1), as most engines reckon.
PONANZA = 600.0
#: What programs and libraries take besides tree and cache, in MiB; of a small USI_Hash at most a
#: quarter is left to them.
_BASE = 192.0
#: Milliseconds that it takes to move a node of the tree when the root moves on: where that would
#: cost too much of the time for a move, the tree begins anew.
_MOVED = 0.0005
#: Seconds that a batch may take at most: so long does `stop` wait.
_LONGEST_BATCH = 0.08
#: MiB that a cached evaluation takes.
_CACHED = 0.0007
#: Simulations after which the only legal move is played: enough to expect an answer.
_ANSWERED = 50
#: Positions for each second of thinking that the mate search is given: about a quarter of what it
#: can do alone, so that it is over before the move is made.
_MATE_SPEED = 60_000


@dataclass(frozen=True)
class Answer:
    """What `bestmove` says."""

    move: str
    """In USI, or `resign`, or `win`."""
    ponder: str = ""

    def line(self) -> str:
        """As the answer to `go`."""
        return f"bestmove {self.move}" + (f" ponder {self.ponder}" if self.ponder else "")


class Clock:
    """Times of one `go`, which `ponderhit` starts; shared by the threads."""

    def __init__(self, limits: Budget, running: bool) -> None:
        self.limits = limits
        self.began = time.perf_counter()
        self.stopped = threading.Event()
        self.running = threading.Event()
        """Whether the engine's clock runs; while pondering it does not."""
        if running:
            self.running.set()

    def hit(self) -> None:
        """The opponent has played the expected move. A clock that runs already is left alone."""
        if not self.running.is_set():
            self.began = time.perf_counter()
            self.running.set()

    def stop(self) -> None:
        """End the search; whoever waits for the clock to run waits no longer."""
        self.stopped.set()
        self.running.set()

    @property
    def spent(self) -> float:
        """Milliseconds since the engine's clock began to run."""
        return 1000 * (time.perf_counter() - self.began)


class Thinker:
    """The loaded network, the tree, the book and the mate process of an engine."""

    def __init__(
        self, options: dict[str, Any], say: Callable[[str], None], mate: MateProcess
    ) -> None:
        """Load network and book, and reserve the tree.

        Args:
            options: values by name of `ginkgo.usi.options`.
            say: prints a line for the GUI.
            mate: looks for mates beside the search.

        Raises:
            GinkgoError: the model or the book cannot be used.
        """
        self._say, self.options = say, options
        self._book = read_book(options["BookFile"]) if options["BookFile"] else Book()
        self.evaluator = make_evaluator(
            options["Model"], options["Evaluator"], options["Threads"]
        )  # fmt: skip
        memory = options["USI_Hash"]
        tree = 0.85 * memory - min(_BASE, memory / 4)
        self.queue = Queue(self.evaluator, int(0.1 * memory / _CACHED))
        self.config = SearchConfig(batch=options["BatchSize"], nodes=nodes_in(tree))
        self.mate = mate
        self._random = Random()
        self._warm_up()
        try:
            self.search = Search(self.config)
        except MemoryError:
            raise GinkgoError(f"USI_Hash {memory}: there is not so much memory") from None
        self._clean_up()

    def _warm_up(self) -> None:
        """Have everything compiled, started and tried once before a clock runs.

        Between two batches nothing is heard: where a batch takes long (a large network on a
        processor) batches are made smaller.
        """
        self.mate.start(Line().board.sfen(), 1)
        batch = self.config.batch
        search = Search(replace(self.config, nodes=8 * batch + 200))
        search.begin()
        queue = Queue(self.evaluator, 0)
        run([search], queue, 2 * batch + 20)
        search.play(search.best_move())
        seconds = math.inf
        for _ in range(3):  # the machine may be busy with something else for a moment
            search.begin()
            began = time.perf_counter()
            run([search], queue, batch)
            seconds = min(seconds, time.perf_counter() - began)
            if seconds <= _LONGEST_BATCH:
                break
        if seconds > _LONGEST_BATCH and batch > 1:
            smaller = max(1, int(batch * _LONGEST_BATCH / seconds))
            self.config = replace(self.config, batch=smaller)
            self._say(
                f"info string a batch of {batch} takes {seconds:.2f} s: BatchSize is {smaller}"
            )
        self.mate.poll(10)

    @staticmethod
    def _clean_up() -> None:
        """Collect garbage now, and not while a clock runs.

        With all that the cache remembers to be looked through, that takes tens of milliseconds.
        The search leaves no cycles.
        """
        gc.collect()
        gc.freeze()
        gc.disable()

    def new_game(self) -> None:
        """Forget the tree."""
        self._clean_up()
        self.search.set_line(Line())
        self.search.forget()

    # --- one move -----------------------------------------------------------------------------

    def clock_for(self, line: Line, go: Go) -> Clock:
        """The clock of a `go`, begun now."""
        options = self.options
        limits = budget(
            go, line.white, line.ply, options["NetworkDelay"], options["TimeMargin"]
        )  # fmt: skip
        return Clock(limits, not go.ponder)

    def think(self, line: Line, go: Go, clock: Clock) -> Answer:
        """Find a move; comes back when the clock or the GUI says so."""
        answer = self._without_search(line, go)
        if answer is None:
            answer = self._search(line, go, clock)
        if go.infinite and not clock.stopped.is_set():
            clock.stopped.wait()
        clock.running.wait()
        return answer

    def _without_search(self, line: Line, go: Go) -> Answer | None:
        if not any(True for _ in line.board.legal_moves):
            return Answer("resign")
        options = self.options
        if options["EnteringKingRule"] != "NoEnteringKing" and line.can_declare():
            self._say("info string 27-point declaration")
            return Answer("win")
        if go.infinite or not len(self._book) or line.ply >= options["BookMoves"]:
            return None
        try:
            found = self._book.choose(
                line.board.sfen(), self._random if options["BookRandom"] else None
            )
            if found is None:
                return None
            line.move_of(found.move)
        except GinkgoError as error:
            self._say(f"info string book: {error}")
            return None
        self._say(f"info depth 0 score cp {found.value} pv {found.move} {found.reply}".rstrip())
        return Answer(found.move, found.reply)

    def _search(self, line: Line, go: Go, clock: Clock) -> Answer:
        search, options = self.search, self.options
        if clock.running.is_set() and search.tree.size * _MOVED > clock.limits.maximum / 4:
            search.forget()
        search.set_line(line)
        # A game that goes on behind a limit does not know it.
        limits = (options["MaxMovesToDraw"], options["MaxPly"])
        plies = [limit for limit in limits if limit > line.ply]
        worth = options["DrawValueWhite" if line.white else "DrawValueBlack"]
        limit = min([n for n in (go.nodes, options["NodesLimit"]) if n], default=10**9)
        search.begin(
            config=replace(
                self.config,
                max_ply=min(plies, default=0),
                draw_value=worth / 1000,
                declaration=options["EnteringKingRule"] != "NoEnteringKing",
                policy_temperature=options["PolicyTemperature"] / 100,
            )
        )
        mating = self._start_mate(line, go, clock, search.config.max_ply)
        progress = _Progress(self, clock, go, limit, mating)
        # A mate search that is not over by then ends by itself soon, and is not listened to.
        run([search], self.queue, limit, progress.enough, leaves_at_once(limit))
        if progress.mate:
            return Answer(progress.mate[0], progress.mate[1] if len(progress.mate) > 1 else "")
        candidates = search.candidates(max(1, options["MultiPV"]))
        progress.report(candidates)
        if not candidates:  # stopped before the root had been evaluated
            return Answer(cshogi.move_to_usi(next(iter(line.board.legal_moves))))
        best = candidates[0]
        if not go.infinite and self._resigns(best):
            return Answer("resign")
        moves = [cshogi.move_to_usi(move) for move in best.usi_line[:2]]
        return Answer(moves[0], moves[1] if len(moves) > 1 else "")

    def _start_mate(self, line: Line, go: Go, clock: Clock, max_ply: int) -> bool:
        """Whether a search for a mate has begun."""
        nodes = self.options["RootMateSearch"]
        seconds = min(clock.limits.optimum, 60_000) / 1000
        if clock.limits.optimum == FOREVER and go.nodes:
            seconds = go.nodes / 1000
        nodes = min(nodes, int(seconds * _MATE_SPEED))
        return bool(nodes) and self.mate.start_soon(line.board.sfen(), nodes, max_ply)

    def _resigns(self, best: Candidate) -> bool:
        threshold = self.options["ResignValue"] / 1000
        value = 0.0 if best.proof < 0 else (1.0 if best.proof > 0 else best.value)
        return bool(threshold and value < threshold)


class _Progress:
    """Asked after every batch: report, and say whether it is enough."""

    def __init__(self, thinker: Thinker, clock: Clock, go: Go, limit: int, mating: bool) -> None:
        """Begin to watch a search.

        Args:
            limit: simulations at most. mating: whether a mate search runs beside.
        """
        self._thinker, self._clock, self._go, self._limit = thinker, clock, go, limit
        self._search = thinker.search
        self._interval = thinker.options["PVInterval"] / 1000
        self._began = self._reported = self._asked = time.perf_counter()
        self._slowest = 0.0
        self._mate_pending = mating
        self._forced = go.timed and len(list(self._search.line.board.legal_moves)) == 1
        self.mate: tuple[str, ...] = ()
        """The mating line that the mate process found."""

    def enough(self) -> bool:
        """Whether to stop."""
        clock, go = self._clock, self._go
        if clock.stopped.is_set() or self._found_mate():
            return True
        now = time.perf_counter()
        # The next batch may take as long as the slowest of late: on a busy machine they differ.
        self._asked, batch = now, 1000 * (now - self._asked)
        self._slowest = max(batch, 0.95 * self._slowest)
        if now - self._reported >= self._interval:
            self._reported = now
            self.report(self._search.candidates(self._thinker.options["MultiPV"]))
        if go.depth and self._search.deepest >= go.depth:
            return True
        if not clock.running.is_set() or go.infinite:
            return False
        spent, limits = clock.spent, clock.limits
        if spent + self._slowest >= limits.maximum:
            return True
        if self._forced and self._search.simulations >= _ANSWERED:
            return True
        if not limits.flexible or spent < limits.minimum:
            return False
        return self._settled(spent, limits)

    def _settled(self, spent: float, limits: Budget) -> bool:
        """Whether more time would hardly change the move."""
        search = self._search
        here = search.tree.edges_of(0)
        visits = search.tree.edges.visits[here]
        if len(visits) < 2:
            return True
        second, first = sorted(visits.tolist())[-2:]
        if spent >= limits.optimum:
            # Torn between two moves, or the most visited is not the most valued: go on.
            values = search.tree.edges.total[here] / visits.clip(1)
            torn = second > 0.7 * first or values[visits.argmax()] + 0.01 < max(
                values[visits > 0.3 * first]
            )
            return not torn
        speed = search.simulations / max(spent, 1000 * (time.perf_counter() - self._began), 1.0)
        return bool(first - second > 1.1 * speed * (limits.optimum - spent))

    def _found_mate(self) -> bool:
        if not self._mate_pending:
            return False
        found = self._thinker.mate.poll()
        if found is None:
            return False
        self._mate_pending = False
        line = self._search.line
        if not found.moves or not is_mating_line(line.board.sfen(), found.moves):
            return False
        self.mate = found.moves
        time_ms = int(1000 * (time.perf_counter() - self._began))
        self._thinker._say(
            f"info depth {len(found.moves)} nodes {self._search.simulations} time {time_ms} "
            f"score mate {len(found.moves)} pv {' '.join(found.moves)}"
        )
        return True

    def report(self, candidates: list[Candidate]) -> None:
        """Info lines of the best moves."""
        search, options = self._search, self._thinker.options
        seconds = time.perf_counter() - self._began
        count = search.simulations
        common = (
            f"seldepth {max(search.deepest, 1)} time {int(1000 * seconds)} nodes {count} "
            f"nps {int(count / max(seconds, 1e-3))} hashfull {int(1000 * search.tree.fullness)}"
        )
        for number, one in enumerate(candidates, 1):
            if number > 1 and not one.visits:
                break
            pv = " ".join(map(cshogi.move_to_usi, one.usi_line))
            multi = f"multipv {number} " if options["MultiPV"] > 1 else ""
            self._thinker._say(
                f"info depth {len(one.usi_line)} {common} score {score_text(one)} {multi}pv {pv}"
            )


def score_text(candidate: Candidate) -> str:
    """`cp N` or `mate N`, of the side to move."""
    if mate_only(candidate.proof):
        return f"mate {candidate.proof}"
    if candidate.proof:
        return f"cp {30000 if candidate.proof > 0 else -30000}"
    return f"cp {centipawns(candidate.value)}"


def centipawns(value: float) -> int:
    """A win rate as centipawns, within ±9999.

    >>> centipawns(0.5), centipawns(0.75), centipawns(1.0)
    (0, 659, 9999)
    """
    if math.isnan(value):
        return 0
    if not 0 < value < 1:
        return 9999 if value >= 1 else -9999
    return round(max(-9999.0, min(9999.0, -PONANZA * math.log(1 / value - 1))))
