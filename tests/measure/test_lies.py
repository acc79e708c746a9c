"""What a timing hides is told: each of these fails where the thing is not looked for."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.measure import hlo, lies, machine
from jitmagic.measure.clocks import clocked
from jitmagic.measure.lies import dead_lines
from jitmagic.report import Sample


def remarks(notebook, source, line="%%jit -q -n 2 -r 3"):
    notebook.ok(f"{line}\n{source}")
    return {r.kind: r for r in notebook.report().functions[0].remarks}


class TestFolding:
    SOURCE = "A = jnp.arange(4096.0).reshape(64, 64)\ndef f():\n    return jnp.sum(A @ A)\nf()"

    def test_what_is_left_and_what_to_make_dynamic(self, notebook):
        found = remarks(notebook, self.SOURCE)["folded"]
        assert found.text.startswith("0 of 2 operations are left") and "`--dyn A`" in found.text

    def test_it_is_timed_again_with_the_constant_as_an_input(self, notebook):
        notebook.ok("%%jit -q -n 2 -r 3\n" + self.SOURCE)
        report = notebook.report()
        timing = report.functions[0].timing
        assert timing.constant_folded and timing.unfolded_by == ("A",) and timing.unfolded.median_s > 0
        assert "compiled, A dynamic" in report.to_text(width=160)
        assert (report.functions[0].traces, report.functions[0].compiles) == (1, 1)

    def test_a_function_of_its_arguments_is_not_folded(self, notebook):
        assert "folded" not in remarks(notebook, "def f(a):\n    return a @ a\nf(jnp.ones((8, 8)))")

    def test_without_a_name_for_the_constant_nothing_is_timed_again(self, notebook):
        source = (
            "def f():\n    a = jnp.arange(600.0).reshape(20, 30)\n    return jnp.sum(jnp.sin(a @ a.T))\nf()"
        )
        found = remarks(notebook, source)
        timing = notebook.report().functions[0].timing
        assert timing.unfolded is None and ("folded" in found) == timing.constant_folded


class TestDeadCode:
    def test_the_line_and_its_operations(self, notebook):
        found = remarks(notebook, "def f(x):\n    y = jnp.cos(x) * 2\n    return x + 1\nf(jnp.ones(3))")[
            "dead-code"
        ]
        assert found.line == 3 and found.text.startswith("2 operations of line 3")

    def test_what_a_framework_returns_beside_the_result_is_used(self, notebook):
        source = (
            "from flax import nnx\nnet = nnx.Linear(2, 1, rngs=nnx.Rngs(0))\n@nnx.jit\ndef f(net, x):\n"
            "    net.bias[...] = net.bias[...] * jnp.cos(x)\n    return x + 1\nf(net, 2.0)"
        )
        assert "dead-code" not in remarks(notebook, source)

    def test_inner_programs_and_effects(self):
        def f(x):
            def step(c, _):
                unused = jnp.sin(c)  # noqa: F841
                jax.debug.print("{}", c)
                return c * 2, None

            y = jax.jit(jnp.tanh)(x)  # noqa: F841
            return jax.lax.scan(step, x, None, 3)[0]

        first = f.__code__.co_firstlineno
        program = jax.jit(f).trace(jnp.ones(3)).jaxpr
        assert dead_lines(program, __file__) == ((first + 2, 1), (first + 6, 1))

    def test_used_code_is_not_dead(self, notebook):
        assert "dead-code" not in remarks(
            notebook, "def f(x):\n    y = jnp.cos(x)\n    return y * 2\nf(jnp.ones(3))"
        )


class TestDispatch:
    def sample(self, seconds):
        return Sample(seconds, seconds, 0.0, 1, 3)

    def test_a_call_as_short_as_nothing(self, monkeypatch):
        monkeypatch.setattr(machine, "dispatch_s", lambda _: 4e-6)
        assert "takes 4 µs here, so most of these 5 µs" in lies.dispatch(self.sample(5e-6), None).text
        assert lies.dispatch(self.sample(50e-6), None) is None
        assert lies.dispatch(self.sample(5e-3), None) is None

    def test_a_tiny_function_in_a_cell(self, notebook, monkeypatch):
        monkeypatch.setattr(machine, "dispatch_s", lambda _: 1.0)
        assert "dispatch" in remarks(notebook, "def f(x):\n    return x + 1\nf(jnp.ones(3))")

    def test_an_empty_call_takes_microseconds(self):
        assert 0 < machine.dispatch_s(jax.devices()[0]) < 1e-2


class TestIdle:
    PROGRAM = """HloModule jit_f

%body (q: f32[10]) -> f32[10] {
  %q = f32[10]{0} parameter(0)
  ROOT %step = f32[10]{0} CALL, metadata={op_name="jit(f)/while/body/mul"}
}
ENTRY %main (x: f32[10]) -> f32[10] {
  %x = f32[10]{0} parameter(0)
  ROOT %loop = f32[10]{0} while(%x), condition=%test, body=%body, backend_config={"known_trip_count":{"n":"TURNS"}}
}
"""

    @pytest.mark.parametrize(
        ("platform", "works_s", "turns", "call", "said"),
        [
            ("gpu", 2e-3, 5000, "multiply(%q, %q)", True),
            ("gpu", 6e-3, 5000, "multiply(%q, %q)", False),  # it works for most of the time
            ("cpu", 2e-3, 5000, "multiply(%q, %q)", False),
            ("gpu", 2e-3, 50, "multiply(%q, %q)", False),
            (
                "gpu", 2e-3, 5000, 'custom-call(%q), custom_call_target="xla_ffi_python_gpu_callback"',
                False,
            ),  # it waits for Python
        ],
    )  # fmt: skip
    def test_a_device_that_waits_for_its_operations(self, platform, works_s, turns, call, said):
        program = hlo.read(self.PROGRAM.replace("TURNS", str(turns)).replace("CALL", call))
        sample = Sample(10e-3, 10e-3, 0.0, 1, 3)
        found = lies.idle(sample, works_s, program, SimpleNamespace(platform=platform))
        assert bool(found) is said
        if found:
            assert "the gpu works for 2 ms of these 10 ms" in found.text and "5,001 operations" in found.text


class TestCopies:
    SOURCE = "def f(x, n):\n    return x[0] * n\nf({}, 2.0)"

    def clocks(self, monkeypatch, host, device):
        """Times as they would be where a copy takes what `host` takes more than `device`."""
        samples = iter([Sample(host, host, 0.0, 1, 3), Sample(device, device, 0.0, 1, 3)])

        def time_pair(eager, jit, **more):
            eager(), jit()
            from jitmagic.report import Timing

            return Timing(next(samples), next(samples))

        monkeypatch.setattr(lies.timing, "time_pair", time_pair)

    def test_arrays_of_numpy_are_named_with_their_share(self, notebook, monkeypatch):
        notebook.ok(
            "%%jit -q -n 2 -r 3\ndef f(x, n):\n    return x[0] * n\nx = np.ones((512, 512), np.float32)"
        )
        self.clocks_later(notebook, monkeypatch)

    def clocks_later(self, notebook, monkeypatch):
        checker = notebook.ns["f"]._checker
        notebook.ok("f(x, 2.0)")
        checker.seen.remarks.clear()
        self.clocks(monkeypatch, 1e-3, 2e-4)
        found = lies.host_copies(
            checker.compiled_for(()),
            (notebook.ns["x"], 2.0),
            {},
            checker.seen.calls[0].leaves,
            lambda: None,
            1.0,
        )
        assert found.text.startswith("`x` is an array of NumPy") and "80 % of the time" in found.text
        assert "200 µs" in found.text
        self.clocks(monkeypatch, 1e-3, 0.99e-3)
        assert (
            lies.host_copies(
                checker.compiled_for(()),
                (notebook.ns["x"], 2.0),
                {},
                checker.seen.calls[0].leaves,
                lambda: None,
                1.0,
            )
            is None
        )
        assert checker.seen.traces == 1 and checker.shim.traced == 1

    def test_arrays_of_jax_are_not_copied(self, notebook, monkeypatch):
        monkeypatch.setattr(lies, "COPY_SHARE", -1e9)
        assert "host-copy" not in remarks(notebook, self.SOURCE.format("jnp.ones((512, 512))"))
        assert "host-copy" in remarks(notebook, self.SOURCE.format("np.ones((512, 512), np.float32)"))


class TestOwnClocks:
    CELL = "import time\n\ndef f(x):\n    return x\n\nt = time.perf_counter()\n{}\nprint(time.perf_counter() - t)"

    @pytest.mark.parametrize(
        ("body", "first", "waits"),
        [
            ("f(1)", True, False),
            ("f(1).block_until_ready()", True, True),
            ("jax.block_until_ready(f(1))", True, True),
            ("float(f(1))", True, True),
            ("for _ in range(10):\n    y = f(1)", True, False),
        ],
    )
    def test_stretches_between_two_readings(self, body, first, waits):
        (found,) = clocked(self.CELL.format(body), "f")
        assert (found.line, found.first, found.waits) == (6, first, waits)

    def test_a_call_before_the_clock(self):
        (found,) = clocked("f(1)\n" + self.CELL.format("f(2)"), "f")
        assert not found.first

    def test_other_functions_and_other_clocks(self):
        assert clocked(self.CELL.format("g(1)"), "f") == []
        assert clocked("f(1)\nf(2)", "f") == []
        assert clocked("def g():\n    t = time.time()\n    f(1)\n    return time.time() - t", "f") == []

    def test_magics(self):
        (found,) = clocked("%%jit\ndef f(x):\n    return x\n%timeit -n 3 f(1)", "f")
        assert (found.line, found.waits) == (4, False)
        assert clocked("%timeit f(1).block_until_ready()", "f")[0].waits
        assert clocked("%timeit g(1)", "f") == []

    def test_in_a_cell(self, notebook):
        found = remarks(notebook, self.CELL.format("y = f(jnp.ones(3))"), "%%jit -q --no-time")
        assert found["first-call"].line == 7 and "lines 7 to 9" in found["first-call"].text
        assert "does not wait for the result" in found["unblocked"].text


def test_a_first_batch_that_is_far_slower_is_no_part_of_the_mean():
    from tests.measure.test_timing import Clock, time_pair

    clock, calls = Clock(), [0]

    def jit():
        calls[0] += 1
        clock.now += 0.5 if calls[0] == 3 else 0.1  # after two warm-up calls

    timing = time_pair(None, jit, clock=clock, loops=1, repeats=5)
    assert timing.jit.mean_s == pytest.approx(0.1) and timing.jit.repeats == 4
    assert "the first run compiled took 5 times as long" in timing.left_out


def test_remarks_stand_in_view(notebook):
    notebook.ok("%%jit -q -n 2 -r 3\n" + TestFolding.SOURCE)
    report = notebook.report()
    assert "read the numbers with care:" in str(report)
    page = report.to_html()
    assert "<details" not in page[page.index("read the numbers") - 60 : page.index("read the numbers")]


def test_numpy_stays_what_it_was(notebook):
    notebook.ns["held"] = held = np.ones((64, 64), np.float32)
    notebook.ok("%%jit -q -n 2 -r 3\ndef f(x):\n    return x * 2\nf(held)")
    assert notebook.ns["held"] is held and (held == 1).all()


def test_the_bound_says_when_the_machine_was_busy_while_its_rates_were_taken():
    from jitmagic.render.measured import _bound
    from jitmagic.report import Bound, Timing

    bound = Bound("arithmetic", 2e-4, 150.0, 2.7, 67e9, 25e9)
    taken = Sample(1.43e-4, 1.43e-4, 0.0, 50, 5, 1.4e-4, (1.4e-4, 1.5e-4), (1.43e-4,))
    assert _bound(bound, Timing()).endswith(
        "150 flop for each byte moved, and this machine does 2.7 flop in the time that it moves one "
        "(67 Gflop/s, 25 GB/s); at least 200 µs a call"
    )
    assert "faster than these rates" in (text := _bound(bound, Timing(jit=taken))) and "at least" not in text
    slower = Sample(4e-4, 4e-4, 0.0, 50, 5, 4e-4, (4e-4, 4e-4), (4e-4,))
    assert _bound(bound, Timing(jit=slower)).endswith(
        "at least 200 µs a call, measured 400 µs, 50 % of what is possible"
    )


def test_nothing_is_dead_where_every_result_is_read_inside_loops_too() -> None:
    def program(x):
        def body(carry, row):
            unread = jnp.sin(carry)
            return carry + row, unread

        total, _ = jax.lax.scan(body, x[0], x)
        return total

    closed = jax.make_jaxpr(program)(jnp.arange(4.0))
    first = program.__code__.co_firstlineno
    assert dead_lines(closed, __file__) == ((first + 2, 1),)
