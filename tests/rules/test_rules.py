"""Each kind from hand-made evidence: the kind, the line, the names to blame, and plain words."""

from __future__ import annotations

import linecache
import os
import re
import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.evidence import (
    Call,
    Difference,
    Dropped,
    Evidence,
    Function,
    Leaf,
    LossyPytree,
    Options,
    Printed,
    Problem,
    SideEffect,
    Silent,
    TypeTest,
    Unrolled,
    Variable,
    Where,
    Write,
)
from jitmagic.report import Finding
from jitmagic.rules import RULES, Thresholds, run
from jitmagic.silent import in_source
from jitmagic.silent.code import code_of
from jitmagic.tracing.messages import with_facts

INTERNAL = re.compile(r"Tracer<|jaxpr|aval|ShapedArray|JitTracer|DynamicJaxpr")
FILE = "<cell>"


def array(path: str, *shape: int, **more: Any) -> Leaf:
    return Leaf(
        path, more.pop("argument", path), "array", "ArrayImpl", shape, more.pop("dtype", "float32"), **more
    )


def scalar(path: str, value: Any, **more: Any) -> Leaf:
    dtype = {"int": "int32", "float": "float32", "bool": "bool"}.get(type(value).__name__, "")
    kind = type(value).__name__
    return Leaf(path, path, "scalar", kind, (), dtype, weak_type=kind != "bool", value=repr(value), **more)


def other(path: str, python_type: str, argument: str = "", **more: Any) -> Leaf:
    return Leaf(path, argument or path, "other", python_type, **more)


def looked_at(source: str) -> Silent:
    """The silent facts of the function `f` in a source, without a traced program."""
    file = f"<rules-{len(linecache.cache)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"jax": jax, "np": np, "time": time, "os": os, "batches": iter([1.0])}
    exec(compile(source, file, "exec"), names)
    code = code_of(names["f"])
    assert code is not None
    return Silent(
        random=tuple(in_source.random(code)), effects=tuple(in_source.effects(code)),
        prints=tuple(in_source.prints(code, lambda c: ())),
    )  # fmt: skip


def function(source: str, name: str = "f", parameters: str = "x", cell: str = "") -> Function:
    lines = source.splitlines()
    at = next((i for i, text in enumerate(lines) if text.startswith(("def ", "    def "))), 0)
    first = lines[at] if lines else ""
    where = Where(FILE, at + 2, 0, at + 2, len(first), first.strip(), first.strip(), name)
    return Function(name, FILE, source, at + 2, where, tuple(parameters.split()), cell=cell or source)


def place(source: str, line: str, text: str = "") -> Where:
    """Where `line` stands in a cell whose magic is line 1."""
    for i, candidate in enumerate(source.splitlines()):
        if candidate.strip() == line:
            start = candidate.find(text) if text else len(candidate) - len(line)
            return Where(FILE, i + 2, start, i + 2, start + len(text or line), line, text)
    raise AssertionError(line)


def check(findings: tuple[Finding, ...], kind: str, line: str | None, *names: str) -> Finding:
    """The one finding that is no note has this kind, line and first culprits, in plain words."""
    loud = [f for f in findings if f.severity != "note"]
    assert [f.kind for f in loud] == [kind]
    found = loud[0]
    assert (found.span.source if found.span else None) == line
    assert found.culprits[: len(names)] == names
    assert len(set(found.culprits)) == len(found.culprits)
    assert found.message and found.help
    assert not INTERNAL.search(found.message + found.help)
    assert found.code == next(r.code for r in RULES if r.kind == kind)
    return found


PROBLEMS = [
    # kind, body line, problem's fields, first culprits, words of the message
    ("tracer-bool", "if x < 3:", dict(op="bool", construct="if", text="x < 3", locals=("x",)), ["x"],
     "`if x < 3` needs to know whether `x < 3` is true, but `x` has no value while jax traces `f`"),
    ("tracer-bool", "while x < 3:", dict(op="bool", construct="while", text="x < 3", locals=("x",)), ["x"],
     "before every iteration"),
    ("tracer-bool", "return x if x > 0 else y",
     dict(op="bool", construct="ifexp", text="x > 0", locals=("x",)),
     ["x"], "conditional expression needs to know whether `x > 0`"),
    ("tracer-bool", "if x > 0 and y > 0:", dict(op="bool", construct="and", text="x > 0 and y > 0"), ["x"],
     "Python's `and` needs to know whether `x > 0`"),
    ("tracer-bool", "if x > 0 or y > 0:", dict(op="bool", construct="or", text="x > 0 or y > 0"),
     ["x"], "`or`"),
    ("tracer-bool", "if not jnp.all(ok):",
     dict(op="bool", construct="not", text="not jnp.all(ok)", locals=("ok",)), ["ok", "x"],
     "whether `jnp.all(ok)` is true, but `ok` (it is computed from `x`) has no value"),
    ("tracer-bool", "assert 0 <= x < 3", dict(op="bool", construct="compare", text="0 <= x < 3"), ["x"],
     "joins two comparisons"),
    ("tracer-bool", "assert x > 0", dict(op="bool", construct="assert", text="x > 0"),
     ["x"], "`assert x > 0` needs"),
    ("tracer-bool", "if x in (0, 1):", dict(op="bool", construct="in", text="x in (0, 1)"),
     ["x"], "each element"),
    ("tracer-bool", "y = max(x, 0.0)", dict(op="bool", construct="call", callee="max", text="max(x, 0.0)"),
     ["x"],
     "`max(…)`"),
    ("tracer-int", "for i in range(x):", dict(op="index", construct="range", text="range(x)"), ["x"],
     "`range(x)` needs to know how many iterations"),
    ("tracer-int", "return fs[x](y)", dict(op="index", construct="subscript", text="fs[x]"),
     ["x"], "one element"),
    ("tracer-int", "n = int(jnp.ceil(x))",
     dict(op="int", construct="call", callee="int", text="int(jnp.ceil(x))"),
     ["x"], "Python integer"),
    ("tracer-int", "return y.reshape(2, n)", dict(op="shape", callee="y.reshape", locals=("n",)), ["n", "x"],
     "new shape"),
    ("tracer-int", "return jax.ops.segment_sum(y, r, num_segments=x)",
     dict(op="concrete", callee="jax.ops.segment_sum"), ["x"], "size of its result"),
    ("tracer-array-conversion", "k = np.cos(x)", dict(op="array", callee="np.cos"),
     ["x"], "`np.cos` is NumPy"),
    ("tracer-array-conversion", "k = math.sqrt(x)", dict(op="float", callee="math.sqrt"),
     ["x"], "`math.sqrt`"),
    ("tracer-array-conversion", "k = float(x)", dict(op="float", callee="float", text="float(x)"), ["x"],
     "plain Python number"),
    ("tracer-array-conversion", "k = x.item()", dict(op="item", callee="x.item"), ["x"], "`.item()`"),
    ("dynamic-shape", "return y[x > 0]", dict(op="boolean-mask", text="y[x > 0]", locals=("y", "x")), ["x"],
     "how many elements"),
    ("dynamic-shape", "return y[:x]", dict(op="slice", construct="slice", text="y[:x]"), ["x"], "how long"),
    ("dynamic-shape", "return jnp.zeros(x)", dict(op="shape", callee="jnp.zeros"), ["x"], "`jnp.zeros`"),
    ("dynamic-shape", "return jnp.nonzero(x)", dict(op="concrete", callee="jnp.nonzero"),
     ["x"], "`jnp.nonzero`"),
    ("tracer-hash", "return table[x]", dict(op="hash", construct="subscript", text="table[x]"), ["x"], "key"),
    ("tracer-hash", "return g(x)", dict(op="hash", construct="call", callee="g"), ["x"], "`g` keeps results"),
    ("tracer-format", 'print(f"{x:.3f}")', dict(op="format", construct="fstring", text='f"{x:.3f}"'),
     ["x"], "text"),
    ("in-place-update", "x[i] += 1.0",
     dict(op="setitem", construct="augassign", text="x[i]", locals=("i", "x")), ["x", "i"], "`x` in place"),
    ("carry-mismatch", "return jax.lax.scan(step, 0, x)[0]",
     dict(op="carry", callee="jax.lax.scan", locals=("n",)), ["n"], "comes out of its body"),
    ("carry-mismatch", "return jax.lax.cond(c, a, b)", dict(op="carry", callee="jax.lax.cond"),
     ["x"], "branches"),
    ("leaked-tracer", "return jnp.stack(seen)", dict(op="leak", locals=("seen",)),
     ["seen"], "after that trace"),
    ("user-error", 'return x["weight"]',
     dict(op="user", exception="KeyError", message="'weight'", text='x["weight"]'), ["x"], "raises KeyError"),
    ("state-write", "counter.n = x", dict(op="other", exception="TraceContextError", locals=("counter",)),
     ["counter"], "outside"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "line", "fields", "names", "words"), PROBLEMS, ids=lambda x: str(x)[:30])
def test_problem(kind: str, line: str, fields: dict[str, Any], names: list[str], words: str) -> None:
    source = f"def f(x, y):\n    {line}\n"
    fields = dict(fields)
    where = place(source, line, fields.pop("text", ""))
    problem = with_facts(Problem(where=where, leaves=("x",), **fields))
    evidence = Evidence(function(source, parameters="x y"), calls=(Call((array("x", 3), array("y", 3))),),
                        problems=(problem,))  # fmt: skip
    found = check(run(evidence), kind, line, *names)
    assert found.severity == "error"
    assert words in found.message


def bool_evidence(*leaves: Leaf, verified: tuple[str, ...] | None) -> Evidence:
    source = "def f(x):\n    if x:\n        return 1\n    return 2\n"
    problem = Problem("bool", place(source, "if x:", "x"), ("x",), ("x",), "if")
    return Evidence(function(source), calls=(Call(leaves),), problems=(problem,), static_verified=verified)


def test_help_names_static_where_proved_and_refuses_it_for_arrays() -> None:
    flag = check(run(bool_evidence(scalar("x", True), verified=("x",))), "tracer-bool", "if x:", "x")
    assert "static_argnames=['x']" in flag.help
    data = check(run(bool_evidence(array("x"), verified=None)), "tracer-bool", "if x:", "x")
    assert "static_argnames" not in data.help and "cannot be static" in data.help and "jnp.where" in data.help


def test_leaf_of_a_container_comes_before_its_argument() -> None:
    source = "def f(cfg):\n    if cfg['deep']:\n        return 1\n"
    problem = Problem(
        "bool", place(source, "if cfg['deep']:", "cfg['deep']"), ("cfg['deep']",), ("cfg",), "if"
    )
    leaf = Leaf("cfg['deep']", "cfg", "scalar", "bool", value="True")
    evidence = Evidence(function(source, parameters="cfg"), calls=(Call((leaf,)),), problems=(problem,))
    check(run(evidence), "tracer-bool", "if cfg['deep']:", "cfg['deep']", "cfg")


def test_bystanders_are_not_blamed() -> None:
    source = "def f(x, mode):\n    if x > mode:\n        return 1\n"
    problem = Problem("bool", place(source, "if x > mode:", "x > mode"), ("x",), ("mode", "x"), "if")
    call = Call((array("x"), scalar("mode", 1, static=True)))
    evidence = Evidence(function(source, parameters="x mode"), calls=(call,), problems=(problem,))
    assert check(run(evidence), "tracer-bool", "if x > mode:").culprits == ("x",)


BINDING = [
    ("invalid-jax-type", "invalid-type", other("x", "function"), "x"),
    ("invalid-jax-type", "invalid-type", other("x", "str", value="'sum'"), "x"),
    ("invalid-jax-type", "invalid-type", other("x.init", "function", "x"), "x.init"),
    ("invalid-jax-type", "invalid-type", other("x", "Mode", value="<Mode.FAST: 1>"), "x"),
    ("unregistered-pytree", "invalid-type", other("x", "Pendulum"), "x"),
    ("unhashable-static", "unhashable", other("x", "dict", static=True, hashable=False), "x"),
    ("bad-static-spec", "static-spec", scalar("x", 1), "x"),
]


@pytest.mark.parametrize(("kind", "op", "leaf", "name"), BINDING, ids=lambda x: str(x)[:24])
def test_argument_kinds_stand_at_the_def_line(kind: str, op: Any, leaf: Leaf, name: str) -> None:
    source = "def f(x):\n    return x\n"
    evidence = Evidence(
        function(source),
        Options(static_argnums=(1,)),
        (Call((leaf,)),),
        (Problem(op, place(source, "return x"), (leaf.path,)),),
    )
    check(run(evidence), kind, "def f(x):", name)


def test_bad_static_spec_names_the_argument_that_was_meant() -> None:
    source = "@functools.partial(jax.jit, static_argnums=(2,))\ndef f(x, heads):\n    return x\n"
    for options in (Options(static_argnums=(2,)), Options(static_argnames=("head",))):
        evidence = Evidence(
            function(source, parameters="x heads"), options, problems=(Problem("static-spec", None),)
        )
        decorator = "@functools.partial(jax.jit, static_argnums=(2,))"
        found = check(run(evidence), "bad-static-spec", decorator, "heads")
        assert found.span and found.span.line == 2


def test_donated() -> None:
    source = "def f(avg, new):\n    return avg + new\n"
    problem = Problem("donated", None, ("avg", "new"))
    evidence = Evidence(
        function(source, parameters="avg new"), Options(donate_argnames=("avg",)), problems=(problem,)
    )
    check(run(evidence), "donated-reuse", "def f(avg, new):", "avg", "new")


def test_array_in_aux_data_stands_at_the_field() -> None:
    cell = "class Data(eqx.Module):\n    values: jax.Array = eqx.field(static=True)\n\n"
    cell += "def f(data):\n    return data\n"
    there = Function(
        "f", FILE, "def f(data):\n    return data\n", 5, place(cell, "def f(data):"), ("data",), cell=cell
    )
    evidence = Evidence(there, problems=(Problem("aux-data", None, ("data",)),))
    found = check(
        run(evidence), "array-in-aux-data", "values: jax.Array = eqx.field(static=True)", "values", "data"
    )
    assert found.span and found.span.line == 3


# ---- state


def variable(path: str, source: str, line: str, **more: Any) -> Variable:
    given = {"origin": "global", "type": "array", **more}
    return Variable(path, reads=(place(source, line, path.split(".")[0]),), **given)


STATE = "def f(x):\n    y = x @ w + b\n    self.n += 1\n    log.append(y)\n    return y\n"


def state_evidence(*variables: Variable, **more: Any) -> Evidence:
    return Evidence(
        function(STATE), variables=variables, dynamic_inputs=more.pop("dynamic_inputs", 1), **more
    )


def test_captured_values_that_never_change_are_one_note_for_each_kind() -> None:
    read = "y = x @ w + b"
    findings = run(
        state_evidence(
            variable("w", STATE, read), variable("b", STATE, read), variable("x0", STATE, read, type="scalar")
        )
    )
    assert [(f.kind, f.severity, f.culprits) for f in findings] == [
        ("captured-constant", "note", ("w", "b")),
        ("captured-scalar", "note", ("x0",)),
    ]


def test_captured_values_are_warned_of_where_they_change_or_are_all_there_is() -> None:
    read = "y = x @ w + b"
    w, b = variable("w", STATE, read, rebound=True), variable("b", STATE, read)
    check(run(state_evidence(w, b)), "captured-constant", read, "w")
    check(run(state_evidence(b, dynamic_inputs=0)), "captured-constant", read, "b")
    lr = variable("lr", STATE, read, type="scalar", rebound=True, value="0.1")
    check(run(state_evidence(lr)), "captured-scalar", read, "lr")
    dynamic = variable("w", STATE, read, rebound=True, role="dynamic")
    assert run(state_evidence(dynamic)) == ()


def test_stale_constant_takes_the_place_of_captured_and_names_what_goes_next() -> None:
    read = "y = x @ w + b"
    w = variable("w", STATE, read, stale=True, rebound=True, before="0.1", after="0.2", bytes=5_000_000)
    b = variable("b", STATE, read)
    found = check(run(state_evidence(b, w, dynamic_inputs=0)), "stale-constant", read, "w", "b")
    assert "was 0.1 and is 0.2" in found.message
    helper = variable("w", STATE, read, stale=True, type="function")
    assert "redefined" in check(run(state_evidence(helper)), "stale-constant", read, "w").message


def test_large_constant_follows_the_setting() -> None:
    read = "y = x @ w + b"
    evidence = state_evidence(variable("w", STATE, read, bytes=8_000_000))
    check(run(evidence), "large-constant", read, "w")
    assert [f.severity for f in run(evidence, Thresholds(large_constant=10_000_000))] == ["note"]


def test_state_write_unless_declared_dynamic() -> None:
    write = Write("self.n", "attribute", "bound", False, place(STATE, "self.n += 1"), "0", "1")
    found = check(run(state_evidence(writes=(write,))), "state-write", "self.n += 1", "self.n", "self")
    assert found.severity == "warning" and "from 0 to 1" in found.message
    assert run(state_evidence(writes=(write,), options=Options(dyn=("self",)))) == ()


@pytest.mark.parametrize(
    ("path", "holder"), [("log[0]", "log"), ("kept['a[0]']", "kept"), ("self.rows[1]['n']", "self.rows[1]")]
)
def test_a_container_that_grows_is_named_and_not_its_new_item(path: str, holder: str) -> None:
    write = Write(path, "item", "added", False, place(STATE, "log.append(y)"))
    (found,) = run(state_evidence(writes=(write,)))
    assert f"adds to `{holder}`:" in found.message and f"`--dyn {holder}`" in found.help
    assert found.culprits[:2] == (holder, path)


def test_leak_is_an_error_once_it_was_used() -> None:
    write = Write("log[0]", "item", "added", True, place(STATE, "log.append(y)"))
    same = Write("log", "global", "changed", False, place(STATE, "log.append(y)"))
    quiet = check(
        run(state_evidence(writes=(write, same))), "leaked-tracer", "log.append(y)", "log[0]", "log"
    )
    assert quiet.severity == "warning"
    leak = Problem("leak", None, locals=("log",), exception="UnexpectedTracerError")
    used = check(
        run(state_evidence(writes=(write,), problems=(leak,))), "leaked-tracer", "log.append(y)", "log[0]"
    )
    assert used.severity == "error"


def test_lossy_pytree() -> None:
    cell = "class Scaler:\n    def tree_flatten(self):\n        return (self.shift,), None\n"
    line = "return (self.shift,), None"
    fact = LossyPytree("s", "Scaler", ("power",), place(cell, line))
    there = function("def f(s, x):\n    return (x - s.shift) ** s.power\n", parameters="s x", cell=cell)
    check(run(Evidence(there, silent=Silent(lossy=(fact,)))), "lossy-pytree", line, "s", "Scaler", "power")


# ---- frozen at trace time

TEXTS = [
    ("hidden-rng", "x = np.random.normal(size=3)", ["np.random.normal"]),
    ("frozen-side-effect", "y = next(batches)", ["batches"]),
    ("frozen-side-effect", "t = time.time()", ["time.time"]),
    ("frozen-side-effect", "t = os.environ['SEED']", ["os.environ"]),
    ("key-reuse", "b = jax.random.normal(x) + jr.normal(x)", ["x"]),
    ("in-place-update", "x.at[0].set(1.0)", ["x"]),
]


@pytest.mark.parametrize(("kind", "line", "names"), TEXTS)
def test_text(kind: str, line: str, names: list[str]) -> None:
    source = f"def f(x):\n    {line}\n    return x\n"
    evidence = Evidence(function(source), calls=(Call(()), Call(())), silent=looked_at(source))
    check(run(evidence), kind, line, *names)


QUIET = [
    "key = jax.random.fold_in(jax.random.key(0), x)",
    "k1, k2 = jax.random.split(x)\n    a = jax.random.normal(k1)\n    b = jax.random.normal(k2)",
    "for i in range(3):\n        x, k = jax.random.split(x)\n        y = jax.random.normal(k)",
    "if x.ndim:\n        return jax.random.normal(x)\n    y = jax.random.uniform(x)",
    "a = next(iter([x]))",
    "x = x.at[0].set(1.0)",
]


@pytest.mark.parametrize("body", QUIET)
def test_clean_text_is_quiet(body: str) -> None:
    source = f"def f(x):\n    {body}\n    return x\n"
    assert run(Evidence(function(source), calls=(Call(()), Call(())), silent=looked_at(source))) == ()


def test_key_reuse_in_a_loop_and_keys_from_outside() -> None:
    loop = "def f(key):\n    for i in range(3):\n        y = jax.random.normal(key)\n    return y\n"
    check(run(Evidence(function(loop, parameters="key"))), "key-reuse", "y = jax.random.normal(key)", "key")
    line = "return x * jax.random.normal(keys.next(), (2,))"
    source = f"def f(x):\n    {line}\n"
    write = Write(
        "keys.count", "attribute", "bound", False, Where("<earlier>", 5, 8, 5, 23, "self.count += 1")
    )
    check(run(Evidence(function(source), writes=(write,))), "hidden-rng", line, "keys")


def test_a_random_state_of_a_framework_under_a_plain_jit() -> None:
    line, place = (
        "return x + bm.random.rand()",
        Where(FILE, 2, 15, 2, 31, "return x + bm.random.rand()", "bm.random.rand"),
    )
    state = Variable(
        "bm.random.DEFAULT", "global", "rng", "dynamic", reads=(place,), framework="brainstate random state"
    )
    drawn = Evidence(function(f"def f(x):\n    {line}\n"), variables=(state,))
    check(run(replace(drawn, jitted_by_user=True)), "hidden-rng", line, "bm.random.rand")
    assert (
        run(drawn)
        == ()
        == run(replace(drawn, jitted_by_user=True, variables=(replace(state, declared=True),)))
    )
    refused = with_facts(
        Problem(
            "leak",
            place,
            callee="bm.random.rand",
            exception="TraceContextError",
            message="into this RandomState",
        )
    )
    (found,) = run(replace(drawn, jitted_by_user=True, problems=(refused,)))
    assert (found.kind, found.severity) == ("hidden-rng", "error")


def test_update_that_is_not_returned() -> None:
    line = "a = a.at[0].set(2.0)"
    check(run(Evidence(function(f"def f(a):\n    {line}\n", parameters="a"))), "in-place-update", line, "a")
    assert (
        run(
            Evidence(function("def f(a):\n    jax.debug.callback(print, a)\n    a = a + 1\n", parameters="a"))
        )
        == ()
    )


def test_items_of_an_argument_tell_only_where_a_call_shows_that_it_is_no_ref() -> None:
    line = "a[0] = 2.0"
    text = function(f"def f(a):\n    {line}\n", parameters="a")
    assert run(Evidence(text)) == () == run(Evidence(text, calls=(Call(()),), silent=Silent(refs=("a",))))
    check(run(Evidence(text, calls=(Call(()),))), "in-place-update", line, "a")
    bound = function("def f(a, r):\n    a = a + 1\n    r[...] = a\n", parameters="a r")
    assert run(Evidence(bound)) == () == run(Evidence(bound, calls=(Call(()),), silent=Silent(refs=("r",))))


@pytest.mark.parametrize(
    ("line", "text", "exception", "said", "message"),
    [
        ('raise ValueError("no")', 'raise ValueError("no")', "ValueError", "no", "`f` raises ValueError: no"),
        ("assert n == 2, 'two'", "n == 2", "AssertionError", "two", "`n == 2` does not hold: two"),
        ('y = p["v"]', 'p["v"]', "KeyError", "'v'", "`p[\"v\"]` raises KeyError: 'v'"),
        (
            "y = p + v",
            "p + v",
            "TypeError",
            "no",
            "`p + v` raises TypeError: no; `p` is `f32[3]`, `v` is `f32[4]`",
        ),
        ("return g(x)", "", "OSError", "", "`f` raises OSError"),
    ],
)
def test_an_error_of_the_users_is_one_plain_sentence(
    line: str, text: str, exception: str, said: str, message: str
) -> None:
    where = Where(FILE, 3, 4, 3, 9, line, text, "f") if text else None
    forms = (("p", "f32[3]"), ("v", "f32[4]")) if exception == "TypeError" else ()
    problem = with_facts(Problem("user", where, exception=exception, message=said, forms=forms))
    (found,) = run(Evidence(function(f"def f(x):\n    {line}\n"), problems=(problem,)))
    assert (found.kind, found.message) == ("user-error", message)


@pytest.mark.parametrize(
    ("named", "on_each", "message", "wanted"),
    [
        (("x", "y"), ("GPU", "CPU"), "`x` on gpu:0 and `y` on cpu:1", "`y = jax.device_put(y, x.device)`"),
        (("p['w']", "x"), ("CPU", "CPU"), "`p['w']` on cpu:0 and `x` on cpu:1", "`x = jax.device_put(x, p['w'].device)`"),
    ],
)  # fmt: skip
def test_arrays_on_different_devices_are_named_with_them(named, on_each, message, wanted) -> None:
    each = [
        f"argument {name} of f with shape float32[8] and with device ids [{n}] on platform {platform}"
        for n, (name, platform) in enumerate(zip(named, on_each, strict=True))
    ]
    said = f"Received incompatible devices for jitted computation. Got {' and '.join(each)}"
    problem = with_facts(Problem("user", None, exception="ValueError", message=said))
    (found,) = run(Evidence(function("def f(x, p):\n    return x\n"), problems=(problem,)))
    assert found.message == f"`f` is called with arrays on different devices, {message}"
    assert wanted in found.help and found.culprits == named


REFUSED = {
    "rows and parameters that are mapped": (
        "jax.vmap(lambda p, x: x @ p['w'])({'w': jnp.ones((3, 2))}, jnp.ones((8, 3)))",
        "None` passes one whole",
    ),
    "whole numbers to differentiate by": (
        "jax.grad(lambda v: jnp.sum(v**2))(jnp.arange(3))",
        "jnp.asarray(n, float)",
    ),
    "gradient of many numbers": ("jax.grad(lambda v: v**2)(jnp.ones(3))", "jax.jacobian"),
    "loss with more beside it": ("jax.value_and_grad(lambda v: (v, v))(1.0)", "has_aux=True"),
    "branch for each element": ("jax.lax.cond(jnp.arange(3) > 0, jnp.sin, jnp.cos, 1.0)", "jnp.where"),
    "float index of a switch": ("jax.lax.switch(2.0, [jnp.sin, jnp.cos], 1.0)", "jnp.asarray(i, int)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_jax_refuses_with_jit_and_without_is_told(name: str) -> None:
    code, wanted = REFUSED[name]
    with pytest.raises(Exception) as raised:  # noqa: B017, PT011
        eval(code, {"jax": jax, "jnp": jnp})
    where = Where(FILE, 2, 11, 2, 11 + len(code), f"return {code}", code, "f")
    problem = with_facts(Problem("user", where, exception=raised.typename, message=str(raised.value)))
    (found,) = run(Evidence(function(f"def f():\n    return {code}\n"), problems=(problem,)))
    assert found.kind == "user-error" and wanted in found.help


def test_a_wait_is_not_the_clock() -> None:
    line = "time.sleep(1)"
    fact = SideEffect("wait", ("time.sleep",), Where("<cell>", 2, 4, 2, 17, line), "time.sleep")
    (found,) = run(
        Evidence(function(f"def f(a):\n    {line}\n    return a\n"), silent=Silent(effects=(fact,)))
    )
    assert (
        found.message
        == "`f` waits in `time.sleep`: that happens once, while jax traces it, and later calls do not wait"
    )


def test_print_of_values_warns_and_of_shapes_does_not() -> None:
    for line, values, printed in (
        ('print("x =", x)', ("x",), "x = JitTracer(...)\n"), ("print(x.shape)", (), "(3,)\n"),
    ):  # fmt: skip
        source = f"def f(x):\n    {line}\n    return x\n"
        fact = Printed(place(source, line), line, values, ("x",))
        found = run(Evidence(function(source), printed=printed, silent=Silent(prints=(fact,))))
        assert [(f.kind, f.severity, f.culprits) for f in found] == [
            ("trace-time-print", "warning" if values else "note", ("x",))
        ]


# ---- recompilation, results

F = "def f(x, y):\n    return x * y // 2\n"


def traced(*calls: tuple[Leaf, ...], source: str = F) -> Evidence:
    return Evidence(function(source, parameters="x y"), calls=tuple(Call(c, traced=True) for c in calls))


def test_recompilation() -> None:
    line = "def f(x, y):"
    steps = traced(*((array("x", 3), scalar("y", i, static=True)) for i in range(3)))
    check(run(steps), "recompile-static", line, "y")
    assert run(traced(*((array("x", 3), scalar("y", i, static=True)) for i in range(2)))) == ()
    check(run(traced(*((array("x", n),) for n in (4, 3, 2)))), "recompile-shape", line, "x")
    check(run(traced((scalar("x", 0.0),), (array("x"),))), "recompile-weak-type", line, "x")
    weak = run(traced((array("x", weak_type=True),), (array("x"),)))
    check(weak, "recompile-weak-type", line, "x")
    assert "`jnp.array(1.0)`" in weak[0].message
    lambdas = [other("y", "function", static=True, value=f"<function <lambda> at 0x7f{i}>") for i in range(3)]
    check(run(traced(*((array("x", 3), fun) for fun in lambdas))), "recompile-new-function", line, "y")
    named = [other("y", "function", static=True, value=f"<function {n} at 0x7f1>") for n in "gh"]
    assert run(traced(*((array("x", 3), fun) for fun in named))) == ()


def test_jit_in_a_loop() -> None:
    line = "g = jax.jit(jax.grad(functools.partial(loss, data=data)))(w)"
    source = f"def f(w, batches):\n    for data in batches:\n        {line}\n    return g\n"
    evidence = Evidence(function(source, parameters="w batches"))
    check(run(evidence), "recompile-new-function", line, "data")


def test_unrolled_loop_takes_long_with_many_turns_or_operations() -> None:
    line = "for k in range(1, x.shape[0]):"
    there = function(f"def f(x):\n    {line}\n        x = x + k\n    return x\n")

    def written_out(turns: int, equations: int) -> tuple[Finding, ...]:
        fact = Unrolled(place(there.source, line), ("k", "x"), turns, equations)
        return run(Evidence(there, equations=900, silent=Silent(program=True, unrolled=(fact,))))

    check(written_out(149, 298), "unrolled-loop", line, "k", "x")
    check(written_out(5, 500), "unrolled-loop", line, "k", "x")
    assert [f.severity for f in written_out(5, 10)] == ["note"]
    assert run(Evidence(there, equations=900, silent=Silent(program=True))) == ()


def test_results() -> None:
    wrong = Difference("", "values", 1.0, 1e-6, "4999950000", "704982704")
    line = "return x * y // 2"
    whole = Evidence(
        function(F, parameters="x y"), calls=(Call((scalar("x", 100_000),)),), differences=(wrong,)
    )
    check(run(whole), "dtype-truncation", line, "x")
    ids = Leaf("x", "x", "numpy", "ndarray", (2,), "int64")
    cut = Evidence(function(F), calls=(Call((ids,)),), differences=(Difference("", "values", 1.0),))
    check(run(cut), "dtype-truncation", line, "x")
    assert run(Evidence(function(F), calls=(Call((ids,)),))) == ()
    test = "if type(x) is Array:"
    source = f"def f(x):\n    {test}\n        return x\n    return 0.0\n"
    asked = Silent(tests=(TypeTest("x", place(source, test, "type(x) is Array")),))
    check(
        run(Evidence(function(source), differences=(wrong,), silent=asked)),
        "jit-differs-from-eager",
        test,
        "x",
    )
    nan = Difference("", "NaN", eager="nan", jit="nan")
    check(run(Evidence(function(F, parameters="x y"), differences=(nan,))), "nan", line, "x", "y")
    dtype = Evidence(function(F), differences=(Difference("", "dtype", eager="float64", jit="float32"),))
    assert [f.severity for f in run(dtype)] == ["note"]


def test_unused_result_is_a_note() -> None:
    cell = "def f(x):\n    return x\n\njax.jit(f)\ny = f(1.0)\n"
    (found,) = run(Evidence(function("def f(x):\n    return x\n", cell=cell)))
    assert (found.kind, found.severity, found.culprits) == ("unused-result", "note", ("f",))


def test_a_result_thrown_away_inside_is_a_warning_unless_the_call_may_be_for_what_it_writes() -> None:
    line = "    update(w, g)"
    f = function(f"def f(w, g):\n{line}\n    return w\n")
    silent = Silent(
        dropped=(Dropped(place(f.source, line.strip(), "update(w, g)"), ("w", "g"), by_jax=False),)
    )
    check(run(Evidence(f, silent=silent)), "unused-result", line.strip(), "w", "g")
    written = Write("log", "global", "changed", False)
    assert "unused-result" not in [x.kind for x in run(Evidence(f, silent=silent, writes=(written,)))]


# ---- selection


def test_findings_come_by_line_then_severity_and_once() -> None:
    source = "def f(x):\n    if x:\n        pass\n    if x > 1:\n        pass\n"
    first, second = place(source, "if x:", "x"), place(source, "if x > 1:", "x > 1")
    problems = (
        Problem("bool", second, ("x",), ("x",), "if", recorded=True),
        Problem("bool", first, ("x",), ("x",), "if"),
        Problem("bool", first, ("x",), (), "if", recorded=True),
    )
    findings = run(Evidence(function(source), problems=problems))
    assert [f.span and f.span.line for f in findings] == [3, 5]


def test_difference_beside_its_cause_is_dropped() -> None:
    w = variable("w", STATE, "y = x @ w + b", stale=True)
    findings = run(state_evidence(w, differences=(Difference("", "values", 1.0),)))
    assert [f.kind for f in findings] == ["stale-constant"]


def test_place_in_another_cell_is_named() -> None:
    where = Where("<other>", 7, 0, 7, 5, "if x:", "x")
    (found,) = run(
        Evidence(function("def f(x):\n    return g(x)\n"), problems=(Problem("bool", where, ("x",)),))
    )
    assert found.span and (found.span.cell, found.span.line) == ("<other>", 7)


@pytest.mark.parametrize("source", ["", "not python (", "f = lambda x: x"])
def test_missing_or_odd_source_is_no_obstacle(source: str) -> None:
    there = Function("f", FILE, source, 2, None, ("x",), cell=source)
    assert run(Evidence(there, printed="x", equations=900, differences=(Difference("", "NaN"),)))


def test_numbers_that_are_the_sizes_of_arrays_beside_them() -> None:
    source = "def loss(data, k):\n    return data['Y'].sum() / data['n']"
    rows = replace(scalar("data['n']", 20), argument="data")
    call = Call((array("data['Y']", 20, 7, argument="data"), rows, scalar("k", 2)), traced=True)
    (found,) = [
        f
        for f in run(Evidence(function(source, "loss", "data k"), calls=(call,)))
        if f.kind == "size-argument"
    ]
    assert found.severity == "note" and found.culprits == ("data['n']", "data")
    assert "`data['Y'].shape[0]`" in found.message and "data['Y'].shape[0]" in found.help


@pytest.mark.parametrize("number", [2, 19, 20.0, True])
def test_other_numbers_are_no_sizes(number: Any) -> None:
    call = Call((array("Y", 20, 2), scalar("n", number)), traced=True)
    kinds = [
        f.kind for f in run(Evidence(function("def f(Y, n):\n    return Y", parameters="Y n"), calls=(call,)))
    ]
    assert "size-argument" not in kinds


def test_what_only_arrays_in_memory_have_is_asked_as_such():
    from jitmagic.evidence import Problem
    from jitmagic.rules.tracer_int import question, rewrite

    where = Where("cell", 3, 4, 3, 14, "print(x.sharding)", "x.sharding", "f")
    said = "The 'sharding' attribute is not available on traced array with shape float32[3]."
    asked = with_facts(Problem("concrete", where, ("x",), exception="AttributeError", message=said))
    assert question(asked) == "`x.sharding` asks for something that only an array in memory has"
    assert "jax.typeof" in rewrite(asked)
    said = "The addressable_shards() method was called on traced array with shape float32[3]."
    called = with_facts(replace(asked, message=said))
    assert "only an array in memory" in question(called)
    for message in (
        "Abstract tracer value",
        "The __index__() method was called on traced array with shape int32[].",
    ):
        other = with_facts(Problem("int", where, ("x",), message=message))
        assert "definite integer" in question(other) and "jax.typeof" not in rewrite(other)


def test_a_condition_whose_source_is_not_there():
    from jitmagic.evidence import Problem
    from jitmagic.rules.tracer_bool import question

    assert question(Problem("bool", None, ("v",))) == "Python needs to know whether a condition is true"
