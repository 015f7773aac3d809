"""The parts of the demo, on small products and a short training."""

import sys
from unittest.mock import Mock, patch

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

from pyclgemm import Sequential
from pyclgemm.cli import demo
from pyclgemm.cli.demo import SpeedRow
from pyclgemm.errors import PyclgemmError
from tests.support.system import text_of


def test_layers_agree_with_scikit_learn(queue):
    pytest.importorskip("sklearn")
    digits = demo.load_digits()
    with Progress(disable=True) as progress:
        network = demo.train(digits, progress, epochs=3)
    ours = demo.probabilities(Sequential.from_sklearn(network, queue=queue), digits.test)
    agreement = demo.agree(ours, network.predict_proba(digits.test), digits.test_labels)
    assert agreement.holds, agreement
    assert agreement.images == len(digits.test)
    assert agreement.accuracy == agreement.reference_accuracy > 0.5


def test_an_interruption_of_the_training_ends_the_demo():
    optimizers = pytest.importorskip("sklearn.neural_network._multilayer_perceptron")
    digits = demo.load_digits()
    interrupted = patch.object(optimizers, "gen_batches", side_effect=KeyboardInterrupt)
    with interrupted, Progress(disable=True) as progress, pytest.raises(KeyboardInterrupt):
        demo.train(digits, progress, epochs=1)


def test_probabilities_that_do_not_agree():
    reference = np.array([[0.9, 0.1], [0.2, 0.8]])

    def agreement(ours):
        return demo.agree(ours, reference, np.array([0, 1]))

    assert agreement(reference).holds
    close = agreement(reference + 1e-7)
    assert close.holds and close.accuracy == 1
    assert agreement(reference[::-1]).same_labels == 0
    assert not any(agreement(one).holds for one in (reference + 1e-3, reference * np.nan))


@pytest.mark.parametrize(("same", "words"), [(450, "450 of 450"), (449, "DO NOT AGREE: 449")])
def test_the_comparison_is_printed(capsys, same, words):
    demo.print_agreement(Console(width=120), demo.Agreement(450, same, 2e-7, 0.98, 0.98))
    assert words in capsys.readouterr().out


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(PyclgemmError, match=r'pip install "pyclgemm\[demo\]"'):
        demo.load_digits()


def test_pictures_show_image_and_label():
    image = np.zeros((1, 64), np.float32)
    image[0, 0] = 1
    lines = demo.pictures(image, np.array([[0.1, 0.9]]))[0].plain.split("\n")
    assert lines[0] == "██" + "  " * 7
    assert lines[-1] == "1 (90.0%)"
    assert len(lines) == 9


def test_the_speed_of_a_product_and_the_matrices_of_numpy(queue):
    """NumPy multiplies other copies of the operands at each call."""
    matmul = Mock(side_effect=np.matmul)
    with patch.object(demo.np, "matmul", matmul):
        row = demo.measure_speed(queue, 64, rounds=1)
    assert row.correct and row.seconds > 0 and row.numpy_seconds > 0
    left = [call.args[0] for call in matmul.call_args_list]
    left = [a for a in left if a.dtype == np.float32][:7]  # the reference multiplies in float64
    assert len({id(a) for a in left}) == 7
    assert all((a == left[0]).all() for a in left)


def test_wrong_results_are_marked_and_slow_sizes_are_left_out():
    text = text_of(demo.speed_table([SpeedRow(4, 1e-3, 2e-3, 0.5), SpeedRow(8, 1e-3, 2e-3, 7.0)]))
    assert "2.00" in text and "7.000 WRONG" in text and text.count("WRONG") == 1
    assert not demo.out_of_reach(SpeedRow(256, 0.001, 0.001, 0), 2048)
    assert demo.out_of_reach(SpeedRow(256, 1.0, 0.001, 0), 512)
