"""Calls a function by the bare generated stub: grpcio and two generated files, no SDK.

Usage: stub.py SANDBOX, with AGENTIX_ADDRESS set to unix:///path.
"""

from __future__ import annotations

import json
import os
import sys

import grpc
from agentix.v1 import remote_service_pb2, remote_service_pb2_grpc

address = os.environ["AGENTIX_ADDRESS"].replace("unix://", "unix:")
with grpc.insecure_channel(address) as channel:
    response = remote_service_pb2_grpc.RemoteServiceStub(channel).Remote(
        remote_service_pb2.RemoteRequest(
            sandbox=f"sandboxes/{sys.argv[1]}",
            callable="app::run",
            kwargs=json.dumps({"input": "hello"}),
        )
    )
print(response.value)
