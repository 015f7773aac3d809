"""How a CPU's cores share a product."""

from dataclasses import replace

import pytest

from pyclgemm.families.cpu.codegen import CpuConfig
from pyclgemm.families.registry import make_schedule
from pyclgemm.problem.shape import GemmShape
from tests.support.facts import cpu

IN_PLACE = CpuConfig(MR=1, NR=64, KC=128, VW=8, PACKB=0)


@pytest.mark.parametrize(
    ("config", "conjugate", "blocks"),
    [(IN_PLACE, False, 1), (IN_PLACE, True, 2), (replace(IN_PLACE, PACKB=1), False, 2)],
)
def test_rows_of_b_that_are_read_in_place_are_divided_least(config, conjugate, blocks):
    product = GemmShape(1, 4096, 4096).product("complex64")
    b = replace(product.problem.b, conjugate=conjugate)
    product = replace(product, problem=replace(product.problem, b=b))
    traits = cpu(compute_units=4)
    (launch,) = make_schedule(product, config, traits).launches
    assert launch.global_size == (blocks * 4,)
