__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void k(__global float *x, const int n)
{
    __local float y[256] __attribute__((aligned(16)));
    float sum = 0;
    for (int i = 0; i < n; ++i) {
        y[get_local_id(0)] = x[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        const float4 v = *(__local float4 *)(y + 4 * (i & 7));
        sum = fma(v.x, v.y, fma(v.z, v.w, sum));
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    x[get_global_id(0)] = sum;
}
