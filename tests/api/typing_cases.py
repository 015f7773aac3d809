"""Right and wrong uses of the public functions, for type checkers; it is never run.

Lines that end in ``# error`` are wrong uses. `test_typing` has the checkers of types find these and
no others.
"""

from enum import Enum
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray
from pyopencl.array import Array
from typing_extensions import assert_type

import pyclgemm

Float32s = NDArray[np.float32]


class DotAlgorithmPreset(Enum):
    """Like JAX's."""

    TF32_TF32_F32 = 1


class Store:
    """A matrix in a file, like zarr's."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, key: Any) -> Any: ...

    def __setitem__(self, key: Any, value: Any) -> None: ...


class Foreign:
    """An array of another library."""

    def __dlpack__(self, *, stream: int | None = None) -> Any: ...


def products(queue: cl.CommandQueue, host: Float32s, device: Array, foreign: Foreign) -> None:
    assert_type(pyclgemm.gemm(queue, host, host), NDArray[Any])
    assert_type(pyclgemm.gemm(queue, device, device), Array)
    assert_type(pyclgemm.gemm(queue, host, host, host, beta=1.0, out=host), NDArray[Any])
    assert_type(pyclgemm.gemm(queue, device, device, device, beta=1, trans_b="T"), Array)
    assert_type(pyclgemm.gemm(queue, device, device, return_event=True), tuple[Array, cl.Event])
    assert_type(pyclgemm.gemm_batched(queue, host, host), NDArray[Any])
    assert_type(pyclgemm.gemm_batched(queue, device, device, return_event=False), Array)
    assert_type(pyclgemm.matmul(host, host), NDArray[Any])
    assert_type(pyclgemm.matmul(device, device, queue=queue), Array)
    assert_type(pyclgemm.matmul(host, host, dtype="float64"), NDArray[Any])
    assert_type(pyclgemm.einsum("ij,jk->ik", host, host), NDArray[Any])
    assert_type(pyclgemm.einsum("ij,jk->ik", device, device, out=device), Array)
    assert_type(pyclgemm.tensordot(device, device, axes=1), Array)
    assert_type(pyclgemm.transform3d(queue, host, host), NDArray[Any])
    assert_type(pyclgemm.transform3d(queue, device, device), Array)
    # Of mixtures and of arrays of other libraries, the result may be anything.
    assert_type(pyclgemm.gemm(queue, host, device), Any)
    assert_type(pyclgemm.matmul(foreign, host), Any)
    assert_type(pyclgemm.matmul(foreign, foreign, dtype=np.float64), Any)
    assert_type(pyclgemm.gemm_batched(queue, [device, device], device), Any)
    pyclgemm.gemm(queue, "a", host)  # error
    pyclgemm.matmul(host, None)  # error
    pyclgemm.gemm(queue, host)  # error
    pyclgemm.gemm(host, host, host)  # error
    pyclgemm.gemm(queue, host, host, trans_a="t")  # error
    pyclgemm.gemm(queue, host, host, alhpa=2.0)  # error


def streams(queue: cl.CommandQueue, host: Float32s, store: Store, shown: bool) -> None:
    assert_type(pyclgemm.stream_gemm(host, store, memory=1 << 30), NDArray[Any])
    assert_type(pyclgemm.stream_gemm(store, host, host, beta=2.0, out=host), Float32s)
    assert_type(pyclgemm.stream_gemm(host, host, out=store, devices=[queue, queue]), Store)
    assert_type(pyclgemm.stream_gemm(host, host, devices="all", explain=True), pyclgemm.StreamPlan)
    assert_type(pyclgemm.stream_gemm(host, host, explain=shown), Any)
    pyclgemm.stream_gemm(host, store, devices=pyclgemm.devices(), progress=True)
    pyclgemm.stream_gemm(store, store, devices="every")  # error
    pyclgemm.stream_gemm("a", host)  # error
    pyclgemm.stream_gemm(host, host, out="out.npy")  # error
    pyclgemm.stream_gemm(host, host, memory="1 GiB")  # error


def precisions(queue: cl.CommandQueue, host: Float32s, device: Array) -> None:
    pyclgemm.gemm(queue, host, host, precision="TF32_TF32_F32_X3")
    pyclgemm.gemm(queue, host, host, precision=DotAlgorithmPreset.TF32_TF32_F32)
    pyclgemm.gemm(queue, host, host, precision="TF32")  # error
    pyclgemm.gemm(queue, host, device, precision="TF32")  # error
    pyclgemm.gemm_batched(queue, host, host, precision="tf32_tf32_f32")  # error
    pyclgemm.matmul(host, host, precision="F32")  # error
    pyclgemm.einsum("ij->i", host, precision="F32")  # error
    pyclgemm.tensordot(host, host, precision="F32")  # error
    pyclgemm.plan(queue, host, host, precision="F32")  # error
    pyclgemm.explain(queue, host, host, precision="F32")  # error
    pyclgemm.pack(queue, host, precision="F32")  # error
    pyclgemm.DenseLayer(queue, host, precision="F32")  # error
    pyclgemm.stream_gemm(host, host, precision="F32")  # error


def layers(queue: cl.CommandQueue, host: Float32s, device: Array) -> None:
    pyclgemm.Epilogue(activation="rleu")  # error
    pyclgemm.Epilogue(host, "ReLU")  # error
    pyclgemm.DenseLayer(queue, host, None, "gleu")  # error
    pyclgemm.DenseLayer(queue, host, activation="softmax")  # error
    pyclgemm.gemm(queue, host, host, epilogue="relu")  # error
    layer = pyclgemm.DenseLayer(queue, host, host, "gelu_tanh")
    assert_type(layer(host), NDArray[Any])
    assert_type(layer(device, out=device), Array)
    assert_type(layer(host.reshape(1, 2, -1)), NDArray[Any])
    assert_type(layer(host, out=device), Any)
    assert_type(layer.weight, Array)
    layer.save("layer.npz")
    assert_type(pyclgemm.DenseLayer.load(queue, "layer.npz"), pyclgemm.DenseLayer)
    network = pyclgemm.Sequential([layer, layer])
    assert_type(network(host), NDArray[Any])
    assert_type(network(device), Array)
    assert_type(network(host.ravel()), NDArray[Any])
    network.save("network.npz")
    assert_type(pyclgemm.Sequential.load(queue, "network.npz"), pyclgemm.Sequential)
    pyclgemm.Sequential([host])  # error
    pyclgemm.Sequential.from_torch({}, activation="rleu")  # error


def plans(queue: cl.CommandQueue, host: Float32s, device: Array) -> None:
    packed = pyclgemm.pack(queue, host, trans_b=True)
    assert_type(packed, pyclgemm.PackedMatrix)
    assert_type(pyclgemm.gemm(queue, device, packed), Array)
    pyclgemm.gemm(queue, packed, device)  # error
    plan = pyclgemm.plan(queue, device, packed, epilogue=pyclgemm.Epilogue(device, "relu"))
    assert_type(plan, pyclgemm.GemmPlan)
    assert_type(plan(device, packed), Array)
    assert_type(plan(host, packed), NDArray[Any])
    assert_type(plan(device, packed, return_event=True), tuple[Array, cl.Event])
    assert_type(plan.autotune(), pyclgemm.Choice)
    transform = pyclgemm.plan_transform3d(queue, device, device)
    assert_type(transform(device, device), Array)
    assert_type(pyclgemm.explain(queue, host, host), pyclgemm.Choice)
    assert_type(pyclgemm.devices()[0].name, str)
    assert_type(pyclgemm.default_queue("0"), cl.CommandQueue)
    assert_type(pyclgemm.__version__, str)
    pyclgemm.gem(queue, host, host)  # error
