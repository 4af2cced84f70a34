"""Worker processes: started, fed with jobs, replaced when they die. Results come in job order.

In: iterators of jobs, a lane each. Out: a block for each job, within its lane in the order of the
jobs whatever the timing and the number of workers.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, shared_memory

from ginkgo.errors import GinkgoError
from ginkgo.pipeline.parse import Block, ParseOptions, empty_block
from ginkgo.pipeline.worker import (
    READY,
    Job,
    SegmentReader,
    read_block,
    run_job,
    worker_main,
)
from ginkgo.records import Refusal

#: Jobs that a worker holds at a time, and blocks of shared memory that it writes in turn.
_JOBS_PER_WORKER = 2
#: Blocks that are read ahead in a lane that nobody has asked for yet.
_AHEAD = 2
#: A job that has killed so many workers is given up.
_DEATHS_PER_JOB = 3
#: So many workers in a row that die before they say a word: something is wrong with all of them.
_FALSE_STARTS = 3


class _Worker:
    """One process with its pipe and its shared memory."""

    def __init__(self, slot_size: int, options: ParseOptions) -> None:
        self.slot_size = slot_size
        self.memory = shared_memory.SharedMemory(create=True, size=slot_size * _JOBS_PER_WORKER)
        self.jobs: deque[Job] = deque()
        self.ready = False
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=worker_main,
            args=(theirs, self.memory.name, slot_size, _JOBS_PER_WORKER, options),
            daemon=True,
            name="ginkgo-reader",
        )
        # A Ctrl-C while the process starts must not reach it before it can ignore it.
        with _sigint_blocked():
            self.process.start()
        theirs.close()

    def send(self, job: Job) -> None:
        self.jobs.append(job)
        with contextlib.suppress(OSError):  # a dead worker is found when its pipe is read
            self.pipe.send(job)

    def close(self) -> None:
        self.pipe.close()
        self.process.join(0.5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()
        self.memory.close()
        self.memory.unlink()


@contextlib.contextmanager
def _sigint_blocked():
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


class Workers:
    """Runs jobs in `count` processes; 0 runs them in this one.

    Args:
        lanes: jobs, in as many orders as results are wanted in; each has a number of its own.
        slot_size: bytes of the largest block (`worker.slot_bytes`).
        say: told one line when a worker dies.
    """

    def __init__(
        self,
        count: int,
        lanes: Sequence[Iterator[Job]],
        options: ParseOptions,
        slot_size: int,
        say: Callable[[str], None] = print,
    ) -> None:
        self._lanes, self._options, self._say = lanes, options, say
        self._slot_size = slot_size
        self._reader = SegmentReader()
        self._orders: list[deque[Job]] = [deque() for _ in lanes]
        self._waiting: deque[Job] = deque()
        self._done: dict[int, Block] = {}
        self._deaths: dict[int, int] = {}
        self._false_starts = 0
        self._window = 2 * count + 2
        self._closed = threading.Event()
        self.workers: list[_Worker] = []
        try:
            for _ in range(count):
                self.workers.append(_Worker(slot_size, options))
        except OSError as error:
            self.close()
            raise GinkgoError(f"cannot start {count} workers: {error.strerror}") from error

    @property
    def pids(self) -> list[int]:
        """Process numbers of the workers."""
        return [worker.process.pid or 0 for worker in self.workers]

    def next(self, lane: int = 0) -> tuple[Job, Block] | None:
        """The block of a lane's next job in order; None after the last job, or once closed."""
        if not self.workers:
            job = next(self._lanes[lane], None)
            return None if job is None else (job, self._run_here(job))
        self._dispatch(lane)
        order = self._orders[lane]
        if not order:
            return None
        job = order[0]
        while job.number not in self._done:
            if self._closed.is_set():
                return None
            self._receive()
            self._dispatch(lane)
        order.popleft()
        return job, self._done.pop(job.number)

    def _run_here(self, job: Job) -> Block:
        try:
            return run_job(job, self._options, self._reader)
        except GinkgoError as error:
            bad = Refusal(job.paths[0], job.segment.line, str(error), "unreadable file")
            return empty_block(self._options, [bad])

    def _dispatch(self, lane: int) -> None:
        """Hand out jobs to workers that can take one more, this lane's first.

        The other lanes are kept a little ahead, so that whoever turns to one need not wait. What
        has been read in all of them together is bounded.
        """
        room = self._window + _AHEAD * (len(self._lanes) - 1) - sum(map(len, self._orders))
        self._read_ahead(lane, min(self._window, len(self._orders[lane]) + max(0, room)))
        for other in range(len(self._lanes)):
            self._read_ahead(other, _AHEAD)
        while self._waiting:
            worker = min(self.workers, key=lambda worker: len(worker.jobs))
            if len(worker.jobs) >= _JOBS_PER_WORKER:
                break
            worker.send(self._waiting.popleft())

    def _read_ahead(self, lane: int, jobs: int) -> None:
        """Take jobs of a lane until so many are on their way."""
        order = self._orders[lane]
        while len(order) < jobs and (job := next(self._lanes[lane], None)) is not None:
            order.append(job)
            self._waiting.append(job)

    def _receive(self) -> None:
        """Wait for messages, take the blocks out of shared memory, replace the dead."""
        by_pipe = {worker.pipe: worker for worker in self.workers}
        for pipe in connection.wait(list(by_pipe), timeout=0.2):
            worker = by_pipe[pipe]  # type: ignore[index]
            try:
                done = worker.pipe.recv()
            except (EOFError, OSError):  # its end of the pipe closed: it has died
                self._replace(worker)
                continue
            if done == READY:
                worker.ready, self._false_starts = True, 0
                continue
            start = done.slot * worker.slot_size
            assert worker.memory.buf is not None
            view = worker.memory.buf[start : start + worker.slot_size]
            block = done.block or read_block(view, done.rows, done.values, self._options.ragged)
            view.release()
            block.bad = done.bad
            worker.jobs.popleft()
            self._done[done.number] = block

    def _replace(self, worker: _Worker) -> None:
        """Start another worker in place of a dead one and give its jobs out again."""
        if self._closed.is_set():
            return
        worker.process.join()
        code, jobs = worker.process.exitcode, list(worker.jobs)
        how = f"signal {-code}" if code is not None and code < 0 else f"status {code}"
        reading = f" while reading {jobs[0].paths[0]}" if jobs else ""
        if not worker.ready:
            self._false_starts += 1
            if self._false_starts >= _FALSE_STARTS:
                raise GinkgoError(
                    f"reader processes end as soon as they start ({how}); a script that reads data "
                    'must keep its work under `if __name__ == "__main__":`'
                )
        self._say(f"worker {worker.process.pid} died ({how}){reading}; another takes its place")
        if jobs:
            first = jobs[0]
            self._deaths[first.number] = self._deaths.get(first.number, 0) + 1
            if self._deaths[first.number] >= _DEATHS_PER_JOB:
                reason = f"reading it ended {_DEATHS_PER_JOB} workers; left out"
                bad = Refusal(first.paths[0], first.segment.line, reason, "crashed the reader")
                self._done[first.number] = empty_block(self._options, [bad])
                jobs = jobs[1:]
        self._waiting.extendleft(reversed(jobs))
        place = self.workers.index(worker)
        worker.close()
        self.workers[place] = _Worker(self._slot_size, self._options)

    def stop(self) -> None:
        """Make `next` return soon, from whatever thread."""
        self._closed.set()

    def close(self) -> None:
        """End all processes. Not to be called while `next` runs."""
        self.stop()
        for worker in self.workers:
            worker.pipe.close()
        for worker in self.workers:
            worker.close()
        self.workers = []
