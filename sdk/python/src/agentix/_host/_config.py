"""What a sandbox is made of, and what is known of it."""

from __future__ import annotations

import dataclasses
import re

_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclasses.dataclass(frozen=True)
class SandboxResource:
    """Limits of one sandbox; None takes the daemon's default."""

    cpu: float | None = None
    """Processors, more than 0."""
    memory: int | str | None = None
    """Bytes, or text in the units of container tools, for example `512m` or `2g`."""
    gpu: int | None = None
    """Graphics processors, more than 0; no provider has them yet."""

    def __post_init__(self) -> None:
        """Raise ValueError for a limit that means nothing."""
        if self.cpu is not None and not self.cpu > 0:
            raise ValueError(f"cpu must be more than 0, not {self.cpu!r}")
        if self.gpu is not None and not self.gpu > 0:
            raise ValueError(f"gpu must be more than 0, not {self.gpu!r}")
        if self.memory is not None:
            self.memory_bytes()

    def memory_bytes(self) -> int:
        """Return `memory` in bytes; 0 if it is None."""
        if self.memory is None:
            return 0
        if isinstance(self.memory, int):
            size = self.memory
        else:
            found = _MEMORY.fullmatch(self.memory.strip())
            if found is None:
                raise ValueError(f"memory must be bytes or text like 512m, not {self.memory!r}")
            size = int(float(found[1]) * _UNITS[found[2].lower()])
        if size <= 0:
            raise ValueError(f"memory must be more than 0, not {self.memory!r}")
        return size


@dataclasses.dataclass(frozen=True)
class SandboxConfig:
    """What to make a sandbox of."""

    image: str = ""
    """Name of an imported image; empty for a provider without images."""
    bundle: str = ""
    """An imported bundle, `bundles/{sha256}` or the digest alone; its Python runs the code."""
    platform: str | None = None
    """`linux/amd64` or `linux/arm64`; None = that of the host. Others are not offered yet."""
    env: dict[str, str] | None = None
    """Environment of the user's code."""
    resource: SandboxResource | None = None
    """Limits."""
    project: str | None = None
    """Host directory, mounted read-only and first on the Python path of the sandbox."""
    labels: dict[str, str] | None = None
    """Labels of the sandbox."""

    def __post_init__(self) -> None:
        """Raise ValueError for a platform that does not exist."""
        if self.platform not in (None, "linux/amd64", "linux/arm64"):
            raise ValueError(f"platform must be linux/amd64 or linux/arm64, not {self.platform!r}")


@dataclasses.dataclass(frozen=True)
class SandboxInfo:
    """What is known of a sandbox."""

    sandbox_id: str
    """Id of the sandbox."""
    runtime_url: str = ""
    """URL of its runtime, which may hold a secret; empty: it is reached through the daemon only."""
    status: str = "running"
    """`running` while it can be called, else its state in lower case."""


@dataclasses.dataclass(frozen=True)
class Health:
    """What a sandbox says of itself."""

    status: str
    """`ok` while it can be called, else its state in lower case."""
    version: str
    """Version of its runtime."""
