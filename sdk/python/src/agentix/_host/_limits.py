"""Limits of the SDK, in one table."""

from __future__ import annotations

MAX_VALUE_BYTES = 268431360
"""256 MiB - 4 KiB: one pickled result; keep equal to MaxValueBytes of runtime/wire."""
MAX_OPCODES = 10_000_000
"""Instructions of one pickled result."""
MAX_DEPTH = 1000
"""Nesting of one pickled result."""
MAX_MEMO_GAP = 65536
"""Places of a pickle's memo that may stay empty, in all."""
MEMORY_BASE_BYTES = 67108864
"""64 MiB: estimated memory that any result may take …"""
MEMORY_FACTOR = 16
"""… plus this many bytes for each of its bytes."""
MAX_INT_BYTES = 1048576
"""1 MiB: one integer of a pickled result."""
MAX_LOGGERS = 1000
"""Logger names that the records of one sandbox may use; later ones share one logger."""
MAX_LOGGER_NAME = 256
"""Characters of a logger's name."""
MAX_LINE_BYTES = 65536
"""64 KiB: one line of output; a longer one becomes several records."""
MAX_OPEN_LINES = 1024
"""Lines of output that are not ended yet, for one sandbox."""
