#pragma OPENCL EXTENSION cl_khr_fp16 : enable
__kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void tile(const __global half *a, const __global half *b, __global float *c, const int k)
{
    const int lane = get_local_id(0);
    float8 sums = 0;
    for (int p = 0; p < k; p += 16) {
        // Lanes 16 to 31 hold what lanes 0 to 15 hold.
        const half16 row = *(const __global half16 *)(a + lane % 16 * k + p);
        const half16 column = *(const __global half16 *)(b + lane % 16 * k + p);
        sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(row, column, sums);
    }
    for (int i = 0; i < 8; ++i) {
        c[(2 * i + lane / 16) * 16 + lane % 16] = sums[i];
    }
}
