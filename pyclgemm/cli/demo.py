"""The first run: a network trained by scikit-learn, run by pyclgemm, and GEMM against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from rich.columns import Columns
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from ..api.dense import DenseLayer
from ..api.plan import plan
from ..device.discovery import FoundDevice
from ..errors import PyclgemmError
from ..measure.timing import compare, rotated_sets

# --------------------------------------------------------------------------------------
# The demo's table of speeds: float32 products by pyclgemm and by NumPy, in one run.
# --------------------------------------------------------------------------------------

SIZES = (256, 512, 1024, 2048)
ROUNDS = 7

#: Seconds that a product may take on a device that only imitates one.
_LONGEST_PRODUCT = 2.0


@dataclass(frozen=True)
class SpeedRow:
    """One size of the table.

    Attributes
    ----------
    size : int
        m = n = k.
    seconds, numpy_seconds : float
        Median time of one product.
    error : float
        Largest error of an element, as a part of what rounding may cause; up to 1 is right.
    """

    size: int
    seconds: float
    numpy_seconds: float
    error: float

    @property
    def correct(self) -> bool:
        """Whether every element is within its bound."""
        return self.error <= 1

    def gflops(self, seconds: float) -> float:
        """Speed of a product of this size, in 1e9 floating-point operations a second."""
        return float(2 * self.size**3 / seconds / 1e9)


def measure_speed(queue: cl.CommandQueue, size: int, rounds: int = ROUNDS) -> SpeedRow:
    """Multiply square float32 matrices, check one result, and time both in turn.

    The operands lie on the device, and the clock covers launches and the wait for the
    last of a burst; NumPy has the same numbers in its own memory.
    """
    rng = np.random.default_rng(size)
    sets = rotated_sets(3 * 4 * size * size, queue.device)
    host = [
        tuple(rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
        for _ in range(sets)
    ]
    device = [tuple(cl_array.to_device(queue, matrix) for matrix in pair) for pair in host]
    out = cl_array.empty(queue, (size, size), np.float32)
    host_out = np.empty((size, size), np.float32)
    product = plan(queue, *device[0], out=out)

    def ours(count: int) -> None:
        for index in range(count):
            a, b = device[index % sets]
            product(a, b, out=out)
        queue.finish()

    def numpy(count: int) -> None:
        for index in range(count):
            a, b = host[index % sets]
            np.matmul(a, b, out=host_out)

    ours(1)
    numpy(1)
    error = relative_error(out.get(), *host[0])
    seconds = compare({"pyclgemm": ours, "NumPy": numpy}, rounds)
    return SpeedRow(size, seconds["pyclgemm"], seconds["NumPy"], error)


def relative_error(
    result: np.ndarray[Any, Any], a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]
) -> float:
    """Largest error of an element of ``a @ b`` over its bound, (k + 10) eps |a| |b|.

    Examples
    --------
    >>> one = np.ones((2, 2), np.float32)
    >>> relative_error(one + one, one, one)
    0.0
    """
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    bound = (a.shape[1] + 10) * np.finfo(result.dtype).eps * (np.abs(wide_a) @ np.abs(wide_b))
    return float((np.abs(result - wide_a @ wide_b) / bound).max())


def out_of_reach(previous: SpeedRow, size: int) -> bool:
    """Whether a product of `size` would take too long, judged by a smaller one."""
    return previous.seconds * (size / previous.size) ** 3 > _LONGEST_PRODUCT


def speed_table(rows: Sequence[SpeedRow]) -> Table:
    """Tabulate speeds in GFLOPS."""
    table = Table()
    columns: dict[str, Callable[[SpeedRow], str]] = {
        "m = n = k": lambda row: str(row.size),
        "pyclgemm": lambda row: f"{row.gflops(row.seconds):.0f}",
        "NumPy": lambda row: f"{row.gflops(row.numpy_seconds):.0f}",
        "ratio": lambda row: f"{row.numpy_seconds / row.seconds:.2f}",
        "error / bound": lambda row: f"{row.error:.3f}" + ("" if row.correct else " WRONG"),
    }
    for heading in columns:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(cell(row) for cell in columns.values()))
    return table


# --------------------------------------------------------------------------------------

HIDDEN_LAYERS = (512, 256)
EPOCHS = 30

#: Largest difference of a probability: some hundred roundings of float32.
TOLERANCE = 1e-5

_SHADES = " ░▒▓█"


@dataclass(frozen=True)
class Digits:
    """Scikit-learn's bundled handwritten digits, split for training and test.

    Attributes
    ----------
    train, test : numpy.ndarray
        Images as rows, (count, 64), float32 from 0 to 1.
    train_labels, test_labels : numpy.ndarray
        Digits, (count,).
    """

    train: np.ndarray[Any, Any]
    test: np.ndarray[Any, Any]
    train_labels: np.ndarray[Any, Any]
    test_labels: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Agreement:
    """How closely two classifiers agree on the same images.

    Attributes
    ----------
    count, same_labels : int
        Images, and those that both give the same label.
    difference : float
        Largest absolute difference of a probability.
    accuracy, reference_accuracy : float
        Share of right labels of the first and of the second, from 0 to 1.
    """

    count: int
    same_labels: int
    difference: float
    accuracy: float
    reference_accuracy: float

    @property
    def holds(self) -> bool:
        """Whether the two are the same but for rounding."""
        return self.same_labels == self.count and self.difference <= TOLERANCE


def run_demo(console: Console, chosen: FoundDevice) -> bool:
    """Run a digit classifier and a speed table on a device, and print what comes out.

    Parameters
    ----------
    console : rich.console.Console
        Where to print.
    chosen : FoundDevice
        A device that works.

    Returns
    -------
    bool
        Whether pyclgemm agreed with scikit-learn and with NumPy.

    Raises
    ------
    PyclgemmError
        If scikit-learn is not installed.
    """
    digits = load_digits()
    context = cl.Context([chosen.device])  # Intel's queues do not keep their context alive
    queue = cl.CommandQueue(context)
    console.rule("Handwritten digits", align="left")
    with Progress(console=console, transient=True) as progress:
        network = train(digits, progress)
        task = progress.add_task("building kernels and running the network", total=None)
        layers = dense_layers(queue, network)
        ours = probabilities(queue, layers, digits.test)
        progress.remove_task(task)
    shape = " -> ".join(str(size) for size in (64, *HIDDEN_LAYERS, 10))
    console.print(
        f"scikit-learn trained {shape} on {len(digits.train)} images; "
        f"pyclgemm's DenseLayers run it on {len(digits.test)} others."
    )
    console.print(Columns(pictures(digits.test[:5], ours[:5]), padding=(1, 4)))
    agreement = agree(ours, network.predict_proba(digits.test), digits.test_labels)
    print_agreement(console, agreement)

    console.rule("float32 products against NumPy", align="left")
    rows: list[SpeedRow] = []
    skipped: list[int] = []
    with Progress(console=console, transient=True) as progress:
        for size in progress.track(SIZES, description="measuring, with pauses to stay cool"):
            if rows and out_of_reach(rows[-1], size):
                skipped.append(size)
            else:
                rows.append(measure_speed(queue, size))
    console.print("GFLOPS, medians of bursts taken in turn; the operands lie on the device.")
    console.print(speed_table(rows))
    if skipped:
        console.print(f"Left out, this device would take too long: {', '.join(map(str, skipped))}")
    return agreement.holds and all(row.correct for row in rows)


def load_digits() -> Digits:
    """Load the images and split them.

    Raises
    ------
    PyclgemmError
        If scikit-learn is not installed.
    """
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
    """Train scikit-learn's ``MLPClassifier``, one step of the progress bar an epoch."""
    from sklearn.neural_network import MLPClassifier

    network = MLPClassifier(HIDDEN_LAYERS, activation="relu", random_state=0)
    task = progress.add_task("scikit-learn trains the network", total=epochs)
    for _ in range(epochs):
        network.partial_fit(digits.train, digits.train_labels, classes=np.arange(10))
        progress.advance(task)
    progress.remove_task(task)
    return network


def dense_layers(queue: cl.CommandQueue, network: Any) -> list[DenseLayer]:
    """Move the weights of a trained ``MLPClassifier`` to a device; ReLU between the layers."""
    last = len(network.coefs_) - 1
    return [
        DenseLayer(queue, weight, bias, None if index == last else "relu")
        for index, (weight, bias) in enumerate(
            zip(network.coefs_, network.intercepts_, strict=True)
        )
    ]


def probabilities(
    queue: cl.CommandQueue, layers: list[DenseLayer], images: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Run images (count, 64) through the layers, on the device, and a softmax in NumPy.

    Returns
    -------
    numpy.ndarray
        Probability of each digit for each image, (count, 10).
    """
    values = cl_array.to_device(queue, images)
    for layer in layers:
        values = layer(values)
    return softmax(values.get())


def softmax(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Turn the scores of each row into probabilities.

    Examples
    --------
    >>> softmax(np.array([[5.0, 5.0]]))
    array([[0.5, 0.5]])
    """
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def agree(
    ours: np.ndarray[Any, Any], reference: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
) -> Agreement:
    """Compare two tables of probabilities, (count, classes), of the same images."""
    our_labels, reference_labels = ours.argmax(axis=1), reference.argmax(axis=1)
    return Agreement(
        count=len(labels),
        same_labels=int((our_labels == reference_labels).sum()),
        difference=float(np.abs(ours - reference).max()),
        accuracy=float((our_labels == labels).mean()),
        reference_accuracy=float((reference_labels == labels).mean()),
    )


def print_agreement(console: Console, agreement: Agreement) -> None:
    """Print the comparison with scikit-learn."""
    verdict = "[green]agree[/]" if agreement.holds else "[bold red]DO NOT AGREE[/]"
    console.print(
        f"pyclgemm and scikit-learn {verdict}: {agreement.same_labels} of {agreement.count} labels "
        f"equal, probabilities within {agreement.difference:.1e} (allowed {TOLERANCE:.0e}).\n"
        f"Right digits: pyclgemm {agreement.accuracy:.1%}, "
        f"scikit-learn {agreement.reference_accuracy:.1%}.",
        highlight=False,
        markup=True,
    )


def pictures(images: np.ndarray[Any, Any], chances: np.ndarray[Any, Any]) -> list[Text]:
    """Draw images (count, 64) in characters, each over its most probable digit."""
    drawn = []
    for image, chance in zip(images.reshape(-1, 8, 8), chances, strict=True):
        levels = np.rint(image * (len(_SHADES) - 1)).astype(int)
        lines = ["".join(_SHADES[level] * 2 for level in row) for row in levels]
        digit = int(chance.argmax())
        drawn.append(Text("\n".join([*lines, f"{digit} ({chance[digit]:.1%})"])))
    return drawn
