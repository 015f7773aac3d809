"""Common parts of the kernels of all families: element types, arguments, template contexts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..device.traits import DeviceTraits
from ..problem.problem import ACTIVATIONS, GemmProblem, MatrixLayout
from .config import Config
from .element import ElementType, epilogue_type
from .source import Argument, KernelSource, extent_type, matrix_arguments, render, times
from .stream_k import StreamK


@dataclass
class GemmKernel:
    """The common parts of a kernel, whatever its family."""

    problem: GemmProblem  # with its operands as the kernel reads them
    config: Config
    traits: DeviceTraits
    stored: str = ""  # C type in which A and B are stored, if not that of their elements
    #: The caller's A and B, if the kernel reads their elements besides their split terms
    whole: tuple[MatrixLayout, MatrixLayout] | None = None

    def __post_init__(self) -> None:
        problem = self.problem
        arithmetic = problem.precision.arithmetic
        in_words = self.traits.vendor == "nvidia"
        # The elements of A and B; those of C, bias and result.
        self.element = ElementType(problem.dtype, arithmetic, in_words)
        self.wide = epilogue_type(problem.result_dtype, arithmetic, in_words=in_words)
        # C type of m, n, k and of row and column numbers.
        self.position_type = extent_type(problem.m, problem.n, problem.k)
        self.batched = problem.batch is not None  # whether a launch computes many products
        # The arguments of every gemm kernel, to which families add others.
        self.arguments = tuple(self._arguments())

    def _arguments(self) -> list[Argument]:
        problem, stored, wide = self.problem, self.stored or self.element.stored, self.wide
        # NVIDIA's compiler reads through pointers that are const and restrict by ld.global.nc, but
        # fails for four halves: "Do not know how to split the result of this operator!" (driver
        # 580.159.04).
        as_half = self.element.stored == "half" and not self.element.converts
        kind = "unrestricted input" if as_half and self.traits.vendor == "nvidia" else "input"

        def matrix(name: str, layout: MatrixLayout, kind: str, stored: str) -> list[Argument]:
            return matrix_arguments(name, layout, kind, stored, batched=self.batched)

        arguments = [Argument(size, self.position_type) for size in ("m", "n", "k")]
        arguments.append(Argument("alpha", wide.vector(1)))
        if self.batched:
            arguments.append(Argument("batch", self.position_type))
        arguments += matrix("a", problem.a, kind, stored)
        if problem.packed and problem.packed.form == "panels":
            arguments += [Argument("b", "input", "element"), Argument("b_offset", "long")]
        else:
            arguments += matrix("b", problem.b, kind, stored)
        arguments += matrix("out", problem.out, "output", wide.stored)
        if problem.c:
            arguments.append(Argument("beta", wide.vector(1)))
            # c and out may be the same memory, so c is not restrict.
            arguments += matrix("c", problem.c, "unrestricted input", wide.stored)
        if problem.bias:
            arguments.append(Argument("bias", "input", wide.stored))
            arguments += [Argument("bias_offset", "long"), Argument("bias_stride", "long")]
        for name, layout in zip(("whole_a", "whole_b"), self.whole or (), strict=False):
            arguments += matrix(name, layout, "input", self.element.stored)
        return arguments

    def result_of(self, total: str, addend: str, bias: str) -> str:
        """OpenCL C expression for a result whose sum of products is `total`."""
        problem = self.problem
        if self.wide.real != self.element.real:
            total = f"({self.wide.real}){total}"
        if not (problem.c or problem.bias or problem.activation):
            return f"scale(alpha, {total})" if problem.complex else f"alpha * {total}"
        return f"result_of({', '.join(self._result_arguments(total, addend, bias))})"

    def _result_arguments(self, total: str, addend: str, bias: str) -> list[str]:
        """The arguments of ``result_of`` in ``common/prelude.mako``."""
        with_c = ["beta", addend] if self.problem.c else []
        return ["alpha", total, *with_c, *([bias] if self.problem.bias else [])]

    def activation_of(self, real: str) -> str:
        """OpenCL C expression that applies the activation to ``x`` of type `real`."""
        assert self.problem.activation is not None
        suffix = "" if real.startswith("double") else "f"
        return ACTIVATIONS[self.problem.activation].format(real=real, f=suffix)

    def result_at(self, total: str, row: str, column: str, addend: str = "") -> str:
        """The same for an entry, with its bias, and its C unless `addend` holds that."""
        along = row if self.problem.bias == "row" else column
        bias = self.wide.entry("bias", times(along, "bias_stride"))
        read = self.wide.entry("c", f"C_AT({row}, {column})")
        return self.result_of(total, addend or read, bias)

    def results_at_once(self, columns: int) -> tuple[int, bool]:
        """Results of `columns` neighbours that are stored at once; whether C is loaded likewise."""

        def in_vectors(layout: MatrixLayout) -> bool:
            return layout.order == "row" and layout.alignment >= columns

        width = columns if in_vectors(self.problem.out) else 1
        return width, width > 1 and self.problem.c is not None and in_vectors(self.problem.c)

    def source(
        self, name: str, template: str, work_items: int, options: str = "", target: str = "",
        split_k: StreamK | None = None, **context: Any,
    ) -> KernelSource:  # fmt: skip
        """Fill a template of ``kernels_cl/`` with `context` and the context of all templates."""
        problem, arguments = self.problem, self.arguments
        if split_k is not None:
            arguments += split_k.arguments(self.element.vector(1))
            options = f"{self.traits.fence_options or ''} {options}".strip()
        names = self._result_arguments("sum", "addend", "bias")
        text = render(
            template,
            arguments,
            name=name,
            problem=problem,
            element=self.element,
            wide=self.wide,
            extent_type=self.position_type,
            multiply_add_of=multiply_add(problem.precision.arithmetic, self.traits),
            result_parameters=", ".join(f"const wide {name}" for name in names),
            result_of=self.result_of,
            activation_of=self.activation_of,
            work_items=work_items,
            split_k=split_k,
            **context,
        )
        text = self._header + text
        return KernelSource(name, text, arguments, (work_items,), options, target)

    @property
    def _header(self) -> str:
        problem = self.problem
        addend = " + beta C" if problem.c else ""
        bias = f" + bias of each {problem.bias}" if problem.bias else ""
        formula = f"alpha A B{addend}{bias}"
        if problem.activation:
            formula = f"{problem.activation}({formula})"
        each = " for each product of a batch" if self.batched else ""
        return (
            f"// out = {formula}{each}; {problem.types}, {problem.precision.name}.\n"
            f"// {self.config.family}: {self.config}\n\n"
        )


def multiply_add(arithmetic: str, traits: DeviceTraits) -> Callable[[str, str, str], str]:
    """A function that writes ``a * b + c``, by fma unless that is emulated."""
    fast = fma_is_fast(arithmetic, traits)
    return (lambda a, b, c: f"fma({a}, {b}, {c})") if fast else (lambda a, b, c: f"{a} * {b} + {c}")


def fma_is_fast(arithmetic: str, traits: DeviceTraits) -> bool:
    """Whether ``fma`` in the real type `arithmetic` exists and is one instruction."""
    # NVIDIA's compiler has half arithmetic but no fma of halves. As everywhere, the compiler may
    # contract a * b + c by itself.
    return {"float32": traits.fast_fma32, "float64": traits.fast_fma64}.get(arithmetic, False)
