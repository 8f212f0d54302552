"""The same as `agentix.context`."""

from agentix.context import *  # noqa: F403
from agentix.context import __all__  # noqa: F401
