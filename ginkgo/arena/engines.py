"""Games with engines that are processes, each game in a thread.

In: pairings, two players. Out: the games as they end. Whatever an engine does instead of
answering, it loses that game by it, and a new process of it plays the next.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator

from ginkgo.arena.players import Limits, Player
from ginkgo.arena.referee import MATE, Pairing, Played, Referee, Rules
from ginkgo.errors import GinkgoError
from ginkgo.usi.client import (
    Client,
    EngineDied,
    EngineError,
    EngineNonsense,
    EngineTimeout,
    Info,
    Reply,
    UnknownOption,
)

#: Seconds that an engine gets to answer `stop`.
_GRACE = 2.0
#: Seconds between two looks whether a match was broken off.
_LOOK = 0.5


class _Stopped(Exception):
    """The match was broken off."""


class Seat:
    """An engine of one thread: its process, kept from game to game."""

    def __init__(self, player: Player, rules: Rules, patience: float) -> None:
        self.player, self._rules, self._patience = player, rules, patience
        self._client: Client | None = None
        self._stopped = threading.Event()

    def new_game(self) -> None:
        """Have a process that is ready for a new game.

        Raises:
            EngineError: it does not come that far. GinkgoError: it lacks an option.
        """
        client = self._client
        if client is not None:
            # One that has ended after its last game is no worse than one that ends a moment later.
            with contextlib.suppress(EngineDied):
                client.ready(self._patience)
                client.new_game()
                return
            self.drop()
        self._start().new_game()

    def _start(self) -> Client:
        if self._stopped.is_set():
            raise _Stopped
        try:
            client = Client(self.player.command, self.player.options, seconds=self._patience)
        except UnknownOption as error:
            raise GinkgoError(f"engine {self.player.text}: {error}") from None
        self._client = client
        if self._stopped.is_set():  # while it started
            self.drop()
            raise _Stopped
        # The engine should know when the referee ends the game.
        name = "MaxMovesToDraw"
        if name in client.options and name not in self.player.options and self._rules.max_ply:
            client.send(f"setoption name {name} value {self._rules.max_ply}")
            client.ready(self._patience)
        return client

    def go(self, position: str, limits: str, seconds: float) -> Reply:
        """Ask for a move."""
        if self._client is None:
            raise EngineDied(f"{self.player.text}: does not run")
        return self._client.go(position, limits, seconds, _GRACE)

    def game_over(self, result: str) -> None:
        if self._client is not None:
            self._client.game_over(result)

    def drop(self) -> None:
        """End the process at once; the next game gets a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.kill()

    def stop(self) -> None:
        """The same for good, from another thread."""
        self._stopped.set()
        self.drop()

    def close(self) -> None:
        """Let the engine quit."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


class Clocks:
    """The time of both sides, in milliseconds."""

    def __init__(self, limits: dict[str, Limits]) -> None:
        """
        Args:
            limits: by side, `b` and `w`.
        """
        self._limits = limits
        # An increment comes after each move; without main time the first move needs it too.
        self._left = {side: float(one.main or one.increment) for side, one in limits.items()}

    def go(self, side: str) -> str:
        """The rest of a `go` command."""
        mine = self._limits[side]
        left = {
            one: round(self._left[one if self._limits[one].timed else side]) for one in ("b", "w")
        }
        return mine.go(left["b"], left["w"])

    def allowed(self, side: str) -> float | None:
        """Milliseconds that a move may take; None: no clock runs."""
        limits = self._limits[side]
        if limits.movetime and not limits.timed:
            return float(limits.movetime)
        return self._left[side] + limits.byoyomi if limits.timed else None

    def spend(self, side: str, spent: float) -> None:
        """A move has been made."""
        limits = self._limits[side]
        self._left[side] = max(0.0, self._left[side] - spent) + limits.increment


def play_game(
    pairing: Pairing, seats: dict[str, Seat], rules: Rules, patience: float, margin: float
) -> Played:
    """Play one game.

    Args:
        seats: by `a` and `b`. patience: seconds for a move where no clock runs.
        margin: milliseconds by which an engine may overstep its time.

    Raises:
        GinkgoError: an engine lacks an option.
    """
    referee = Referee(pairing, rules)
    sides = {side: seats[referee.engine(side)] for side in ("b", "w")}
    clocks = Clocks({side: seat.player.limits for side, seat in sides.items()})
    for side, seat in sides.items():
        if referee.over:
            break
        try:
            seat.new_game()
        except EngineError as error:
            referee.fault(side, "no_start", str(error))
            seat.drop()
    while not referee.over:
        side = referee.side
        _move(referee, sides[side], clocks, patience, margin)
    played = referee.played()
    for side, seat in sides.items():
        result = "draw" if played.winner == "d" else "win" if played.winner == side else "lose"
        seat.game_over(result)
    return played


def _move(referee: Referee, seat: Seat, clocks: Clocks, patience: float, margin: float) -> None:
    """Have the engine to move answer, and take its answer or its fault."""
    side = referee.side
    allowed = clocks.allowed(side)
    seconds = patience if allowed is None else (allowed + margin) / 1000
    try:
        reply = seat.go(referee.position, clocks.go(side), seconds)
    except EngineDied as error:
        referee.fault(side, "crash", str(error))
        seat.drop()
    except EngineTimeout as error:
        referee.fault(side, "no_answer", str(error))
        seat.drop()
    except EngineNonsense as error:
        referee.fault(side, "illegal_move", str(error))
    else:
        spent = 1000 * reply.seconds
        if reply.seconds > seconds:
            limit = seconds if allowed is None else allowed / 1000
            text = f"{reply.seconds:.2f} s for a move, {limit:.2f} s were left"
            referee.fault(side, "time_up", text)
            return
        clocks.spend(side, spent)
        referee.answer(reply.move, score_of(reply.info), reply.seconds)


def score_of(info: Info) -> int | None:
    """Centipawns of the side to move, as the engine said last; never more than a mate.

    Some engines say more, and readers of kifu fail at what is no 32-bit number.

    >>> score_of(Info(mate=-5)), score_of(Info(cp=31)), score_of(Info()), score_of(Info(cp=10**40))
    (-30000, 31, None, 30000)
    """
    if info.mate is not None:
        return MATE if info.mate > 0 else -MATE
    return None if info.cp is None else max(-MATE, min(MATE, info.cp))


# --- many games -------------------------------------------------------------------------------


def play_engines(
    pairings: Iterator[Pairing],
    players: dict[str, Player],
    rules: Rules,
    together: int,
    patience: float,
    margin: float,
) -> Iterator[Played]:
    """Play games, some at a time; when the iteration is left all processes are ended.

    Args:
        pairings: begun in this order. players: by `a` and `b`.
        together: threads, each with a process of each engine.

    Raises:
        GinkgoError: an engine lacks an option.
    """
    lock, done = threading.Lock(), threading.Event()
    results: queue.Queue[Played | BaseException | None] = queue.Queue()
    tables = [
        {engine: Seat(player, rules, patience) for engine, player in players.items()}
        for _ in range(together)
    ]

    def work(seats: dict[str, Seat]) -> None:
        try:
            while not done.is_set():
                with lock:
                    pairing = next(pairings, None)
                if pairing is None:
                    break
                played = play_game(pairing, seats, rules, patience, margin)
                if not done.is_set():  # else engines were killed, and nobody is to blame
                    results.put(played)
        except _Stopped:
            pass
        except BaseException as error:
            results.put(error)
        finally:
            for seat in seats.values():
                seat.close()
            results.put(None)

    threads = [threading.Thread(target=work, args=(seats,), daemon=True) for seats in tables]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            try:
                found = results.get(timeout=_LOOK)
            except queue.Empty:
                continue
            if found is None:
                running -= 1
            elif isinstance(found, BaseException):
                raise found
            else:
                yield found
    finally:
        done.set()
        for seats in tables:
            for seat in seats.values():
                with contextlib.suppress(Exception):
                    seat.stop()
        for thread in threads:
            thread.join(5)
