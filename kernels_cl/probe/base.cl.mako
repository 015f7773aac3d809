## A multiply-add, and a test for macros of the compiler. Context: macros (their names).
__kernel void probe(__global const float *x, __global float *y, __global int *macros)
{
    y[0] = x[0] * x[1] + x[2];
% for name in macros:
#ifdef ${name}
    macros[${loop.index}] = 1;
#else
    macros[${loop.index}] = 0;
#endif
% endfor
}
