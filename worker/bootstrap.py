"""What `python -c` gets: make the worker importable, refuse an old Python, run the worker.

Kept valid for any Python 3, so that an old interpreter can still say what is wrong.
"""

import os  # noqa: E401
import sys


def _refuse(text):
    fds = os.environ.get("AGENTIX_WORKER_FDS", "0,1").split(",")
    error = b"\x82\xa4type\xacRuntimeError\xa7message\xd9" + bytes([len(text)]) + text
    body = b"\x82\xa4type\xaaboot_error\xa5error" + error
    os.write(int(fds[1]), len(body).to_bytes(4, "little") + body)
    sys.exit(3)


if sys.version_info < (3, 9):
    _refuse(("the worker needs Python 3.9 or newer, this is %d.%d" % sys.version_info[:2]).encode())
try:
    _here = os.getcwd()
except OSError:
    _here = ""
_root = os.environ.pop("AGENTIX_WORKER_IMPORT_ROOT", "")
sys.path[:] = [p for p in sys.path if p not in ("", ".", _here)]
if _root and _root not in sys.path:
    sys.path.insert(0, _root)
import _agentix_worker  # noqa: E402

_agentix_worker.main()
