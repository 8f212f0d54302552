from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_FIELD: _ClassVar[ErrorReason]
    ERROR_REASON_ARGUMENTS_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_SANDBOX_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_IMAGE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_CALL_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_SANDBOX_EXISTS: _ClassVar[ErrorReason]
    ERROR_REASON_CALL_ID_CONFLICT: _ClassVar[ErrorReason]
    ERROR_REASON_SANDBOX_NOT_READY: _ClassVar[ErrorReason]
    ERROR_REASON_UNSUPPORTED: _ClassVar[ErrorReason]
    ERROR_REASON_HOST_PATH_REFUSED: _ClassVar[ErrorReason]
    ERROR_REASON_LIMIT_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_RUNTIME_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_PROVIDER_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_STOPPING: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_FOREIGN_ORIGIN: _ClassVar[ErrorReason]
    ERROR_REASON_CURSOR_EXPIRED: _ClassVar[ErrorReason]
    ERROR_REASON_DEADLINE: _ClassVar[ErrorReason]
    ERROR_REASON_CALLER_LEFT: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
    ERROR_REASON_NO_SUCH_METHOD: _ClassVar[ErrorReason]
    ERROR_REASON_START_FAILED: _ClassVar[ErrorReason]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_INVALID_FIELD: ErrorReason
ERROR_REASON_ARGUMENTS_INVALID: ErrorReason
ERROR_REASON_SANDBOX_NOT_FOUND: ErrorReason
ERROR_REASON_IMAGE_NOT_FOUND: ErrorReason
ERROR_REASON_CALL_NOT_FOUND: ErrorReason
ERROR_REASON_SANDBOX_EXISTS: ErrorReason
ERROR_REASON_CALL_ID_CONFLICT: ErrorReason
ERROR_REASON_SANDBOX_NOT_READY: ErrorReason
ERROR_REASON_UNSUPPORTED: ErrorReason
ERROR_REASON_HOST_PATH_REFUSED: ErrorReason
ERROR_REASON_LIMIT_EXCEEDED: ErrorReason
ERROR_REASON_RUNTIME_UNAVAILABLE: ErrorReason
ERROR_REASON_PROVIDER_UNAVAILABLE: ErrorReason
ERROR_REASON_STOPPING: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_FOREIGN_ORIGIN: ErrorReason
ERROR_REASON_CURSOR_EXPIRED: ErrorReason
ERROR_REASON_DEADLINE: ErrorReason
ERROR_REASON_CALLER_LEFT: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
ERROR_REASON_NO_SUCH_METHOD: ErrorReason
ERROR_REASON_START_FAILED: ErrorReason
