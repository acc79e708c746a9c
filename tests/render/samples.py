"""Reports to look at: typical ones, and hostile ones. Plain data, written by hand."""

from __future__ import annotations

from jitmagic.render import Report
from jitmagic.report import (
    CellText,
    Cost,
    Finding,
    Fix,
    FunctionReport,
    LineCost,
    Sample,
    Span,
    Stages,
    State,
    Timing,
    Versions,
)

VERSIONS = Versions(jitmagic="0.1.0", jax="0.10.2", python="3.11.9")

SELU = """%%jit
def selu(x, alpha=1.67):
    return scale * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)

selu(jnp.arange(1_000_000.))"""

DROPOUT = """%%jit -f dropout
def dropout(x, rate, train):
    if train:
        keep = x.shape[0] * (1 - rate)
        mask = jnp.arange(x.shape[0]) < keep
        x = jnp.where(mask, x, 0.0)
    return float(x.sum())

dropout(jnp.ones(8), 0.25, True)"""

PREDICT = """%%jit
def predict(x):
    return jnp.tanh(x @ w + b)

predict(jnp.ones((4, 10)))"""

DIFFUSE = """%%jit
def diffuse(u, steps):
    for i in range(100):
        print("step", i)
        u = u + 0.1 * (jnp.roll(u, 1) - u)
    return u

def energy(u):
    return jnp.sum(u ** 2)

energy(diffuse(jnp.ones(64), 3))"""


def good() -> Report:
    """A clean function, timed, with one neutral note."""
    note = Finding(
        "JM202",
        "captured-scalar",
        "note",
        "selu",
        "`scale` is a Python number of the notebook: its value 1.05 is part of the compiled program",
        Span(3, 11, 3, 16, "return scale * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)"),
        ("scale",),
    )
    function = FunctionReport(
        "selu",
        "ok",
        calls=1,
        traces=1,
        compiles=1,
        state=(
            State("scale", "constant", type="scalar", dtype="float32", shape=(), lines=(3,), value="1.05"),
            State("offset", "constant", dtype="float32", shape=(3,), bytes=12, lines=(3,)),
        ),
        stages=Stages(0.0081, 0.0043, 0.0412),
        timing=Timing(
            eager=Sample(2.81e-3, 2.85e-3, 61e-6, 100, 7, 2.77e-3, batches_s=(2.77e-3, 2.81e-3, 2.96e-3)),
            jit=Sample(338e-6, 341e-6, 8e-6, 1000, 7, 332e-6, batches_s=(332e-6, 338e-6, 352e-6)),
            speedup=8.3,
            break_even_calls=12,
            device="cpu",
        ),
        cost=Cost(5e6, 8e6, 8_000_000),
        lines=(LineCost(3, 6, 5e6, 8e6),),
        signature="(x: f32[1000000], alpha: f32[]~) -> f32[1000000]",
    )
    return Report(
        (function,), (note,), "cpu", VERSIONS, CellText(SELU, "<ipython-input-3-abc>", "c1", "%%jit")
    )


def failing() -> Report:
    """Two errors: a static fix and a rewritten cell that were proved, and a fix that was not tried."""
    body = DROPOUT.split("\n", 1)[1]
    mended = body.replace("float(x.sum())", "x.sum()")
    static = Fix(
        "make `train` static",
        "safe",
        True,
        "traced; equal to eager on 1 call",
        static_argnames=("train",),
        static_argnums=(2,),
    )
    branch = Finding(
        "JM101",
        "tracer-bool",
        "error",
        "dropout",
        "the condition of this `if` is a traced value: `train` has no value while jax traces, so "
        "python cannot choose a branch",
        Span(3, 7, 3, 12, "if train:"),
        ("train",),
        (static,),
        detail="TracerBoolConversionError: Attempted boolean conversion of traced array with shape bool[].",
    )
    convert = Finding(
        "JM103",
        "tracer-array-conversion",
        "error",
        "dropout",
        "`float` needs a number, and `x.sum()` is a traced value",
        Span(7, 11, 7, 25, "return float(x.sum())"),
        ("x",),
        (
            Fix("return the array as it is", "unsafe", True, "traced; equal to eager on 1 call", cell=mended),
            Fix("convert outside of `dropout`", calls=("float(dropout(jnp.ones(8), 0.25, True))",)),
        ),
        help="leave out the conversion: a 0-dimensional array can be used like a number.",
    )
    timing = Timing(left_out="not timed: `dropout` does not trace")
    function = FunctionReport("dropout", "fails", calls=1, timing=timing)
    cell = CellText(DROPOUT, "<ipython-input-4-abc>", "c2", "%%jit -f dropout")
    return Report((function,), (branch, convert), "cpu", VERSIONS, cell)


def stale() -> Report:
    """A variable that changed after compilation, with a dyn fix; its place is in an earlier cell."""
    finding = Finding(
        "JM203",
        "stale-constant",
        "warning",
        "predict",
        "`w` changed after `predict` was compiled, and the compiled program still uses the old values",
        Span(3, 24, 3, 25, "return jnp.tanh(x @ w + b)"),
        ("w",),
        (
            Fix(
                "declare `w` dynamic",
                "safe",
                True,
                "traced; equal to eager on 2 calls; follows a change of `w`",
                dyn=("w",),
            ),
        ),
    )
    other = Finding(
        "JM205",
        "state-write",
        "warning",
        "predict",
        "`update` writes `w` while it is traced",
        Span(5, 8, 5, 14, "self.w = self.w - step * g", "<ipython-input-2-abc>"),
        ("model.w",),
        (),
        "return the new value and assign it outside, or declare it with `--dyn model.w`",
    )
    function = FunctionReport(
        "predict",
        "ok",
        calls=2,
        traces=1,
        compiles=1,
        state=(
            State("w", "constant", shape=(10, 3), dtype="float32", bytes=120, lines=(3,), stale=True),
            State("b", "constant", shape=(3,), dtype="bfloat16", bytes=6, lines=(3,)),
            State(
                "model.layers[0].w",
                "dynamic",
                True,
                "attribute",
                shape=(256, 256),
                dtype="float32",
                bytes=262144,
                lines=(3, 8),
                written=True,
            ),
            State("model.rng", "static", origin="closure", type="rng"),
        ),
        stages=Stages(0.0012, 0.0009, 0.019),
        timing=Timing(
            Sample(41e-6, 42e-6, 1e-6, 10000, 7),
            Sample(52e-6, 53e-6, 2e-6, 10000, 7),
            0.79,
            None,
            device="cpu",
        ),
    )
    cell = CellText(PREDICT, "<ipython-input-5-abc>", "c3", "%%jit")
    return Report((function,), (finding, other), "cpu", VERSIONS, cell)


def warnings() -> Report:
    """Two functions, one with warnings and costs by the line, one that nobody called; things left out."""
    body = DIFFUSE.split("\n", 1)[1]
    loop = body.replace("for i in range(100):", "def body(i, u):")
    unrolled = Finding(
        "JM405",
        "unrolled-loop",
        "warning",
        "diffuse",
        "this loop is unrolled: 100 rounds are 500 equations, and compiling takes longer with every one",
        Span(3, 4, 5, 42, "for i in range(100):"),
        ("i",),
        (Fix("use `jax.lax.fori_loop`", "unsafe", False, cell=loop),),
    )
    debug = body.replace('print("step", i)', 'jax.debug.print("step {}", i)')
    printed = Finding(
        "JM303",
        "trace-time-print",
        "warning",
        "diffuse",
        "this `print` runs while jax traces, once, not at every call",
        Span(4, 8, 4, 24, 'print("step", i)'),
        ("print",),
        (Fix("print with `jax.debug.print`", "safe", True, "traced; equal to eager on 1 call", cell=debug),),
    )
    unused = Finding("JM902", "unused-result", "note", "energy", "the compiled `energy` is never called")
    function = FunctionReport(
        "diffuse",
        "ok",
        calls=1,
        traces=1,
        compiles=1,
        stages=Stages(0.21, 0.12, 1.84),
        timing=Timing(
            None,
            Sample(88e-6, 90e-6, 3e-6, 1000, 7),
            left_out="the run without jit would take 4.1 s, more than the 3 s left",
            device="cpu",
        ),
        cost=Cost(12800.0, None, 1024),
        lines=(LineCost(5, 500, 12800.0, 51200.0), LineCost(3, 1)),
        notes=("results were compared on the first call only",),
    )
    cell = CellText(DIFFUSE, "<ipython-input-6-abc>", "c4", "%%jit")
    return Report(
        (function, FunctionReport("energy")),
        (unrolled, printed, unused),
        "cpu",
        VERSIONS,
        cell,
        ("the static search stopped after 3 s",),
    )


def hostile() -> Report:
    """Names, source and messages that try to break out of where they are shown."""
    bad = "</pre><script>alert(1)</script>\x1b[31m\u202e<img src=x onerror=alert(2)>\"'&\udc80\x00`"
    fix = Fix(
        bad, "safe", True, bad, dyn=(bad,), calls=(bad,), diff=f"--- a\n+++ b\n@@ -1 +1 @@\n-{bad}\n+{bad}"
    )
    finding = Finding(
        bad, bad, "error", bad, bad, Span(1, 0, 1, 6, bad.strip()), (bad,), (fix,), bad, f"{bad}\n{bad}"
    )
    elsewhere = Finding("JM101", "k", "warning", "f", "m", Span(1, 0, 1, 6, bad.strip(), bad))
    state = State(bad, "constant", origin=bad, type=bad, dtype=bad, shape=(1,), value=bad, lines=(1,))
    function = FunctionReport(
        bad,
        "fails",
        1,
        state=(state,),
        notes=(bad,),
        signature=bad,
        lines=(LineCost(1, 1),),
        timing=Timing(left_out=bad, device=bad),
    )
    return Report(
        (function,), (finding, elsewhere), bad, Versions(bad, bad, bad), CellText(bad, bad, bad, bad), (bad,)
    )


def huge(lines: int = 5000, findings: int = 300) -> Report:
    """A cell of thousands of lines with hundreds of findings, functions and variables."""
    source = "%%jit\n" + "\n".join(
        f"    value_{i} = jnp.sin(value_{i - 1}) + {i}" for i in range(2, lines + 1)
    )
    found = tuple(
        Finding(
            "JM101",
            "tracer-bool",
            ("error", "warning", "note")[i % 3],
            f"f{i}",
            "a traced value " + "word " * 400,
            Span(n := 2 + i * 16, 4, n, 4 + len(f"value_{n}"), source.split("\n")[n - 1].strip()),
            tuple(f"name_{j}" for j in range(500)),
            (Fix("t", cell=source + "\npass"),),
            "h" * 50_000,
            "d\n" * 5000,
        )
        for i in range(findings)
    )
    state = tuple(State(f"w{i}" * 50, "constant", bytes=4, lines=tuple(range(1000))) for i in range(1000))
    functions = tuple(
        FunctionReport(
            f"f{i}",
            "ok",
            1,
            state=state,
            notes=("note " * 500,) * 100,
            lines=tuple(LineCost(n, n) for n in range(1, 4000)),
        )
        for i in range(100)
    )
    return Report(functions, found, "cpu", VERSIONS, CellText(source, magic="%%jit"), ("left out",) * 1000)


TRAIN = """%%jit --dyn model
def predict(x):
    return jnp.tanh(x @ model.w + model.b)

def train(x, y):
    model.w = model.w - lr * jax.grad(loss)(model.w, x, y)
    model.count = model.count + 1

train(x, y); predict(x)"""


def shared() -> Report:
    """Two functions with state in common, read by one and written by the other."""
    w = State("model.w", "dynamic", True, "attribute", shape=(8, 8), dtype="float32", bytes=256, lines=(3,))
    b = State("model.b", "dynamic", True, "attribute", shape=(8,), dtype="float32", bytes=32, lines=(3,))
    written = State("model.w", "dynamic", True, "attribute", shape=(8, 8), dtype="float32", bytes=256, lines=(6,),
                    written=True)  # fmt: skip
    count = State("model.count", "dynamic", True, "attribute", shape=(), dtype="int32", bytes=4, lines=(7,),
                  written=True)  # fmt: skip
    lr = State("lr", "constant", type="scalar", value="0.1", lines=(6,))
    timing = Timing(left_out="no timing was asked for")
    predict = FunctionReport("predict", "ok", 1, 1, 1, (w, b), Stages(0.002, 0.001, 0.03), timing)
    train = FunctionReport("train", "ok", 1, 1, 1, (written, count, lr), Stages(0.01, 0.004, 0.06), timing)
    return Report(
        (train, predict), (), "cpu", VERSIONS, CellText(TRAIN, "<ipython-input-7-abc>", "c5", "%%jit")
    )


TYPICAL = {"shared": shared, "good": good, "failing": failing, "stale": stale, "warnings": warnings}


def everything() -> Report:
    """A long cell of three functions with ten findings, thirty variables, timings and costs."""
    body = [f"    layer_{i} = jnp.tanh(layer_{i - 1} @ model.w{i} + model.b{i})" for i in range(1, 31)]
    lines = [
        "%%jit --dyn model.step -n 100", "def forward(x, train):", "    layer_0 = x", *body,
        "    if train and layer_30.sum() > 0:", "        layer_30 = layer_30 * keep(layer_30)",
        "    return layer_30", "", "def loss(x, y, train):", "    model.step = model.step + 1",
        "    return float(jnp.mean((forward(x, train) - y) ** 2)) / int(model.step)", "",
        "def update(x, y, rate):", "    print('update', rate)", "    for i in range(len(x)):",
        "        x[i] = x[i] - rate * y[i]", "    return x", "", "loss(inputs, targets, True); update(inputs, targets, 0.1)",
    ]  # fmt: skip
    source = "\n".join(lines)

    def found(
        code: str, kind: str, severity: str, function: str, line: int, text: str, *names: str
    ) -> Finding:
        at = lines[line - 1].index(text)
        span = Span(line, at, line, at + len(text), lines[line - 1].strip())
        mended = source.partition("\n")[2].replace(text, f"mended({text})")
        fixes = (Fix(f"write `mended({names[0]})`", "safe", True, "traced; equal to the run without jit on 1 call",
                     cell=mended),
                 Fix(f"make {names[0]} static", "unsafe", True, "traced", static_argnames=(names[0],)))  # fmt: skip
        words = f"`{text}` needs a value, and `{names[0]}` has none while jax traces `{function}`"
        return Finding(code, kind, severity, function, words, span, names, fixes, "compute it before the call.",  # type: ignore[arg-type]
                       "TracerBoolConversionError: Attempted boolean conversion of traced array with shape bool[].")  # fmt: skip

    findings = (
        found("JM101", "tracer-bool", "error", "forward", 34, "train and layer_30.sum() > 0", "layer_30", "train"),
        found("JM103", "tracer-array-conversion", "error", "loss", 40,
              "float(jnp.mean((forward(x, train) - y) ** 2))", "x"),
        found("JM102", "tracer-int", "error", "loss", 40, "int(model.step)", "model.step"),
        found("JM104", "in-place-update", "error", "update", 45, "x[i] = x[i] - rate * y[i]", "x"),
        found("JM303", "trace-time-print", "warning", "update", 43, "print('update', rate)", "rate"),
        found("JM405", "unrolled-loop", "warning", "update", 44, "for i in range(len(x)):", "x"),
        found("JM205", "state-write", "warning", "loss", 39, "model.step = model.step + 1", "model.step"),
        *(found("JM201", "captured-constant", "note", "forward", line, f"model.w{line - 3}", f"model.w{line - 3}")
          for line in (4, 5, 6)),
    )  # fmt: skip
    state = tuple(
        State(f"model.w{i}", "constant", False, "attribute", shape=(256, 256), dtype="float32", bytes=262144,
              lines=(i + 3,), stale=i == 7) for i in range(1, 31)
    )  # fmt: skip
    step = State(
        "model.step",
        "dynamic",
        True,
        "attribute",
        shape=(),
        dtype="int32",
        bytes=4,
        lines=(39, 40),
        written=True,
    )
    timing = Timing(
        eager=Sample(2.81e-3, 2.85e-3, 61e-6, 100, 7, 2.77e-3, (2.79e-3, 2.86e-3), (2.77e-3, 2.81e-3, 2.96e-3)),
        jit=Sample(338e-6, 341e-6, 8e-6, 1000, 7, 332e-6, (335e-6, 345e-6), (332e-6, 338e-6, 352e-6)),
        speedup=8.3, break_even_calls=12, device="cpu",
    )  # fmt: skip
    costs = tuple(LineCost(i + 3, 3, 4e6 / i, 5e5, jaxpr="a:f32[256] = tanh b") for i in range(1, 31))
    functions = (
        FunctionReport("forward", "fails", 1, state=state, lines=costs, cost=Cost(1.6e7, 8e6, 8_000_000)),
        FunctionReport("loss", "fails", 1, state=(step,), timing=Timing(left_out="not timed: `loss` does not trace")),
        FunctionReport("update", "ok", 3, 2, 2, (step,), Stages(0.21, 0.12, 1.84), timing, Cost(5e6, 8e6, 8_000_000),
                       notes=("results were compared on the first call only",)),
    )  # fmt: skip
    cell = CellText(source, "<ipython-input-8-abc>", "c6", lines[0])
    return Report(functions, findings, "cpu", VERSIONS, cell, ("the static search stopped after 3 s",))
