import datetime

from agentix.v1 import options_pb2 as _options_pb2
from google.api import annotations_pb2 as _annotations_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENCODING_UNSPECIFIED: _ClassVar[Encoding]
    ENCODING_JSON: _ClassVar[Encoding]
    ENCODING_MSGPACK: _ClassVar[Encoding]
    ENCODING_PICKLE: _ClassVar[Encoding]
ENCODING_UNSPECIFIED: Encoding
ENCODING_JSON: Encoding
ENCODING_MSGPACK: Encoding
ENCODING_PICKLE: Encoding

class RemoteRequest(_message.Message):
    __slots__ = ("sandbox", "callable", "args", "kwargs", "msgpack_arguments", "pickle_arguments", "call_id", "timeout", "result_encoding", "traceparent", "baggage")
    class BaggageEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    CALLABLE_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    KWARGS_FIELD_NUMBER: _ClassVar[int]
    MSGPACK_ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    PICKLE_ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RESULT_ENCODING_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    BAGGAGE_FIELD_NUMBER: _ClassVar[int]
    sandbox: str
    callable: str
    args: str
    kwargs: str
    msgpack_arguments: bytes
    pickle_arguments: bytes
    call_id: str
    timeout: _duration_pb2.Duration
    result_encoding: Encoding
    traceparent: str
    baggage: _containers.ScalarMap[str, str]
    def __init__(self, sandbox: _Optional[str] = ..., callable: _Optional[str] = ..., args: _Optional[str] = ..., kwargs: _Optional[str] = ..., msgpack_arguments: _Optional[bytes] = ..., pickle_arguments: _Optional[bytes] = ..., call_id: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., result_encoding: _Optional[_Union[Encoding, str]] = ..., traceparent: _Optional[str] = ..., baggage: _Optional[_Mapping[str, str]] = ...) -> None: ...

class RemoteResponse(_message.Message):
    __slots__ = ("call_id", "value", "msgpack_value", "pickle_value", "error")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    MSGPACK_VALUE_FIELD_NUMBER: _ClassVar[int]
    PICKLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    value: str
    msgpack_value: bytes
    pickle_value: bytes
    error: RemoteError
    def __init__(self, call_id: _Optional[str] = ..., value: _Optional[str] = ..., msgpack_value: _Optional[bytes] = ..., pickle_value: _Optional[bytes] = ..., error: _Optional[_Union[RemoteError, _Mapping]] = ...) -> None: ...

class RemoteError(_message.Message):
    __slots__ = ("type", "message", "traceback", "cancelled", "returncode", "cause")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    RETURNCODE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    type: str
    message: str
    traceback: str
    cancelled: bool
    returncode: int
    cause: str
    def __init__(self, type: _Optional[str] = ..., message: _Optional[str] = ..., traceback: _Optional[str] = ..., cancelled: bool = ..., returncode: _Optional[int] = ..., cause: _Optional[str] = ...) -> None: ...
