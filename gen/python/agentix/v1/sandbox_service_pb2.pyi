import datetime

from google.api import annotations_pb2 as _annotations_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SandboxState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SANDBOX_STATE_UNSPECIFIED: _ClassVar[SandboxState]
    SANDBOX_STATE_CREATING: _ClassVar[SandboxState]
    SANDBOX_STATE_READY: _ClassVar[SandboxState]
    SANDBOX_STATE_STOPPING: _ClassVar[SandboxState]
    SANDBOX_STATE_STOPPED: _ClassVar[SandboxState]
    SANDBOX_STATE_FAILED: _ClassVar[SandboxState]

class SandboxReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SANDBOX_REASON_UNSPECIFIED: _ClassVar[SandboxReason]
    SANDBOX_REASON_DELETED: _ClassVar[SandboxReason]
    SANDBOX_REASON_START_FAILED: _ClassVar[SandboxReason]
    SANDBOX_REASON_EXITED: _ClassVar[SandboxReason]
    SANDBOX_REASON_KILLED: _ClassVar[SandboxReason]
    SANDBOX_REASON_OOM_KILLED: _ClassVar[SandboxReason]
    SANDBOX_REASON_LOST: _ClassVar[SandboxReason]
SANDBOX_STATE_UNSPECIFIED: SandboxState
SANDBOX_STATE_CREATING: SandboxState
SANDBOX_STATE_READY: SandboxState
SANDBOX_STATE_STOPPING: SandboxState
SANDBOX_STATE_STOPPED: SandboxState
SANDBOX_STATE_FAILED: SandboxState
SANDBOX_REASON_UNSPECIFIED: SandboxReason
SANDBOX_REASON_DELETED: SandboxReason
SANDBOX_REASON_START_FAILED: SandboxReason
SANDBOX_REASON_EXITED: SandboxReason
SANDBOX_REASON_KILLED: SandboxReason
SANDBOX_REASON_OOM_KILLED: SandboxReason
SANDBOX_REASON_LOST: SandboxReason

class Sandbox(_message.Message):
    __slots__ = ("name", "state", "reason", "message", "image", "project", "provider", "labels", "env", "resources", "create_time", "runtime")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: SandboxState
    reason: SandboxReason
    message: str
    image: str
    project: str
    provider: str
    labels: _containers.ScalarMap[str, str]
    env: _containers.ScalarMap[str, str]
    resources: Resources
    create_time: _timestamp_pb2.Timestamp
    runtime: Runtime
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[SandboxState, str]] = ..., reason: _Optional[_Union[SandboxReason, str]] = ..., message: _Optional[str] = ..., image: _Optional[str] = ..., project: _Optional[str] = ..., provider: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., env: _Optional[_Mapping[str, str]] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., runtime: _Optional[_Union[Runtime, _Mapping]] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("cpus", "memory_bytes", "pids")
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    cpus: float
    memory_bytes: int
    pids: int
    def __init__(self, cpus: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., pids: _Optional[int] = ...) -> None: ...

class Runtime(_message.Message):
    __slots__ = ("version", "capabilities", "python")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    version: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    python: str
    def __init__(self, version: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., python: _Optional[str] = ...) -> None: ...

class CreateSandboxRequest(_message.Message):
    __slots__ = ("sandbox", "sandbox_id", "request_id")
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox: Sandbox
    sandbox_id: str
    request_id: str
    def __init__(self, sandbox: _Optional[_Union[Sandbox, _Mapping]] = ..., sandbox_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class GetSandboxRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListSandboxesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSandboxesResponse(_message.Message):
    __slots__ = ("sandboxes", "next_page_token")
    SANDBOXES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    sandboxes: _containers.RepeatedCompositeFieldContainer[Sandbox]
    next_page_token: str
    def __init__(self, sandboxes: _Optional[_Iterable[_Union[Sandbox, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteSandboxRequest(_message.Message):
    __slots__ = ("name", "allow_missing")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALLOW_MISSING_FIELD_NUMBER: _ClassVar[int]
    name: str
    allow_missing: bool
    def __init__(self, name: _Optional[str] = ..., allow_missing: bool = ...) -> None: ...
