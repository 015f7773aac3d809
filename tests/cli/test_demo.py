"""The pieces of the demo, small; the whole of it is what the README has a reader run first."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

from pyclgemm.cli import demo
from pyclgemm.cli import demo as demo_speed
from pyclgemm.cli.demo import SpeedRow
from pyclgemm.errors import PyclgemmError


def recorder():
    return Console(width=120, record=True, file=io.StringIO())


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
    assert agreement.count == len(digits.test)
    assert agreement.accuracy == agreement.reference_accuracy > 0.5


def test_digits_are_float32_from_0_to_1(digits):
    assert digits.train.dtype == np.float32
    assert digits.train.shape[1] == 64
    assert 0 <= digits.train.min() < digits.train.max() <= 1
    assert len(digits.train) == len(digits.train_labels) > len(digits.test) > 100


def test_missing_scikit_learn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(PyclgemmError, match=r'pip install "pyclgemm\[demo\]"'):
        demo.load_digits()


def test_disagreement_is_seen():
    reference = np.array([[0.9, 0.1], [0.2, 0.8]])
    labels = np.array([0, 1])
    assert demo.agree(reference, reference, labels).holds
    close = demo.agree(reference + 1e-7, reference, labels)
    assert close.holds
    assert close.accuracy == 1
    shifted = demo.agree(reference + 1e-3, reference, labels)
    assert not shifted.holds
    other_label = demo.agree(reference[::-1], reference, labels)
    assert other_label.same_labels == 0
    assert not demo.agree(reference * np.nan, reference, labels).holds


def test_softmax_of_large_scores():
    np.testing.assert_allclose(demo.softmax(np.array([[1000.0, 1000.0, -1000.0]])), [[0.5, 0.5, 0]])


def test_pictures_show_image_and_label():
    image = np.zeros((1, 64), np.float32)
    image[0, 0] = 1
    lines = demo.pictures(image, np.array([[0.1, 0.9]]))[0].plain.split("\n")
    assert lines[0] == "██" + "  " * 7
    assert lines[-1] == "1 (90.0%)"
    assert len(lines) == 9


def test_speed_is_measured_after_the_result_is_checked(queue):
    row = demo_speed.measure_speed(queue, 64, rounds=1)
    assert row.correct
    assert row.seconds > 0
    assert row.numpy_seconds > 0


def test_what_the_speed_test_rotates_follows_the_bytes_of_a_set(queue, monkeypatch):
    asked, used, real = [], [], demo_speed.plan

    def plan(*given, **others):
        ready = real(*given, **others)
        return lambda a, b, out: used.append((id(a), id(b))) or ready(a, b, out=out)

    monkeypatch.setattr(demo_speed, "rotated_sets", lambda *given: asked.append(given) or 3)
    monkeypatch.setattr(demo_speed, "plan", plan)
    monkeypatch.setattr(demo_speed, "compare", lambda works, _: {x: f(6) for x, f in works.items()})
    demo_speed.measure_speed(queue, 8)
    assert asked == [(4 * 3 * 8 * 8, queue.device)]
    burst = used[1:]
    assert len(burst) == 6
    assert len(set(burst)) == 3
    assert burst[:3] == burst[3:]


def test_a_wrong_result_is_marked():
    one = np.ones((4, 4), np.float32)
    assert demo_speed.relative_error(one, one, one) > 1
    right, wrong = SpeedRow(4, 1e-3, 2e-3, 0.5), SpeedRow(8, 1e-3, 2e-3, 7.0)
    console = recorder()
    console.print(demo_speed.speed_table([right, wrong]))
    text = console.export_text()
    assert "2.00" in text
    assert "7.000 WRONG" in text
    assert text.count("WRONG") == 1


def test_a_nan_is_a_wrong_result():
    one = np.ones((4, 4), np.float32)
    assert not SpeedRow(4, 1, 1, demo_speed.relative_error(one * np.nan, one, one)).correct


def test_sizes_out_of_reach_are_left_out():
    assert not demo_speed.out_of_reach(SpeedRow(256, 0.001, 0.001, 0), 2048)
    assert demo_speed.out_of_reach(SpeedRow(256, 1.0, 0.001, 0), 512)


def test_comparison_is_printed():
    console = recorder()
    demo.print_agreement(console, demo.Agreement(450, 450, 2e-7, 0.98, 0.98))
    demo.print_agreement(console, demo.Agreement(450, 449, 2e-7, 0.98, 0.98))
    text = console.export_text()
    assert "450 of 450 labels" in text
    assert "DO NOT AGREE: 449" in text
