## Packs a block of A for the CPU family: `depth` columns of the rows from `row_begin` to `row_end`. Rows that
## complete the last tile are zero.
##
## Context: kernel, element, cpu. The generated text uses `row_begin`, `row_end`, `tiles`, `first_depth`,
## `depth` and `a_block`.
<%def name="pack(operand)" filter="trim">
% if kernel.a_by_column:
// Copy A tile by tile: its MR rows side by side, one depth after the other.
for (extent tile_row = row_begin; tile_row < row_end; tile_row += MR) {
    __global element *tile = a_block + (tile_row - row_begin) * KC;
    for (int p = 0; p < depth; ++p) {
        #pragma unroll
        for (int r = 0; r < MR; ++r) {
            tile[p * MR + r] = tile_row + r < row_end
                ? ${operand.entry("tile_row + r", "first_depth + p")} : (element)(0);
        }
    }
}
% else:
// Copy A row by row, KC elements apart.
for (extent row = row_begin; row < row_begin + tiles * MR; ++row) {
    __global element *a_row = a_block + (row - row_begin) * KC;
    % if operand.loads_vectors:
    int p = 0;
    for (; row < row_end && p + VW <= depth; p += VW) {
        *(__global vector *)(a_row + p) = ${operand.loader}(a + A_AT(row, first_depth + p));
    }
    for (; p < depth; ++p) {
    % else:
    for (int p = 0; p < depth; ++p) {
    % endif
        a_row[p] = row < row_end ? ${operand.entry("row", "first_depth + p")} : (element)(0);
    }
}
% endif
</%def>
