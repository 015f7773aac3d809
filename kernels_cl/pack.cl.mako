## Copies an operand of the indirect path into k-major order, padded with zeros: row p of the
## destination holds the `width` entries at depth p. Reads and writes are both contiguous
## within a row of work-items; where the source runs along k, a local tile turns it around.
<%namespace name="prelude" file="prelude.mako"/>
typedef ${extent_type} extent;
typedef ${stored} stored;

#define TILE ${tile}
#define ROWS ${rows}

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({tile}, {rows}, 1)))", arguments)}
{
% if turned:
    // One element of padding, so that neither walk through the tile stays in one bank.
    __local stored turned[TILE][TILE + 1];
% endif
    source += source_offset;
    destination += destination_offset;
    const int x = get_local_id(0);
    const int y = get_local_id(1);
    const extent first_position = get_group_id(0) * TILE;
    const extent first_depth = get_group_id(1) * TILE;
% if turned:
    for (int row = y; row < TILE; row += ROWS) {
        const extent position = first_position + row;
        const extent depth = first_depth + x;
        turned[row][x] = (position < positions && depth < k) ? ${read} : (stored)(0);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    for (int row = y; row < TILE; row += ROWS) {
        const extent position = first_position + x;
        const extent depth = first_depth + row;
% if turned:
        const stored value = turned[x][row];
% else:
        const stored value = (position < positions && depth < k) ? ${read} : (stored)(0);
% endif
        if (position < padded_positions && depth < padded_k) {
            destination[(long)depth * ${leading_dimension} + position] = value;
        }
    }
}
