## One contraction of three, C(i, j) = sum over d of A(d, i) B(d, j): A is a tensor seen as K x K^2, C
## the next one, seen as K^2 x K, and B the matrix. A work-item computes a column of C.
##
## `staged` keeps the matrix in local memory. Nothing here is known to the compiler but that.
<%namespace name="transform" file="/mra/transform.mako"/>
${transform.types()}

${transform.address("tensors")}
${transform.address("out")}

${transform.signature(items)}
{
% if staged:
    __local real matrix_held[${most_extent * most_extent}];
% endif
    ${transform.offsets()}
% if staged:
    for (int i = get_local_id(0); i < k * k; i += ${items}) {
        matrix_held[i] = matrix[i / k * matrix_row_stride + i % k * matrix_column_stride];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
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
                const real factor = ${"matrix_held[depth * k + column]" if staged else "matrix[depth * matrix_row_stride + column * matrix_column_stride]"};
                sum = ${multiply_add_of("tensors[TENSORS_AT(depth, first, second)]", "factor", "sum")};
            }
            out[OUT_AT(first, second, column)] = sum;
        }
    }
}
