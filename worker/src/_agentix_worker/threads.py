"""Threads for synchronous calls: as many as there are calls, reused when idle.

Not a bounded pool: a hundred functions that sleep one second take one second together.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import Callable

IDLE_SECONDS = 10.0
"""A thread that had nothing to do for so long ends."""

Job = Callable[[], None]


class Threads:
    """Runs each job on a thread of its own."""

    def __init__(self, prefix: str = "agentix-call") -> None:
        self._prefix = prefix
        self._number = itertools.count(1)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._backlog: deque[Job] = deque()
        self._alive = 0

    def submit(self, job: Job) -> None:
        """Run job soon. Without any thread and without the means to start one: RuntimeError.

        When the system refuses another thread the job waits for one of ours to be free.
        """
        with self._lock:
            if self._idle:
                worker = self._idle.pop()
                worker.hand(job)
                return
            self._alive += 1
        try:
            _Worker(self, job, f"{self._prefix}-{next(self._number)}")
        except RuntimeError:  # can't start new thread
            with self._lock:
                self._alive -= 1
                if self._idle:
                    self._idle.pop().hand(job)
                elif self._alive:
                    self._backlog.append(job)
                else:
                    raise

    def _park(self, worker: _Worker) -> Job | None:
        """Give the worker its next job, or put it among the idle ones."""
        with self._lock:
            if self._backlog:
                return self._backlog.popleft()
            self._idle.append(worker)
            return None

    def _leave(self, worker: _Worker) -> bool:
        """Say that worker waited long enough; False when a job is on its way to it."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            self._alive -= 1
            return True


class _Worker:
    __slots__ = ("_job", "_owner", "_wake")

    def __init__(self, owner: Threads, job: Job, name: str) -> None:
        self._owner = owner
        self._job: Job | None = job
        self._wake = threading.Lock()
        self._wake.acquire()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def hand(self, job: Job) -> None:
        self._job = job
        self._wake.release()

    def _run(self) -> None:
        while True:
            job, self._job = self._job, None
            if job is not None:
                job()  # jobs catch everything themselves
                del job
            job = self._owner._park(self)
            if job is not None:
                self._job = job
                continue
            while not self._wake.acquire(timeout=IDLE_SECONDS):
                if self._owner._leave(self):
                    return
