"""Exceptions of the SDK.

AgentixError
├── RemoteCallError (RuntimeError)      the function ended without a result
│   ├── CallCancelled                   … because its call was cancelled
│   └── WorkerExited                    … because its worker died
├── CallTimeout (RuntimeError)          the call deadline passed
├── RuntimeUnreachable (RuntimeError)   no connection to the daemon or to the sandbox
└── RequestRefused (RuntimeError)       the daemon did not accept the request
    ├── SandboxNotFound (KeyError)      … there is no such sandbox
    └── LimitExceeded                   … it is over a limit
pickle.UnpicklingError
└── RestrictedUnpickleError             a result holds something that is not admitted
"""

from __future__ import annotations

import dataclasses
import pickle

_TRACEBACK_MARKER = "--- traceback in the sandbox ---"


@dataclasses.dataclass(frozen=True)
class RemoteError:
    """How a call ended without a result, as the daemon tells it."""

    type: str
    """Class name of the exception, or a type of the outcome table such as `WorkerDied`."""
    message: str
    """Text of the exception."""
    traceback: str = ""
    """Formatted traceback of the sandbox; empty if there is none."""
    cancelled: bool = False
    """True if the call was cancelled."""
    returncode: int | None = None
    """For `WorkerDied`: the exit code, or the negative signal number."""
    cause: str = ""
    """For `WorkerDied` and `SandboxLost`: why."""


class AgentixError(Exception):
    """Base of all errors of the SDK but `RestrictedUnpickleError`."""


class RemoteCallError(AgentixError, RuntimeError):
    """The function raised, or its call ended without a result for another reason."""

    def __init__(self, display_name: str, error: RemoteError) -> None:
        """Keep `error` of the call of `display_name`."""
        text = f"{display_name}: {error.type}: {error.message}"
        if error.traceback:
            text = f"{text}\n{_TRACEBACK_MARKER}\n{error.traceback}"
        super().__init__(text)
        self.display_name = display_name
        self.error = error

    def __reduce__(self) -> tuple[type, tuple[str, RemoteError]]:
        """Pickle by the constructor's arguments."""
        return type(self), (self.display_name, self.error)


class CallCancelled(RemoteCallError):
    """The call was cancelled by somebody else; local cancellation is asyncio's own error."""


class WorkerExited(RemoteCallError):
    """The worker process died under the call."""

    @property
    def returncode(self) -> int | None:
        """Exit code of the worker, or the negative signal number; None if unknown."""
        return self.error.returncode


class CallTimeout(AgentixError, RuntimeError):
    """The call deadline passed; the function was told to stop."""


class RuntimeUnreachable(AgentixError, RuntimeError):
    """There is no connection to the daemon, or the daemon has none to the sandbox."""


class RequestRefused(AgentixError, RuntimeError):
    """The daemon refused a request; nothing was run."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        reason: str = "",
        metadata: dict[str, str] | None = None,
        violations: list[tuple[str, str]] | None = None,
    ) -> None:
        """Keep what the status of the daemon says."""
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.violations = list(violations or [])

    def __str__(self) -> str:
        """Return the reason, the message and each field that is wrong."""
        text = f"{self.reason}: {self.message}" if self.reason else self.message
        return "\n".join([text, *(f"  {field}: {said}" for field, said in self.violations)])


class SandboxNotFound(RequestRefused, KeyError):
    """There is no such sandbox."""


class LimitExceeded(RequestRefused):
    """The request is over a limit; `metadata` names the limit, its maximum and the size."""


class RestrictedUnpickleError(pickle.UnpicklingError):
    """A result holds something that the restricted loader does not admit."""
