## The smallest product of a warpgroup unit: 64 rows, 8 columns, k = 16. All elements are 1, so every sum is
## 16 whatever the order of elements in local memory.
##
## Context: mark (before instructions that the compiler does not know; see pyclgemm/device/probe.py).
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
    asm volatile("${mark}wgmma.fence.sync.aligned;" : : : "memory");
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
        "${mark}wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
        "{%0, %1, %2, %3}, %4, %4, p, 1, 1, 0, 0;\n}"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "l"(at), "r"(1) : "memory");
    asm volatile("${mark}wgmma.commit_group.sync.aligned;" : : : "memory");
    asm volatile("${mark}wgmma.wait_group.sync.aligned 0;"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : : "memory");
    sums[4 * item] = c0;
    sums[4 * item + 1] = c1;
    sums[4 * item + 2] = c2;
    sums[4 * item + 3] = c3;
}
