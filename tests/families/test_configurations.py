"""Every kernel family with a configuration of the caller's, on every device.

CPU devices would choose the CPU family alone; here they run the GPU families too, in
small tiles. The configurations cover each parameter, not their product.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyclgemm
from pyclgemm import GemvConfig, XgemmConfig
from tests.support.checks import (
    COLUMN,
    COLUMN_ALIGNED,
    ROW,
    ROW_ALIGNED,
    STRIDED,
    check_gemm,
    skip_if_refused,
    spoil_workspace,
)
from tests.support.configs import (
    BASES,
    CPU,
    DIRECT,
    DIRECT_CONFIGS,
    EVERY_CONFIG,
    EVERY_FAMILY,
    EVERY_FAMILY_AND_MORE,
    GEMV,
    GEMV_CONFIGS,
    INDIRECT,
    INDIRECT_CONFIGS,
    TELLING_SIZES,
)

pytestmark = pytest.mark.any_runtime


@pytest.mark.parametrize("config", EVERY_CONFIG)
def test_every_configuration(queue, config):
    spoil_workspace(queue, config=config)
    for sizes in TELLING_SIZES:
        check_gemm(queue, sizes, config=config)


@pytest.mark.parametrize("operands", [ROW_ALIGNED, COLUMN_ALIGNED], ids=["row", "column"])
@pytest.mark.parametrize(
    "config",
    [
        *BASES.values(),
        INDIRECT_CONFIGS["wide vectors"],
        DIRECT_CONFIGS["wide vectors"],
        DIRECT_CONFIGS["all at once, past the registers"],
        GEMV_CONFIGS["wide vectors"],
    ],
    ids=[
        *BASES,
        "indirect: wide vectors",
        "direct: wide vectors",
        "direct: past the registers",
        "gemv: wide vectors",
    ],
)
def test_aligned_operands(queue, config, operands):
    for sizes in TELLING_SIZES:
        check_gemm(queue, sizes, config=config, a=operands, b=operands, out=ROW_ALIGNED)


@EVERY_FAMILY
@pytest.mark.parametrize("out", [ROW, COLUMN], ids=["row", "column"])
@pytest.mark.parametrize("trans_b", [False, True], ids=["N", "T"])
@pytest.mark.parametrize("trans_a", [False, True], ids=["N", "T"])
def test_every_transposition(queue, config, trans_a, trans_b, out):
    check_gemm(queue, (37, 41, 19), config=config, trans_a=trans_a, trans_b=trans_b, out=out)


@EVERY_FAMILY_AND_MORE
@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64", "complex128"])
def test_every_type(queue, require, config, dtype):
    require(dtype)
    spoil_workspace(queue, dtype, config=config)
    options: dict[str, Any] = {"trans_a": "C"} if dtype.startswith("complex") else {}
    check_gemm(
        queue, (37, 41, 19), dtype, config=config, c=ROW, alpha=0.5, beta=-2.0, bias=True, **options
    )


@EVERY_FAMILY
def test_half_arithmetic(queue, traits, require, config):
    require("float16", "F16_F16_F16")
    if config.family == "cpu" and traits.type != "cpu":
        pytest.skip("the cpu family takes vectors of halves, which GPU compilers may lack")
    check_gemm(queue, (37, 41, 19), "float16", config=config, precision="F16_F16_F16")


@EVERY_FAMILY_AND_MORE
@pytest.mark.parametrize(
    ("a", "b", "out"),
    [(STRIDED, ROW, ROW), (ROW, STRIDED, ROW), (ROW, ROW, STRIDED)],
    ids=["a", "b", "out"],
)
def test_strided_matrices(queue, config, a, b, out):
    check_gemm(queue, (37, 41, 19), config=config, a=a, b=b, out=out)


@EVERY_FAMILY_AND_MORE
@pytest.mark.parametrize("out", [ROW, COLUMN], ids=["row", "column"])
def test_whole_epilogue_in_place(queue, config, out):
    check_gemm(
        queue,
        (37, 41, 19),
        config=config,
        out=out,
        in_place=True,
        alpha=0.5,
        beta=-2.0,
        bias=True,
        activation="tanh",
    )


@EVERY_FAMILY
@pytest.mark.parametrize("activation", [None, "relu"])
def test_epilogue_after_several_slabs_of_k(queue, config, activation):
    check_gemm(
        queue,
        (37, 41, 70),
        config=config,
        c=ROW,
        alpha=0.5,
        beta=-2.0,
        bias=True,
        activation=activation,
    )


@EVERY_FAMILY_AND_MORE
@settings(max_examples=15)
@given(sizes=st.tuples(*[st.integers(1, 100)] * 3), seed=st.integers(0, 2**32 - 1))
def test_any_size(queue, config, sizes, seed):
    check_gemm(queue, sizes, config=config, seed=seed)


@EVERY_FAMILY_AND_MORE
def test_zero_sizes(queue, config):
    for sizes in [(0, 5, 3), (5, 0, 3), (5, 7, 0)]:
        check_gemm(queue, sizes, config=config)


@EVERY_FAMILY
def test_explain_names_the_callers_configuration(queue, rng, config):
    skip_if_refused(queue, config)
    a = rng.random((40, 40), dtype="float32")
    choice = pyclgemm.explain(queue, a, a, config=config)
    assert choice.path == config.family
    assert choice.config == config
    assert str(config) in str(choice)


# Configurations that cannot be


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(INDIRECT, MWG=24), r"24 rows.*8 work-items.*vectors of 2"),
        (replace(INDIRECT, NWG=20), r"20 columns.*8 work-items.*vectors of 2"),
        (replace(INDIRECT, KWI=3), r"depth 8.*unrolling 3"),
        (replace(INDIRECT, PADA=1), r"PADA 1.*vectors of 2"),
        (replace(INDIRECT, STAGES=2, SA=0), r"STAGES is 2.*SA is 0"),
        (replace(INDIRECT, LANES_M=3), r"8 x 8 work-items.*3 x 1"),
        (replace(INDIRECT, VWM=3), r"VWM.*3"),
        (replace(INDIRECT, SA=2), r"SA.*2"),
        (replace(INDIRECT, KWG=0), r"KWG must be an integer of 1 to 1024: KWG is 0"),
        (replace(DIRECT, MDIMAD=3), r"32 work-items.*3 of them"),
        (replace(DIRECT, NWGD=12), r"12 columns.*4 work-items.*vectors of 2"),
        (replace(DIRECT, STAGES=4), r"STAGES is 4, ASYNC is 0"),
        (replace(INDIRECT, SWIZZLE=16, MWG=16), r"rows of 16 and 32.*SWIZZLE 16"),
        (replace(INDIRECT, SLICES=8), r"depth 8, slices 8, unrolling 2"),
        (replace(INDIRECT, FRAGMENTS=2), r"FRAGMENTS is 2, STAGES is 1"),
        (replace(DIRECT, FILL=-1), r"FILL must be an integer of 0 to 64: FILL is -1"),
        (replace(GEMV, WGS=12), r"WGS is 12, LANES_N is 4"),
        (replace(CPU, NR=20), r"NR is 20.*VW is 8"),
        (replace(CPU, VW=32, NR=32), r"VW is 32"),
        (replace(CPU, KC=12), r"KC is 12.*VW is 8"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_invalid_configuration_names_both_values(queue, rng, config, message):
    a = rng.random((40, 40), dtype="float32")
    with pytest.raises(pyclgemm.ConfigError, match=f"(?s){message}"):
        pyclgemm.gemm(queue, a, a, config=config)


def test_configuration_beyond_the_devices_limits(queue, rng, traits):
    a = rng.random((40, 40), dtype="float32")
    slices, ndimc = 16, -(-traits.max_work_group_size // 2048)
    too_many = 256 * ndimc * slices
    config = XgemmConfig(
        MWG=256, NWG=ndimc, KWG=slices, MDIMC=256, NDIMC=ndimc, MDIMA=256, NDIMB=1,
        KWI=1, VWM=1, VWN=1, SA=0, SB=0, SLICES=slices,
    )  # fmt: skip
    with pytest.raises(pyclgemm.ConfigError, match=rf"{too_many}.*{traits.max_work_group_size}"):
        pyclgemm.gemm(queue, a, a, config=config)
    too_many = 2 * traits.max_work_group_size
    config = GemvConfig(MR=1, WGS=too_many, LANES_N=too_many, VW=1)
    with pytest.raises(pyclgemm.ConfigError, match=rf"{too_many}.*{traits.max_work_group_size}"):
        pyclgemm.gemm(queue, a, a, config=config)
    config = replace(INDIRECT, MWG=1024, NWG=1024, KWG=1024, STAGES=2)
    with pytest.raises(pyclgemm.ConfigError, match=rf"limit {traits.local_memory_bytes}"):
        pyclgemm.gemm(queue, a, a, config=config)


def test_configuration_of_another_kind_is_refused(queue, rng):
    a = rng.random((4, 4), dtype="float32")
    with pytest.raises((pyclgemm.ConfigError, pyclgemm.DtypeError), match=r"config"):
        pyclgemm.gemm(queue, a, a, config={"MWG": 32})
