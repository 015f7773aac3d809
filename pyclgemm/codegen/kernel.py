"""What the kernels of all families have in common: element types, arguments, what templates see."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..device.traits import DeviceTraits
from ..problem.problem import ACTIVATIONS, GemmProblem, MatrixLayout
from .config import Config
from .element import ElementType, epilogue_type
from .source import (
    Argument,
    KernelSource,
    extent_type,
    matrix_arguments,
    moved_matrices,
    render,
    times,
)


@dataclass
class GemmParts:
    """What the kernels of all families are made of."""

    problem: GemmProblem  # its operands as the kernel reads them
    whole: tuple[MatrixLayout, MatrixLayout]  # A and B as the caller has them
    config: Config
    traits: DeviceTraits
    element: ElementType  # elements of A and B
    wide: ElementType  # elements of C, of the bias and of the result
    arguments: tuple[Argument, ...]  # of every gemm kernel, then those that the family adds

    def __post_init__(self) -> None:
        # C type of m, n, k and of row and column numbers.
        self.position_type = extent_type(self.problem.m, self.problem.n, self.problem.k)
        self.batched = self.problem.batch is not None  # whether a launch computes many products

    def adding(self, *arguments: Argument) -> GemmParts:
        """The same with more arguments."""
        return replace(self, arguments=self.arguments + arguments)

    def reading(self, stored: str) -> GemmParts:
        """The same where A and B lie as another C type than their elements'."""
        arguments = tuple(
            replace(argument, type=stored) if argument.name in ("a", "b") else argument
            for argument in self.arguments
        )
        return replace(self, arguments=arguments)

    def reading_whole(self) -> GemmParts:
        """The same where the elements are read beside their split terms."""
        arguments: list[Argument] = []
        for name, layout in zip(("whole_a", "whole_b"), self.whole, strict=True):
            stored = self.element.stored
            arguments += matrix_arguments(name, layout, "input", stored, batched=self.batched)
        return self.adding(*arguments)

    def result_of(self, total: str, addend: str, bias: str) -> str:
        """OpenCL C expression for a result whose sum of products is `total`."""
        problem = self.problem
        if self.wide.real != self.element.real:
            total = f"({self.wide.real}){total}"
        if not (problem.c or problem.bias or problem.activation):
            return f"scale(alpha, {total})" if problem.complex else f"alpha * {total}"
        return f"result_of({', '.join(self._result_arguments(total, addend, bias))})"

    def _result_arguments(self, total: str, addend: str, bias: str) -> list[str]:
        """What ``result_of`` in ``common/prelude.mako`` is given."""
        with_c = ["beta", addend] if self.problem.c else []
        return ["alpha", total, *with_c, *([bias] if self.problem.bias else [])]

    def activation_of(self, real: str) -> str:
        """OpenCL C expression that applies the activation to ``x`` of type `real`."""
        suffix = "" if real.startswith("double") else "f"
        return ACTIVATIONS[self.problem.activation or ""].format(real=real, f=suffix)

    def result_at(self, total: str, row: str, column: str, addend: str = "") -> str:
        """The same for an entry whose bias is read, and whose C is where `addend` is empty."""
        along = row if self.problem.bias == "row" else column
        bias = self.wide.entry("bias", times(along, "bias_stride"))
        read = self.wide.entry("c", f"C_AT({row}, {column})")
        return self.result_of(total, addend or read, bias)

    def source(
        self, name: str, template: str, work_items: int, options: str = "", target: str = "",
        **context: Any,
    ) -> KernelSource:  # fmt: skip
        """Fill a template of ``kernels_cl/`` with `context` and with what all templates see."""
        problem = self.problem
        names = self._result_arguments("sum", "addend", "bias")
        text = render(
            template,
            name=name,
            problem=problem,
            element=self.element,
            wide=self.wide,
            extent_type=self.position_type,
            multiply_add_of=multiply_add(problem.precision.arithmetic, self.traits),
            result_parameters=", ".join(f"const wide {name}" for name in names),
            result_of=self.result_of,
            activation_of=self.activation_of,
            arguments=self.arguments,
            moved=moved_matrices(self.arguments),
            work_items=work_items,
            **context,
        )
        text = _header(problem, self.config) + text
        return KernelSource(name, text, self.arguments, (work_items,), options, target)


def gemm_parts(
    problem: GemmProblem,
    config: Config,
    traits: DeviceTraits,
    whole: tuple[MatrixLayout, MatrixLayout] | None = None,
) -> GemmParts:
    """Collect what a kernel needs in any family."""
    arithmetic = problem.precision.arithmetic
    element = ElementType(problem.dtype, arithmetic)
    wide = epilogue_type(problem.result_dtype, arithmetic)
    # NVIDIA's compiler reads what is const and restrict by ld.global.nc, which it lacks for four
    # halves: "Do not know how to split the result of this operator!" (driver 580.159.04).
    as_half = element.stored == "half" and not element.converts and traits.vendor == "nvidia"
    arguments = _arguments(problem, element, wide, "unrestricted input" if as_half else "input")
    whole = whole or (problem.a, problem.b)
    return GemmParts(problem, whole, config, traits, element, wide, arguments)


def _arguments(
    problem: GemmProblem, element: ElementType, wide: ElementType, operand_kind: str
) -> tuple[Argument, ...]:
    """The arguments that every gemm kernel starts with."""
    position_type = extent_type(problem.m, problem.n, problem.k)
    arguments = [Argument(size, position_type) for size in ("m", "n", "k")]
    arguments.append(Argument("alpha", wide.vector(1)))
    if problem.batch is not None:
        arguments.append(Argument("batch", position_type))
    matrix = functools.partial(matrix_arguments, batched=problem.batch is not None)
    arguments += matrix("a", problem.a, operand_kind, element.stored)
    if problem.packed and problem.packed.form == "panels":
        arguments += [Argument("b", "input", "element"), Argument("b_offset", "long")]
    else:
        arguments += matrix("b", problem.b, operand_kind, element.stored)
    arguments += matrix("out", problem.out, "output", wide.stored)
    if problem.c:
        arguments.append(Argument("beta", wide.vector(1)))
        # c may be the very memory of out, so neither is restrict.
        arguments += matrix("c", problem.c, "unrestricted input", wide.stored)
    if problem.bias:
        arguments += [
            Argument("bias", "input", wide.stored),
            Argument("bias_offset", "long"),
            Argument("bias_stride", "long"),
        ]
    return tuple(arguments)


def multiply_add(arithmetic: str, traits: DeviceTraits) -> Callable[[str, str, str], str]:
    """What spells ``a * b + c``; where fma is emulated, the compiler may contract it."""
    fast = fma_is_fast(arithmetic, traits)
    return (lambda a, b, c: f"fma({a}, {b}, {c})") if fast else (lambda a, b, c: f"{a} * {b} + {c}")


def fma_is_fast(arithmetic: str, traits: DeviceTraits) -> bool:
    """Whether ``fma`` in the real type `arithmetic` is there and is one instruction."""
    # NVIDIA's compiler has half arithmetic but no fma of halves; there, as everywhere, the compiler
    # may contract a * b + c by itself.
    return {"float32": traits.fast_fma32, "float64": traits.fast_fma64}.get(arithmetic, False)


def _header(problem: GemmProblem, config: Config) -> str:
    terms = ["alpha A B"]
    terms += ["beta C"] if problem.c else []
    terms += [f"bias of each {problem.bias}"] if problem.bias else []
    formula = " + ".join(terms)
    each = "" if problem.batch is None else " for each product of a batch"
    if problem.activation:
        formula = f"{problem.activation}({formula})"
    return (
        f"// out = {formula}{each}; {problem.types}, {problem.precision.name}.\n"
        f"// {config.family}: {config}\n\n"
    )
