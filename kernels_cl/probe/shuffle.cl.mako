## Two sub-groups. In each the first work-item exchanges its number with the last, the second with the last but
## one, and so on. The result is right only if neighbours in the work-group are neighbours in the sub-group.
##
## Context: name (`DeviceTraits.shuffle`), by_ptx (whether that is a PTX instruction), size (of a sub-group).
% if by_ptx:
__kernel void probe(__global const int *x, __global int *y)
% else:
__kernel __attribute__((intel_reqd_sub_group_size(${size}))) void probe(__global const int *x, __global int *y)
% endif
{
    const int item = get_local_id(0);
    const int lane = ${size} - 1 - item % ${size};
    int other;
% if by_ptx:
    asm volatile("${name}.idx.b32 %0, %1, %2, 31, -1;" : "=r"(other) : "r"(item), "r"(lane));
% else:
    other = ${name}(item, lane);
% endif
    y[item] = x[0] * other;
}
