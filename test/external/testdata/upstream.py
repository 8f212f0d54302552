"""Runs the neighbour's own server, with a project that its worker can import."""

import os
import stat
import sys
import tempfile

import uvicorn

project, port = sys.argv[1:]
wrapper = os.path.join(tempfile.mkdtemp(), "python")
with open(wrapper, "w") as f:
    f.write(f'#!/bin/sh\nPYTHONPATH={project} exec {sys.executable} "$@"\n')
os.chmod(wrapper, stat.S_IRWXU)
sys.executable = wrapper  # the worker's interpreter
uvicorn.run(
    "agentix.runtime.server.app:app", host="127.0.0.1", port=int(port), log_level="warning", ws="wsproto", ws_max_size=268435456
)
