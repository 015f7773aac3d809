## One contraction of three, C(i, j) = sum over d of A(d, i) B(d, j): A is a tensor seen as K x K^2, C
## the next one, seen as K^2 x K, and B the matrix, in local memory. A work-item computes a row of C in
## registers; neighbours read neighbours of A.
<%namespace name="transform" file="/mra/transform.mako"/>
${transform.types()}

#define K ${extent}

${transform.address("tensors")}
${transform.address("out")}

${transform.signature(items)}
{
    __local real matrix_held[K * K];
    ${transform.offsets()}
    for (int i = get_local_id(0); i < K * K; i += ${items}) {
        matrix_held[i] = matrix[i / K * matrix_row_stride + i % K * matrix_column_stride];
    }
    barrier(CLK_LOCAL_MEM_FENCE);

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
