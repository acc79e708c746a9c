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
from jitmagic.fixes import adopt, remake
from jitmagic.fixes.around import (
    among,
    arrays_undone,
    as_arrays,
    as_numpy,
    copied,
    covered,
    noting,
    numpy_leaves,
    of_jax,
    shape_of,
    vmap_as_loop,
    with_values,
    without_tracers,
)
from jitmagic.fixes.rewrite.cells import Cell
from jitmagic.fixes.rewrite.place import Shape
from jitmagic.state import roots
from jitmagic.watched import Watched, plainly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jitmagic.fixes.prove import Prover
    from jitmagic.options import JitOptions
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
    cost: str = ""
    """What the corrected function does not do that the user's does."""


NOT_GIVEN_BACK = Outcome(False, "the array that the function changes is not given back")


@dataclass(frozen=True)
class _Ran:
    """A corrected function that ran on every kept call, compiled and plain."""

    jitted: Any
    target: adopt.Classes
    static: Sequence[str]
    got: list[Any]
    plain: list[Any]
    printed: str


def prepare(
    cell: str, notebook: dict[str, Any], more: dict[str, Any] | None = None
) -> tuple[dict[str, Any], str, adopt.Classes]:
    """The notebook's names as they are after the definitions of a corrected cell, in a copy.

    Instances of its classes are copies that belong to the new ones, and functions that it makes of others are made
    again. Also the name of the file that the cell counts as, and the new class for each old one.
    """
    namespace = {**notebook, **(more or {})}
    file = define(cell, namespace)
    target = adopt.classes(namespace, notebook)
    adopt.namespace(namespace, target)
    remake.again(ast.parse(Cell(cell).module.code), file, namespace, target)
    return namespace, file, target


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
    return isinstance(value, ast.Lambda) or _transforms(value)


TRANSFORMS = frozenset("vmap grad value_and_grad jacobian jacfwd jacrev hessian checkpoint remat".split())


def _transforms(node: ast.expr) -> bool:
    """`vmap(grad(f))`: a function made of others, which have to be the corrected ones."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    if getattr(node.func, "attr", getattr(node.func, "id", "")) not in TRANSFORMS:
        return False
    rest = [*node.args[1:], *(k.value for k in node.keywords)]
    plain = all(not isinstance(n, ast.Call) for r in rest for n in ast.walk(r))
    return plain and (isinstance(node.args[0], ast.Name | ast.Lambda) or _transforms(node.args[0]))


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


def with_state(
    prover: Prover,
    fn: Callable[..., Any],
    options: JitOptions,
    namespace: dict[str, Any],
    more: Sequence[str] = (),
) -> Callable[..., Any] | None:
    """The function compiled with its dynamic variables, where the user's has any: declared, or a framework's, or
    `more` that a correction makes dynamic."""
    from jitmagic.compiled import StatefulMethod, compile_function, holds_variables

    checker = prover.checker
    dyn = ",".join(filter(None, (checker.dyn, *more))) or None
    if not checker.settings.compile and not dyn:
        return None
    args = prover.samples[0].args if prover.samples else ()
    if not dyn and checker.stateful(args) is None:
        return None
    as_in_jax = not dyn and not holds_variables(args[:1])
    made = compile_function(fn, dyn, options, namespace, as_in_jax=as_in_jax)
    if isinstance(made, StatefulMethod):
        return lambda receiver, *args, **kwargs: made.of(receiver)(*args, **kwargs)
    return made


class Trial:
    """Tries corrected cells of one function on the calls that were kept."""

    def __init__(self, prover: Prover) -> None:
        self.prover, self.checker = prover, prover.checker
        self._wanted: tuple[list[Any], str] | None = None
        self._noted: list[frozenset[str]] | None = None
        self._changed: list[list[Any]] | None = None
        self._trying: Callable[..., Any] | None = None
        """The corrected function, where it has copies of the notebook's objects as its own."""
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
        if self._wanted is None:
            run = self._run(self.checker.fn)
            samples = self.prover.samples
            try:
                self._wanted = [run(s) for s in samples], "equal to the run without jit"
            except Exception as exc:
                if "JAX arrays are immutable" in str(exc):
                    self._wanted = [run(as_numpy(s)) for s in samples], "equal to the run on NumPy arrays"
                    return self._wanted
                self._wanted = self._with_loops_in_python(exc)
        return self._wanted

    def _with_loops_in_python(self, refused: Exception) -> tuple[list[Any], str]:
        """Raises what jax said of its loop where these fail too."""
        import jax

        run = self._run(self.checker.fn)
        try:
            with jax.disable_jit(), vmap_as_loop():
                return [run(s) for s in self.prover.samples], "equal to the run with loops in Python"
        except Exception as exc:
            raise refused if of_jax(refused) else exc from None

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
            self._changed = [self._changes_of(as_numpy(s) if numpy else s) for s in self.prover.samples]
        return self._changed

    def _changes_of(self, sample: Sample) -> list[Any]:
        import numpy as np

        arrays = numpy_leaves(sample)
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
            new
            for array, old, new in zip(arrays, before, after, strict=True)
            if not np.array_equal(old, new, equal_nan=old.dtype.kind == "f") or self._writes(sample, array)
        ]

    def _writes(self, sample: Sample, array: Any) -> bool:
        """The plain function writes into this argument, if only what is there already."""
        if not array.flags.writeable:
            return False
        array.flags.writeable = False
        try:
            self._run(self.checker.fn)(sample)
        except ValueError as exc:
            return "read-only" in str(exc)
        except Exception:
            return False
        finally:
            array.flags.writeable = True
        return False

    def _run(self, fn: Callable[..., Any], target: adopt.Classes = NONE) -> Callable[[Sample], Any]:
        """A run of `fn` on a kept call that leaves nothing behind; its result is a copy."""
        import jax

        def run(sample: Sample) -> Any:
            args, kwargs = adopt.adopted((sample.args, sample.kwargs), target)
            with self._aside(sample), self.prover.in_time():
                out = jax.block_until_ready(with_values(fn(*args, **kwargs)))
                jax.effects_barrier()
                return copied(self._with_variables(adopt.taken_apart(out, self._classes), sample))

        return run

    @contextmanager
    def _aside(self, sample: Sample) -> Iterator[None]:
        reach = self.checker.reach(sample.args, sample.kwargs)
        with ExitStack() as stack:
            stack.enter_context(without_tracers(self.checker.namespace))
            stack.enter_context(quiet.undone(reach))
            if self._trying is not None:
                stack.enter_context(quiet.undone(roots.reach(self._trying)))
            stack.enter_context(arrays_undone(sample))
            if self._noted is not None:
                stack.enter_context(noting(reach, self._noted))
            stack.enter_context(quiet.held_back())
            stack.enter_context(plainly())
            yield

    # -- what a cell does

    def cell(
        self, cell: str, *, static: Sequence[str] = (), changes_result: bool = False, effects: bool = False,
        covers: bool = False, raises: bool = False, dyn: Sequence[str] = (),
    ) -> Outcome:  # fmt: skip
        """Whether the function of the corrected cell traces and gives what the plain one gives."""
        from jitmagic.measure.compare import compare

        samples = self.prover.samples
        if not samples:
            return Outcome(False, "not tried: no call was kept")
        try:
            namespace, file, target = prepare(cell, self.checker.namespace)
            fn = find(namespace, self.checker.name)
        except Exception as exc:
            return Outcome(False, f"the corrected cell does not run: {type(exc).__name__}: {exc}")
        fn = adopt.method(fn, target)
        self._trying = fn if target else None
        jitted, printed = self._jitted(fn, namespace, static, dyn), io.StringIO()
        try:
            with redirect_stdout(printed):
                got = [self._traced(jitted, s, target, printed) for s in samples]
        except Exception as exc:
            return Outcome(False, f"it still fails: {type(exc).__name__}", exc, file, printed.getvalue())
        try:
            plain = self._plainly(fn, target, static)
        except Exception as exc:
            return Outcome(False, f"it fails without jit: {type(exc).__name__}")
        ran = _Ran(jitted, target, static, got, plain, printed.getvalue())
        try:
            wanted, how = self.wanted()
        except Exception as exc:
            if not of_jax(exc) or changes_result or compare(plain, got):
                return Outcome(
                    False, f"the function without jit raises {type(exc).__name__}: nothing can be compared"
                )
            words = "traced; the same with and without jit; the uncorrected function cannot run without jit"
            return Outcome(True, words, printed=ran.printed, proved=False)
        if changes_result:
            return self._changed_result(ran, wanted)
        if effects:
            again = self.writes(lambda s: self._traced(jitted, s, target, io.StringIO()))
            if again != self.writes(self._run(self.checker.fn)):
                return Outcome(False, "it writes other things outside the function")
        found = self._same_results(ran, wanted, how, covers)
        if not found.holds or not raises:
            return found
        told = self._raises(jitted, target)
        if told is None:
            return Outcome(False, "it does not raise where the plain function does")
        return replace(found, words=f"{found.words}; {told}")

    def _plainly(self, fn: Callable[..., Any], target: adopt.Classes, static: Sequence[str]) -> list[Any]:
        """Results of the corrected function without jit. Raises what it raises."""
        run, samples = self._run(fn, target), self.prover.samples
        try:
            return [run(s) for s in samples]
        except ArithmeticError:
            # Python's numbers raise where both sides of a choice are computed; arrays do not
            fixed = {*self.checker.options.static_parameters(self.checker.fn), *static}
            return [run(as_arrays(s, self.checker.fn, fixed)) for s in samples]

    def _given_back(self, ran: _Ran, wanted: Sequence[Any]) -> str | None:
        """What it costs that arrays which the function changes come as results; None where they do not come."""
        import jax

        pairs = zip(self._changed_arguments(), ran.got, strict=True)
        if all(among(arrays, result) for arrays, result in pairs):
            return ""
        if all(not jax.tree.leaves(w) for w in wanted):
            return None
        return "the caller's own array stays as it is"

    def _changed_result(self, ran: _Ran, wanted: Sequence[Any]) -> Outcome:
        """The correction changes what the function returns: with and without jit alike, and not as before."""
        from jitmagic.measure.compare import compare

        if self._given_back(ran, wanted) is None:
            return NOT_GIVEN_BACK
        if compare(ran.plain, ran.got):
            return Outcome(False, "jit and the plain run differ")
        if not compare(wanted, ran.got):
            return Outcome(False, "it changes nothing")
        words = f"traced; with and without jit the same on {_calls(len(ran.got))}"
        return Outcome(True, words, printed=ran.printed)

    def _same_results(self, ran: _Ran, wanted: Sequence[Any], how: str, covers: bool) -> Outcome:
        """The correction gives what the uncorrected function gives, compiled and not."""
        from jitmagic.measure.compare import compare

        cost = self._given_back(ran, wanted)
        if cost is None:
            return NOT_GIVEN_BACK
        calls = _calls(len(ran.got))
        if differences := compare(wanted, ran.got):
            own = not how.endswith("without jit")  # the user's own branches cannot run as they are
            if {d.reason for d in differences} == {"values"} and self._by_rounding(ran):
                how = f"{how} up to rounding"
            elif covers and own and covered(wanted, ran.got) and not compare(ran.plain, ran.got):
                words = f"traced; holds the values of the run without jit on {calls}"
                return Outcome(True, words, printed=ran.printed, exact=False)
            else:
                return Outcome(False, f"the result differs from the plain run ({differences[0].reason})")
        if differences := compare(wanted, ran.plain):
            return Outcome(False, f"the result differs from the plain run ({differences[0].reason})")
        return Outcome(True, f"traced; {how} on {calls}", printed=ran.printed, exact=not cost, cost=cost)

    def _by_rounding(self, ran: _Ran) -> bool:
        """Rounding alone makes the compiled results of the corrected function differ from its plain ones."""
        from jitmagic.fixes.rounding import explains

        for sample, plain, got in zip(self.prover.samples, ran.plain, ran.got, strict=True):
            call = adopt.adopted((sample.args, sample.kwargs), ran.target)
            with self._aside(sample):
                if not explains(self.checker, ran.jitted, call, (plain, got), ran.static):
                    return False
        return True

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
        with self._aside(sample), redirect_stdout(printed), checking_leaks(), self.prover.in_time():
            out = jax.block_until_ready(jitted(*args, **kwargs))
            jax.effects_barrier()
            return copied(self._with_variables(adopt.taken_apart(out, self._classes), sample))

    def _with_variables(self, out: Any, sample: Sample) -> Any:
        """The result with what the run left in the variables of frameworks, where the function has any."""
        import numpy as np

        stateful: Any = self.checker.stateful(sample.args) if self.checker.settings.compile else None
        places = getattr(stateful, "places", ())
        known = [p.adapter is not None and not p.adapter.is_rng for p in places]
        if not any(known):
            return out
        values = [v for v, own in zip(stateful.read(), known, strict=True) if own]
        return out, [np.array(v) if hasattr(v, "shape") else v for v in values]

    def _jitted(
        self,
        fn: Callable[..., Any],
        namespace: dict[str, Any],
        static: Sequence[str],
        more: Sequence[str] = (),
    ) -> Callable[..., Any]:
        options = replace(self.checker.options, donate_argnames=(), donate_argnums=())
        if static:
            options = replace(
                options, static_argnames=tuple(dict.fromkeys([*options.static_argnames, *static]))
            )
        stateful = with_state(self.prover, fn, options, namespace, more)
        if stateful is not None:
            return stateful
        fresh = functools.wraps(fn)(lambda *args, **kwargs: fn(*args, **kwargs))
        fresh.__name__ = (
            f"{getattr(fn, '__name__', 'function')} rewritten"  # no trace of the user's own function
        )
        return options.trial(fresh)

    # -- what expressions are

    def probe(self, cell: str) -> list[Shape]:
        """Runs the cell's function without jit on the kept calls; what went through `__seen(...)`, in order."""
        import jax

        seen: list[Shape] = []

        def note(value: Any) -> Any:
            for leaf in jax.tree.leaves(value)[:8]:
                seen.append(shape_of(leaf))
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
        try:
            namespace, _, target = prepare(cell, self.checker.namespace, {name: function})
            fn = find(namespace, self.checker.name)
            self._trying = fn if target else None
            for sample in self.prover.samples:
                self._run(fn, target)(sample)
        except Exception:
            pass  # what was seen before it failed is still true


def _calls(number: int) -> str:
    return "1 call" if number == 1 else f"{number} calls"
