"""What a call was given, read from the frame in which it begins and from the place where it is written."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterable

from jitmagic.state import roots
from jitmagic.tracing import compat
from jitmagic.tracing.callsite import FailedCall, bound, failed_call
from jitmagic.tracing.locate import frames_of, is_user_file, namespace_of
from jitmagic.tracing.sites import site_of
from jitmagic.trial import quiet

_GIVEN = "__jitmagic_given__"


def arguments(
    frame: types.FrameType, fn: types.FunctionType, called: object, lines: Iterable[str] = ()
) -> tuple[tuple[object, ...], dict[str, object]]:
    """The arguments of a call of `called`, which runs the code of `fn`. What has its default's value was left out, and
    is a constant under jit, unless the text of the call says otherwise; `lines`: calls that stand in no file."""
    names, starred, keywords, values = inspect.getargvalues(frame)
    count = frame.f_code.co_argcount
    places, named = tuple(names[:count]), names[count:]
    rest = values[starred] if starred is not None else ()
    more = values[keywords] if keywords is not None else {}
    held = fn.__defaults__ or ()
    defaults = dict(zip(places[count - len(held) :], held, strict=True)) | (fn.__kwdefaults__ or {})
    left_out = {name for name, value in defaults.items() if values[name] is value}
    if left_out:
        left_out -= _written(frame.f_back, places, called, lines)
    if rest:
        left_out -= set(places)
    first = next((i for i, name in enumerate(places) if name in left_out), len(places))
    args = [values[name] for name in places[:first]]
    kwargs = {name: values[name] for name in (*places[first:], *named) if name not in left_out}
    return (*args, *rest), kwargs | more


def by_place(frame: types.FrameType) -> tuple[object, ...]:
    """All that a call which begins can have been given by place."""
    names, rest, _, values = inspect.getargvalues(frame)
    more = values[rest] if rest is not None else ()
    return (*(values[name] for name in names[: frame.f_code.co_argcount]), *more)


def given(frame: types.FrameType) -> list[object]:
    """The values of a call which begins, those behind its stars one by one."""
    names, rest, keywords, values = inspect.getargvalues(frame)
    more = (*(values[rest] if rest else ()), *(values[keywords].values() if keywords else ()))
    return [*(values[name] for name in names), *more]


def of_failed(error: BaseException) -> FailedCall | None:
    """The call of a compiled function that ended in an error, also where jax has refused it before Python ran: its
    arguments are then evaluated once more, where that leaves nothing behind."""
    if (known := failed_call(error)) is not None:
        return known
    users = [(f, i) for f, i in frames_of(error) if is_user_file(f.f_code.co_filename)]
    site = site_of(users[-1][0].f_code, users[-1][1]) if users else None
    if site is None or not isinstance(node := site.node, ast.Call):
        return None
    names, func = namespace_of(users[-1][0]), node.func
    called = bound(func, names)
    receivers = (func.value,) if isinstance(func, ast.Attribute) and not compat.is_jitted(called) else ()
    given = ast.Call(ast.Name(_GIVEN, ast.Load()), [*receivers, *node.args], node.keywords)
    try:
        taken = eval(f"lambda: {ast.unparse(given)}", {**names, _GIVEN: lambda *a, **k: (a, k)})
        with quiet.undone(roots.reach(taken)), quiet.held_back():
            args, kwargs = taken()
            quiet.heed()
        if receivers and isinstance(func, ast.Attribute):
            called = inspect.getattr_static(type(args[0]), func.attr, None)
    except Exception:  # not without leaving something behind, or not at all
        return None
    known_as = ast.unparse(func)
    return (
        FailedCall(known_as, called, args, kwargs) if callable(called) and compat.is_jitted(called) else None
    )


def _written(
    caller: types.FrameType | None, places: tuple[str, ...], called: object, lines: Iterable[str]
) -> set[str]:
    """The parameters that the call under way in this frame names or fills by place; none where it is another call."""
    node = _call_in(caller, lines) if caller is not None else None
    if caller is None or node is None:
        return set()
    callee = bound(node.func, namespace_of(caller))
    method = callee if isinstance(callee, types.MethodType) else None
    if called not in (callee, method and method.__func__):
        return set()
    count = next((i for i, a in enumerate(node.args) if isinstance(a, ast.Starred)), len(node.args))
    skipped = method is not None or not isinstance(called, types.FunctionType)
    return {*places[: count + skipped], *(k.arg for k in node.keywords if k.arg)}


def _call_in(frame: types.FrameType, lines: Iterable[str]) -> ast.Call | None:
    """The call that the frame is making."""
    code = frame.f_code
    site = site_of(code, frame.f_lasti)
    node = site.node if site is not None else None
    for line in lines if node is None else ():
        if compile(line, code.co_filename, "exec") == code:
            statement = ast.parse(line).body[0]
            node = statement.value if isinstance(statement, ast.Expr) else None
    return node if isinstance(node, ast.Call) else None
