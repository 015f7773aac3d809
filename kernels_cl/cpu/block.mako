## Packs a block of A for the CPU family: `depth` columns of the rows from `row_begin` to `row_end`. Rows that
## complete the last tile are zero.
##
## Context: kernel, element, cpu. The generated text uses `row_begin`, `row_end`, `tiles`, `first_depth`,
## `depth` and `a_block`.
<%def name="pack(operand)" filter="trim">
% if kernel.a_by_column:
// Copy A in strips of 16 tiles, whose MR rows lie side by side, one depth after the other: it is read in long
// runs, and the ends of the tiles that are written stay in the first-level cache.
const int whole_tiles = (row_end - row_begin) / MR;
for (int strip = 0; strip < whole_tiles; strip += 16) {
    const int strip_end = min(strip + 16, whole_tiles);
    for (int p = 0; p < depth; ++p) {
        for (int tile = strip; tile < strip_end; ++tile) {
            __global element *to = a_block + tile * A_STEP * MR + p * MR;
            #pragma unroll
            for (int r = 0; r < MR; ++r) {
                to[r] = ${operand.entry("row_begin + tile * MR + r", "first_depth + p")};
            }
        }
    }
}
const extent last_row = row_begin + whole_tiles * MR;
for (int p = 0; last_row < row_end && p < depth; ++p) {
    __global element *to = a_block + whole_tiles * A_STEP * MR + p * MR;
    for (int r = 0; r < MR; ++r) {
        to[r] = last_row + r < row_end ? ${operand.entry("last_row + r", "first_depth + p")} : (element)(0);
    }
}
% else:
// Copy A row by row, A_STEP elements apart.
for (extent row = row_begin; row < row_begin + tiles * MR; ++row) {
    __global element *a_row = a_block + (row - row_begin) * A_STEP;
    % if operand.loads_vectors:
    int p = 0;
    for (; row < row_end && p + VW <= ${operand.filled}; p += VW) {
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
