"""The coefficients of predicted times, fitted to times that are known exactly."""

from dataclasses import replace
from itertools import product

from pyclgemm import WgmmaConfig
from pyclgemm.device.ceilings import typical_ceilings
from pyclgemm.device.traits import typical_traits
from pyclgemm.families.cost import WorkTable
from pyclgemm.families.cpu.config import CpuConfig
from pyclgemm.families.registry import family_of
from pyclgemm.selection.features import Sample, extents
from pyclgemm.tuning.fit import fit_coefficients
from tests.support.facts import problem_of

CPU, H100 = typical_traits("x86-64-v4"), typical_traits("sm_90")


def sample(problem, config, coefficients, traits):
    work = family_of(config).work(config, problem, traits, typical_ceilings(traits))
    table = WorkTable([work], [coefficients], traits.compute_units)
    return Sample(problem, config, float(table.seconds(*extents(problem))[0]))


def test_a_term_is_found_that_another_one_hides_while_its_coefficient_is_assumed():
    # Reading B from the cache is assumed to take longer than the dot products that read it.
    configs = [CpuConfig(rows, NR=48, KC=512, VW=16, PACKB=0) for rows in (1, 2, 3, 4)]
    true = replace(family_of(configs[0]).coefficients, cache=0.02, turned=3.0)
    texts = [f"{m}x{n}x2000:NT" for m in (16, 48) for n in (480, 2400, 9600)]
    samples = [sample(problem_of(text), config, true, CPU) for text in texts for config in configs]
    found = fit_coefficients(samples, CPU, typical_ceilings(CPU))["cpu"]
    # Deviations from assumptions have a weight, so it is not reached quite.
    assert 2 < found.coefficients.turned <= true.turned
    assert found.error < 0.05


def test_a_coefficient_is_found_that_was_assumed_an_order_of_magnitude_too_small():
    # As assumed, and even twice as slow, the instructions that copy slabs hardly count.
    tiles = (64, 128, 1, 6), (128, 128, 2, 5), (128, 256, 2, 4)
    configs = [WgmmaConfig(*tile, TMA=tensor_maps) for tile in tiles for tensor_maps in (0, 1)]
    assumed = family_of(configs[0]).coefficients
    true = replace(assumed, loads=12 * assumed.loads)
    sizes = product((514, 1026, 2050, 4098), (1026, 2050, 4098), (1026, 4098))
    samples = [
        sample(problem_of(f"{m}x{n}x{k}", "float16"), config, true, H100)
        for m, n, k in sizes
        for config in configs
    ]
    found = fit_coefficients(samples, H100, typical_ceilings(H100))["wgmma"]
    assert 10 * assumed.loads < found.coefficients.loads <= true.loads
    assert found.error < 0.01
