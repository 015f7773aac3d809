## One contraction of three, C(i, j) = sum over d of A(d, i) B(d, j), where A is a tensor viewed as
## K x K^2, B the matrix, and C, viewed as K^2 x K, the next tensor. B is in local memory. A work-item
## computes a row of C in registers; neighbouring work-items read neighbouring elements of A.
##
## Context: also extent (K), items, unroll (depths).
<%namespace name="transform" file="/mra/transform.mako"/>
${transform.types()}

#define K ${extent}

${transform.addresses()}

${transform.signature(items)}
{
    __local real matrix_held[K * K];
    ${transform.skip_offsets()}
    ${transform.hold_matrix("K", items)}

    const long n = get_global_id(0) / (K * K);
    const int row = get_global_id(0) % (K * K);
    if (n >= count) {
        return;
    }
    tensors += TENSORS_START(n) + TENSORS_AT(0, row / K, row % K);
    real sums[K];
    #pragma unroll
    for (int j = 0; j < K; ++j) {
        sums[j] = 0;
    }
    #pragma unroll ${unroll}
    for (int depth = 0; depth < K; ++depth) {
        const real x = tensors[TENSORS_AT(depth, 0, 0)];
        #pragma unroll
        for (int j = 0; j < K; ++j) {
            sums[j] = ${multiply_add_of("x", "matrix_held[depth * K + j]", "sums[j]")};
        }
    }
    out += OUT_START(n) + OUT_AT(row / K, row % K, 0);
    #pragma unroll
    for (int j = 0; j < K; ++j) {
        out[OUT_AT(0, 0, j)] = sums[j];
    }
}
