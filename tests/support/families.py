"""What tests ask of kernel families: refusals, traffic, and kernels with another text."""

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import patch

from pyclgemm.api import pack, prepare
from pyclgemm.device.traits import traits_of
from pyclgemm.families.family import Role, Run
from pyclgemm.families.registry import FAMILIES, family_of
from pyclgemm.mra import transform
from tests.support import checks

SMALL_FAMILIES = tuple(name for name, family in FAMILIES.items() if family.role is Role.SMALL_BATCH)


def refusal(config, problem, traits):
    return family_of(config).refusal(config, problem, traits)


def traffic_of(problem, config, sub_group, division=None, packed=()):
    return family_of(config).traffic(problem, config, Run(sub_group, division, packed))


def load_bytes(problem, config, packed=()):
    return family_of(config).load_bytes(problem, config, Run(32, None, packed))


def unoptimised(source):
    """The source of a kernel that is built without optimisation."""
    return replace(source, options=f"{source.options} -cl-opt-disable".strip())


@contextmanager
def changed_kernels(change):
    """Let families write other kernels: `change` gets theirs, problem, configuration, device."""

    def changed(source):
        def write(problem, config, traits):
            return change(source(problem, config, traits), problem, config, traits)

        return write

    with ExitStack() as stack:
        for family in FAMILIES.values():
            stack.enter_context(patch.object(family, "source", changed(family.source)))
        yield


@contextmanager
def imagined_traits(**changes):
    """Let devices pass for others: the library and the checks of tests see changed traits."""

    def imagined(device):
        return replace(traits_of(device), **changes)

    with ExitStack() as stack:
        for module in (prepare, pack, transform, checks):
            stack.enter_context(patch.object(module, "traits_of", imagined))
        yield
