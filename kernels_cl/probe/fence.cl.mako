## OpenCL C 2.0's fence with device scope; some compilers support it without an option.
__kernel void probe(__global const int *x, __global int *y)
{
    y[0] = x[0] + 1;
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device);
    y[1] = y[0];
}
