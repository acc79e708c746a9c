"""Is the line that the report puts first the one that costs most?

    python benchmarks/lines.py              all functions, 10 rounds
    python benchmarks/lines.py --only sort  those whose name has the word

Fifty functions. In each, one line at a time is replaced by a cheap one of the same shape (behind the `~`). The time
that this saves, by the best of some rounds in turn, is held against the times by line that the report gives, and
against its estimate from counted operations. Exit status 1 where the first line by measure saves most in fewer than
45 of 50.
"""

from __future__ import annotations

import argparse
import linecache
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads wait for each other where other programs run

import jax
import jax.numpy as jnp
import numpy as np

from jitmagic.measure import hlo
from jitmagic.measure.cost import line_costs
from jitmagic.measure.profile import NotProfiled, line_times

WANTED = 0.9
ARGUMENTS = "x, w, v, i, k, t, s"

TABLE = """
sort, product, rfft:
  a = x @ w ~ x
  b = jnp.sort(x, axis=0) ~ x
  c = jnp.abs(jnp.fft.rfft(x)) ~ x[:, :151]
sort rows:
  a = jnp.sort(x, axis=1) ~ x
  b = jnp.exp(a) ~ a
  c = b @ w ~ b
argsort then gather:
  o = jnp.argsort(v) ~ i[:v.size]
  a = v[o] * 2 ~ v * 2
  b = jnp.tanh(a) ~ a
cumsum:
  a = jnp.cumsum(x, axis=0) ~ x
  b = jnp.sin(x) ~ x
  c = a * b ~ a
fft and product:
  a = jnp.abs(jnp.fft.fft2(x)) ~ x
  b = x @ w ~ x
  c = b + 1 ~ b
three products:
  a = x @ w ~ x
  b = a @ t ~ jnp.broadcast_to(a[:, :1], (300, 900))
  c = b.T @ b ~ jnp.outer(b[0], b[1])
small and large product:
  a = x[:50] @ w ~ x[:50]
  b = w @ t ~ t
  c = jnp.tanh(b) ~ b
solve:
  a = jnp.linalg.solve(x + 300 * jnp.eye(300), w) ~ w
  b = x @ w ~ x
  c = jnp.sort(w) ~ w
cholesky:
  a = x @ x.T + 300 * jnp.eye(300) ~ 300 * jnp.eye(300)
  b = jnp.linalg.cholesky(a) ~ a
  c = jnp.log(jnp.abs(b) + 1) ~ b
svd:
  a = x @ w ~ x
  b = jnp.linalg.svd(a[:100, :100], compute_uv=False) ~ a[0, :100]
  c = jnp.sort(x) ~ x
eigh:
  a = x + x.T ~ x
  b = jnp.linalg.eigh(a[:150, :150])[0] ~ a[0, :150]
  c = jnp.exp(-a) ~ a
qr:
  a = jnp.linalg.qr(x)[0] ~ x
  b = a @ w ~ a
  c = jnp.cos(b) ~ b
inverse:
  a = jnp.linalg.inv(x[:200, :200] + 200 * jnp.eye(200)) ~ x[:200, :200]
  b = jnp.tanh(x) ~ x
  c = x @ w ~ x
determinant:
  a = jnp.linalg.slogdet(x + 300 * jnp.eye(300))[1] ~ x[0, 0]
  b = jnp.sort(x, axis=0) ~ x
  c = jnp.exp(b) ~ b
transcendental chain:
  a = s + 1 ~ s
  b = jnp.sin(a) ** 2 ~ a
  c = b * 3 ~ b
power:
  a = jnp.abs(s) ** 1.7 ~ s
  b = a + s ~ a
  c = b * b ~ b
tanh and add:
  a = s * 2 ~ s
  b = jnp.tanh(jnp.tanh(a)) ~ a
  c = b - a ~ b
erf:
  a = jax.scipy.special.erf(s) ~ s
  b = jnp.maximum(a, 0) ~ a
  c = b + 1 ~ b
gamma:
  a = jax.scipy.special.gammaln(jnp.abs(s) + 1) ~ s
  b = jnp.exp(s) ~ s
  c = a + b ~ a
softmax:
  a = jax.nn.softmax(s.reshape(1000, 1000)) ~ s.reshape(1000, 1000)
  b = a * 2 ~ a
  c = b.sum(1) ~ b[:, 0]
logsumexp:
  a = jax.scipy.special.logsumexp(s.reshape(1000, 1000), axis=1) ~ s[:1000]
  b = jnp.sqrt(jnp.abs(s)) ~ s
  c = b * 2 ~ b
variance:
  a = s.reshape(1000, 1000).var(axis=0) ~ s[:1000]
  b = jnp.log1p(jnp.abs(s)) ~ s
  c = b + a[0] ~ b
arctan2:
  a = jnp.arctan2(s, s + 1) ~ s
  b = s * s ~ s
  c = a + b ~ a
where:
  a = jnp.where(s > 0, s, -s) ~ s
  b = jnp.exp(jnp.sin(a)) ~ a
  c = b + 1 ~ b
gather:
  a = s[k] ~ s
  b = a + 1 ~ a
  c = jnp.sort(v) ~ v
scatter:
  a = jnp.zeros(1000).at[i].add(s) ~ s[:1000]
  b = s * 2 ~ s
  c = jnp.sqrt(jnp.abs(b)) ~ b
segment sum:
  a = jax.ops.segment_sum(s, i, 1000) ~ s[:1000]
  b = jnp.tanh(s) ~ s
  c = b + 1 ~ b
searchsorted:
  a = jnp.searchsorted(v, s) ~ s
  b = jnp.exp(s) ~ s
  c = a + b ~ b
interp:
  a = jnp.interp(s, v, v) ~ s
  b = s + 1 ~ s
  c = a * b ~ a
top k:
  a = jax.lax.top_k(s, 10)[0] ~ s[:10]
  b = jnp.abs(s) ~ s
  c = b * 2 ~ b
bincount:
  a = jnp.bincount(i, length=1000) ~ i[:1000]
  b = jnp.cos(s) ~ s
  c = b * b ~ b
unique:
  a = jnp.unique(i, size=1000) ~ i[:1000]
  b = jnp.sin(s) ~ s
  c = b + 1 ~ b
take along:
  o = jnp.argsort(x, axis=1) ~ jnp.broadcast_to(i[:300], (300, 300)) % 300
  a = jnp.take_along_axis(x, o, 1) ~ x
  b = a @ w ~ a
scan:
  a = jax.lax.scan(lambda c, r: (jnp.tanh(w @ c + r), None), v[:300], x)[0] ~ v[:300]
  b = jnp.sort(x, axis=0) ~ x
  c = b + 1 ~ b
short scan:
  a = jax.lax.scan(lambda c, r: (c * 0.9 + r, c), v[:300], x)[1] ~ x
  b = x @ w @ w ~ x
  c = jnp.sort(b) ~ b
fori_loop:
  a = jax.lax.fori_loop(0, 20, lambda n, c: jnp.sin(c) + n, x) ~ x
  b = a @ w ~ a
  c = jnp.sort(x[:30]) ~ x[:30]
while_loop:
  a = jax.lax.while_loop(lambda c: c[0] < 30, lambda c: (c[0] + 1, c[1] @ w / 300), (0, x))[1] ~ x
  b = jnp.sort(x) ~ x
  c = b * a ~ b
map:
  a = jax.lax.map(jnp.sort, x) ~ x
  b = jnp.exp(a) ~ a
  c = b @ w ~ b
cond:
  a = jax.lax.cond(v[0] > -9, lambda y: y @ w @ w, lambda y: y, x) ~ x
  b = jnp.tanh(x) ~ x
  c = jnp.cumsum(b, axis=1) ~ b
associative scan:
  a = jax.lax.associative_scan(jnp.multiply, s) ~ s
  b = jnp.exp(s) ~ s
  c = a + b ~ a
two layers:
  a = jnp.tanh(x @ t) ~ jnp.broadcast_to(x[:, :1], (300, 900))
  b = jnp.tanh(a @ t.T) ~ a[:, :300]
  c = jax.nn.softmax(b) ~ b
attention:
  q = x @ w ~ x
  a = jax.nn.softmax(q @ x.T) ~ q
  b = a @ x ~ a
  c = jnp.sort(b, axis=0) ~ b
convolution:
  a = jax.lax.conv(x.reshape(1, 1, 300, 300), w[:15, :15].reshape(1, 1, 15, 15), (1, 1), 'SAME') ~ x
  b = jnp.tanh(x) ~ x
  c = x @ w ~ x
gradient:
  a = jax.grad(lambda y: jnp.tanh(y @ w).sum())(x) ~ x
  b = jnp.sort(a, axis=0) ~ a
  c = b + 1 ~ b
vmap of a solve:
  a = jax.vmap(lambda r: jnp.linalg.solve(r.reshape(10, 10) + 10 * jnp.eye(10), r[:10]))(x[:, :100]) ~ x[:, :10]
  b = x @ w ~ x
  c = jnp.tanh(b) ~ b
einsum:
  a = jnp.einsum('ij,jk,kl->il', x, w, x) ~ x
  b = jnp.sort(a) ~ a
  c = b - a ~ b
norms:
  a = jnp.linalg.norm(x[:, None, :] - w[None, :100, :], axis=-1) ~ x[:, :100]
  b = jnp.sort(a, axis=1) ~ a
  c = jnp.exp(-b) ~ b
outer:
  a = jnp.outer(v, v[:1000]) ~ jnp.broadcast_to(v[:, None], (v.size, 1000))
  b = jnp.sin(a) ~ a
  c = b.sum(0) ~ b[0]
random:
  a = jax.random.normal(jax.random.key(0), s.shape) ~ s
  b = s + a ~ a
  c = jnp.abs(b) ~ b
median:
  a = jnp.median(x, axis=0) ~ x[0]
  b = x @ w ~ x
  c = jnp.tanh(b + a) ~ b
"""  # noqa: E501
"""Fifty functions: their lines, each with its cheap replacement. Every line's value is part of the result."""


def table() -> dict[str, list[tuple[str, str]]]:
    """The rows of `TABLE` by name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for text in TABLE.strip().splitlines():
        if not text.startswith(" "):
            rows = found.setdefault(text.removesuffix(":"), [])
            continue
        row, _, cheap = text.strip().partition(" ~ ")
        rows.append((row, cheap))
    return found


def inputs() -> tuple[object, ...]:
    """`x`, `w` 300 x 300, `v` 3,000 sorted numbers, `i` and `k` indices, `t` 300 x 900, `s` a million numbers."""
    r = np.random.default_rng(0)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(r.standard_normal(shape, np.float32))

    size = 1_000_000
    small, large = jnp.asarray(r.integers(0, 1000, size)), jnp.asarray(r.integers(0, size, size))
    return (
        normal(300, 300),
        normal(300, 300),
        jnp.sort(normal(3000)),
        small,
        large,
        normal(300, 900),
        normal(size),
    )


def functions(
    name: str, rows: list[tuple[str, str]]
) -> tuple[Callable[..., object], list[Callable[..., object]]]:
    """The function, and it with each line replaced in turn."""
    whole = [row for row, _ in rows]
    cheap = [f"{row.partition('=')[0]}= {other}" for row, other in rows]
    variants = [[*whole[:n], cheap[n], *whole[n + 1 :]] for n in range(len(rows))]
    made = [_made(f"{name} {n}", lines) for n, lines in enumerate([whole, *variants])]
    return made[0], made[1:]


def _made(name: str, lines: list[str]) -> Callable[..., object]:
    names = [line.partition("=")[0].strip() for line in lines]
    head, end = f"def f({ARGUMENTS}):\n", f"    return {', '.join(names)}\n"
    source = "".join((head, *(f"    {line}\n" for line in lines), end))
    file = f"<lines {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space: dict[str, Any] = {"jax": jax, "jnp": jnp}
    exec(compile(source, file, "exec"), space)
    made: Callable[..., object] = space["f"]
    return made


def best(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """Seconds of the fastest run of each call, in turn."""
    for call in calls:
        jax.block_until_ready(call())
    out = [float("inf")] * len(calls)
    for _ in range(rounds):
        for n, call in enumerate(calls):
            start = time.perf_counter()
            jax.block_until_ready(call())
            out[n] = min(out[n], time.perf_counter() - start)
    return out


def judged(
    name: str, rows: list[tuple[str, str]], args: tuple[object, ...], rounds: int
) -> tuple[bool, bool]:
    """Whether the measured and the estimated first line is the one that saves most; prints the row."""
    whole, variants = functions(name, rows)
    file = whole.__code__.co_filename
    traced = [jax.jit(f).trace(*args) for f in (whole, *variants)]
    compiled = [t.lower().compile() for t in traced]
    calls = [lambda c=c: c(*args) for c in compiled]
    seconds = best(calls, rounds)
    saved = [seconds[0] - s for s in seconds[1:]]
    costs = {c.line: c.flops or 0.0 for c in line_costs(traced[0].jaxpr, file)}
    estimate = [costs.get(n + 2, 0.0) for n in range(len(variants))]
    try:
        times = line_times(calls[0], hlo.read(hlo.text_of(compiled[0])), file, seconds[0])
    except NotProfiled as exc:
        print(f"{name:24} {exc}")
        times = ()
    spent = {t.line: t.seconds for t in times if t.cell is None}
    measured = [spent.get(n + 2, 0.0) for n in range(len(variants))]
    first = [max(range(len(variants)), key=values.__getitem__) for values in (saved, measured, estimate)]
    shares = [" ".join(f"{v / (sum(values) or 1):5.0%}" for v in values) for values in (measured, estimate)]
    told = " ".join(f"{s * 1e3:7.2f}" for s in saved)
    signs = ["" if f == first[0] else "✗" for f in first]
    row = f"{name:24} {seconds[0] * 1e3:8.2f}  saved {told}  measured {shares[0]} {signs[1]:1}"
    print(f"{row}  estimate {shares[1]} {signs[2]}")
    return first[1] == first[0] and bool(times), first[2] == first[0]


def main() -> int:
    """Every row, and how many firsts agree."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="rows whose name has this word")
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    print(f"jax {jax.__version__}, {jax.default_backend()}, times in ms, best of {asked.rounds}")
    args = inputs()
    chosen = {name: rows for name, rows in table().items() if asked.only in name}
    found = [judged(name, rows, args, asked.rounds) for name, rows in chosen.items()]
    measured, estimate = (sum(row[n] for row in found) for n in (0, 1))
    print(
        f"the first line saves most: measured {measured} of {len(found)}, estimate {estimate} of {len(found)}"
    )
    return measured < WANTED * len(found)


if __name__ == "__main__":
    sys.exit(main())
