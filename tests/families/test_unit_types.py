"""bfloat16 and int8 by kernels without matrix units: their sums are those of units, bit by bit
for int8 and within the same bound for bfloat16.

Devices without units refuse these types; here such a device is not asked.
"""

from unittest.mock import patch

import pytest

import pyclgemm
from pyclgemm import SmallConfig, SmallCpuConfig
from pyclgemm.device.traits import typical_traits
from pyclgemm.problem.precision import UNIT_DTYPES, resolve_precision
from pyclgemm.problem.problem import PackedLayout
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.database import load_database
from pyclgemm.selection.select import select
from pyclgemm.tuning.search import families_of
from tests.support.checks import (
    COLUMN,
    COLUMN_ALIGNED,
    ROW,
    ROW_ALIGNED,
    STRIDED,
    check_batch,
    check_gemm,
)
from tests.support.configs import DIRECT_CONFIGS, EVERY_FAMILY_AND_MORE, INDIRECT_CONFIGS

pytestmark = pytest.mark.any_runtime

EVERY_TYPE = pytest.mark.parametrize("dtype", UNIT_DTYPES)
#: Layouts of packed operands: as units want them, and as other kernels do.
PACKED = [PackedLayout("padded", 16, 1, along_k=True), PackedLayout("padded", 16, 32)]


@pytest.fixture
def offered():
    """Any device takes the types."""
    with patch("pyclgemm.api.prepare.check_supported"), patch("pyclgemm.api.pack.check_supported"):
        yield


@EVERY_TYPE
@EVERY_FAMILY_AND_MORE
@pytest.mark.parametrize(
    "options",
    [
        {"a": ROW_ALIGNED, "b": ROW_ALIGNED, "out": ROW_ALIGNED, "in_place": True},
        {"a": COLUMN_ALIGNED, "b": COLUMN, "out": COLUMN, "c": ROW, "activation": "relu"},
        {"a": STRIDED, "b": ROW, "out": STRIDED, "c": STRIDED, "bias": True},
    ],
    ids=["aligned, in place", "column", "strided"],
)
def test_every_family(offered, queue, config, dtype, options):
    sizes = (37, 41, 70)  # more than one block of k, so that sums wait in memory
    check_gemm(queue, sizes, dtype, config=config, alpha=3, beta=-2, **options)


@EVERY_TYPE
@pytest.mark.parametrize(
    "config",
    [DIRECT_CONFIGS["shuffles"], INDIRECT_CONFIGS["wide vectors"]],
    ids=["shuffles", "wide vectors"],
)
def test_what_else_moves_elements(offered, queue, config, dtype):
    check_gemm(queue, (64, 65, 40), dtype, config=config, b=COLUMN)


def test_a_float32_result_of_bfloat16(offered, queue):
    check_gemm(queue, (9, 7, 33), "bfloat16", result="float32", config=DIRECT_CONFIGS["plain"])


@EVERY_TYPE
@pytest.mark.parametrize("packed", PACKED, ids=["along k", "along n"])
@pytest.mark.parametrize("family", ["direct", "indirect"])
def test_constant_operands(offered, queue, packed, family, dtype):
    config = (DIRECT_CONFIGS if family == "direct" else INDIRECT_CONFIGS)["plain"]
    check_gemm(queue, (33, 35, 37), dtype, config=config, pack=packed)


@EVERY_TYPE
@pytest.mark.parametrize(
    "config",
    [SmallConfig(MWI=4, NWI=4, WGS=64), SmallCpuConfig(MR=3, NR=16, VW=8)],
    ids=lambda config: config.family,
)
@pytest.mark.parametrize("sizes", [(8, 8, 8), (7, 10, 6)], ids=["even", "odd"])
def test_batches_of_small_products(offered, queue, config, sizes, dtype):
    check_batch(queue, 37, sizes, dtype, config=config, alpha=2, beta=-1, c=ROW, bias=True)


# ------------------------------------------------------------------------------ what is chosen


@EVERY_TYPE
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "gfx1100", "gfx942"])
def test_units_are_chosen_where_their_fragments_fill(architecture, dtype):
    traits, database = typical_traits(architecture), load_database()
    large = select(GemmShape(4096, 4096, 4096).problem(dtype), traits, database)
    assert large.path in ("matrix", "wgmma")
    # Elements at odd places, which units read after they were packed.
    small = select(GemmShape(3, 5, 7, "TN").problem(dtype), traits, database)
    assert small.path in ("direct", "gemv")
    batch = select(GemmShape(8, 8, 8, batch=1000).problem(dtype), traits, database)
    assert batch.path == "small"


@EVERY_TYPE
def test_the_tuner_searches_all_families(dtype):
    precision = resolve_precision(None, dtype)
    families = families_of(typical_traits("sm_90"), dtype, precision)
    few_rows = ("gemv_unit",) if dtype == "bfloat16" else ()
    assert families == ("indirect", "direct", "gemv", *few_rows, "matrix", "wgmma")


@pytest.mark.parametrize("precision", ["BF16_BF16_F32", "TF32_TF32_F32", "BF16_BF16_F32_X9"])
def test_what_is_rounded_first_is_left_to_units(precision):
    traits = typical_traits("sm_90")
    problem = GemmShape(64, 64, 64).problem("float32", precision)
    with pytest.raises(pyclgemm.ConfigError, match="which only matrix units compute"):
        select(problem, traits, load_database(), DIRECT_CONFIGS["plain"])
    assert select(problem, traits, load_database()).path in ("matrix", "wgmma")
