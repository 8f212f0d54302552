"""The wheel of the SDK."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import zipfile


def test_the_wheel_holds_the_sdk_and_the_generated_stubs(tmp_path: pathlib.Path) -> None:
    root = pathlib.Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)

    [wheel] = tmp_path.glob("agentix_sdk-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())

    assert {"agentix/_host/__init__.py", "agentix/v1/remote_service_pb2.py"} <= names
    assert "agentix/v1/remote_service_pb2_grpc.pyi" in names
    # These belong to agentix-worker; two wheels must not hold one file.
    assert not {"agentix/__init__.py", "agentix/py.typed"} & names
    assert not [name for name in names if name.startswith("tests") or "__pycache__" in name]
