"""Runs the neighbour's own server, with a project that its worker can import."""

import os
import shutil
import stat
import sys
import tempfile

import uvicorn

project, port = sys.argv[1:]
home = tempfile.mkdtemp()
wrapper = os.path.join(home, "python")
with open(wrapper, "w") as f:
    f.write(f'#!/bin/sh\nPYTHONPATH={project} exec {sys.executable} "$@"\n')
os.chmod(wrapper, stat.S_IRWXU)
sys.executable = wrapper  # the worker's interpreter
try:
    uvicorn.run(
        "agentix.runtime.server.app:app", host="127.0.0.1", port=int(port), log_level="warning", ws="wsproto", ws_max_size=268435456
    )
finally:
    shutil.rmtree(home)
