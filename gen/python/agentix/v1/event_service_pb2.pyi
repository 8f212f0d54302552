import datetime

from agentix.v1 import options_pb2 as _options_pb2
from agentix.v1 import sandbox_service_pb2 as _sandbox_service_pb2
from google.api import annotations_pb2 as _annotations_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_KIND_UNSPECIFIED: _ClassVar[EventKind]
    EVENT_KIND_LOG: _ClassVar[EventKind]
    EVENT_KIND_OUTPUT: _ClassVar[EventKind]
    EVENT_KIND_SPAN: _ClassVar[EventKind]
    EVENT_KIND_PLUGIN: _ClassVar[EventKind]
    EVENT_KIND_LIFECYCLE: _ClassVar[EventKind]
    EVENT_KIND_CALL: _ClassVar[EventKind]
    EVENT_KIND_GAP: _ClassVar[EventKind]

class OutputStream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTPUT_STREAM_UNSPECIFIED: _ClassVar[OutputStream]
    OUTPUT_STREAM_STDOUT: _ClassVar[OutputStream]
    OUTPUT_STREAM_STDERR: _ClassVar[OutputStream]

class SpanPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPAN_PHASE_UNSPECIFIED: _ClassVar[SpanPhase]
    SPAN_PHASE_TRACE_START: _ClassVar[SpanPhase]
    SPAN_PHASE_TRACE_END: _ClassVar[SpanPhase]
    SPAN_PHASE_SPAN_START: _ClassVar[SpanPhase]
    SPAN_PHASE_SPAN_END: _ClassVar[SpanPhase]

class CallPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CALL_PHASE_UNSPECIFIED: _ClassVar[CallPhase]
    CALL_PHASE_ACCEPTED: _ClassVar[CallPhase]
    CALL_PHASE_FINISHED: _ClassVar[CallPhase]
EVENT_KIND_UNSPECIFIED: EventKind
EVENT_KIND_LOG: EventKind
EVENT_KIND_OUTPUT: EventKind
EVENT_KIND_SPAN: EventKind
EVENT_KIND_PLUGIN: EventKind
EVENT_KIND_LIFECYCLE: EventKind
EVENT_KIND_CALL: EventKind
EVENT_KIND_GAP: EventKind
OUTPUT_STREAM_UNSPECIFIED: OutputStream
OUTPUT_STREAM_STDOUT: OutputStream
OUTPUT_STREAM_STDERR: OutputStream
SPAN_PHASE_UNSPECIFIED: SpanPhase
SPAN_PHASE_TRACE_START: SpanPhase
SPAN_PHASE_TRACE_END: SpanPhase
SPAN_PHASE_SPAN_START: SpanPhase
SPAN_PHASE_SPAN_END: SpanPhase
CALL_PHASE_UNSPECIFIED: CallPhase
CALL_PHASE_ACCEPTED: CallPhase
CALL_PHASE_FINISHED: CallPhase

class StreamEventsRequest(_message.Message):
    __slots__ = ("sandbox", "after", "tail", "since", "kinds", "namespaces", "min_level", "call_id", "follow")
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    sandbox: str
    after: str
    tail: int
    since: _timestamp_pb2.Timestamp
    kinds: _containers.RepeatedScalarFieldContainer[EventKind]
    namespaces: _containers.RepeatedScalarFieldContainer[str]
    min_level: int
    call_id: str
    follow: bool
    def __init__(self, sandbox: _Optional[str] = ..., after: _Optional[str] = ..., tail: _Optional[int] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kinds: _Optional[_Iterable[_Union[EventKind, str]]] = ..., namespaces: _Optional[_Iterable[str]] = ..., min_level: _Optional[int] = ..., call_id: _Optional[str] = ..., follow: bool = ...) -> None: ...

class StreamEventsResponse(_message.Message):
    __slots__ = ("events", "cursor")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    cursor: str
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("seq", "time", "sandbox", "call_id", "cursor", "log", "output", "span", "plugin", "lifecycle", "call", "gap")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    LIFECYCLE_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    seq: int
    time: _timestamp_pb2.Timestamp
    sandbox: str
    call_id: str
    cursor: str
    log: LogRecord
    output: Output
    span: SpanEvent
    plugin: PluginEvent
    lifecycle: LifecycleEvent
    call: CallEvent
    gap: Gap
    def __init__(self, seq: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sandbox: _Optional[str] = ..., call_id: _Optional[str] = ..., cursor: _Optional[str] = ..., log: _Optional[_Union[LogRecord, _Mapping]] = ..., output: _Optional[_Union[Output, _Mapping]] = ..., span: _Optional[_Union[SpanEvent, _Mapping]] = ..., plugin: _Optional[_Union[PluginEvent, _Mapping]] = ..., lifecycle: _Optional[_Union[LifecycleEvent, _Mapping]] = ..., call: _Optional[_Union[CallEvent, _Mapping]] = ..., gap: _Optional[_Union[Gap, _Mapping]] = ...) -> None: ...

class LogRecord(_message.Message):
    __slots__ = ("logger", "level", "level_number", "message", "pathname", "line", "function", "module", "exception_text", "stack_info", "extras")
    LOGGER_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LEVEL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PATHNAME_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    MODULE_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_TEXT_FIELD_NUMBER: _ClassVar[int]
    STACK_INFO_FIELD_NUMBER: _ClassVar[int]
    EXTRAS_FIELD_NUMBER: _ClassVar[int]
    logger: str
    level: str
    level_number: int
    message: str
    pathname: str
    line: int
    function: str
    module: str
    exception_text: str
    stack_info: str
    extras: str
    def __init__(self, logger: _Optional[str] = ..., level: _Optional[str] = ..., level_number: _Optional[int] = ..., message: _Optional[str] = ..., pathname: _Optional[str] = ..., line: _Optional[int] = ..., function: _Optional[str] = ..., module: _Optional[str] = ..., exception_text: _Optional[str] = ..., stack_info: _Optional[str] = ..., extras: _Optional[str] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("stream", "data")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    stream: OutputStream
    data: bytes
    def __init__(self, stream: _Optional[_Union[OutputStream, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class SpanEvent(_message.Message):
    __slots__ = ("phase", "trace_id", "span_id", "parent_id", "name", "attributes", "start_time", "end_time", "status", "status_description", "error", "events")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STATUS_DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    phase: SpanPhase
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    attributes: str
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    status: str
    status_description: str
    error: str
    events: str
    def __init__(self, phase: _Optional[_Union[SpanPhase, str]] = ..., trace_id: _Optional[str] = ..., span_id: _Optional[str] = ..., parent_id: _Optional[str] = ..., name: _Optional[str] = ..., attributes: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., status: _Optional[str] = ..., status_description: _Optional[str] = ..., error: _Optional[str] = ..., events: _Optional[str] = ...) -> None: ...

class PluginEvent(_message.Message):
    __slots__ = ("namespace", "event", "data", "msgpack_data")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    MSGPACK_DATA_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    event: str
    data: str
    msgpack_data: bytes
    def __init__(self, namespace: _Optional[str] = ..., event: _Optional[str] = ..., data: _Optional[str] = ..., msgpack_data: _Optional[bytes] = ...) -> None: ...

class LifecycleEvent(_message.Message):
    __slots__ = ("state", "reason", "message")
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    state: _sandbox_service_pb2.SandboxState
    reason: _sandbox_service_pb2.SandboxReason
    message: str
    def __init__(self, state: _Optional[_Union[_sandbox_service_pb2.SandboxState, str]] = ..., reason: _Optional[_Union[_sandbox_service_pb2.SandboxReason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class CallEvent(_message.Message):
    __slots__ = ("phase", "callable", "error_type", "error_message")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CALLABLE_FIELD_NUMBER: _ClassVar[int]
    ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    phase: CallPhase
    callable: str
    error_type: str
    error_message: str
    def __init__(self, phase: _Optional[_Union[CallPhase, str]] = ..., callable: _Optional[str] = ..., error_type: _Optional[str] = ..., error_message: _Optional[str] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("from_seq", "to_seq", "dropped", "source")
    FROM_SEQ_FIELD_NUMBER: _ClassVar[int]
    TO_SEQ_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    from_seq: int
    to_seq: int
    dropped: int
    source: str
    def __init__(self, from_seq: _Optional[int] = ..., to_seq: _Optional[int] = ..., dropped: _Optional[int] = ..., source: _Optional[str] = ...) -> None: ...
