"""A kernel family as short as one can be: one work-item computes some rows of a column."""

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pyclgemm.codegen.config import Config, at_most
from pyclgemm.codegen.kernel import GemmKernel
from pyclgemm.codegen.source import KernelSource
from pyclgemm.families.family import Family, Tile, point_table
from pyclgemm.families.registry import FAMILIES, register
from pyclgemm.problem.bounds import up_to

_KERNEL = """
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void toy({arguments})
{{
    const long column = get_group_id(0) % n;
    const long first = get_group_id(0) / n * {rows};
    for (long row = first; row < min(first + {rows}, (long)m); ++row) {{
        float sum = 0.0f;
        for (long depth = 0; depth < k; ++depth)
            sum += {a} * {b};
        {out} = alpha * sum{addend};
    }}
}}
"""


@dataclass(frozen=True)
class ToyConfig(Config):
    """Rows of a work-item."""

    ROWS: Annotated[int, up_to(64)]

    family: ClassVar[str] = "toy"


def _entry(name, order, row, column):
    by_row = f"{row} * {name}_row_stride" if order != "column" else row
    by_column = f"{column} * {name}_column_stride" if order != "row" else column
    return f"{name}[{name}_offset + {by_row} + {by_column}]"


class ToyFamily(Family[ToyConfig]):
    """float32 on CPUs, without an epilogue and without batches."""

    config_class = ToyConfig
    on_cpu = True
    constraints = (at_most("the rows of a work-item", 32, lambda config: config.ROWS),)

    def tile(self, config):
        return Tile(config.ROWS, 1)

    def refusal(self, config, problem, traits):
        plain = problem.dtype == problem.result_dtype == "float32" and problem.batch is None
        is_bare = not (problem.bias or problem.activation or problem.packed)
        return "" if plain and is_bare else "it multiplies single matrices of float32, no more"

    def schedule(self, product, config, traits):
        problem = product.problem
        groups = math.ceil(problem.m / config.ROWS) * problem.n
        return self.single_launch(product, config, traits, groups)

    def source(self, problem, config, traits):
        arguments = GemmKernel(problem, config, traits).arguments
        addend = ""
        if problem.c:
            addend = " + beta * " + _entry("c", problem.c.order, "row", "column")
        text = _KERNEL.format(
            arguments=", ".join(argument.declaration for argument in arguments),
            rows=config.ROWS,
            a=_entry("a", problem.a.order, "row", "depth"),
            b=_entry("b", problem.b.order, "depth", "column"),
            out=_entry("out", problem.out.order, "row", "column"),
            addend=addend,
        )
        return KernelSource("toy", text, arguments, (1,))

    def work_at(self, config, costs):
        cache = (config.ROWS + 1) * costs.stored * costs.cache_byte
        return costs.work(config.ROWS, 1, 1, cache=cache)

    def axes(self, dtype, traits, precision):
        return {"ROWS": (1, 8, 64)}

    points = point_table("ROWS", (1,), (8,))


@contextmanager
def registered():
    register(ToyFamily())
    try:
        yield
    finally:
        del FAMILIES["toy"]
