"""What tests ask of kernel families: refusals, traffic, and kernels with another text."""

from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from pyclgemm.codegen.source import KernelSource
from pyclgemm.families.family import Role
from pyclgemm.families.registry import FAMILIES, family_of

SMALL_FAMILIES = tuple(name for name, family in FAMILIES.items() if family.role is Role.SMALL_BATCH)
UNIT_FAMILIES = tuple(name for name, family in FAMILIES.items() if family.uses_units)

#: From a kernel with its problem, configuration and device to what is launched instead.
Change = Callable[[KernelSource, Any, Any, Any], KernelSource]


def refusal(config, problem, traits):
    return family_of(config).refusal(config, problem, traits)


def traffic_of(problem, config, sub_group, division=None, packed=()):
    return family_of(config).traffic(problem, config, sub_group, division, packed)


def load_bytes(problem, config, packed=()):
    return family_of(config).load_bytes(problem, config, packed)


@contextmanager
def changed_kernels(change):
    """Let every family write another kernel than its own."""

    def changed(source):
        def write(problem, config, traits):
            return change(source(problem, config, traits), problem, config, traits)

        return write

    with ExitStack() as stack:
        for family in FAMILIES.values():
            stack.enter_context(patch.object(family, "source", changed(family.source)))
        yield
