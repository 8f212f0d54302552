"""The worker of a sandbox: runs functions for the runtime over a frame pipe.

Nothing here is public; user code imports `agentix`.
"""

from __future__ import annotations


def main() -> None:
    """Serve calls until the runtime says shutdown or closes the pipe; then exit."""
    from _agentix_worker import boot

    boot.main()
