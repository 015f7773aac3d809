"""A family that is registered at run time is known everywhere, by its interface alone.

It is as short as one can be: one work-item computes some rows of a column.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import pytest

import pyclgemm
from pyclgemm.analysis.profile import profile
from pyclgemm.codegen.config import Config, at_most
from pyclgemm.codegen.kernel import GemmKernel
from pyclgemm.codegen.source import KernelSource
from pyclgemm.errors import ConfigError
from pyclgemm.families.family import Family, Tile, point_table
from pyclgemm.families.registry import FAMILIES, register
from pyclgemm.problem.bounds import up_to
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.select import alternatives, select
from pyclgemm.tuning.search import families_for, search_space, suits
from tests.support.buffers import COLUMN, ROW, STRIDED
from tests.support.checks import check_gemm
from tests.support.databases import a_database, made_file, predict
from tests.support.facts import CEILINGS, cpu, problem, recorded
from tests.support.typical_configs import CPU

SQUARE = np.ones((4, 4), np.float32)


KERNEL = """
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


def entry(name, order, row, column):
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
            addend = " + beta * " + entry("c", problem.c.order, "row", "column")
        text = KERNEL.format(
            arguments=", ".join(argument.declaration for argument in arguments),
            rows=config.ROWS,
            a=entry("a", problem.a.order, "row", "depth"),
            b=entry("b", problem.b.order, "depth", "column"),
            out=entry("out", problem.out.order, "row", "column"),
            addend=addend,
        )
        return KernelSource("toy", text, arguments, (1,))

    def work_at(self, config, costs):
        cache = (config.ROWS + 1) * costs.stored * costs.cache_byte
        return costs.work(config.ROWS, 1, 1, cache=cache)

    def axes(self, dtype, traits, precision):
        return {"ROWS": (1, 8, 64)}

    points = point_table("ROWS", (1,), (8,))


@pytest.fixture(autouse=True)
def toy():
    register(ToyFamily())
    yield
    del FAMILIES["toy"]


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize(("a", "b", "out"), [(ROW, COLUMN, ROW), (STRIDED, STRIDED, COLUMN)])
def test_gemm_computes_by_it(queue, a, b, out, rows):
    check_gemm(queue, (17, 9, 23), a=a, b=b, out=out, config=ToyConfig(rows))
    named = {"path": "toy", "ROWS": rows}
    check_gemm(queue, (5, 7, 3), a=a, c=b, alpha=-2.5, beta=0.5, config=named)
    choice = pyclgemm.explain(queue, SQUARE, SQUARE, config=named)
    assert (choice.path, choice.config) == ("toy", ToyConfig(rows))
    assert "toy" in str(choice)


@pytest.mark.parametrize(
    ("config", "activation", "message"),
    [
        (ToyConfig(40), None, "must not be more than 32: they are 40"),
        (ToyConfig(65), None, "ROWS must be an integer of 1 to 64"),
        (ToyConfig(4), "relu", "single matrices of float32"),
        ({"path": "toy", "COLUMNS": 4}, None, "has no parameter COLUMNS"),
    ],
)
def test_gemm_refuses_what_it_does_not_compute(queue, config, activation, message):
    epilogue = pyclgemm.Epilogue(activation=activation)
    with pytest.raises(ConfigError, match=message):
        pyclgemm.gemm(queue, SQUARE, SQUARE, config=config, epilogue=epilogue)


#: In which nothing was measured, so that each family offers its menu.
KNOWN = a_database(made_file([recorded("512x512x512", CPU)], "cpu"))


def test_its_times_are_predicted_ranked_and_measured():
    small, deep = (GemmShape(64, 64, k).problem() for k in (64, 64_000))
    one, eight = ToyConfig(1), ToyConfig(8)
    (seconds, of_eight), (of_deep, _) = (
        predict([one, eight], product, cpu(), KNOWN) for product in (small, deep)
    )
    assert 0 < of_eight < seconds < of_deep / 100
    found = {one.config: one for one in alternatives(small, cpu(), KNOWN)}
    assert found[eight].seconds == of_eight
    assert {one, eight, CPU} <= set(found)
    # Of batches it computes none.
    batch = problem(64, 64, 64, batch=8)
    assert "toy" not in {one.path for one in alternatives(batch, cpu(), KNOWN)}

    # Where it was measured it is selected.
    record = recorded("64x64x64", eight, 9.0)
    choice = select(small, cpu(), a_database(made_file([record], "cpu", kind="measured")))
    assert choice.config == eight
    assert choice.reason == "measured on this very product: 9 GFLOPS"


def test_the_tuner_searches_its_space():
    assert "toy" in families_for([problem(64, 64, 64)], cpu())
    assert suits("toy", problem(64, 64, 64), cpu())
    space = search_space("toy", "float32", cpu())
    count = space.count()
    assert (count.points, count.valid, count.exact) == (3, 2, True)
    assert space.config({"ROWS": 8}) == ToyConfig(8)
    assert space.config({"ROWS": 64}) is None
    assert space.nearest_point(ToyConfig(6)) == {"ROWS": 8}


def test_profile_measures_it(queue, home):
    product = GemmShape(24, 16, 8).product()
    found = profile(queue, product, path="toy", parameters={"ROWS": 4}, ceilings=CEILINGS, rounds=1)
    assert found.analysis.kernels == ("toy",)
    assert found.analysis.traffic.least == 4 * (24 * 8 + 8 * 16 + 24 * 16)
    assert found.analysis.utilisation.tiles == 6 * 16
    assert found.verdict.limit


def test_a_name_is_taken_once():
    with pytest.raises(ConfigError, match="'toy' is registered"):
        register(ToyFamily())
    assert type(FAMILIES["toy"]) is ToyFamily
