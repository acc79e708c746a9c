"""A corrected cell put to the test: only its definitions run, on copies, and their results are compared."""

from __future__ import annotations

import ast
import functools
import io
import itertools
import linecache
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jitmagic import quiet
from jitmagic.fixes import adopt
from jitmagic.fixes.rewrite.cells import Cell
from jitmagic.fixes.rewrite.place import Shape
from jitmagic.watched import Watched, plainly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jitmagic.fixes.prove import Prover
    from jitmagic.seen import Sample

_numbers = itertools.count(1)
SEEN = "__seen"
OUTPUTS = "__outputs"
NONE: adopt.Classes = {}


@dataclass(frozen=True)
class Outcome:
    """How a corrected cell did. Where it raised under jit, `error` and the name of its file say where."""

    holds: bool
    words: str
    error: BaseException | None = None
    file: str = ""
    printed: str = ""
    proved: bool = True
    """False where the plain function cannot run, so that there was nothing to compare with."""
    exact: bool = True
    """False where the values are those of the plain run, and types or structure are not."""


def define(cell: str, namespace: dict[str, Any]) -> str:
    """Run the definitions of a cell in `namespace` and return the name of the file they count as."""
    source = Cell(cell).module.code
    tree = ast.parse(source)
    tree.body = [s for s in tree.body if _defines(s)]
    file = f"<jitmagic fix {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    with quiet.held_back():
        exec(compile(tree, file, "exec"), namespace)
    return file


def _defines(node: ast.stmt) -> bool:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return True
    if not isinstance(node, ast.Assign):
        return False
    value = node.value
    if isinstance(value, ast.Call) and len(value.args) == 1 and _is_jit(value.func):
        value = value.args[0]
    return isinstance(value, ast.Lambda)


def _is_jit(node: ast.expr) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "jit"


def as_made(namespace: dict[str, Any], name: str) -> Any:
    """`f` or `Model.step` as the cell made it, compiled where the cell compiles it. Raises KeyError."""
    head, _, method = name.partition(".")
    found = namespace[head]
    if method:
        found = vars(found)[method]
    return found._checker.fn if isinstance(found, Watched) else found


def find(namespace: dict[str, Any], name: str) -> Any:
    """The plain function behind `f` or `Model.step`. Raises KeyError."""
    from jitmagic.watched import unwrap_jitted

    return unwrap_jitted(as_made(namespace, name))[0]


class Trial:
    """Tries corrected cells of one function on the calls that were kept."""

    def __init__(self, prover: Prover) -> None:
        self.prover, self.checker = prover, prover.checker
        self._wanted: tuple[list[Any], str] | None = None
        self._noted: list[frozenset[str]] | None = None
        self._changed: list[list[Any]] | None = None
        self._classes = frozenset(
            d.name
            for d in ast.parse(Cell(self.checker.cell.body).module.code).body
            if isinstance(d, ast.ClassDef)
        )

    # -- what is wanted

    def wanted(self) -> tuple[list[Any], str]:
        """Results of the user's plain function on the kept calls, and how they were had.

        A function that cannot run without jit either, because its loops trace their bodies, runs with
        `jax.disable_jit`, where these are Python loops. Raises what the function raises.
        """
        import jax

        if self._wanted is None:
            run = self._run(self.checker.fn)
            samples = self.prover.samples
            try:
                self._wanted = [run(s) for s in samples], "equal to the run without jit"
            except Exception as exc:
                if "JAX arrays are immutable" in str(exc):
                    self._wanted = [run(_as_numpy(s)) for s in samples], "equal to the run on NumPy arrays"
                    return self._wanted
                with jax.disable_jit(), _vmap_as_loop():
                    self._wanted = [run(s) for s in samples], "equal to the run with loops in Python"
        return self._wanted

    def writes(self, run: Callable[[Sample], Any]) -> list[frozenset[str]]:
        """Paths outside the function that a run of each kept call changes."""
        self._noted = []
        for sample in self.prover.samples:
            run(sample)
        noted, self._noted = self._noted, None
        return noted

    def _changed_arguments(self) -> list[list[Any]]:
        """For each kept call, what the plain function leaves in numpy arguments that it writes into."""
        if self._changed is None:
            numpy = self._wanted is not None and "NumPy" in self._wanted[1]
            self._changed = [self._changes_of(_as_numpy(s) if numpy else s) for s in self.prover.samples]
        return self._changed

    def _changes_of(self, sample: Sample) -> list[Any]:
        import numpy as np

        arrays = _numpy_leaves(sample)
        if not arrays:
            return []
        before, after = [a.copy() for a in arrays], []
        with self._aside(sample):
            try:
                self.checker.fn(*sample.args, **sample.kwargs)
            except Exception:
                return []
            after = [a.copy() for a in arrays]
        return [
            b
            for a, b in zip(before, after, strict=True)
            if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        ]

    def _run(self, fn: Callable[..., Any], target: adopt.Classes = NONE) -> Callable[[Sample], Any]:
        """A run of `fn` on a kept call that leaves nothing behind; its result is a copy."""
        import jax

        def run(sample: Sample) -> Any:
            args, kwargs = adopt.adopted((sample.args, sample.kwargs), target)
            with self._aside(sample):
                out = jax.block_until_ready(fn(*args, **kwargs))
                jax.effects_barrier()
                return _copied(adopt.taken_apart(out, self._classes))

        return run

    @contextmanager
    def _aside(self, sample: Sample) -> Iterator[None]:
        reach = self.checker.reach(sample.args, sample.kwargs)
        with ExitStack() as stack:
            stack.enter_context(_without_tracers(self.checker.namespace))
            stack.enter_context(quiet.undone(reach))
            stack.enter_context(_arrays_undone(sample))
            if self._noted is not None:
                stack.enter_context(_noting(reach, self._noted))
            stack.enter_context(quiet.held_back())
            stack.enter_context(plainly())
            yield

    # -- what a cell does

    def cell(
        self, cell: str, *, static: Sequence[str] = (), changes_result: bool = False, effects: bool = False,
        covers: bool = False, raises: bool = False,
    ) -> Outcome:  # fmt: skip
        """Whether the function of the corrected cell traces and gives what the plain one gives."""
        from jitmagic.measure.compare import compare

        samples = self.prover.samples
        if not samples:
            return Outcome(False, "not tried: no call was kept")
        namespace = dict(self.checker.namespace)
        try:
            file = define(cell, namespace)
            fn = find(namespace, self.checker.name)
        except Exception as exc:
            return Outcome(False, f"the corrected cell does not run: {type(exc).__name__}: {exc}")
        target = adopt.classes(namespace, self.checker.namespace)
        adopt.namespace(namespace, target)
        jitted, printed = self._jitted(fn, namespace, static), io.StringIO()
        try:
            with redirect_stdout(printed):
                got = [self._traced(jitted, s, target, printed) for s in samples]
        except Exception as exc:
            return Outcome(False, f"it still fails: {type(exc).__name__}", exc, file, printed.getvalue())
        try:
            plain = [self._run(fn, target)(s) for s in samples]
        except Exception as exc:
            return Outcome(False, f"it fails without jit: {type(exc).__name__}")
        try:
            wanted, how = self.wanted()
        except Exception as exc:
            if not _of_jax(exc) or changes_result or compare(plain, got):
                return Outcome(
                    False, f"the function without jit raises {type(exc).__name__}: nothing can be compared"
                )
            words = "traced; the same with and without jit; the uncorrected function cannot run without jit"
            return Outcome(True, words, printed=printed.getvalue(), proved=False)
        text = printed.getvalue()
        changed = self._changed_arguments()
        if any(not _among(arrays, result) for arrays, result in zip(changed, got, strict=True)):
            return Outcome(False, "the array that the function changes is not given back")
        if changes_result:
            if compare(plain, got):
                return Outcome(False, "jit and the plain run differ")
            if not compare(wanted, got):
                return Outcome(False, "it changes nothing")
            return Outcome(
                True, f"traced; with and without jit the same on {_calls(len(samples))}", printed=text
            )
        if effects:
            again = self.writes(lambda s: self._traced(jitted, s, target, io.StringIO()))
            if again != self.writes(self._run(self.checker.fn)):
                return Outcome(False, "it writes other things outside the function")
        for result in (got, plain):
            if differences := compare(wanted, result):
                own = not how.endswith("without jit")  # the user's own branches cannot run as they are
                if covers and own and result is got and _covered(wanted, got) and not compare(plain, got):
                    words = f"traced; holds the values of the run without jit on {_calls(len(samples))}"
                    return Outcome(True, words, printed=text, exact=False)
                return Outcome(False, f"the result differs from the plain run ({differences[0].reason})")
        words = f"traced; {how} on {_calls(len(samples))}"
        if raises:
            told = self._raises(jitted, target)
            if told is None:
                return Outcome(False, "it does not raise where the plain function does")
            words = f"{words}; {told}"
        return Outcome(True, words, printed=text)

    def _raises(self, jitted: Callable[..., Any], target: adopt.Classes) -> str | None:
        """Words about the corrected function on values for which the plain one raises; None where it does not."""
        from jitmagic.fixes import raising

        def run(fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
            sample = replace(self.prover.samples[0], args=args, kwargs=kwargs)
            if fn is jitted:
                self._traced(fn, sample, target, io.StringIO())
            else:
                self._run(fn)(sample)

        first = self.prover.samples[0]
        return raising.tried(
            functools.partial(run, self.checker.fn), functools.partial(run, jitted), first.args, first.kwargs
        )

    def _traced(
        self, jitted: Callable[..., Any], sample: Sample, target: adopt.Classes, printed: io.StringIO
    ) -> Any:
        import jax

        from jitmagic.tracing.compat import checking_leaks

        args, kwargs = adopt.adopted((sample.args, sample.kwargs), target)
        with self._aside(sample), redirect_stdout(printed), checking_leaks():
            out = jax.block_until_ready(jitted(*args, **kwargs))
            jax.effects_barrier()
            return _copied(adopt.taken_apart(out, self._classes))

    def _jitted(
        self, fn: Callable[..., Any], namespace: dict[str, Any], static: Sequence[str]
    ) -> Callable[..., Any]:
        checker = self.checker
        options = replace(checker.options, donate_argnames=(), donate_argnums=())
        if static:
            options = replace(
                options, static_argnames=tuple(dict.fromkeys([*options.static_argnames, *static]))
            )
        if checker.dyn:
            from jitmagic.compiled import StatefulMethod, compile_function

            made = compile_function(fn, checker.dyn, options, namespace)
            if isinstance(made, StatefulMethod):
                return lambda receiver, *args, **kwargs: made.of(receiver)(*args, **kwargs)
            return made
        fresh = functools.wraps(fn)(lambda *args, **kwargs: fn(*args, **kwargs))
        fresh.__name__ = (
            f"{getattr(fn, '__name__', 'function')} rewritten"  # no trace of the user's own function
        )
        return options.jit(fresh)

    # -- what expressions are

    def probe(self, cell: str) -> list[Shape]:
        """Runs the cell's function without jit on the kept calls; what went through `__seen(...)`, in order."""
        import jax

        seen: list[Shape] = []

        def note(value: Any) -> Any:
            for leaf in jax.tree.leaves(value)[:8]:
                seen.append(_shape(leaf))
            if not jax.tree.leaves(value):
                seen.append(Shape((), "", type=type(value).__name__))
            return value

        self._rehearse(cell, SEEN, note)
        return seen

    def outputs(self, cell: str) -> list[Any]:
        """Runs the cell's function until it asks `__outputs([f, g], *operands)`; what each function would return."""
        import jax

        found: list[Any] = []

        def ask(functions: Sequence[Callable[..., Any]], *operands: Any) -> Any:
            found[:] = [jax.eval_shape(f, *operands) for f in functions]
            raise StopIteration  # what comes after needs the result

        self._rehearse(cell, OUTPUTS, ask)
        return found

    def _rehearse(self, cell: str, name: str, function: Callable[..., Any]) -> None:
        """Run the cell's function without jit, with one more function in its names, as far as it goes."""
        namespace = {**self.checker.namespace, name: function}
        try:
            define(cell, namespace)
            fn = find(namespace, self.checker.name)
            for sample in self.prover.samples:
                self._run(fn)(sample)
        except Exception:
            pass  # what was seen before it failed is still true


@contextmanager
def _noting(reach: Any, into: list[frozenset[str]]) -> Iterator[None]:
    from jitmagic.state import snapshot

    before = snapshot.take(reach)
    yield
    into.append(frozenset(w.path for w in before.changes()))


@contextmanager
def _without_tracers(namespace: dict[str, Any]) -> Iterator[None]:
    """Dead tracers that an earlier trace left in the notebook's dicts and lists are out of the way."""
    from jitmagic.tracing.compat import is_tracer

    put_back: list[Callable[[], None]] = []
    for value in list(namespace.values()):
        if isinstance(value, dict) and value is not namespace:
            items = [(k, v) for k, v in value.items() if not is_tracer(k)]  # a dead key cannot even be hashed
            alive = [(k, v) for k, v in items if not is_tracer(v)]
            if len(alive) != len(value):
                _refill(value, alive)
                put_back.append(functools.partial(_refill, value, items))
        elif isinstance(value, list) and any(is_tracer(v) for v in value):
            kept_list = list(value)
            value[:] = [v for v in value if not is_tracer(v)]
            put_back.append(functools.partial(value.__setitem__, slice(None), kept_list))
    try:
        yield
    finally:
        for restore in put_back:
            restore()


def _refill(target: dict[Any, Any], kept: Sequence[tuple[Any, Any]]) -> None:
    target.clear()
    target.update(kept)


def _shape(leaf: Any) -> Shape:
    import numpy as np

    shape, dtype = tuple(np.shape(leaf)), str(getattr(leaf, "dtype", type(leaf).__name__))
    try:
        value = int(leaf) if not shape and dtype.startswith(("int", "uint")) else None
    except Exception:
        value = None
    return Shape(shape, dtype, value, type(leaf).__module__.partition(".")[0])


def _copied(value: Any) -> Any:
    """Arrays that numpy may change later as copies."""
    import jax
    import numpy as np

    return jax.tree.map(lambda v: v.copy() if isinstance(v, np.ndarray) else v, value)


@contextmanager
def _arrays_undone(sample: Sample) -> Iterator[None]:
    """Put back numpy arguments that a run writes into."""
    arrays = _numpy_leaves(sample)
    before = [a.copy() for a in arrays]
    try:
        yield
    finally:
        for array, old in zip(arrays, before, strict=True):
            if array.flags.writeable:
                array[...] = old


def _numpy_leaves(sample: Sample) -> list[Any]:
    import jax
    import numpy as np

    return [v for v in jax.tree.leaves((sample.args, sample.kwargs)) if isinstance(v, np.ndarray)]


def _among(arrays: Sequence[Any], result: Any) -> bool:
    """Whether each array is one of the leaves of the result."""
    import jax
    import numpy as np

    leaves = [np.asarray(v) for v in jax.tree.leaves(result) if np.shape(v)]
    return all(
        any(v.shape == a.shape and np.allclose(v, a, 1e-4, 1e-5, equal_nan=True) for v in leaves)
        for a in arrays
    )


def _covered(wanted: Any, got: Any) -> bool:
    """Every value of `wanted` is at its place in `got`, which may hold more, in wider types and shapes."""
    import numpy as np

    if wanted is None:
        return True
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(k in got and _covered(v, got[k]) for k, v in wanted.items())
    if isinstance(wanted, (list, tuple)):
        enough = isinstance(got, (list, tuple)) and len(got) >= len(wanted)
        return enough and all(_covered(w, g) for w, g in zip(wanted, got, strict=False))
    if isinstance(got, (list, tuple)):
        return bool(got) and _covered(wanted, got[0])
    try:
        spread = np.broadcast_to(np.asarray(wanted), np.shape(got))
        return bool(np.allclose(spread, np.asarray(got), 1e-4, 1e-5, equal_nan=True))
    except (TypeError, ValueError):
        return False


def _of_jax(exc: BaseException) -> bool:
    """The exception says that jax, not the user's arithmetic, could not go on."""
    tracing = ("Tracer", "Concretization", "NonConcrete")
    return type(exc).__name__.startswith(tracing) or "JAX arrays are immutable" in str(exc)


@contextmanager
def _vmap_as_loop() -> Iterator[None]:
    """`jax.vmap` over leading axes as a Python loop, so that the mapped function sees real values."""
    import jax
    import jax.numpy as jnp

    def vmap(
        fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, **options: Any
    ) -> Callable[..., Any]:
        if out_axes != 0 or not (in_axes == 0 or isinstance(in_axes, (tuple, list))):
            return original(fun, in_axes, out_axes, **options)

        def mapped(*args: Any) -> Any:
            axes = [0] * len(args) if in_axes == 0 else list(in_axes)
            if any(a not in (0, None) for a in axes):
                return original(fun, in_axes, out_axes, **options)(*args)
            size = next(len(jax.tree.leaves(v)[0]) for v, a in zip(args, axes, strict=True) if a == 0)
            rows = [
                fun(
                    *(
                        v if a is None else jax.tree.map(lambda x, i=i: x[i], v)
                        for v, a in zip(args, axes, strict=True)
                    )
                )
                for i in range(size)
            ]
            return jax.tree.map(lambda *xs: jnp.stack(xs), *rows)

        return mapped

    original: Any = jax.vmap
    jax.vmap = vmap  # type: ignore[assignment]
    try:
        yield
    finally:
        jax.vmap = original


def _as_numpy(sample: Sample) -> Sample:
    """The call with copies in NumPy, which may be written into, in place of the arrays of jax."""
    import jax
    import numpy as np

    def plain(value: Any) -> Any:
        return np.array(value) if isinstance(value, jax.Array) and not _is_key(value) else value

    return replace(sample, args=jax.tree.map(plain, sample.args), kwargs=jax.tree.map(plain, sample.kwargs))


def _is_key(value: Any) -> bool:
    import jax

    return bool(jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key))


def _calls(number: int) -> str:
    return "1 call" if number == 1 else f"{number} calls"
