"""Runs the neighbour's own worker, which must be installed, with a project. Usage: worker.py PROJECT"""

import runpy
import sys

sys.path[0] = sys.argv[1]
runpy.run_module("agentix.runtime.server.worker", run_name="__main__")
