"""Configurations and what the provider makes of them."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import pickle
from typing import Any

import grpc.aio
import pytest
from agentix.v1 import sandbox_service_pb2 as messages

import agentix
from agentix import _host
from agentix._host._channel import Endpoint, _target
from agentix._host._provider import _create_request, _status


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        (None, 0), (1, 1), ("1", 1), ("512m", 536870912), ("2G", 2147483648), ("1.5k", 1536),
        ("1GiB", 1073741824), ("10 mb", 10485760), ("1t", 1099511627776),
    ],
)  # fmt: skip
def test_memory(memory: Any, size: int) -> None:
    assert agentix.SandboxResource(memory=memory).memory_bytes() == size


@pytest.mark.parametrize(
    "options",
    [
        {"memory": ""}, {"memory": "lots"}, {"memory": 0}, {"memory": "-1"}, {"memory": "0m"},
        {"cpu": 0}, {"cpu": -1}, {"cpu": float("nan")}, {"gpu": 0},
    ],
    ids=str,
)  # fmt: skip
def test_resources_that_mean_nothing(options: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        agentix.SandboxResource(**options)


def test_platform_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="linux/amd64"):
        agentix.SandboxConfig(platform="windows")


@pytest.mark.parametrize(
    "config",
    [
        agentix.SandboxConfig(platform="linux/arm64"),
        agentix.SandboxConfig(resource=agentix.SandboxResource(gpu=1)),
    ],
    ids=["platform", "gpu"],
)
def test_what_is_not_offered_yet_is_said(config: agentix.SandboxConfig) -> None:
    with pytest.raises(NotImplementedError, match="not offered yet"):
        asyncio.run(agentix.AgentixProvider().create(config))


@pytest.mark.parametrize(
    ("bundle", "name"),
    [("", ""), ("bundles/ab", "bundles/ab"), ("ab", "bundles/ab"), ("sha256:ab", "bundles/ab")],
)
def test_bundle_names(bundle: str, name: str) -> None:
    assert _create_request(agentix.SandboxConfig(bundle=bundle)).sandbox.bundle == name


def test_create_request() -> None:
    config = agentix.SandboxConfig(
        image="python",
        project="/p",
        env={"A": "b"},
        labels={"l": "m"},
        resource=agentix.SandboxResource(cpu=1.5, memory="1m"),
    )

    request = _create_request(config)

    assert request.sandbox == messages.Sandbox(
        image="python",
        project="/p",
        env={"A": "b"},
        labels={"l": "m"},
        resources=messages.Resources(cpus=1.5, memory_bytes=1048576),
    )
    assert request.sandbox_id != _create_request(config).sandbox_id


def test_status_words() -> None:
    ready = messages.Sandbox(state=messages.SANDBOX_STATE_READY)
    failed = messages.Sandbox(state=messages.SANDBOX_STATE_FAILED)

    assert (_status(ready), _status(failed)) == ("running", "failed")


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("unix:///a/b", "unix:/a/b"),
        ("/a/b", "unix:/a/b"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("http://127.0.0.1:1", "127.0.0.1:1"),
    ],
)
def test_addresses(address: str, target: str) -> None:
    assert _target(address) == target


def test_the_token_is_never_shown() -> None:
    endpoint = Endpoint("127.0.0.1:1", "secret")

    assert "secret" not in repr(endpoint)
    assert endpoint.metadata() == (("authorization", "Bearer secret"),)


def test_a_status_without_details_that_is_not_unavailable(tmp_path: Any) -> None:
    async def main() -> None:
        async def refuse(request: bytes, context: Any) -> bytes:
            await context.abort(grpc.StatusCode.INTERNAL, "broken")
            return b""

        server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(refuse)
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "agentix.v1.SandboxService", {"GetSandbox": handler}
                ),
            )
        )
        server.add_insecure_port(f"unix:{tmp_path}/s")
        await server.start()
        async with agentix.AgentixProvider(f"{tmp_path}/s") as provider:
            with pytest.raises(agentix.RequestRefused, match="broken") as caught:
                await provider.get("x")
        assert (caught.value.code, caught.value.reason) == ("INTERNAL", "")
        await server.stop(None)

    asyncio.run(main())


def test_closing_twice() -> None:
    async def main() -> None:
        provider = agentix.AgentixProvider("/nonexistent")
        await provider.aclose()
        await provider.aclose()

    asyncio.run(main())


def test_public_names_are_reached_from_the_package_and_documented() -> None:
    for name in _host.__all__:
        value = getattr(agentix, name)
        assert inspect.getdoc(value), name
        assert name in dir(agentix)


def test_errors_can_be_pickled() -> None:
    error = agentix.WorkerExited("a::b", agentix.RemoteError("WorkerDied", "x", returncode=3))

    again = pickle.loads(pickle.dumps(error))

    assert type(again) is agentix.WorkerExited
    assert (again.returncode, again.error, str(again)) == (3, error.error, str(error))


def test_exception_tree() -> None:
    assert issubclass(agentix.CallCancelled, agentix.RemoteCallError)
    assert issubclass(agentix.WorkerExited, agentix.RemoteCallError)
    for cls in (agentix.RemoteCallError, agentix.CallTimeout, agentix.RuntimeUnreachable):
        assert issubclass(cls, RuntimeError)
    assert issubclass(agentix.SandboxNotFound, KeyError)
    assert issubclass(agentix.RestrictedUnpickleError, pickle.UnpicklingError)
    assert dataclasses.is_dataclass(agentix.RemoteError)
