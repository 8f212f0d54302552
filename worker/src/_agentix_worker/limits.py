"""Limits of the worker; those of the wire are equal to runtime/wire/limits.go."""

from __future__ import annotations

MAX_VALUE_BYTES = 268431360  # 256 MiB - 4 KiB: result of a call; error FrameTooLarge
MAX_EVENT_BYTES = 16777216  # 16 MiB: one record or plugin event
MAX_DEPTH = 200  # levels of arrays and objects in one value
MAX_ERROR_TEXT_BYTES = 1048576  # 1 MiB: message and traceback each of an error; cut
MAX_VIOLATIONS = 100  # violations in one ArgumentsInvalid
MAX_STREAM_RING = 10000  # unacked events of a reliable stream
MAX_STREAM_BYTES = 33554432  # 32 MiB: the same in bytes
MAX_LINE_BYTES = 65536  # one captured line
MAX_TAGGED_BYTES = 4096  # one marked write to the output pipe, so that it is atomic (PIPE_BUF)
