## The Kronecker product of three copies of the matrix, K^3 x K^3: one product with it contracts all three
## dimensions of a tensor. A work-item computes an element.
##
## Context: also extent (K), items.
<%namespace name="transform" file="/mra/transform.mako"/>
${transform.types()}

#define K ${extent}
#define SIZE (K * K * K)

${transform.matrix_address()}

${transform.signature(items)}
{
    matrix += matrix_offset;
    const long position = get_global_id(0);
    const int row = position / SIZE;
    const int column = position % SIZE;
    if (row >= SIZE) {
        return;
    }
    const real first = matrix[MATRIX_AT(row / (K * K), column / (K * K))];
    const real second = matrix[MATRIX_AT(row / K % K, column / K % K)];
    const real third = matrix[MATRIX_AT(row % K, column % K)];
    kronecker[position] = first * second * third;
}
