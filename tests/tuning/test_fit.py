"""The coefficients of predicted times, fitted to times that are known exactly."""

from dataclasses import replace

from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.cost import WorkTable
from pyclgemm.families.cpu.config import CpuConfig
from pyclgemm.families.registry import family_of
from pyclgemm.selection.features import Sample, extents
from pyclgemm.tuning.fit import fit_coefficients
from tests.support.facts import problem_of

TRAITS = typical_traits("x86-64-v4")
CEILINGS = typical_ceilings(TRAITS)


def sample(text, config, coefficients):
    problem = problem_of(text)
    work = family_of(config).work(config, problem, TRAITS, CEILINGS)
    table = WorkTable([work], [coefficients], TRAITS.compute_units)
    return Sample(problem, config, float(table.seconds(*extents(problem))[0]))


def test_a_term_is_found_that_another_one_hides_while_its_coefficient_is_assumed():
    # Reading B from the cache is assumed to take longer than the dot products that read it.
    configs = [CpuConfig(rows, NR=48, KC=512, VW=16, PACKB=0) for rows in (1, 2, 3, 4)]
    true = replace(family_of(configs[0]).coefficients, cache=0.02, turned=3.0)
    texts = [f"{m}x{n}x2000:NT" for m in (16, 48) for n in (480, 2400, 9600)]
    samples = [sample(text, config, true) for text in texts for config in configs]
    found = fit_coefficients(samples, TRAITS, CEILINGS)["cpu"]
    # Deviations from assumptions have a weight, so it is not reached quite.
    assert 2 < found.coefficients.turned <= true.turned
    assert found.error < 0.05
