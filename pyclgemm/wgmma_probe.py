"""Whether a driver runs instructions that its compiler does not know: one, tried."""

from __future__ import annotations

import warnings

import numpy as np
import pyopencl as cl

from .foreign_caches import new_kernel
from .probe import REFUSALS, summary
from .ptx_step import MARK, lift

#: Sums of the smallest product: 64 rows, 8 columns, k = 16.
_SUMS = 64 * 8

# Ones everywhere, so that it does not matter what lies where: every sum is 16.
_SOURCE = r"""
__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void probe(__global float *sums)
{
    __local ushort ones[64 * 16] __attribute__((aligned(1024)));
    const int item = get_local_id(0);
    for (int i = item; i < 64 * 16; i += 128) {
        ones[i] = 0x3c00;
    }
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong at = (ulong)((uint)(size_t)ones & 0x3ffff) >> 4 | 1ul << 16 | 1ul << 32;
    float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    asm volatile("MARK wgmma.fence.sync.aligned;" : : : "memory");
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
        "MARK wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
        "{%0, %1, %2, %3}, %4, %4, p, 1, 1, 0, 0;\n}"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "l"(at), "r"(1) : "memory");
    asm volatile("MARK wgmma.commit_group.sync.aligned;" : : : "memory");
    asm volatile("MARK wgmma.wait_group.sync.aligned 0;"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : : "memory");
    sums[4 * item] = c0;
    sums[4 * item + 1] = c1;
    sums[4 * item + 2] = c2;
    sums[4 * item + 3] = c3;
}
""".replace("MARK ", MARK)


def wgmma_refusal(device: cl.Device) -> str:
    """Why a device of compute capability 9.0 does not run ``wgmma``; empty if it does.

    Parameters
    ----------
    device : pyopencl.Device
        The device; a program is compiled, lifted and run on it.
    """
    sums = np.zeros(_SUMS, np.float32)
    try:
        context = cl.Context([device])
        queue = cl.CommandQueue(context)
        buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, sums.nbytes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            compiled = cl.Program(context, _SOURCE).build(cache_dir=False)
            (binary,) = compiled.get_info(cl.program_info.BINARIES)
            program = cl.Program(context, [device], [lift(binary, "sm_90a")]).build()
        new_kernel(program, "probe")(queue, (128,), (128,), buffer)
        cl.enqueue_copy(queue, sums, buffer)
    except REFUSALS as error:
        return f"the driver does not take its instructions: {summary(error)}"
    if not (sums == 16).all():
        return f"a sum of 16 ones came out as {sums[sums != 16][0]:g}"
    return ""
