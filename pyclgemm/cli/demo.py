"""The demo: run a network that scikit-learn trained, and compare speeds with NumPy."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray
from rich.columns import Columns
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from ..analysis.operands import make_operands, plan_contender
from ..analysis.tables import new_table
from ..api.network import Sequential
from ..device.discovery import FoundDevice
from ..device.traits import traits_of
from ..errors import PyclgemmError
from ..measure.bench import OPENBLAS_UNREST, Bench, Calls, pace_for
from ..problem.precision import resolve_precision
from ..problem.shape import GemmShape

SIZES = (256, 512, 1024, 2048)

#: Longest time of a product, in seconds; slow devices leave out large sizes.
_LONGEST_PRODUCT = 2.0


@dataclass(frozen=True)
class SpeedRow:
    """One size of the table of speeds."""

    size: int  # m = n = k
    seconds: float  # median time of one product
    numpy_seconds: float
    error: float  # largest error of an element over its bound; at most 1 if correct

    @property
    def correct(self) -> bool:
        """Whether every element is within its bound."""
        return self.error <= 1


def measure_speed(queue: cl.CommandQueue, size: int, rounds: int | None = None) -> SpeedRow:
    """Multiply square float32 matrices, check one result, and time both in turn."""
    operands = make_operands(queue, GemmShape(size, size, size), "float32")
    product = operands.plan()
    error = operands.error(product, resolve_precision(None, "float32"))
    out = np.empty((size, size), np.float32)
    calls = []
    for _ in operands.sets:
        a, b = (matrix.copy() for matrix in operands.host)
        calls.append(functools.partial(np.matmul, a, b, out=out))
    numpy = Calls("NumPy", calls, unrest=OPENBLAS_UNREST)
    numpy.enqueue(1)
    pace = pace_for("demo", traits_of(queue.device).type)
    timings = Bench(pace, plan_contender("pyclgemm", operands, product), numpy).run(rounds)
    return SpeedRow(size, timings["pyclgemm"].median, timings["NumPy"].median, error.ratio)


def out_of_reach(previous: SpeedRow, size: int) -> bool:
    """Whether a product of `size` would take too long, estimated from a smaller one."""
    return previous.seconds * (size / previous.size) ** 3 > _LONGEST_PRODUCT


def speed_table(rows: Sequence[SpeedRow]) -> Table:
    """Tabulate speeds in GFLOPS."""
    table = new_table(None, ">m = n = k", ">pyclgemm", ">NumPy", ">ratio", ">error / bound")
    for row in rows:
        giga = 2 * row.size**3 / 1e9
        table.add_row(
            str(row.size),
            f"{giga / row.seconds:.0f}",
            f"{giga / row.numpy_seconds:.0f}",
            f"{row.numpy_seconds / row.seconds:.2f}",
            f"{row.error:.3f}" + ("" if row.correct else " WRONG"),
        )
    return table


HIDDEN_LAYERS = (512, 256)
EPOCHS = 30

#: Largest accepted difference of a probability: some hundred roundings of float32.
TOLERANCE = 1e-5

_SHADES = " ░▒▓█"


class Digits(NamedTuple):
    """Scikit-learn's handwritten digits: images as rows (count, 64), float32 from 0 to 1."""

    train: NDArray[Any]
    test: NDArray[Any]
    train_labels: NDArray[Any]
    test_labels: NDArray[Any]


class Agreement(NamedTuple):
    """A comparison of two classifiers on the same images."""

    images: int
    same_labels: int  # images that both give the same label
    difference: float  # largest absolute difference of a probability
    accuracy: float  # fraction of right labels of the first
    reference_accuracy: float

    @property
    def holds(self) -> bool:
        """Whether the two differ only by rounding."""
        return self.same_labels == self.images and self.difference <= TOLERANCE


def run_demo(console: Console, chosen: FoundDevice) -> bool:
    """Run the classifier and the speed table; returns whether all results are correct."""
    digits = load_digits()
    context = cl.Context([chosen.device])  # Intel's queues do not keep their context alive
    queue = cl.CommandQueue(context)
    console.rule("Handwritten digits", align="left")
    with Progress(console=console, transient=True) as progress:
        network = train(digits, progress)
        task = progress.add_task("building kernels and running the network", total=None)
        ours = probabilities(Sequential.from_sklearn(network, queue=queue), digits.test)
        progress.remove_task(task)
    shape = " -> ".join(str(size) for size in (64, *HIDDEN_LAYERS, 10))
    console.print(
        f"scikit-learn trained {shape} on {len(digits.train)} images; "
        f"pyclgemm runs it on {len(digits.test)} others."
    )
    console.print(Columns(pictures(digits.test[:5], ours[:5]), padding=(1, 4)))
    agreement = agree(ours, network.predict_proba(digits.test), digits.test_labels)
    print_agreement(console, agreement)

    console.rule("float32 products against NumPy", align="left")
    rows: list[SpeedRow] = []
    with Progress(console=console, transient=True) as progress:
        for size in progress.track(SIZES, description="measuring, with pauses to stay cool"):
            if not rows or not out_of_reach(rows[-1], size):
                rows.append(measure_speed(queue, size))
    console.print("GFLOPS, medians of bursts taken in turn; the operands lie on the device.")
    console.print(speed_table(rows))
    if skipped := SIZES[len(rows) :]:
        console.print(f"Left out, this device would take too long: {', '.join(map(str, skipped))}")
    return agreement.holds and all(row.correct for row in rows)


def load_digits() -> Digits:
    """Load the images and split them."""
    try:
        from sklearn import datasets, model_selection
    except ImportError as error:
        raise PyclgemmError(
            'the demo needs scikit-learn, which is not installed: pip install "pyclgemm[demo]"'
        ) from error
    bunch = datasets.load_digits()
    images = (bunch.data / 16).astype(np.float32)
    return Digits(
        *model_selection.train_test_split(images, bunch.target, test_size=0.25, random_state=0)
    )


def train(digits: Digits, progress: Progress, epochs: int = EPOCHS) -> Any:
    """Train scikit-learn's ``MLPClassifier``; the progress bar shows epochs."""
    from sklearn.neural_network import MLPClassifier

    network = MLPClassifier(HIDDEN_LAYERS, activation="relu", random_state=0)
    task = progress.add_task("scikit-learn trains the network", total=epochs)
    for _ in range(epochs):
        with warnings.catch_warnings():
            # Scikit-learn takes Ctrl-C for the end of the training, and warns.
            warnings.filterwarnings("error", "Training interrupted")
            try:
                network.partial_fit(digits.train, digits.train_labels, classes=np.arange(10))
            except UserWarning as warning:
                raise KeyboardInterrupt from warning
        progress.advance(task)
    progress.remove_task(task)
    return network


def probabilities(network: Sequential, images: NDArray[Any]) -> NDArray[Any]:
    """Run images through a network and a softmax; returns probabilities (count, 10)."""
    from scipy.special import softmax

    return np.asarray(softmax(network(images), axis=1))


def agree(ours: NDArray[Any], reference: NDArray[Any], labels: NDArray[Any]) -> Agreement:
    """Compare two arrays of probabilities (count, classes) of the same images."""
    same_labels = int((ours.argmax(axis=1) == reference.argmax(axis=1)).sum())
    accuracies = [float((one.argmax(axis=1) == labels).mean()) for one in (ours, reference)]
    return Agreement(len(labels), same_labels, float(np.abs(ours - reference).max()), *accuracies)


def print_agreement(console: Console, agreement: Agreement) -> None:
    """Print the comparison with scikit-learn."""
    verdict = "[green]agree[/]" if agreement.holds else "[bold red]DO NOT AGREE[/]"
    console.print(
        f"pyclgemm and scikit-learn {verdict}: {agreement.same_labels} of {agreement.images} "
        f"labels equal, probabilities within {agreement.difference:.1e} "
        f"(allowed {TOLERANCE:.0e}).\n"
        f"Right digits: pyclgemm {agreement.accuracy:.1%}, "
        f"scikit-learn {agreement.reference_accuracy:.1%}.",
        highlight=False,
        markup=True,
    )


def pictures(images: NDArray[Any], chances: NDArray[Any]) -> list[Text]:
    """Draw images (count, 64) as characters, each above its most probable digit."""
    drawn = []
    for image, chance in zip(images.reshape(-1, 8, 8), chances, strict=True):
        levels = np.rint(image * (len(_SHADES) - 1)).astype(int)
        lines = ["".join(_SHADES[level] * 2 for level in row) for row in levels]
        digit = int(chance.argmax())
        drawn.append(Text("\n".join([*lines, f"{digit} ({chance[digit]:.1%})"])))
    return drawn
