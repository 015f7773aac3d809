"""Transforms of tensors by matrix units, with the instructions emulated; and what compilers say."""

import re
from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest

from pyclgemm.codegen.matrix_units import nvidia_double_unit
from pyclgemm.device.traits import typical_traits
from pyclgemm.mra import codegen
from pyclgemm.mra.choice import Transform, TransformChoice, choose_transform, contiguous_stack
from pyclgemm.mra.codegen import make_schedule
from pyclgemm.mra.fused import FusedUnitConfig
from pyclgemm.mra.transform import OPERANDS, describe_transform
from pyclgemm.problem.matrix import Matrix
from pyclgemm.runtime.launcher import LaunchSequence
from pyclgemm.runtime.queue_state import queue_state
from tests.support import nvidia_compile
from tests.support.buffers import GuardedArray
from tests.support.emulation.matrix import skip_without_emulation, without_units
from tests.support.reference import assert_transformed

#: Calls of the function whose definition the emulation changes.
CALL = re.compile(r"(?<!void )multiply_accumulate\(")


def emulated(source, choice):
    """A kernel for a matrix unit in plain C; its work-group must be one sub-group."""
    assert choice.unit and source.local_size[0] == choice.unit.lanes
    named = re.sub(r"\bK\b", "EXTENT", source.text)  # the emulation has a K of its own
    plain = without_units(replace(source, text=named), choice.unit)
    text = CALL.sub("multiply_accumulate(exchange, ", plain.text)
    return replace(plain, text=f"#define ITEMS {choice.unit.lanes}\n{text}")


def check(queue, monkeypatch, architecture, shape, config=None, *, strided=False):
    """Transform random tensors by emulated units of an architecture, and check the result."""
    skip_without_emulation(queue.device)
    count, k = shape
    rng = np.random.default_rng(0)
    host = rng.standard_normal((count, k, k, k)), rng.standard_normal((k, k))
    tensors, matrix = (cl_array.to_device(queue, array) for array in host)
    strides = np.array([k**3, k * k, k, 1]) * (2 if strided else 1)
    out = GuardedArray(queue, host[0].shape, "float64", tuple(map(int, strides)))
    transform = describe_transform(tensors, matrix, out.array)
    choice = choose_transform(transform, typical_traits(architecture), "L4")
    if config is not None:
        unit = nvidia_double_unit(config.UNIT_M, config.UNIT_K)
        choice = TransformChoice("L5", "fused unit", "", config, unit)
    monkeypatch.setattr(codegen, "UNIT_SUB_GROUPS", 1)
    schedule = make_schedule(transform, choice, typical_traits(architecture))
    launches = [replace(one, source=emulated(one.source, choice)) for one in schedule.launches]
    schedule = replace(schedule, launches=tuple(launches))
    sequence = LaunchSequence(queue_state(queue), schedule, OPERANDS)
    sequence.enqueue((tensors, matrix, out.array))
    assert_transformed(out.get(), *host)


@pytest.mark.parametrize(("architecture", "k"), [("sm_80", 6), ("sm_90", 9), ("gfx90a", 10)])
def test_contractions(queue, monkeypatch, architecture, k):
    check(queue, monkeypatch, architecture, (2, k))


@pytest.mark.parametrize(
    ("k", "config", "strided"),
    [
        (k, FusedUnitConfig(rows, depth, tensors, parts, 1, slices, stages), strided)
        for k, rows, depth, tensors, parts, slices, stages, strided in [
            (8, 8, 4, 2, 1, 3, 1, False), (10, 16, 4, 1, 1, 2, 1, False),
            (7, 8, 4, 2, 1, 1, 1, True), (16, 16, 16, 1, 1, 1, 1, False),
            (13, 16, 8, 1, 1, 2, 1, False), (20, 8, 4, 1, 3, 1, 1, False),
            (12, 16, 16, 1, 1, 1, 1, False),  # depths are padded
            (20, 16, 8, 1, 1, 1, 1, False),  # rows are padded
            (10, 16, 4, 2, 1, 1, 2, False), (18, 16, 4, 1, 2, 1, 1, True),
            (9, 16, 4, 2, 1, 4, 2, False),  # 18 slices by fours
            (16, 8, 4, 1, 1, 1, 2, False), (20, 16, 4, 1, 1, 1, 1, False),
        ]
    ],
)  # fmt: skip
def test_fused(queue, monkeypatch, k, config, strided):
    check(queue, monkeypatch, "sm_90", (3, k), config, strided=strided)


@pytest.mark.parametrize(("k", "dtype"), [(8, "float64"), (16, "float64"), (16, "float32")])
def test_nvidias_assembler_spills_nothing(k, dtype, tmp_path):
    if missing := nvidia_compile.missing():
        pytest.skip(missing)
    traits = typical_traits("sm_90")
    stack = contiguous_stack(2048, k)
    transform = Transform(stack, Matrix(k, k, k, 1, 0), stack, dtype)
    source = codegen.generate_fused(transform, choose_transform(transform, traits), traits)
    assembled = nvidia_compile.assemble(source, tmp_path)
    assert assembled.spilled == 0
    # Two groups at least run side by side.
    assert 2 * assembled.registers * source.local_size[0] <= 64 * 1024
    assert 2 * assembled.local_bytes <= traits.local_memory_bytes
