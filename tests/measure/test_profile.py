"""From the events of a trace to seconds by line: overlaps, loops, what was handed to other threads, fusions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jitmagic.measure import hlo, profile
from jitmagic.tracing import compat

PROGRAM = """HloModule jit_f, is_scheduled=true
FileNames
1 "cell.py"
2 "site-packages/library.py"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=2}
2 {file_name_id=1 function_name_id=1 line=4 end_line=4 column=1 end_column=2}
3 {file_name_id=2 function_name_id=1 line=99 end_line=99 column=1 end_column=2}
4 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}
3 {file_location_id=3 parent_frame_id=3}
4 {file_location_id=4 parent_frame_id=1}

%fused (p: f32[10]) -> f32[10] {
  %p = f32[10]{0} parameter(0)
  %a = f32[10]{0} tanh(%p), metadata={stack_frame_id=1}
  ROOT %b = f32[10]{0} add(%a, %a), metadata={stack_frame_id=3}
}
%body (q: f32[10]) -> f32[10] {
  %q = f32[10]{0} parameter(0)
  ROOT %step = f32[10]{0} multiply(%q, %q), metadata={stack_frame_id=4}
}
%test (r: f32[10]) -> pred[] {
  %r = f32[10]{0} parameter(0)
  ROOT %done = pred[] constant(true)
}
ENTRY %main (x: f32[10]) -> f32[10] {
  %x = f32[10]{0} parameter(0)
  %fusion = f32[10]{0} fusion(%x), kind=kLoop, calls=%fused, metadata={stack_frame_id=3}
  %loop = f32[10]{0} while(%fusion), condition=%test, body=%body, metadata={stack_frame_id=4}, """ + (
    'backend_config={"known_trip_count":{"n":"7"}}\n  ROOT %sort = f32[10]{0} sort(%loop), metadata={stack_frame_id=2}\n}\n'
)
READ = hlo.read(PROGRAM)
ROWS: dict[str, tuple[list[tuple[int, str, float, float]], dict[str, float]]] = {
    "one after the other": (
        [(0, "fusion", 0, 10), (0, "sort", 10, 40)], {"fusion": 10, "sort": 30},
    ),
    "two at once share the time": (
        [(0, "fusion", 0, 10), (1, "sort", 5, 10)], {"fusion": 7.5, "sort": 2.5},
    ),
    "one in two threads counts once": (
        [(0, "sort", 0, 10), (1, "sort", 0, 10)], {"sort": 10},
    ),
    "a loop has what its operations leave": (
        [(0, "loop", 0, 10), (0, "step", 2, 5), (0, "step", 5, 8)], {"loop": 4, "step": 6},
    ),
    "handed to other threads until its end": (
        [(0, "sort", 0, 2), (1, "end: sort", 50, 50), (1, "fusion", 60, 70)], {"sort": 50, "fusion": 10},
    ),
    "what runs goes before what waits": (
        [(0, "sort", 0, 2), (0, "fusion", 2, 32), (1, "end: sort", 42, 42)], {"sort": 12, "fusion": 30},
    ),
    "other programs and gaps do not count": (
        [(0, "fusion", 0, 10), (0, "other", 20, 40), (0, "sort", 50, 60)], {"fusion": 10, "sort": 10},
    ),
}  # fmt: skip


def trace(rows, module="jit_f", device=False):
    """The rows `(thread, name, start, end)` in the form of jax's own `ProfileData`."""
    lanes = {}
    for lane, name, start, end in rows:
        told = [] if name.startswith("end: ") else [("hlo_op", name), ("hlo_module", module)]
        event = SimpleNamespace(name="a_kernel" if device else name, start_ns=start, end_ns=end, stats=told)
        lanes.setdefault(lane, []).append(event)
    lines = [SimpleNamespace(events=events) for events in lanes.values()]
    return SimpleNamespace(
        planes=[SimpleNamespace(name="/device:GPU:0" if device else "/host:CPU", lines=lines)]
    )


@pytest.mark.parametrize(("rows", "wanted"), ROWS.values(), ids=ROWS)
def test_time_is_shared_among_what_works_at_the_moment(rows, wanted):
    found = profile.operation_times(trace(rows), READ)
    assert {name: round(s * 1e9, 6) for name, s in found.items() if s} == wanted


def test_kernels_of_a_gpu_are_known_by_their_operation_and_another_program_is_not():
    rows = [(0, "fusion", 0, 10)]
    assert profile.operation_times(trace(rows, device=True), READ) == {"fusion": 1e-8}
    assert profile.operation_times(trace(rows, module="jit_g"), READ) == {}


GRAPH = """HloModule jit_f, is_scheduled=true

%body (q: f32[10]) -> f32[10] {
  %q = f32[10]{0} parameter(0)
  %lib.1 = (f32[10]{0}, s8[4]{0}) custom-call(%q, %q), custom_call_target="__cublas$gemm"
  %part = f32[10]{0} get-tuple-element(%lib.1), index=0
  %step.2 = f32[5]{0} fusion(%part), kind=kLoop, calls=%inner
  ROOT %lib.2 = f32[10]{0} custom-call(%step.2), custom_call_target="__cublas$gemm"
}
ENTRY %main (x: f32[10]) -> f32[10] {
  %x = f32[10]{0} parameter(0)
  %first = f32[10]{0} custom-call(%x), custom_call_target="__cudnn$conv"
  %mul.1 = f32[10]{0} fusion(%first), kind=kLoop, calls=%twice
  %mul.2 = f32[10]{0} fusion(%mul.1), kind=kLoop, calls=%again
  %second = f32[10]{0} custom-call(%mul.2), custom_call_target="__cublas$gemm"
  %loop = f32[10]{0} while(%second), condition=%test, body=%body
  ROOT %add_fusion.7 = f32[7]{0} fusion(%loop), kind=kLoop, calls=%fused
}
"""
GRAPHS: dict[str, tuple[str, list[str]]] = {
    "calls of libraries one after the other": ("conv mul_1 gemm", ["first", "mul.1", "second"]),
    "a name of the compiler's own": ("add_fusion_7", ["add_fusion.7"]),
    "what is only moved is no operation": (
        "Memset conv MemcpyD2D mul_1 gemm add_fusion_7",
        ["first", "mul.1", "second", "add_fusion.7"],
    ),
    "the turns of a loop": (
        "conv mul_1 mul_1 gemm gemm step_2 gemm gemm step_2 gemm add_fusion_7",
        [
            "first",
            "mul.1",
            "mul.2",
            "second",
            "lib.1",
            "step.2",
            "lib.2",
            "lib.1",
            "step.2",
            "lib.2",
            "add_fusion.7",
        ],
    ),
    "two equal fusions share a kernel": (
        "conv mul_1 mul_1 gemm add_fusion_7",
        ["first", "mul.1", "mul.2", "second", "add_fusion.7"],
    ),
    "a call with several kernels": (
        "conv mul_1 mul_1 gemm gemm reduce step_2 gemm",
        ["first", "mul.1", "mul.2", "second", "lib.1", "lib.1", "step.2", "lib.2"],
    ),
}


@pytest.mark.parametrize(("kernels", "wanted"), GRAPHS.values(), ids=GRAPHS)
def test_kernels_that_a_gpu_was_given_at_once_are_known_by_name_and_order(kernels, wanted):
    events = [profile.OperationEvent(t, t + 1, name, 0) for t, name in enumerate(kernels.split())]
    assert [e.name for e in profile._operations_of(events, hlo.read(GRAPH))] == wanted


def test_kernels_of_a_graph_count_and_those_of_another_program_do_not():
    told = {"hlo_op": "command_buffer_3", "hlo_module": "jit_f"}
    events = [
        SimpleNamespace(name="fusion", start_ns=0, end_ns=10, stats=told.items()),
        SimpleNamespace(name="sort", start_ns=20, end_ns=50, stats={**told, "hlo_module": "jit_g"}.items()),
    ]
    lines = [SimpleNamespace(events=events)]
    data = SimpleNamespace(planes=[SimpleNamespace(name="/device:GPU:0", lines=lines)])
    assert profile.operation_times(data, READ) == {"fusion": 1e-8}


def timed(monkeypatch, rows, **options):
    monkeypatch.setattr(compat, "profiled", lambda run: run() or trace(rows))
    monkeypatch.setattr(profile, "is_user_file", lambda name: "library" not in name)
    return profile.line_times(lambda: 0, READ, "cell.py", 1.0, **options)


def test_a_fusion_shares_its_time_by_the_work_of_its_lines(monkeypatch):
    rows = [(0, "fusion", 0, 68e3), (0, "loop", 68e3, 100e3), (0, "sort", 100e3, 150e3)]
    found = {t.line: (round(t.seconds * 1e6, 3), t.shared) for t in timed(monkeypatch, rows)}
    # ten tanh at 60 on line 3, ten additions at 8 in a library that line 4 calls
    assert found == {3: (60.0, True), 5: (32.0, False), 4: (58.0, True)}


LOST = """%sum (u: f32[]) -> f32[] {
  %u = f32[] parameter(0)
  ROOT %plus = f32[] add(%u, %u), metadata={SUM}
}
%inside (o: f32[10]) -> f32[10] {
  %o = f32[10]{0} parameter(0)
  %dot = f32[10]{0} dot(%o, %o), metadata={op_name="jit(f)/while" stack_frame_id=2}
  ROOT %next = f32[10]{0} tanh(%dot), metadata={op_name="jit(f)/while/body/tanh" stack_frame_id=4}
}
ENTRY %main (x: f32[10]) -> f32[10] {
  %x = f32[10]{0} parameter(0)
  %window = f32[10]{0} reduce-window(%x), window={size=1}, to_apply=%sum
  %last = f32[10]{0} sine(%window), metadata={op_name="jit(f)/sin" stack_frame_id=2}
  ROOT %loop = f32[10]{0} while(%last), body=%inside, metadata={op_name="jit(f)/while" stack_frame_id=2}
}
"""


@pytest.mark.parametrize(
    ("told", "operation", "unplaced", "line"),
    [
        ("", "dot", [], 5),  # the compiler has given it the name of the loop: it is of what reads it
        ('op_name="sum" stack_frame_id=1', "window", [3], 3),
        ('op_name="sum"', "window", [3], 3),
        ('op_name="sum"', "window", [], 4),
        ('op_name="jit(f)/sum"', "window", [3], 4),
    ],
)
def test_an_operation_without_a_place_of_its_own(monkeypatch, told, operation, unplaced, line):
    program = hlo.read(PROGRAM[: PROGRAM.index("%fused")] + LOST.replace("SUM", told))
    monkeypatch.setattr(compat, "profiled", lambda run: run() or trace([(0, operation, 0, 1e6)]))
    monkeypatch.setattr(profile, "is_user_file", lambda name: True)
    (found,) = profile.line_times(lambda: 0, program, "cell.py", 1.0, unplaced=unplaced)
    assert found.line == line


def test_lines_of_another_file_stand_at_the_end_with_their_text(monkeypatch, tmp_path):
    other = tmp_path / "helper.py"
    other.write_text("\n\nx = 1\ny = x + 2\n")
    program = hlo.read(PROGRAM.replace('"cell.py"', f'"{other}"'))
    monkeypatch.setattr(compat, "profiled", lambda run: run() or trace([(0, "sort", 0, 1e6)]))
    (found,) = profile.line_times(lambda: 0, program, "cell.py", 1.0)
    assert (found.line, found.cell, found.source) == (4, str(other), "y = x + 2")


def raises(kind):
    def profiled(run):
        raise kind

    return profiled


@pytest.mark.parametrize(
    ("program", "call_s", "profiled", "reason"),
    [
        (READ, 10e-6, None, "too short"),
        (READ, 1.0, lambda run: run() or trace([(0, "sort", 0, 1e3)]), "too short"),
        (hlo.Hlo(), 1.0, None, "too long"),
        (hlo.read(PROGRAM.replace('"7"', '"300000"')), 1.0, None, "300,003 operations"),
        (READ, 1.0, raises(compat.ProfilerBusy), "another tool holds the profiler"),
        (READ, 1.0, raises(compat.NoProfiler), "no profiler"),
        (READ, 1.0, lambda run: run() or trace([(0, "done", 0, 1e6)]), "from which lines"),
    ],
)
def test_why_lines_are_not_measured(monkeypatch, program, call_s, profiled, reason):
    monkeypatch.setattr(compat, "profiled", profiled)
    monkeypatch.setattr(profile, "is_user_file", lambda name: True)
    with pytest.raises(profile.NotProfiled, match=reason):
        profile.line_times(lambda: 0, program, "cell.py", call_s)


def test_a_helper_in_another_cell_has_its_own_line_and_the_estimate_is_called_so(notebook):
    notebook.ok("def helper(x):\n    return jnp.sort(x)")
    notebook.ok("%%jit -q -n 1 -r 1\ndef f(x):\n    return helper(x).sum()\nf(jnp.arange(300_000.0)[::-1])")
    report = notebook.report()
    (slowest, *_) = sorted(report.functions[0].line_times, key=lambda t: -t.seconds)
    assert slowest.cell is not None and (slowest.line, slowest.source) == (2, "return jnp.sort(x)")
    assert "measured" in report.to_text() and "estimate" not in report.to_text()
    notebook.ok("%%jit -q -n 1 -r 1\ndef f(x):\n    return x + 1\nf(1.0)")
    text = notebook.report().to_text()
    assert "estimate" in text and "too short to be measured" in " ".join(text.split())


def test_the_users_own_trace_goes_on_and_the_report_says_why(notebook, tmp_path):
    notebook.ns["where"] = str(tmp_path / "mine")
    notebook.ok("jax.profiler.start_trace(where)")
    notebook.ok("%%jit -q -n 1 -r 1\ndef f(x):\n    return jnp.sort(x)\nf(jnp.arange(300_000.0)[::-1])")
    notebook.ok("jax.profiler.stop_trace()")
    (function,) = notebook.report().functions
    assert function.line_times == () and function.cost.by_line == "another tool holds the profiler"
    assert list((tmp_path / "mine").rglob("*.xplane.pb"))


def test_profile_looks_longer_and_save_keeps_the_trace(notebook, tmp_path):
    notebook.ok(
        f"%%jit -q -n 1 -r 1 --profile --save {tmp_path / 'run.json'}\ndef f(x):\n    return jnp.tanh(x) @ x\n"
        "f(jnp.ones((64, 64)))"
    )
    assert notebook.report().functions[0].line_times
    assert list((tmp_path / "run.trace").rglob("*.xplane.pb"))
