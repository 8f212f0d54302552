"""Follows the events of one sandbox in the background."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import grpc
import grpc.aio
from agentix.v1 import event_service_pb2 as events
from agentix.v1 import event_service_pb2_grpc as services

from ._channel import Endpoint
from ._replay import Replayer

_log = logging.getLogger("agentix.sdk")
_KINDS = (
    events.EVENT_KIND_LOG,
    events.EVENT_KIND_OUTPUT,
    events.EVENT_KIND_CALL,
    events.EVENT_KIND_GAP,
)
_CATCH_UP_SECONDS = 5.0
_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 2.0


class Follower:
    """A task that replays events, from the beginning or from now on, until `stop`."""

    def __init__(
        self, channel: grpc.aio.Channel, endpoint: Endpoint, sandbox_id: str, from_start: bool
    ) -> None:
        """Follow the sandbox with this id."""
        self._stub: services.EventServiceAsyncStub = services.EventServiceStub(channel)
        self._endpoint = endpoint
        self._sandbox_id = sandbox_id
        self._from_start = from_start
        self._cursor = ""
        self._replayer = Replayer(sandbox_id)
        self._gone = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task, once; it belongs to the running loop and ends with `stop`."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Replay all that has been written so far, then end the task. Safe to call twice."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if not self._gone and (self._cursor or self._from_start):
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._stream(follow=False, timeout=_CATCH_UP_SECONDS)
        self._replayer.flush()

    async def _run(self) -> None:
        wait = _FIRST_WAIT_SECONDS
        while True:
            before = self._cursor
            try:
                await self._stream(follow=True, timeout=None)
                self._gone = True
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.OUT_OF_RANGE:
                    _log.warning("events of sandbox %s were lost", self._sandbox_id)
                    self._cursor, self._from_start = "", True
                elif error.code() is not grpc.StatusCode.UNAVAILABLE:
                    self._gone = True
                    if error.code() is not grpc.StatusCode.NOT_FOUND:
                        _log.warning("cannot follow sandbox %s: %s", self._sandbox_id, error.code())
            if self._gone:
                return
            if self._cursor != before:
                wait = _FIRST_WAIT_SECONDS
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT_SECONDS)

    async def _stream(self, *, follow: bool, timeout: float | None) -> None:
        request = events.StreamEventsRequest(
            sandbox=f"sandboxes/{self._sandbox_id}", kinds=_KINDS, follow=follow
        )
        if self._cursor:
            request.after = self._cursor
        elif not self._from_start:
            request.tail = 0
        call = self._stub.StreamEvents(request, timeout=timeout, metadata=self._endpoint.metadata())
        async for response in call:
            for event in response.events:
                self._replay(event)
            self._cursor = response.cursor or self._cursor

    def _replay(self, event: events.Event) -> None:
        try:
            self._replayer.handle(event)
        except Exception:
            # A handler or filter of the user's: its fault must not end the replay.
            _log.exception("cannot replay an event of sandbox %s", self._sandbox_id)
