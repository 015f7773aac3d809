"""Which kernels a transform takes on which device, and what these need there: without a device."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ConfigError, UnsupportedError
from pyclgemm.mra.choice import LEVELS, TransformChoice, TransformProblem, choose_transform
from pyclgemm.mra.codegen import generate_fused
from pyclgemm.mra.fused import (
    FusedConfig,
    FusedUnitConfig,
    fused_config,
    held_tensor,
    unit_tiles,
)
from pyclgemm.mra.tensors import TensorLayout, contiguous_stack
from tests.support.facts import cpu, gpu

ARCHITECTURES = (
    "sm_70", "sm_80", "sm_90", "gfx1100", "gfx90a", "gfx942", "x86-64-v2", "x86-64-v4",
    "apple_gpu", "arm_gpu",
)  # fmt: skip


def problem(k: int, dtype: str = "float64", count: int = 2048) -> TransformProblem:
    layout = contiguous_stack(count, k).layout
    return TransformProblem(count, k, dtype, layout, layout)


def test_operations_and_bytes() -> None:
    assert problem(10).flops == 2048 * 3 * 2 * 10**4
    assert problem(10, "float32").bytes == 2048 * 2 * 4 * 1000


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_something_runs_everywhere_and_local_memory_holds_it(architecture: str, dtype: str) -> None:
    traits = typical_traits(architecture)
    for k in range(1, 33):
        if dtype == "float64" and not traits.float64:
            with pytest.raises(UnsupportedError, match="float64"):
                choose_transform(problem(k, dtype), traits)
            continue
        choice = choose_transform(problem(k, dtype), traits)
        assert choice.level in ("L4", "L5")
        if choice.config is None:
            continue
        source = generate_fused(problem(k, dtype), choice, traits)
        assert math.prod(source.local_size) <= traits.max_work_group_size
        assert local_bytes(source.text, dtype) <= traits.local_memory_bytes
        assert choice.config.PARTS == 1 or choice.config.TENSORS == 1


def local_bytes(text: str, dtype: str) -> int:
    """The sum of the arrays that a kernel declares in local memory."""
    macros = dict(re.findall(r"#define (\w+) (\d+)", text))
    counts = re.findall(r"__local real \w+\[(.*?)\]", text)
    assert counts
    size = {"float32": 4, "float64": 8}[dtype]
    return sum(
        size * eval(re.sub(r"[A-Z_]+", lambda name: macros[name[0]], count)) for count in counts
    )


@pytest.mark.parametrize(
    ("traits", "dtype"),
    [
        (typical_traits("gfx1100"), "float64"),
        (gpu(), "float32"),
        (typical_traits("sm_70"), "float64"),
        (cpu(), "float64"),
    ],
)
def test_l4_is_l3_without_units(traits: Any, dtype: str) -> None:
    choice = choose_transform(problem(8, dtype), traits, "L4")
    assert choice.technique == "row"
    assert "no matrix units" in choice.reason and "as L3" in str(choice)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "gfx90a", "gfx942"])
def test_l4_takes_units(architecture: str) -> None:
    choice = choose_transform(problem(8), typical_traits(architecture), "L4")
    assert choice.technique == "unit row" and choice.unit is not None


def test_every_level_has_a_technique_of_its_own() -> None:
    traits = typical_traits("sm_90")
    choices = [choose_transform(problem(8), traits, level) for level in LEVELS]
    assert len({choice.technique for choice in choices}) == len(LEVELS)
    assert [choice.level for choice in choices] == list(LEVELS)


def test_one_launch_that_reads_too_often_is_not_the_fastest() -> None:
    traits = typical_traits("gfx90a")
    config = choose_transform(problem(32), traits, "L5").config
    assert config is not None and config.PARTS > 3
    choice = choose_transform(problem(32), traits)
    assert choice.level == "L4" and f"{config.PARTS} work-groups" in choice.reason


def test_a_level_that_local_memory_cannot_hold_says_so() -> None:
    traits = gpu(architecture="", vendor="other", local_memory_bytes=1024)
    with pytest.raises(UnsupportedError, match=r"'L5'.*K = 32.*1024 bytes of local memory"):
        choose_transform(problem(32), traits, "L5")
    assert choose_transform(problem(32), traits).technique == "row"


def conflicts(addresses: list[int], width: int) -> int:
    """The most different words of one bank in a read of 128 bytes, by 32 banks of 4 bytes each."""
    lanes = 128 // width
    worst = 1
    for first in range(0, len(addresses) - lanes + 1, lanes):
        banks: dict[int, set[int]] = {}
        for address in addresses[first : first + lanes]:
            for word in range(address // 4, (address + width) // 4):
                banks.setdefault(word % 32, set()).add(word)
        worst = max(worst, max(map(len, banks.values())))
    return worst


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("k", [6, 8, 10, 12, 16, 20])
def test_rows_lie_in_all_banks(k: int, size: int) -> None:
    config = fused_config(k, 2048, size, typical_traits("sm_90"))
    assert config is not None
    held, width = held_tensor(k, size, config), config.VW * size
    rows = [size * held.row * row for row in range(held.rows)]
    assert conflicts(rows, width) == 1
    vectors = k // config.VW
    stored = [
        size * (held.slice * (unit // vectors) + config.VW * (unit % vectors)) for unit in range(32)
    ]
    assert conflicts(stored, width) == 1


@pytest.mark.parametrize("k", [6, 8, 10, 12, 16, 20, 32])
def test_fragments_lie_in_all_banks(k: int) -> None:
    choice = choose_transform(problem(k), typical_traits("sm_90"))
    assert isinstance(choice.config, FusedUnitConfig)
    pitch = unit_tiles(k, choice.config).slice
    lanes = [8 * (pitch * (lane % 4) + lane // 4) for lane in range(32)]
    assert conflicts(lanes, 8) == 1


@pytest.mark.parametrize(
    ("k", "config", "message"),
    [
        (32, FusedConfig(4, 1, 1, 64, 2), "takes 151552 bytes of local memory.*has 49152"),
        (8, FusedConfig(4, 1, 1, 2048, 2), "2048 work-items.*allows 1024"),
        (8, FusedConfig(4, 2, 2, 64, 2), "TENSORS is 2 and PARTS is 2"),
        (6, FusedConfig(4, 1, 1, 64, 2), "VW must divide K: VW is 4, K is 6"),
        (2, FusedConfig(4, 1, 1, 1, 1), "VW is 4, more than K = 2"),
        (8, FusedConfig(8, 1, 1, 64, 2), "a vector has 32 bytes, more than 16"),
        (5, FusedConfig(1, 1, 1, 64, 2), "ROWS must divide.*ROWS is 2, K is 5"),
        (8, FusedConfig(4, 1, 0, 64, 2), "PARTS is 0"),
        (32, FusedUnitConfig(16, 16, 1, 1, 8, 1), "bytes of local memory"),
        (8, FusedUnitConfig(8, 4, 1, 1, 33, 1), "1056 work-items"),
    ],
)
def test_what_cannot_run_is_refused(
    k: int, config: FusedConfig | FusedUnitConfig, message: str
) -> None:
    choice = TransformChoice("L5", "fused", "", config)
    with pytest.raises(ConfigError, match=f"K = {k}: .*{message}"):
        generate_fused(problem(k, "float32"), choice, typical_traits("sm_80"))


def test_few_tensors_are_spread_over_the_device() -> None:
    traits = typical_traits("sm_90")
    for dtype in ("float32", "float64"):
        for count in (1, 132, 500, 2048):
            config = choose_transform(problem(8, dtype, count), traits).config
            assert config is not None
            assert config.TENSORS == 1 or math.ceil(count / config.TENSORS) >= traits.compute_units


def test_a_cpu_has_no_padding() -> None:
    config = fused_config(10, 2048, 8, typical_traits("x86-64-v4"))
    assert config == FusedConfig(VW=4, TENSORS=1, PARTS=1, ITEMS=1, ROWS=1)
    assert held_tensor(10, 8, config).size == 1000


@pytest.mark.parametrize("level", ["L5", None])
def test_choices_are_readable(level: Any) -> None:
    choice = choose_transform(problem(10), typical_traits("sm_90"), level)
    assert str(choice).startswith("L5 (fused unit): ")


@pytest.mark.parametrize("alignment", [1, 2])
@pytest.mark.parametrize("config", [FusedConfig(2, 1, 1, 32, 1), None], ids=["fused", "units"])
def test_global_memory_is_accessed_by_vectors_only_where_they_are_aligned(
    config: FusedConfig | None, alignment: int
) -> None:
    layout = TensorLayout(is_contiguous=True, has_rows=True, alignment=alignment)
    one = TransformProblem(9, 8, "float64", layout, layout)
    choice = choose_transform(one, typical_traits("sm_90"))
    if config is not None:
        choice = TransformChoice("L5", "fused", "", config)
    text = generate_fused(one, choice, typical_traits("sm_90")).text
    assert ("__global double2 *" in text) == (alignment == 2)
