"""Runs the neighbour's own server, which must be installed. Usage: server.py PORT PYTHON

PYTHON is what it starts as the interpreter of its worker.
"""

import sys

import uvicorn

port, python = sys.argv[1:]
sys.path.pop(0)
sys.executable = python
uvicorn.run("agentix.runtime.server.app:app", host="127.0.0.1", port=int(port), log_level="warning", ws="wsproto", ws_max_size=268435456)
