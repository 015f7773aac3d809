## Two sub-groups; in each the first work-item exchanges its number with the last, the second with the
## last but one, ... The answer is right only if neighbours in the work-group are neighbours in the
## sub-group.
##
## Context: size (of a sub-group), attribute (of the kernel), exchange (the statement that sets `other`).
__kernel ${attribute} void probe(__global const int *x, __global int *y)
{
    const int item = get_local_id(0);
    const int lane = ${size} - 1 - item % ${size};
    int other;
    ${exchange}
    y[item] = x[0] * other;
}
