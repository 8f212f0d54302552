"""The provider of sandboxes over a daemon."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from types import TracebackType

import grpc
import grpc.aio
from agentix.v1 import sandbox_service_pb2 as messages
from agentix.v1 import sandbox_service_pb2_grpc as services

from ._channel import Endpoint, translate
from ._config import SandboxConfig, SandboxInfo
from ._sandbox import Sandbox


class AgentixProvider:
    """Makes sandboxes through a daemon.

    `address` is `unix:///path` or `host:port`, by default AGENTIX_ADDRESS, else
    `unix:///var/lib/agentix/agentixd.sock`; `token`, by default AGENTIX_TOKEN, is for TCP.
    One value serves one event loop; `aclose` or `async with` ends its connection.
    """

    def __init__(self, address: str | None = None, token: str | None = None) -> None:
        """Remember where the daemon is; nothing is connected yet."""
        self._endpoint = Endpoint(address, token)
        self._channel: grpc.aio.Channel | None = None

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Create a sandbox and return it when it can be called.

        Raises RequestRefused if the daemon refuses the configuration or cannot start it,
        RuntimeUnreachable without a connection, NotImplementedError for a platform or a
        gpu. If this is cancelled, no sandbox is left.
        """
        request = _create_request(config)
        try:
            made = await self._stub().CreateSandbox(request, metadata=self._endpoint.metadata())
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                await self._forget(request.sandbox_id)
            raise translate(error, self._endpoint.address) from error
        except asyncio.CancelledError:
            await asyncio.shield(self._forget(request.sandbox_id))
            raise
        return self._handle(made, from_start=True)

    async def attach(self, sandbox_id: str) -> Sandbox:
        """Return a handle of a sandbox that is there; records from now on are replayed.

        Raises SandboxNotFound (a KeyError), RuntimeUnreachable.
        """
        return self._handle(await self._get(sandbox_id), from_start=False)

    async def get(self, sandbox_id: str) -> SandboxInfo:
        """Return what is known of a sandbox. Raises SandboxNotFound (a KeyError)."""
        found = await self._get(sandbox_id)
        return SandboxInfo(sandbox_id, found.runtime.url, _status(found))

    async def delete(self, sandbox_id: str) -> None:
        """Delete a sandbox; one that does not exist is no error."""
        request = messages.DeleteSandboxRequest(name=f"sandboxes/{sandbox_id}", allow_missing=True)
        try:
            await self._stub().DeleteSandbox(request, metadata=self._endpoint.metadata())
        except grpc.aio.AioRpcError as error:
            raise translate(error, self._endpoint.address) from error

    @contextlib.asynccontextmanager
    async def session(
        self, config: SandboxConfig, *, call_deadline: float | None = None
    ) -> AsyncIterator[Sandbox]:
        """Create a sandbox, yield it and always delete it.

        `call_deadline` is how many seconds each call may take. Raises what `create` raises.
        """
        sandbox = await self.create(config)
        sandbox.call_deadline = call_deadline
        try:
            yield sandbox
        finally:
            await asyncio.shield(self._end(sandbox))

    async def aclose(self) -> None:
        """End the connection. Safe to call twice."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def __aenter__(self) -> AgentixProvider:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        await self.aclose()

    def _stub(self) -> services.SandboxServiceAsyncStub:
        stub: services.SandboxServiceAsyncStub = services.SandboxServiceStub(self._connected())
        return stub

    def _connected(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = self._endpoint.connect()
        return self._channel

    def _handle(self, made: messages.Sandbox, *, from_start: bool) -> Sandbox:
        return Sandbox(
            self._connected(),
            self._endpoint,
            made.name[len("sandboxes/") :],
            _status(made),
            made.runtime.url,
            from_start=from_start,
        )

    async def _get(self, sandbox_id: str) -> messages.Sandbox:
        request = messages.GetSandboxRequest(name=f"sandboxes/{sandbox_id}")
        try:
            return await self._stub().GetSandbox(request, metadata=self._endpoint.metadata())
        except grpc.aio.AioRpcError as error:
            raise translate(error, self._endpoint.address) from error

    async def _end(self, sandbox: Sandbox) -> None:
        try:
            await sandbox.aclose()
        finally:
            await self.delete(sandbox.sandbox_id)

    async def _forget(self, sandbox_id: str) -> None:
        """Delete a sandbox whose creation was cut off, if the daemon made it after all."""
        with contextlib.suppress(Exception):
            await self.delete(sandbox_id)


def _create_request(config: SandboxConfig) -> messages.CreateSandboxRequest:
    resource = config.resource
    if config.platform is not None:
        raise NotImplementedError("platform is not offered yet: sandboxes have the host's")
    if resource is not None and resource.gpu is not None:
        raise NotImplementedError("gpu is not offered yet")
    wanted = messages.Sandbox(
        image=config.image,
        bundle=_bundle_name(config.bundle),
        project=config.project or "",
        env=config.env or {},
        labels=config.labels or {},
    )
    if resource is not None:
        wanted.resources.cpus = resource.cpu or 0.0
        wanted.resources.memory_bytes = resource.memory_bytes()
    # The id is ours, so that a creation that was cut off can be undone.
    return messages.CreateSandboxRequest(sandbox=wanted, sandbox_id=f"py-{uuid.uuid4().hex[:16]}")


def _bundle_name(bundle: str) -> str:
    if not bundle or bundle.startswith("bundles/"):
        return bundle
    return "bundles/" + bundle.removeprefix("sha256:")


def _status(found: messages.Sandbox) -> str:
    if found.state == messages.SANDBOX_STATE_READY:
        return "running"
    return messages.SandboxState.Name(found.state)[len("SANDBOX_STATE_") :].lower()
