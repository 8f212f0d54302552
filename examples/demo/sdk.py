"""Calls a function of the demo's project in a sandbox of its own, by the SDK.

Usage: sdk.py PROJECT [IMAGE], with AGENTIX_ADDRESS set.
"""

from __future__ import annotations

import asyncio
import logging
import sys

import agentix

sys.path.insert(0, sys.argv[1])
from app import run, settle  # noqa: E402 - the project is on the path from here on


async def main() -> None:
    """Create a sandbox, call, fail, and delete it."""
    config = agentix.SandboxConfig(project=sys.argv[1], image="".join(sys.argv[2:]))
    async with agentix.AgentixProvider() as provider:
        async with provider.session(config, call_deadline=30) as sandbox:
            print(await sandbox.remote(run, input="hello"))
            failed = await sandbox.try_remote(settle, "12.50", people=0)
            print("try_remote:", str(getattr(failed, "error", failed)).splitlines()[0])


logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
asyncio.run(main())
