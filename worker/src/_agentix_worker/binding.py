"""Binds decoded JSON or msgpack arguments to a function's parameters.

First the shape (missing, unexpected, too many), then each value by its annotation. All
violations are told at once, each with a path such as `config.items[2].name`.
"""

from __future__ import annotations

import inspect
import weakref
from typing import Any, Callable, Optional

from _agentix_worker import convert
from _agentix_worker.errors import CallFailure, bounded
from _agentix_worker.limits import MAX_VIOLATIONS

_P = inspect.Parameter


class _Plan:
    """What is known about one function: its parameters and a converter for each."""

    __slots__ = ("converters", "names", "positional", "required", "signature")

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.signature: Optional[inspect.Signature]
        self.names: Optional[frozenset[str]] = None
        try:
            self.signature = inspect.signature(fn)
        except (ValueError, TypeError):  # many builtins tell none
            self.signature = None
            self.converters: dict[str, convert.Converter] = {}
            return
        parameters = self.signature.parameters.values()
        # The common shape, plain named parameters, is bound without Signature.bind.
        self.positional = [p.name for p in parameters if p.kind is _P.POSITIONAL_OR_KEYWORD]
        plain = all(p.kind in (_P.POSITIONAL_OR_KEYWORD, _P.KEYWORD_ONLY) for p in parameters)
        self.names = frozenset(p.name for p in parameters) if plain else None
        self.required = frozenset(p.name for p in parameters if p.default is _P.empty)
        hints = _hints(fn)
        self.converters = {
            name: convert.converter(hints.get(name, Any))
            for name, p in self.signature.parameters.items()
            if p.annotation is not _P.empty
        }


_plans: weakref.WeakKeyDictionary[Any, _Plan] = weakref.WeakKeyDictionary()


def _plan(fn: Callable[..., Any]) -> _Plan:
    try:
        plan = _plans.get(fn)
    except TypeError:  # not hashable or not weakly referable
        return _Plan(fn)
    if plan is None:
        plan = _Plan(fn)
        try:
            _plans[fn] = plan
        except TypeError:
            pass
    return plan


def _hints(fn: Any) -> dict[str, Any]:
    """Resolve string annotations; a name that cannot be resolved makes its parameter untyped."""
    target: Any = inspect.unwrap(fn)
    while hasattr(target, "func") and not inspect.isfunction(target):  # functools.partial
        target = target.func
    if inspect.isclass(target):
        target = target.__init__ if target.__init__ is not object.__init__ else target.__new__
    elif not (inspect.isfunction(target) or inspect.ismethod(target)):
        target = getattr(type(target), "__call__", target)  # noqa: B004
    return convert.hints(target)


def bind(fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], encoding: str) -> tuple[Any, dict[str, Any]]:
    """Return (args, kwargs) converted for fn; CallFailure ArgumentsInvalid with `violations`."""
    plan = _plan(fn)
    if plan.signature is None:
        return tuple(args), kwargs
    errors = convert.Errors(binary=encoding == "msgpack")
    if plan.names is not None:
        given = plan.positional[: len(args)]
        if (
            len(args) > len(plan.positional)
            or not plan.names.issuperset(kwargs)
            or not kwargs.keys().isdisjoint(given)
            or not plan.required.issubset({*given, *kwargs})
        ):
            raise _invalid(_shape_violations(plan.signature, args, kwargs))
        made = [_convert(plan, name, value, errors) for name, value in zip(given, args)]
        named = {name: _convert(plan, name, value, errors) for name, value in kwargs.items()}
        if errors.found:
            raise _invalid(errors.found)
        return tuple(made), named
    try:
        bound = plan.signature.bind(*args, **kwargs)
    except TypeError as e:
        raise _invalid(_shape_violations(plan.signature, args, kwargs) or [("", str(e))]) from None
    parameters = plan.signature.parameters
    for name, value in bound.arguments.items():
        conv = plan.converters.get(name)
        if conv is None:
            continue
        kind = parameters[name].kind
        if kind is _P.VAR_POSITIONAL:
            bound.arguments[name] = tuple(conv(v, (None, f"{name}[{i}]"), errors) for i, v in enumerate(value))
        elif kind is _P.VAR_KEYWORD:
            bound.arguments[name] = {k: conv(v, (None, k), errors) for k, v in value.items()}
        else:
            bound.arguments[name] = _convert(plan, name, value, errors)
    if errors.found:
        raise _invalid(errors.found)
    return bound.args, bound.kwargs


def _convert(plan: _Plan, name: str, value: Any, errors: convert.Errors) -> Any:
    conv = plan.converters.get(name)
    if conv is None or (value is None and plan.signature and plan.signature.parameters[name].default is None):
        return value  # not annotated, or `x: int = None`
    return conv(value, (None, name), errors)


def _shape_violations(signature: inspect.Signature, args: list[Any], kwargs: dict[str, Any]) -> list[tuple[str, str]]:
    parameters = list(signature.parameters.values())
    positional = [p for p in parameters if p.kind in (_P.POSITIONAL_ONLY, _P.POSITIONAL_OR_KEYWORD)]
    by_name = {p.name for p in parameters if p.kind in (_P.POSITIONAL_OR_KEYWORD, _P.KEYWORD_ONLY)}
    kinds = {p.kind for p in parameters}
    found: list[tuple[str, str]] = []
    if len(args) > len(positional) and _P.VAR_POSITIONAL not in kinds:
        text = f"unexpected argument: at most {len(positional)} positional arguments are taken, {len(args)} were given"
        found.append((f"args[{len(positional)}]", text))
    given = {p.name for p in positional[: len(args)]}
    for name in kwargs:
        if name in given and name in by_name:
            found.append((name, "given twice: by position and by name"))
        elif name not in by_name and _P.VAR_KEYWORD not in kinds:
            found.append((name, "unexpected argument"))
    for p in parameters:
        if p.kind in (_P.VAR_POSITIONAL, _P.VAR_KEYWORD) or p.default is not _P.empty or p.name in given:
            continue
        if p.kind is _P.POSITIONAL_ONLY or p.name not in kwargs:
            found.append((p.name, "required argument is missing"))
    return found


def _invalid(found: list[tuple[str, str]]) -> CallFailure:
    violations = [{"path": bounded(p, 1024), "message": bounded(m, 4096)} for p, m in found[:MAX_VIOLATIONS]]
    text = "; ".join(f"{v['path']}: {v['message']}" if v["path"] else v["message"] for v in violations[:5])
    if len(found) > 5:
        text += f"; and {len(found) - 5} more"
    return CallFailure("ArgumentsInvalid", text, violations=violations)
