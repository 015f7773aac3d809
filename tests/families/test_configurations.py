"""Every kernel family with a configuration of the caller's, on every device.

CPU devices would choose the CPU family alone; here they run the GPU families too, in
small tiles. The configurations cover each parameter, not their product.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from buffers import Layout
from checks import (
    COLUMN,
    COLUMN_ALIGNED,
    ROW,
    ROW_ALIGNED,
    STRIDED,
    check_gemm,
    skip_if_refused,
    spoil_workspace,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import pyclgemm
from pyclgemm import CpuConfig, GemvConfig, XgemmConfig, XgemmDirectConfig

INDIRECT = XgemmConfig(
    MWG=32, NWG=32, KWG=8, MDIMC=8, NDIMC=8, MDIMA=8, NDIMB=8, KWI=2, VWM=2, VWN=2
)
DIRECT = XgemmDirectConfig(
    WGD=16, MDIMCD=8, NDIMCD=4, MDIMAD=8, NDIMBD=4, KWID=2, VWMD=2, VWND=2, PADA=2, PADB=2
)
GEMV = GemvConfig(MR=2, WGS=16, LANES_N=4, VW=2)
CPU = CpuConfig(MR=3, NR=16, KC=32, VW=8)

INDIRECT_CONFIGS = {
    "plain": INDIRECT,
    "scalars": replace(INDIRECT, VWM=1, VWN=1, KWI=1),
    "wide vectors": replace(INDIRECT, VWM=4, VWN=4, MDIMA=8, NDIMB=4, KWG=16),
    "caches only": replace(INDIRECT, SA=0, SB=0),
    "A through caches": replace(INDIRECT, SA=0, STRM=0),
    "B through caches": replace(INDIRECT, SB=0, STRN=0),
    "contiguous pieces": replace(INDIRECT, STRM=0, STRN=0),
    "padding": replace(INDIRECT, PADA=2, PADB=4),
    "two stages": replace(INDIRECT, STAGES=2, PADA=2),
    "lanes": replace(INDIRECT, LANES_M=4, LANES_N=2),
    "groups of rows": replace(INDIRECT, GROUP_M=3),
    "oblong": replace(
        INDIRECT, MWG=16, NWG=64, KWG=16, MDIMC=4, NDIMC=16, MDIMA=4, NDIMB=16, LANES_M=4
    ),
    "deep": replace(INDIRECT, KWG=32, KWI=8, MDIMA=4, NDIMB=2),
    "swizzle": replace(INDIRECT, SWIZZLE=4),
    "two fragments": replace(INDIRECT, STAGES=2, FRAGMENTS=2),
    "slices": replace(INDIRECT, SLICES=2, MDIMA=16, NDIMB=16),
    "serpentine": replace(INDIRECT, STAGES=2, FRAGMENTS=2, SERPENTINE=1),
    "slices through caches": replace(INDIRECT, KWG=16, SLICES=4, SA=0, SB=0, MDIMA=16, NDIMB=16),
    "slabs divided": replace(INDIRECT, FILL=3),
    "rows padded": replace(INDIRECT, PADLD=6),
    "shuffles": replace(INDIRECT, NWG=64, LANES_M=8, LANES_N=4, SHUFFLE=1),
    "past the registers": replace(INDIRECT, ASYNC=1, STAGES=3),
    "all at once": replace(
        INDIRECT, MDIMA=16, NDIMB=16, GROUP_M=2, STAGES=2, FILL=2, SWIZZLE=4, FRAGMENTS=2, SLICES=2
    ),
    "all at once, past the registers": replace(
        INDIRECT, MDIMA=16, NDIMB=16, STAGES=4, ASYNC=1, FILL=2, SWIZZLE=4, FRAGMENTS=2, SLICES=2
    ),
}

DIRECT_CONFIGS = {
    "plain": DIRECT,
    "scalars": replace(DIRECT, VWMD=1, VWND=1, KWID=1, PADA=0, PADB=1),
    "wide vectors": replace(DIRECT, WGD=32, VWMD=4, VWND=4, PADA=4, PADB=4, MDIMAD=8, NDIMBD=8),
    "two stages": replace(DIRECT, STAGES=2),
    "lanes": replace(DIRECT, LANES_M=2, LANES_N=2),
    "shallow": replace(DIRECT, KWGD=8),
    "deep": replace(DIRECT, KWGD=32, KWID=8),
    "short runs along k": replace(DIRECT, RUN_K=1),
    "long runs along k": replace(DIRECT, RUN_K=16),
    "wide": replace(DIRECT, NWGD=32),
    "tall": replace(DIRECT, WGD=32, NWGD=8, GROUP_M=2),
    "swizzle": replace(DIRECT, SWIZZLE=4, PADA=0, PADB=0),
    "two fragments": replace(DIRECT, STAGES=2, FRAGMENTS=2),
    "slices": replace(DIRECT, SLICES=2),
    "serpentine": replace(DIRECT, SERPENTINE=1),
    "slabs divided": replace(DIRECT, FILL=3),
    "shuffles": replace(DIRECT, WGD=32, LANES_M=8, LANES_N=4, SHUFFLE=1),
    "past the registers": replace(DIRECT, ASYNC=1, STAGES=3, FILL=3),
    "all at once": replace(
        DIRECT, NWGD=32, GROUP_M=2, STAGES=2, FILL=2, SWIZZLE=4, FRAGMENTS=2, SLICES=2
    ),
    "all at once, past the registers": replace(
        DIRECT, NWGD=32, STAGES=4, ASYNC=1, FILL=2, SWIZZLE=4, FRAGMENTS=2, SLICES=2
    ),
}

GEMV_CONFIGS = {
    "plain": GEMV,
    "scalars": GemvConfig(MR=1, WGS=32, LANES_N=8, VW=1, KWI=4),
    "wide vectors": GemvConfig(MR=4, WGS=64, LANES_N=2, VW=8, KWI=2),
    "all work-items along k": GemvConfig(MR=3, WGS=32, LANES_N=1, VW=4),
    "all work-items along the columns": GemvConfig(MR=8, WGS=12, LANES_N=12, VW=4),
}

CPU_CONFIGS = {
    "plain": CPU,
    "scalars": CpuConfig(MR=2, NR=3, KC=16, VW=1),
    "one row": CpuConfig(MR=1, NR=32, KC=16, VW=16),
    "wide": CpuConfig(MR=6, NR=32, KC=512, VW=8),
    "KC no power of two": CpuConfig(MR=4, NR=8, KC=36, VW=4),
    "blocks of rows": replace(CPU, MC=6),
    "B where it lies": replace(CPU, PACKB=0),
    "B where it lies, in scalars": CpuConfig(MR=2, NR=3, KC=16, VW=1, PACKB=0),
    "no prefetching": replace(CPU, PREFETCHB=0, PREFETCHC=0),
}

pytestmark = pytest.mark.any_runtime

BASES = {"indirect": INDIRECT, "direct": DIRECT, "gemv": GEMV, "cpu": CPU}
BASES_AND_MORE = BASES | {"direct: all at once": DIRECT_CONFIGS["all at once"]}
EVERY_CONFIG = [
    pytest.param(config, id=f"{config.family}: {name}")
    for configs in (INDIRECT_CONFIGS, DIRECT_CONFIGS, GEMV_CONFIGS, CPU_CONFIGS)
    for name, config in configs.items()
]
EVERY_FAMILY = pytest.mark.parametrize("config", BASES.values(), ids=BASES)
EVERY_FAMILY_AND_MORE = pytest.mark.parametrize(
    "config", BASES_AND_MORE.values(), ids=BASES_AND_MORE
)

# Smaller than a tile, a whole tile, a little less and more than tiles and slabs.
TELLING_SIZES = [(1, 1, 1), (32, 32, 32), (33, 31, 9), (64, 65, 40), (5, 130, 47), (97, 3, 70)]


@pytest.mark.parametrize("config", EVERY_CONFIG)
def test_every_configuration(queue: Any, config: Any) -> None:
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
def test_aligned_operands(queue: Any, config: Any, operands: Layout) -> None:
    for sizes in TELLING_SIZES:
        check_gemm(queue, sizes, config=config, a=operands, b=operands, out=ROW_ALIGNED)


@EVERY_FAMILY
@pytest.mark.parametrize("out", [ROW, COLUMN], ids=["row", "column"])
@pytest.mark.parametrize("trans_b", [False, True], ids=["N", "T"])
@pytest.mark.parametrize("trans_a", [False, True], ids=["N", "T"])
def test_every_transposition(
    queue: Any, config: Any, trans_a: bool, trans_b: bool, out: Layout
) -> None:
    check_gemm(queue, (37, 41, 19), config=config, trans_a=trans_a, trans_b=trans_b, out=out)


@EVERY_FAMILY_AND_MORE
@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64", "complex128"])
def test_every_type(queue: Any, require: Any, config: Any, dtype: str) -> None:
    require(dtype)
    spoil_workspace(queue, dtype, config=config)
    options: dict[str, Any] = {"trans_a": "C"} if dtype.startswith("complex") else {}
    check_gemm(
        queue, (37, 41, 19), dtype, config=config, c=ROW, alpha=0.5, beta=-2.0, bias=True, **options
    )


@EVERY_FAMILY
def test_half_arithmetic(queue: Any, traits: Any, require: Any, config: Any) -> None:
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
def test_strided_matrices(queue: Any, config: Any, a: Layout, b: Layout, out: Layout) -> None:
    check_gemm(queue, (37, 41, 19), config=config, a=a, b=b, out=out)


@EVERY_FAMILY_AND_MORE
@pytest.mark.parametrize("out", [ROW, COLUMN], ids=["row", "column"])
def test_whole_epilogue_in_place(queue: Any, config: Any, out: Layout) -> None:
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
def test_epilogue_after_several_slabs_of_k(queue: Any, config: Any, activation: str | None) -> None:
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
def test_any_size(queue: Any, config: Any, sizes: Any, seed: int) -> None:
    check_gemm(queue, sizes, config=config, seed=seed)


@EVERY_FAMILY_AND_MORE
def test_zero_sizes(queue: Any, config: Any) -> None:
    for sizes in [(0, 5, 3), (5, 0, 3), (5, 7, 0)]:
        check_gemm(queue, sizes, config=config)


@EVERY_FAMILY
def test_explain_names_the_callers_configuration(queue: Any, rng: Any, config: Any) -> None:
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
def test_invalid_configuration_names_both_values(
    queue: Any, rng: Any, config: Any, message: str
) -> None:
    a = rng.random((40, 40), dtype="float32")
    with pytest.raises(pyclgemm.ConfigError, match=f"(?s){message}"):
        pyclgemm.gemm(queue, a, a, config=config)


def test_configuration_beyond_the_devices_limits(queue: Any, rng: Any, traits: Any) -> None:
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


def test_configuration_of_another_kind_is_refused(queue: Any, rng: Any) -> None:
    a = rng.random((4, 4), dtype="float32")
    with pytest.raises((pyclgemm.ConfigError, pyclgemm.DtypeError), match=r"config"):
        pyclgemm.gemm(queue, a, a, config={"MWG": 32})
