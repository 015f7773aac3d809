"""Transforms of tensors by matrix units, with the instructions emulated; and what compilers say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import nvidia_compile
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from matrix_emulation import without_units
from test_transform3d import assert_transformed

from pyclgemm import transform3d_codegen, transform3d_schedule
from pyclgemm.device import DeviceTraits, traits_of
from pyclgemm.kernel_source import KernelSource
from pyclgemm.launch_sequence import LaunchSequence
from pyclgemm.matrix_units_nvidia import nvidia_double_unit
from pyclgemm.tensors import contiguous_stack
from pyclgemm.transform3d import describe_transform
from pyclgemm.transform3d_choice import TransformChoice, TransformProblem, choose_transform
from pyclgemm.transform3d_configs import FusedUnitConfig
from pyclgemm.transform3d_schedule import make_schedule
from pyclgemm.typical import typical_traits
from pyclgemm.workspace import queue_state

CALL = re.compile(r"multiply_accumulate\((?=y\d|sums\[|z,|&?c,)")

H100 = typical_traits("sm_90")


def emulated(source: KernelSource, choice: TransformChoice) -> KernelSource:
    """A kernel for a matrix unit in plain C; its group is one sub-group, whose barrier is all's."""
    assert choice.unit and source.local_size[0] == choice.unit.lanes
    named = re.sub(r"\bK\b", "EXTENT", source.text)  # the emulation has a K of its own
    plain = without_units(replace(source, text=named), choice.unit)
    text = CALL.sub("multiply_accumulate(exchange, ", plain.text)
    return replace(plain, text=f"#define ITEMS {choice.unit.lanes}\n{text}")


def run(
    queue: Any, monkeypatch: Any, architecture: str, shape: tuple[int, int],
    config: FusedUnitConfig | None, *, strided: bool = False, seed: int = 0,
) -> None:  # fmt: skip
    """Transform random tensors by emulated units of an architecture, and check them."""
    if queue.device.type != cl.device_type.CPU:
        pytest.skip("the emulation is for CPUs")
    if 32 not in traits_of(queue.device).sub_group_sizes:
        pytest.skip("the emulation's barriers take this runtime seconds to compile")
    count, k = shape
    rng = np.random.default_rng(seed)
    host = rng.standard_normal((count, k, k, k)), rng.standard_normal((k, k))
    tensors, matrix = (cl_array.to_device(queue, array) for array in host)
    out = cl_array.empty(queue, (count, k, k, 2 * k) if strided else host[0].shape, np.float64)
    out.fill(np.nan)
    out = out[..., ::2] if strided else out
    transform = describe_transform(tensors, matrix, out)
    traits = typical_traits(architecture)
    if config is None:
        choice = choose_transform(transform.problem, traits, "L4")
    else:
        unit = nvidia_double_unit(config.UNIT_M, config.UNIT_K)
        choice = TransformChoice("L5", "fused unit", "", config, unit)
    for name in ("generate_fused", "generate_contraction"):
        generate = getattr(transform3d_codegen, name)
        monkeypatch.setattr(
            transform3d_schedule, name,
            lambda *arguments, generate=generate: emulated(generate(*arguments), choice),
        )  # fmt: skip
    for module in (transform3d_codegen, transform3d_schedule):
        monkeypatch.setattr(module, "UNIT_SUB_GROUPS", 1)
    schedule = make_schedule(transform, choice, traits)
    sequence = LaunchSequence(queue_state(queue), None, schedule)
    sequence.enqueue(tensors, matrix, out, None, None, 1.0, 0.0, None)
    got = out.base_data and cl_array.Array(queue, (count, k, k, 2 * k), np.float64, data=out.base_data).get()[..., ::2] if strided else out.get()
    assert_transformed(got, *host)


@pytest.mark.parametrize(("architecture", "k"), [("sm_80", 6), ("sm_90", 9), ("gfx90a", 10)])
def test_contractions_by_units(
    queue: Any, monkeypatch: Any, architecture: str, k: int
) -> None:
    run(queue, monkeypatch, architecture, (2, k), None)


@pytest.mark.parametrize(
    ("k", "config", "strided"),
    [
        (8, FusedUnitConfig(8, 4, TENSORS=2, PARTS=1, SUBGROUPS=1, SLICES=3), False),
        (10, FusedUnitConfig(16, 4, TENSORS=1, PARTS=1, SUBGROUPS=1, SLICES=2), False),
        (7, FusedUnitConfig(8, 4, TENSORS=2, PARTS=1, SUBGROUPS=1, SLICES=1), True),
        (16, FusedUnitConfig(16, 16, TENSORS=1, PARTS=1, SUBGROUPS=1, SLICES=1), False),
        (13, FusedUnitConfig(16, 8, TENSORS=1, PARTS=1, SUBGROUPS=1, SLICES=2), False),
        (20, FusedUnitConfig(8, 4, TENSORS=1, PARTS=3, SUBGROUPS=1, SLICES=1), False),
        (18, FusedUnitConfig(16, 4, TENSORS=1, PARTS=2, SUBGROUPS=1, SLICES=1), True),
    ],
)  # fmt: skip
def test_fused_by_units(
    queue: Any, monkeypatch: Any, k: int, config: FusedUnitConfig, strided: bool
) -> None:
    run(queue, monkeypatch, "sm_90", (3, k), config, strided=strided)
