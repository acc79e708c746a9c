"""What became of each line, what is alive at the peak, what bounds a program."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from jitmagic.measure import machine
from jitmagic.measure.lowered import Lowered, equations_by_line, fused_with, lines_of_fusions, lowered_lines
from jitmagic.measure.peak import peak

SOURCE = """%%jit -q --no-time
A = jnp.ones((32, 32))
def f(x):
    y = x @ A
    z = jnp.tanh(y) + 1
    return z * 2
f(jnp.ones((16, 32)))"""


class TestLines:
    def test_equations_instructions_fusions_and_constants(self, notebook):
        notebook.ok(SOURCE)
        report = notebook.report()
        product, activation, last = report.functions[0].lines
        assert [c.line for c in (product, activation, last)] == [4, 5, 6]
        assert product.constants == ("A",) and activation.constants == ()
        assert "dot_general" in product.jaxpr and "f32[16,32]" in product.jaxpr and " x " in product.jaxpr
        assert "tanh" in activation.jaxpr and "add" in activation.jaxpr
        assert product.hlo or product.fusions
        assert 6 in activation.fused_with and 5 in last.fused_with

    def test_click_shows_them_and_text_names_the_lines(self, notebook):
        notebook.ok(SOURCE)
        report = notebook.report()
        page = report.to_html()
        assert "equations and compiled instructions of each line" in page and "dot_general" in page
        assert "fused with" in report.to_text(width=160) and "dot_general" not in report.to_text()

    def test_names_are_the_same_over_all_lines(self):
        def f(x, w):
            y = x + w
            return y * 3

        first = f.__code__.co_firstlineno
        found = equations_by_line(jax.jit(f).trace(jnp.ones(2), jnp.ones(2)).jaxpr, __file__)
        assert found == {first + 1: "a:f32[2] = add x w", first + 2: "b:f32[2] = mul a 3.0"}

    def test_what_is_shown_is_limited(self, notebook):
        body = "\n".join(f"    x = jnp.sin(x) * {i}" for i in range(200))
        loop = "    for _ in range(300):\n        x = x * 2 + 1\n"
        notebook.ok(f"%%jit -q --no-time\ndef f(x):\n{body}\n{loop}    return x\nf(jnp.ones(3))")
        report = notebook.report()
        assert len(report.to_html()) < 60_000
        assert max(len(c.jaxpr) for c in report.functions[0].lines) < 9 * 125

    def test_a_typical_report_stays_under_60_kb(self, notebook):
        notebook.ok(SOURCE.replace(" --no-time", " -n 2"))
        assert len(notebook.report().to_html().encode()) < 60_000


HLO = """HloModule jit_f
FileNames
1 "cell.py"
2 "other.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=2}
2 {file_name_id=1 function_name_id=1 line=4 end_line=4 column=1 end_column=2}
3 {file_name_id=2 function_name_id=1 line=99 end_line=99 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}
3 {file_location_id=3 parent_frame_id=3}

%fused (p: f32[3]) -> f32[3] {
  %p = f32[3]{0} parameter(0)
  %a = f32[3]{0} tanh(%p), metadata={op_name="x" stack_frame_id=1}
  ROOT %b = f32[3]{0} sine(%a), metadata={op_name="x" stack_frame_id=3}, backend_config={"a":1}
}
ENTRY %main (p: f32[3]) -> f32[3] {
  %x = f32[3]{0} parameter(0), metadata={op_name="x" stack_frame_id=1}
  %my_fusion = f32[3]{0} fusion(%x), kind=kLoop, calls=%fused, metadata={op_name="x" stack_frame_id=3}
  ROOT %old = f32[3]{0} negate(%my_fusion), metadata={op_name="x" source_file="cell.py" source_line=8}
}
"""


def test_reading_an_optimised_program():
    found = lowered_lines(HLO, "cell.py")
    assert set(found) == {3, 4, 8}  # the frame in other.py was called from line 4
    assert found[3].fusions == ["my_fusion"] and found[8].fusions == ["negate"]
    assert found[4].instructions == ["%b = f32[3]{0} sine(%a)"]
    fusions = lines_of_fusions(found)
    assert [fused_with(found, fusions, n) for n in (3, 8, 77)] == [([4], 0), ([], 0), ([], 0)]
    assert lowered_lines(HLO, "nowhere.py") == {}


class TestPeak:
    def found(self, f, *args):
        return peak(jax.jit(f).trace(*args).jaxpr, __file__)

    def test_the_line_and_what_is_alive(self):
        def f(x):
            big = jnp.outer(x, x)
            small = big.sum(axis=0)
            return small * 2

        result = self.found(f, jnp.ones(100))
        line = f.__code__.co_firstlineno + 1  # `x` and its two reshaped forms are there while `big` is made
        assert (result.line, result.bytes) == (line, 40_000 + 3 * 400)
        assert [(a.name, a.type, a.bytes, a.line) for a in result.alive[:2]] == [
            ("value", "float32[100,100]", 40_000, line), ("x", "float32[100]", 400, None),
        ]  # fmt: skip

    def test_inner_programs_hold_memory_too(self):
        def f(x):
            def step(c, _):
                return c + jnp.outer(c, c).sum(axis=0), None

            return jax.lax.scan(step, x, None, 3)[0]

        result = self.found(f, jnp.ones(100))
        assert result.bytes >= 40_000 and result.line == f.__code__.co_firstlineno + 2

    def test_constants_are_alive_throughout(self):
        held = jnp.ones(1000)
        program = jax.jit(lambda x: x + held).trace(jnp.ones(1000)).jaxpr
        from jitmagic.tracing import compat

        names = {id(c): "held" for c in compat.constants_of(program)}
        assert {a.name for a in peak(program, __file__, names).alive} == {"x", "held", "value"}

    def test_dynamic_variables_have_the_names_of_the_notebook(self, notebook):
        notebook.ok("model = {'w': jnp.ones((20, 20))}")
        notebook.ok(
            "%%jit -q --no-time --dyn model['w']\ndef f(x):\n    return x @ model['w']\nf(jnp.ones(20))"
        )
        (function,) = notebook.report().functions
        assert {a.name for a in function.cost.peak.alive} >= {"model['w']", "x"}

    def test_nothing_to_hold(self):
        assert self.found(lambda x: x, jnp.ones(3)) is None


class TestBound:
    RATES = machine.Machine(100e9, 10e9, 40e9)

    @pytest.mark.parametrize(
        ("flops", "moved", "by", "least"),
        [(1e9, 1e6, "arithmetic", 0.01), (1e6, 1e9, "memory", 0.1), (1e6, 2e6, "memory", 5e-5)],
    )
    def test_the_slower_of_the_two(self, flops, moved, by, least):
        found = machine.bound(flops, moved, self.RATES)
        assert (found.by, found.least_s) == (by, pytest.approx(least)) and found.intensity == flops / moved

    def test_unknown_cost(self):
        assert machine.bound(None, 1.0, self.RATES) is None and machine.bound(1.0, None, self.RATES) is None

    def test_bytes_after_fusing_and_of_loops(self):
        compiled = jax.jit(lambda x: jnp.sin(x) + 1).lower(jnp.ones(1000)).compile()
        assert machine.moved_bytes(compiled, 99.0, loops=True) == 99.0
        assert machine.moved_bytes(compiled, 99e9, loops=False) < 1e5

    def test_what_calls_a_library_on_a_gpu_is_counted_as_written(self):
        """XLA tells -1 bytes for each such call there."""
        text = 'ENTRY %main { ROOT %p = f32[9,9] custom-call(%x, %x), custom_call_target="__cublas$gemm" }'
        device = SimpleNamespace(platform="gpu")
        compiled = SimpleNamespace(
            as_text=lambda: text,
            cost_analysis=lambda: {"bytes accessed": -1.0},
            runtime_executable=lambda: SimpleNamespace(local_devices=lambda: [device]),
        )
        assert machine.moved_bytes(compiled, 99.0, loops=False) == 99.0
        device.platform = "cpu"
        assert machine.moved_bytes(compiled, 99.0, loops=False) == -1.0

    @pytest.mark.parametrize(
        ("told", "room"),
        [
            ({"bytes_limit": 80 << 30, "bytes_in_use": 10 << 30}, True),
            ({"bytes_limit": 80 << 30, "bytes_in_use": 79 << 30}, False),
            ({"bytes_in_use": 1}, True),
            (None, True),
        ],
    )
    def test_a_full_device_is_not_measured(self, told, room):
        assert machine.has_room(SimpleNamespace(memory_stats=lambda: told)) is room

    def test_the_device_is_the_programs_own(self):
        compiled = jax.jit(jnp.sin).lower(1.0).compile()
        assert machine.device_of(compiled) is jax.devices()[0] and machine.device_of(None) is jax.devices()[0]

    def test_measured_once_for_a_device(self, notebook, monkeypatch):
        times = []
        monkeypatch.setattr(machine, "best_of", lambda call, times_=3, **k: times.append(1) or 0.01)
        monkeypatch.setattr(machine, "dispatch_s", lambda _: 0.0)
        machine._measured.cache_clear()
        for _ in range(2):
            notebook.ok("%%jit -q -n 1 -r 3\ndef f(x):\n    return x @ x\nf(jnp.ones((8, 8)))")
        assert len(times) == 3 and notebook.report().functions[0].cost.bound.by in ("memory", "arithmetic")
        machine._measured.cache_clear()

    def test_no_time_measures_nothing(self, notebook):
        machine._measured.cache_clear()
        notebook.ok("%%jit -q --no-time\ndef f(x):\n    return x @ x\nf(jnp.ones((8, 8)))")
        assert notebook.report().functions[0].cost.bound is None


def test_of_many_lines_in_one_fusion_the_first_are_told_and_the_rest_counted() -> None:
    lines = {n: Lowered(["one_fusion"]) for n in range(1, 31)} | {40: Lowered(["one_fusion", "two_fusion"])}
    lines |= {n: Lowered(["two_fusion"]) for n in range(41, 44)}
    fusions = lines_of_fusions(lines)
    assert fused_with(lines, fusions, 2) == ([1, 3, 4, 5, 6, 7, 8, 9], 22)
    assert fused_with(lines, fusions, 40) == ([1, 2, 3, 4, 5, 6, 7, 8], 25)
    assert fused_with(lines, fusions, 41) == ([40, 42, 43], 0)
