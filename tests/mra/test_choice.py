"""What a transform takes on which device, and where its tensors may lie: without a device."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import ConfigError, ShapeError, UnsupportedError
from pyclgemm.mra import choice as mra, fused
from pyclgemm.mra.choice import TensorStack, TransformChoice, choose_transform
from pyclgemm.mra.codegen import generate_fused
from pyclgemm.mra.fused import FusedConfig, FusedUnitConfig
from tests.support.facts import cpu, gpu, transform_of

H100 = typical_traits("sm_90")
ARCHITECTURES = (
    "sm_70", "sm_80", "sm_90", "gfx1100", "gfx90a", "gfx942", "x86-64-v2", "x86-64-v4",
    "apple_gpu", "arm_gpu",
)  # fmt: skip


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_something_runs_everywhere_and_local_memory_holds_it(architecture, dtype):
    traits = typical_traits(architecture)
    for k in range(1, 33):
        if dtype == "float64" and not traits.float64:
            with pytest.raises(UnsupportedError, match="float64"):
                choose_transform(transform_of(k, dtype), traits)
            continue
        choice = choose_transform(transform_of(k, dtype), traits)
        assert choice.level in ("L4", "L5")
        if choice.config is None:
            continue
        source = generate_fused(transform_of(k, dtype), choice, traits)
        assert math.prod(source.local_size) <= traits.max_work_group_size
        assert local_bytes(source.text, dtype) <= traits.local_memory_bytes
        assert choice.config.PARTS == 1 or choice.config.TENSORS == 1


def local_bytes(text, dtype):
    """The sum of the arrays that a kernel declares in local memory."""
    macros = dict(re.findall(r"#define (\w+) (\d+)", text))
    counts = re.findall(r"__local real \w+\[(.*?)\]", text)
    assert counts
    elements = sum(eval(re.sub(r"[A-Z_]+", lambda name: macros[name[0]], one)) for one in counts)
    return {"float32": 4, "float64": 8}[dtype] * elements


@pytest.mark.parametrize(
    ("traits", "dtype", "has_units"),
    [
        *((typical_traits(name), "float64", True)
          for name in ("sm_80", "sm_90", "gfx90a", "gfx942")),
        *((typical_traits(name), "float64", False) for name in ("sm_70", "gfx1100")),
        (gpu(), "float32", False), (cpu(), "float64", False),
    ],
)  # fmt: skip
def test_l4_is_l3_without_units(traits, dtype, has_units):
    choice = choose_transform(transform_of(8, dtype), traits, "L4")
    assert choice.technique == ("unit row" if has_units else "row")
    assert (choice.unit is not None) == has_units
    assert has_units or ("no matrix units" in choice.reason and "as L3" in str(choice))


def test_every_level_has_a_technique_of_its_own():
    choices = [choose_transform(transform_of(8), H100, level) for level in mra.LEVELS]
    assert len({choice.technique for choice in choices}) == len(mra.LEVELS)
    assert [choice.level for choice in choices] == list(mra.LEVELS)
    for choice in (choices[4], choose_transform(transform_of(10), H100)):
        assert str(choice).startswith("L5 (fused unit): ")


def test_one_launch_that_reads_too_often_is_not_the_fastest():
    traits = typical_traits("gfx90a")
    config = choose_transform(transform_of(32), traits, "L5").config
    assert config.PARTS > 3
    choice = choose_transform(transform_of(32), traits)
    assert choice.level == "L4" and f"{config.PARTS} work-groups" in choice.reason
    small = gpu(architecture="", vendor="other", local_memory_bytes=1024)
    with pytest.raises(UnsupportedError, match=r"'L5'.*K = 32.*1024 bytes of local memory"):
        choose_transform(transform_of(32), small, "L5")
    assert choose_transform(transform_of(32), small).technique == "row"


def conflicts(addresses, width):
    """The most different words of one bank in a read of 128 bytes, by 32 banks of 4 bytes each."""
    lanes = 128 // width
    worst = 1
    for first in range(0, len(addresses) - lanes + 1, lanes):
        words = {
            word
            for address in addresses[first : first + lanes]
            for word in range(address // 4, (address + width) // 4)
        }
        worst = max(worst, *np.bincount([word % 32 for word in words]))
    return worst


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("k", [6, 8, 10, 12, 16, 20])
def test_rows_lie_in_all_banks(k, size):
    config = fused.fused_config(k, 2048, size, H100)
    held, width = fused.HeldTensor(k, size, config), config.VW * size
    assert conflicts([size * held.row * row for row in range(held.rows)], width) == 1
    places = [divmod(unit, k // config.VW) for unit in range(32)]
    stored = [size * (held.slice * one + config.VW * vector) for one, vector in places]
    assert conflicts(stored, width) == 1


@pytest.mark.parametrize("k", [6, 8, 10, 12, 16, 20, 32])
def test_fragments_lie_in_all_banks(k):
    choice = choose_transform(transform_of(k), H100)
    assert isinstance(choice.config, FusedUnitConfig)
    pitch = fused.UnitTiles(k, choice.config).slice
    assert conflicts([8 * (pitch * (lane % 4) + lane // 4) for lane in range(32)], 8) == 1


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
def test_what_cannot_run_is_refused(k, config, message):
    choice = TransformChoice("L5", "fused", "", config)
    with pytest.raises(ConfigError, match=f"K = {k}: .*{message}"):
        generate_fused(transform_of(k, "float32"), choice, typical_traits("sm_80"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 132, 500, 2048])
def test_few_tensors_are_spread_over_the_device(dtype, count):
    each = choose_transform(transform_of(8, dtype, count), H100).config.TENSORS
    assert each == 1 or math.ceil(count / each) >= H100.compute_units


def test_what_measured_fastest_is_taken_and_a_cpu_has_no_padding():
    measured = FusedUnitConfig(8, 4, TENSORS=1, PARTS=1, SUBGROUPS=8, SLICES=1, STAGES=2)
    assert choose_transform(transform_of(16), H100).config == measured
    config = choose_transform(transform_of(10), typical_traits("x86-64-v4")).config
    assert config == FusedConfig(VW=4, TENSORS=1, PARTS=1, ITEMS=1, ROWS=1)
    assert fused.HeldTensor(10, 8, config).size == 1000


@pytest.mark.parametrize("alignment", [1, 2])
@pytest.mark.parametrize("config", [FusedConfig(2, 1, 1, 32, 1), None], ids=["fused", "units"])
def test_global_memory_is_accessed_by_vectors_only_where_they_are_aligned(config, alignment):
    stack = replace(mra.contiguous_stack(9, 8), offset=alignment)
    one = replace(transform_of(8), tensors=stack, out=stack)
    assert stack.alignment == alignment
    choice = TransformChoice("L5", "fused", "", config) if config else choose_transform(one, H100)
    text = generate_fused(one, choice, H100).text
    assert ("__global double2 *" in text) == (alignment == 2)


def test_contiguous_tensors_are_known_as_such():
    array = np.empty((5, 3, 3, 3), np.float32)
    assert mra.stack_of("tensors", array) == mra.contiguous_stack(5, 3)
    last = array[::2][:1]  # no second one
    for one in (array, array[3:4], last, array[:0].transpose(0, 3, 2, 1)):
        assert mra.stack_of("tensors", one).is_contiguous
    assert not mra.stack_of("tensors", array[::2]).is_contiguous


@pytest.mark.parametrize(
    ("strides", "offset", "has_rows", "alignment"),
    [
        ((512, 64, 8, 1), 0, True, 8), ((512, 64, 8, 1), 2, True, 2),
        ((512, 64, 8, 1), 3, True, 1), ((520, 64, 8, 1), 16, True, 8),
        ((513, 64, 8, 1), 16, True, 1), ((512, 1, 8, 64), 0, False, 1),
    ],
)  # fmt: skip
def test_rows_and_their_alignment(strides, offset, has_rows, alignment):
    stack = TensorStack(3, 8, strides, offset)
    assert (stack.has_rows, stack.alignment) == (has_rows, alignment)


def test_destinations_whose_elements_share_no_memory_can_be_written():
    # Of one tensor the stride to the next is free.
    one = np.broadcast_to(np.empty((3, 3, 3), np.float32), (1, 3, 3, 3))
    mra.check_writable(mra.stack_of("out", one))
    for strides in (
        (27, 9, 3, 1), (1, 5, 15, 45), (27, -9, 3, -1), (100, 30, 10, 2), (27, 9, 1, 3),
    ):  # fmt: skip
        mra.check_writable(TensorStack(5, 3, strides))
    for strides in (
        (0, 9, 3, 1), (26, 9, 3, 1), (27, 9, 2, 1), (27, 8, 3, 1), (27, 3, 9, -3), (27, 9, 3, 0),
    ):  # fmt: skip
        with pytest.raises(ShapeError, match="out has strides"):
            mra.check_writable(TensorStack(5, 3, strides))
