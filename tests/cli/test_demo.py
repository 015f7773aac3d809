"""The pieces of the demo, small; the whole of it is what the README has a reader run first."""

from __future__ import annotations

import io
import sys
from unittest.mock import Mock

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

from pyclgemm.cli import demo
from pyclgemm.cli.demo import SpeedRow
from pyclgemm.errors import PyclgemmError
from pyclgemm.measure.bench import Timing
from tests.support.system import text_of


@pytest.fixture(scope="module")
def digits():
    pytest.importorskip("sklearn")
    return demo.load_digits()


@pytest.fixture(scope="module")
def network(digits):
    with Progress(disable=True) as progress:
        return demo.train(digits, progress, epochs=3)


def test_layers_agree_with_scikit_learn(queue, digits, network):
    layers = demo.dense_layers(queue, network)
    ours = demo.probabilities(queue, layers, digits.test)
    agreement = demo.agree(ours, network.predict_proba(digits.test), digits.test_labels)
    assert agreement.holds, agreement
    assert agreement.images == len(digits.test)
    assert agreement.accuracy == agreement.reference_accuracy > 0.5


def test_disagreement_is_seen():
    reference = np.array([[0.9, 0.1], [0.2, 0.8]])

    def agreement(ours):
        return demo.agree(ours, reference, np.array([0, 1]))

    assert agreement(reference).holds
    close = agreement(reference + 1e-7)
    assert close.holds and close.accuracy == 1
    assert agreement(reference[::-1]).same_labels == 0
    assert not any(agreement(one).holds for one in (reference + 1e-3, reference * np.nan))


@pytest.mark.parametrize(("same", "words"), [(450, "450 of 450"), (449, "DO NOT AGREE: 449")])
def test_comparison_is_printed(same, words):
    console = Console(width=120, record=True, file=io.StringIO())
    demo.print_agreement(console, demo.Agreement(450, same, 2e-7, 0.98, 0.98))
    assert words in console.export_text()


def test_missing_scikit_learn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(PyclgemmError, match=r'pip install "pyclgemm\[demo\]"'):
        demo.load_digits()


def test_probabilities_of_large_scores(queue):
    pytest.importorskip("scipy")
    scores = np.array([[1000.0, 1000.0, -1000.0]], np.float32)
    np.testing.assert_allclose(demo.probabilities(queue, [], scores), [[0.5, 0.5, 0]])


def test_pictures_show_image_and_label():
    image = np.zeros((1, 64), np.float32)
    image[0, 0] = 1
    lines = demo.pictures(image, np.array([[0.1, 0.9]]))[0].plain.split("\n")
    assert lines[0] == "██" + "  " * 7
    assert lines[-1] == "1 (90.0%)"
    assert len(lines) == 9


def test_speed_is_measured_after_the_result_is_checked(queue):
    row = demo.measure_speed(queue, 64, rounds=1)
    assert row.correct and row.seconds > 0 and row.numpy_seconds > 0


def test_numpy_rotates_copies_of_the_numbers(queue, monkeypatch):
    used, matmul = [], np.matmul

    def record(a, b, out):
        if a.dtype == np.float32:  # those of the reference are wider
            used.append(a)
        matmul(a, b, out=out)

    timings = {name: Timing(1, (1.0,)) for name in ("pyclgemm", "NumPy")}

    def bench(pace, *contenders):
        for contender in contenders:
            contender.enqueue(6)
        return Mock(run=lambda rounds: timings)

    monkeypatch.setattr(demo.np, "matmul", record)
    monkeypatch.setattr(demo, "Bench", bench)
    demo.measure_speed(queue, 8)
    assert len({id(a) for a in used}) == len(used) == 7
    assert all((a == used[0]).all() for a in used)


def test_a_wrong_result_is_marked_and_sizes_out_of_reach_are_left_out():
    text = text_of(demo.speed_table([SpeedRow(4, 1e-3, 2e-3, 0.5), SpeedRow(8, 1e-3, 2e-3, 7.0)]))
    assert "2.00" in text and "7.000 WRONG" in text and text.count("WRONG") == 1
    assert not demo.out_of_reach(SpeedRow(256, 0.001, 0.001, 0), 2048)
    assert demo.out_of_reach(SpeedRow(256, 1.0, 0.001, 0), 512)
