## Multiply-accumulates of NVIDIA's warpgroup units (sm_90) with slabs in local memory: the peak of the units.
## Each warpgroup multiplies its own 64 rows by the same columns. Instructions after ${mark} are comments for
## the compiler (pyclgemm/device/probe.py).
##
## Context: real (the C type of sums), instruction, modifiers, constraint (of a register of the sums), columns,
## warpgroups, steps, pattern (the bits of 4 bytes that vary, and those that are set), descriptor (of rows of
## 128 bytes, without an address), mark.
<%namespace name="warpgroup_unit" file="/wgmma/unit.mako"/>
<%
    items = 128 * warpgroups
    sums = columns // 2
%>
typedef ${real} element;

${warpgroup_unit.functions(sums)}

__kernel __attribute__((reqd_work_group_size(${items}, 1, 1)))
void ceiling_wgmma(const int rounds, __global float *out)
{
    // Rows of A of all warpgroups, then columns of B, of 128 bytes each.
    __local uint slabs[${32 * (64 * warpgroups + columns)}] __attribute__((aligned(1024)));
    const int item = get_local_id(0);
    for (int i = item; i < ${32 * (64 * warpgroups + columns)}; i += ${items}) {
        // Like numbers would need less power.
        slabs[i] = ((i + 1) * 2654435761u & ${f"{pattern[0]:#x}"})${f" | {pattern[1]:#x}" if pattern[1] else ""};
    }
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint start = (uint)(size_t)slabs;
    const ulong a = ${f"{descriptor:#x}"}ul | ((start + item / 128 * ${64 * 128}) & 0x3ffff) >> 4;
    const ulong b = ${f"{descriptor:#x}"}ul | ((start + ${64 * warpgroups * 128}) & 0x3ffff) >> 4;
    element sums[${sums}];
    #pragma unroll
    for (int i = 0; i < ${sums}; ++i) {
        sums[i] = i;
    }
    #pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        asm volatile("${mark}wgmma.fence.sync.aligned;" : : : "memory");
        #pragma unroll
        for (int step = 0; step < ${steps}; ++step) {
            // Each step multiplies 32 bytes of each row; the unit of addresses is 16 bytes.
            multiply_accumulate(sums, a + step % 4 * 2, b + step % 4 * 2);
        }
        asm volatile("${mark}wgmma.commit_group.sync.aligned;" : : : "memory");
        await_sums(sums);
    }
    float total = 0;
    #pragma unroll
    for (int i = 0; i < ${sums}; ++i) {
        total += (float)sums[i];
    }
    out[get_global_id(0)] = total;
}
