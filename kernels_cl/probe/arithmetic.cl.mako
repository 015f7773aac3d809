## Arithmetic with scalars and vectors: a compiler may support the type but not its vectors.
##
## Context: extension, type (the C type).
#pragma OPENCL EXTENSION ${extension} : enable
__kernel void probe(__global const ${type} *x, __global ${type} *y)
{
    const ${type}4 products = (${type}4)(x[0], x[1], x[2], x[3]) * x[0];
    y[0] = x[0] * x[1] + x[2];
    y[1] = products.s3;
}
