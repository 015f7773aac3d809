"""How the CPU family packs A and B, and the kernel that packs a constant B ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...codegen.element import ElementType, operand_type
from ...codegen.source import Argument, KernelSource, extent_type, matrix_arguments, render
from ...problem.problem import GemmProblem, MatrixLayout
from .config import CpuConfig


@dataclass(frozen=True)
class CpuOperand:
    """How the elements of A or B are loaded to be packed."""

    name: Literal["a", "b"]
    layout: MatrixLayout
    config: CpuConfig
    element: ElementType

    @property
    def loader(self) -> str:
        """The generated function that loads a vector of it."""
        return "load_conjugate" if self.layout.conjugate else "load_vector"

    @property
    def loads_vectors(self) -> bool:
        """Whether vectors are loaded as it is packed."""
        orders = ("row",) if self.name == "a" else ("row", "column")
        return self.layout.order in orders and self.config.VW > 1

    def converted(self, array: str, index: str) -> str:
        """An element of an array of stored ones, as it is packed."""
        sign = self.element.conjugation(1) if self.layout.conjugate else ""
        return self.element.entry(array, index) + sign

    def entry(self, row: str, column: str) -> str:
        """An entry of the matrix as it is packed."""
        return self.converted(self.name, f"{self.name.upper()}_AT({row}, {column})")

    @property
    def transposes(self) -> bool:
        """Whether squares of VW x VW elements are transposed in registers."""
        return self.loads_vectors and self.layout.order == "column"

    def merged(self, first: int) -> str:
        """Half the elements of the vectors x and y in turn, from element `first` on."""
        # Component by component: Oclgrind stops at a vector made of pairs.
        parts = self.element.parts
        lanes = [
            f"{vector}.s{parts * (first + i) + part:x}"
            for i in range(self.config.VW // 2)
            for vector in "xy"
            for part in range(parts)
        ]
        lines = [", ".join(lanes[i : i + 8]) for i in range(0, len(lanes), 8)]
        return ",\n".join(lines)


def generate_pack_panels(
    layout: MatrixLayout, config: CpuConfig, problem: GemmProblem
) -> KernelSource:
    """Write the kernel that lays a constant B out in the panels of the CPU family."""
    element = operand_type(problem.dtype, problem.precision.arithmetic)
    position_type = extent_type(problem.n, problem.k)
    arguments = (
        Argument("n", position_type),
        Argument("k", position_type),
        *matrix_arguments("b", layout, "input", element.stored),
        Argument("packed", "output", "element"),
    )
    text = render(
        "pack/panels.cl.mako",
        name="pack_panels",
        problem=problem,
        layout=layout,
        cpu=config,
        operand=CpuOperand("b", layout, config, element),
        element=element,
        wide=element,
        extent_type=position_type,
        arguments=arguments,
    )
    return KernelSource("pack_panels", text, arguments, (1, 1))
