"""Calls on selections: reductions with a mask, functions element by element, and what no mask stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.selections import Masked, Selections, Unsupported
from jitmagic.fixes.rewrite.truths import stripped

WHERE = frozenset("sum prod mean std var any all nansum nanmean".split())
"""Reductions that take `where=`."""
FILLED = {"median": "nanmedian", "percentile": "nanpercentile", "quantile": "nanquantile"}
OVER_SCORES = frozenset(("softmax", "log_softmax"))
NOT_ELEMENTWISE = frozenset(
    "sort argsort argmax argmin cumsum cumprod diff unique concatenate stack vstack hstack append reshape ravel "
    "flip roll repeat tile histogram bincount interp convolve outer searchsorted take array_split split "
    "transpose fft ifft dot matmul einsum tensordot nonzero where kron trace det inv".split()
)


@dataclass
class Reductions(Selections):
    """Lowers calls."""

    def _dense(self, node: Any) -> str:
        """Source of an expression that must not be a selection itself."""
        new = self.lower(node)
        if new.mask is not None:
            raise Unsupported
        return new.text

    def _count(self, value: Masked) -> str:
        if not value.counts:
            raise Unsupported
        return f"{self.place.jnp}.sum({self._use(value.mask or '')})"

    def _together(self, text: str, *parts: Masked) -> Masked:
        masks = {p.mask for p in parts if p.mask is not None}
        if len(masks) > 1:
            raise Unsupported
        source = next((p for p in parts if p.mask is not None), Masked(""))
        return replace(source, text=text)

    def _spread(self, node: Any, value: Masked) -> str:
        """The mask with the rank of the value, for `where=`."""
        mask = self._use(value.mask or "")
        if mask.startswith("T of "):
            raise Unsupported
        extra = 0 if value.flat else self._rank(node) - value.rank - value.axis
        if extra <= 0:
            return mask
        inner = mask if names.constant(mask) else f"({mask})"
        return f"{inner}[{', '.join([*([':'] * value.rank), *(['None'] * extra)])}]"

    def _zeroed(self, node: Any, value: Masked, fill: str = "0") -> str:
        return f"{self.place.jnp}.where({self._spread(node, value)}, {stripped(value.text)}, {fill})"

    def _call(self, call: Any) -> Masked:
        import libcst as cst

        function = call.func
        if isinstance(function, cst.Attribute):
            root = self.place.cell.code(function.value)
            if (
                root not in self.place.modules
                and not root.startswith(("jax.", "jnp."))
                and self._concerned(function.value)
            ):
                return self._method(call, function)
        name = self.place.cell.code(function)
        last = name.rpartition(".")[2]
        if name == "len":
            return Masked(self._count(self.lower(call.args[0].value)))
        if name in ("float", "int"):
            return self.lower(call.args[0].value)
        positional = [a for a in call.args if a.keyword is None and not a.star]
        if not positional or len(positional) + sum(a.keyword is not None for a in call.args) != len(
            call.args
        ):
            raise Unsupported
        if name in ("sum", "max", "min", "abs") and len(positional) == 1:
            name, last = f"{self.place.jnp}.{name}", name
        library = self.place.modules.get(name.partition(".")[0], "") if "." in name else ""
        if name.startswith(f"{self.place.jnp}."):
            library = "jax.numpy"
        if last in ("extract", "compress") and library == "jax.numpy" and len(positional) == 2:
            mask = stripped(self.place.cell.code(positional[0].value))
            return Masked(self._dense(positional[1].value), self._use(mask), 1)
        first = positional[0].value
        if not self._concerned(first) or all(not self._concerned(a.value) for a in call.args):
            if library in ("jax.numpy", "numpy") and last not in NOT_ELEMENTWISE and last not in WHERE:
                return self._elementwise(call)
            return self._other_call(call)
        if not library and name not in ("jnp.sum",) and not name.startswith(self.place.jnp):
            return self._other_call(call)
        value = self.lower(first)
        if value.mask is None:
            return self._other_call(call)
        if last in ("stack", "array", "asarray") and len(call.args) == 1:
            return value  # it is an array, of rows that were in a list
        if last in WHERE | {
            "max",
            "min",
            "count_nonzero",
            "norm",
            "logsumexp",
            "dot",
            "vdot",
            "average",
            "amax",
            "amin",
        } | set(FILLED):
            return self._reduced(call, last, first, value, call.args[1:])
        if last in OVER_SCORES:
            if self._rank(first) != 1 or value.axis:
                raise Unsupported
            rest = "".join(f", {self.place.cell.code(a)}".rstrip(", ") for a in call.args[1:])
            return Masked(
                f"{name}({self._zeroed(first, value, f'-{self.place.jnp}.inf')}{rest})", value.mask, 1
            )
        if last in NOT_ELEMENTWISE and last != "where":
            raise Unsupported
        return self._elementwise(call)

    def _elementwise(self, call: Any) -> Masked:
        name, parts, texts = self.place.cell.code(call.func), [], []
        for a in call.args:
            part = self.lower(a.value)
            parts.append(part)
            texts.append((f"{a.keyword.value}=" if a.keyword else "") + stripped(part.text))
        return self._together(f"{name}({', '.join(texts)})", *parts)

    def _other_call(self, call: Any) -> Masked:
        texts = [
            f"{a.star}{a.keyword.value + '=' if a.keyword else ''}{stripped(self._dense(a.value))}"
            for a in call.args
        ]
        function = call.func
        import libcst as cst

        if isinstance(function, cst.Attribute):
            head = f"{self._dense(function.value)}.{function.attr.value}"
        else:
            head = self._dense(function)
        return Masked(f"{head}({', '.join(texts)})")

    def _method(self, call: Any, function: Any) -> Masked:
        value = self.lower(function.value)
        name = function.attr.value
        if value.mask is None:
            return self._other_call(call)
        if name in WHERE | {"max", "min", "dot"}:
            return self._reduced(call, name, function.value, value, call.args)
        if name in ("item", "tolist"):
            raise Unsupported
        if name in ("astype", "conj", "round", "clip"):
            inside = self.place.cell.code(call)[len(self.place.cell.code(function)) :]
            return replace(value, text=f"{names.wrapped(value.text)}.{name}{inside}")
        raise Unsupported

    def _reduced(self, call: Any, name: str, node: Any, value: Masked, rest: Sequence[Any]) -> Masked:
        jnp, code = self.place.jnp, self.place.cell.code
        name = {"amax": "max", "amin": "min"}.get(name, name)
        text = stripped(value.text)
        axis = next((code(a.value) for a in rest if a.keyword and a.keyword.value == "axis"), None)
        positional = [a for a in rest if a.keyword is None]
        if name not in ("dot", "vdot", "percentile", "quantile", "norm") and positional:
            axis, rest = code(positional[0].value), [a for a in rest if a is not positional[0]]
        if not value.counts and (axis not in (None, "None") or name in ("dot", "vdot", "average")):
            raise Unsupported
        others = [code(a).rstrip(", ") for a in rest if not (a.keyword and a.keyword.value == "axis")]
        rank = 1 if value.flat else self._rank(node)
        along = axis in (None, "None", str(value.axis), f"-{rank - value.axis}")
        if not along:
            if value.flat or name in ("dot", "vdot", "average"):
                raise Unsupported
            arguments = ", ".join([text, f"axis={axis}", *others])
            if value.axis:  # one of the axes before it may be gone
                if not (axis or "").lstrip("-").isdigit() or any("keepdims" in o for o in others):
                    raise Unsupported
                number = int(axis or "")
                before = (number if number >= 0 else number + rank) < value.axis
                return Masked(f"{jnp}.{name}({arguments})", value.mask, 1, axis=value.axis - before)
            return Masked(f"{jnp}.{name}({arguments})", value.mask, value.rank)
        kept = [] if axis in (None, "None") or value.flat or rank == 1 else [f"axis={axis}"]
        if name in WHERE:
            arguments = ", ".join([text, *kept, *others, f"where={self._spread(node, value)}"])
            return Masked(f"{jnp}.{name}({arguments})")
        if name in ("max", "min"):
            return Masked(f"{jnp}.{name}({', '.join([self._extreme(node, value, name), *kept, *others])})")
        if name in FILLED:
            whole = self._zeroed(node, value, f"{jnp}.nan")
            given = [code(a).rstrip(", ") for a in positional]
            named = [o for o in others if o not in given]
            return Masked(f"{jnp}.{FILLED[name]}({', '.join([whole, *given, *kept, *named])})")
        if name == "count_nonzero":
            return Masked(f"{jnp}.sum({names.wrapped(text)} != 0, where={self._spread(node, value)})")
        if name == "norm":
            return Masked(f"{jnp}.linalg.norm({', '.join([self._zeroed(node, value), *kept, *others])})")
        if name == "logsumexp":
            function = code(call.func)
            return Masked(
                f"{function}({', '.join([self._zeroed(node, value, f'-{jnp}.inf'), *kept, *others])})"
            )
        if name in ("dot", "vdot") and positional:
            other = self.lower(positional[0].value)
            if other.mask != value.mask or rank != 1:
                raise Unsupported
            return Masked(
                f"{jnp}.{name}({self._zeroed(node, value)}, {self._zeroed(positional[0].value, other)})"
            )
        raise Unsupported

    def _extreme(self, node: Any, value: Masked, name: str) -> str:
        seen = self._seen(node)
        whole = any(s.dtype.startswith(("int", "uint")) for s in seen)
        jnp, text = self.place.jnp, stripped(value.text)
        if whole:
            side = "min" if name == "max" else "max"
            return self._zeroed(node, value, f"{jnp}.iinfo({names.wrapped(text)}.dtype).{side}")
        return self._zeroed(node, value, f"-{jnp}.inf" if name == "max" else f"{jnp}.inf")
