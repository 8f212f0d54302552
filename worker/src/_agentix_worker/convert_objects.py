"""Converters for values with fields: dataclasses, named tuples, typed dicts, pydantic models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _agentix_worker.convert import Converter, Errors, Path


def _field_converters(kind: type) -> dict[str, Converter]:
    from _agentix_worker import convert

    return {name: convert.converter(hint) for name, hint in convert.hints(kind).items()}


def _construct(kind: type, fields: dict[str, Any], value: Any, path: Path, errors: Errors) -> Any:
    try:
        return kind(**fields)
    except Exception as e:  # e.g. __post_init__ refuses the values
        errors.add(path, f"{kind.__qualname__}: {type(e).__name__}: {e}")
        return value


def dataclass_converter(kind: type) -> Converter:
    """Return the converter of a dataclass: an object with its init fields and no others."""
    import dataclasses

    init = [f for f in dataclasses.fields(kind) if f.init]
    names = {f.name for f in init}
    missing_marks = (dataclasses.MISSING,)
    required = [f.name for f in init if f.default in missing_marks and f.default_factory in missing_marks]
    converters = _field_converters(kind)

    def convert(value: Any, path: Path, errors: Errors) -> Any:
        if not isinstance(value, dict):
            errors.expected(path, f"an object ({kind.__qualname__})", value)
            return value
        before = len(errors.found)
        for name in value:
            if name not in names:
                errors.add((path, name), f"unexpected field of {kind.__qualname__}")
        for name in required:
            if name not in value:
                errors.add((path, name), f"required field of {kind.__qualname__} is missing")
        fields = {
            name: converters[name](item, (path, name), errors) if name in converters else item
            for name, item in value.items()
            if name in names
        }
        return value if len(errors.found) > before else _construct(kind, fields, value, path, errors)

    return convert


def named_tuple_converter(kind: Any) -> Converter:
    """Return the converter of a named tuple: an array in order, or an object."""
    names: tuple[str, ...] = kind._fields
    defaults: dict[str, Any] = kind._field_defaults
    converters = _field_converters(kind)

    def convert(value: Any, path: Path, errors: Errors) -> Any:
        if isinstance(value, list) and len(value) <= len(names):
            value = dict(zip(names, value))
        if not isinstance(value, dict):
            errors.expected(path, f"an array of {len(names)} ({kind.__qualname__})", value)
            return value
        before = len(errors.found)
        for name in value:
            if name not in names:
                errors.add((path, name), f"unexpected field of {kind.__qualname__}")
        for name in names:
            if name not in value and name not in defaults:
                errors.add((path, name), f"required field of {kind.__qualname__} is missing")
        fields = {n: converters[n](v, (path, n), errors) if n in converters else v for n, v in value.items()}
        return value if len(errors.found) > before else _construct(kind, fields, value, path, errors)

    return convert


def typed_dict_converter(kind: Any) -> Converter:
    """Return the converter of a TypedDict; keys it does not declare are kept as they are."""
    converters = _field_converters(kind)
    required: frozenset[str] = getattr(kind, "__required_keys__", frozenset())

    def convert(value: Any, path: Path, errors: Errors) -> Any:
        if not isinstance(value, dict):
            errors.expected(path, f"an object ({kind.__qualname__})", value)
            return value
        for name in sorted(required):
            if name not in value:
                errors.add((path, name), f"required key of {kind.__qualname__} is missing")
        return {n: converters[n](v, (path, n), errors) if n in converters else v for n, v in value.items()}

    return convert


def pydantic_converter(kind: Any) -> Converter:
    """Return the converter of a pydantic model (either major version): its own validation."""
    validate = getattr(kind, "model_validate", None) or kind.parse_obj

    def convert(value: Any, path: Path, errors: Errors) -> Any:
        try:
            return validate(value)
        except Exception as e:
            found = getattr(e, "errors", None)
            if not callable(found):
                errors.add(path, f"{kind.__qualname__}: {type(e).__name__}: {e}")
                return value
            for item in found():
                where = path
                for key in item.get("loc", ()):
                    where = (where, key)
                errors.add(where, str(item.get("msg", "invalid")))
            return value

    return convert
