## A block of A for the CPU family: `depth` columns of the rows from `row_begin` to `row_end`;
## rows that fill the last tile are zero.
##
## `by_column` tells whether the rows of a tile lie side by side, as they do in a column-major A.
##
## Context: element, cpu (CpuConfig), problem. The text sees `row_begin`, `row_end`,
## `first_depth`, `depth` and `a_block`.

<%def name="pack(layout, by_column)" filter="trim">
<%
    sign, signs = (element.conjugation(w) if layout.conjugate else "" for w in (1, cpu.VW))
    vector = element.vector(cpu.VW)
%>
% if by_column:
// A block of tiles: the MR rows of a tile side by side, one depth after the other.
for (extent tile_row = row_begin; tile_row < row_end; tile_row += MR) {
    __global element *tile = a_block + (tile_row - row_begin) * KC;
    for (int p = 0; p < depth; ++p) {
        #pragma unroll
        for (int r = 0; r < MR; ++r) {
            tile[p * MR + r] = tile_row + r < row_end
                ? ${element.load("a + A_AT(tile_row + r, first_depth + p)", 1)}${sign} : (element)(0);
        }
    }
}
% else:
// A row after the other, KC apart.
for (extent row = row_begin; row < row_begin + (row_end - row_begin + MR - 1) / MR * MR; ++row) {
    __global element *a_row = a_block + (row - row_begin) * KC;
    int p = 0;
    % if layout.order == "row":
    for (; row < row_end && p + VW <= depth; p += VW) {
        *(__global ${vector} *)(a_row + p) = ${element.load("a + A_AT(row, first_depth + p)", cpu.VW, aligned=False)}${signs};
    }
    % endif
    for (; p < depth; ++p) {
        a_row[p] = row < row_end ? ${element.load("a + A_AT(row, first_depth + p)", 1)}${sign} : (element)(0);
    }
}
% endif
</%def>
