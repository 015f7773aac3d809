## The Kronecker product of three matrices, K^3 x K^3: what all three contractions multiply a tensor's
## K^3 elements by at once. A work-item computes an element.
<%namespace name="transform" file="/mra/transform.mako"/>
${transform.types()}

#define K ${extent}
#define SIZE (K * K * K)

${transform.signature(items)}
{
    matrix += matrix_offset;
    const long position = get_global_id(0);
    const int row = position / SIZE;
    const int column = position % SIZE;
    if (row >= SIZE) {
        return;
    }
    const real first = matrix[row / (K * K) * matrix_row_stride + column / (K * K) * matrix_column_stride];
    const real second = matrix[row / K % K * matrix_row_stride + column / K % K * matrix_column_stride];
    const real third = matrix[row % K * matrix_row_stride + column % K * matrix_column_stride];
    kronecker[position] = first * second * third;
}
