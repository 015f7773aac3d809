// Instructions of inline PTX as macros of their names, with their operands in their order: results,
// what they are given, and numbers that stand in the instruction itself. `ptx.py` writes the calls.
#ifndef PTX_CL
#define PTX_CL

// A copy is in place at once. What is not valid becomes zeros.
static inline void emulated_copy(
    __local uchar *to, const __global uchar *source, const uint valid, const uint count)
{
    for (uint byte = 0; byte < count; ++byte) {
        if (byte < valid) to[byte] = source[byte];
        else to[byte] = 0;
    }
}

#define cp_async_ca_shared_global(to, source, valid, count) \
    emulated_copy((__local uchar *)(to), (const __global uchar *)(source), valid, count)
#define cp_async_cg_shared_global cp_async_ca_shared_global
#define cp_async_commit_group()
#define cp_async_wait_group(pending)

#define ld_global_nc_L1_no_allocate_L2_128B_u32(x, from) x = *(const __global uint *)(from)
#define ld_global_nc_L1_no_allocate_L2_128B_v2_u32(x0, x1, from) \
    { const uint2 all = *(const __global uint2 *)(from); x0 = all.s0; x1 = all.s1; }
#define ld_global_nc_L1_no_allocate_L2_128B_v4_u32(x0, x1, x2, x3, from) \
    { \
        const uint4 all = *(const __global uint4 *)(from); \
        x0 = all.s0; \
        x1 = all.s1; \
        x2 = all.s2; \
        x3 = all.s3; \
    }

#ifndef SHUFFLE
#define SHUFFLE(x, lane) x  // the function stays, and nobody calls it
#endif
#define shfl_sync_idx_b32(result, x, lane, last, mask) result = SHUFFLE(x, lane)

#endif
