## One contraction of three, C(i, j) = sum over d of A(d, i) B(d, j), where A is a tensor viewed as
## K x K^2, B the matrix, and C, viewed as K^2 x K, the next tensor. A work-item computes a column of C.
## K and all strides are arguments.
##
## Context: also staged (whether the matrix is copied to local memory), items, most_extent.
<%namespace name="transform" file="/mra/transform.mako"/>
${transform.types()}

${transform.addresses()}

${transform.signature(items)}
{
% if staged:
    __local real matrix_held[${most_extent * most_extent}];
% endif
    ${transform.skip_offsets()}
% if staged:
    ${transform.hold_matrix("k", items)}
% endif
    const long n = get_global_id(0) / k;
    const int column = get_global_id(0) % k;
    if (n >= count) {
        return;
    }
    tensors += TENSORS_START(n);
    out += OUT_START(n);
    for (int first = 0; first < k; ++first) {
        for (int second = 0; second < k; ++second) {
            real sum = 0;
            for (int depth = 0; depth < k; ++depth) {
% if staged:
                const real factor = matrix_held[depth * k + column];
% else:
                const real factor = matrix[MATRIX_AT(depth, column)];
% endif
                sum = ${multiply_add_of("tensors[TENSORS_AT(depth, first, second)]", "factor", "sum")};
            }
            out[OUT_AT(first, second, column)] = sum;
        }
    }
}
