## Copies an operand of 1- or 2-byte elements into rows along the other index, padded with zeros. Accesses of
## single elements would be inefficient: work-items transpose blocks of 4 x 4 in registers, and a local tile
## transposes the blocks.
<%namespace name="prelude" file="/common/prelude.mako"/>
typedef ${extent_type} extent;
typedef ${stored} stored;
typedef ${stored}4 quad;

#define BLOCKS ${block}  // of 4 x 4 elements, along both indices
#define ROWS ${rows}  // rows of blocks that are copied at a time

// Loads those of four elements that lie before the `end` of their line; the others are zero.
static inline quad load_quad(const __global stored *from, const bool inside, const extent first, const extent end)
{
% if layout.alignment >= 4:
    if (inside && first + 4 <= end) {
        return *(const __global quad *)from;
    }
% endif
    quad loaded = (quad)(0);
    if (inside && first < end) loaded.s0 = from[0];
    if (inside && first + 1 < end) loaded.s1 = from[1];
    if (inside && first + 2 < end) loaded.s2 = from[2];
    if (inside && first + 3 < end) loaded.s3 = from[3];
    return loaded;
}

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({block}, {rows}, 1)))", arguments)}
{
    // A row holds quads along the destination, permuted so that quads written together use different banks.
    __local quad transposed[4 * BLOCKS][BLOCKS + 1];
    source += source_offset;
    destination += destination_offset;
    const int x = get_local_id(0);
    const int y = get_local_id(1);
    % if moved:
    ${prelude.own_group("block_column", f"({row_length} + 4 * BLOCKS - 1) / (4 * BLOCKS)")}
    const extent first_${inner} = block_column * (4 * BLOCKS);
    % else:
    const extent first_${inner} = get_group_id(0) * (4 * BLOCKS);
    % endif
    const extent first_${outer} = get_group_id(1) * (4 * BLOCKS);
    for (int block = y; block < BLOCKS; block += ROWS) {
        quad lines[4];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const extent ${inner} = first_${inner} + 4 * block + i;
            const extent ${outer} = first_${outer} + 4 * x;
            lines[i] = load_quad(source + ${offset}, ${inner} < ${ends[inner]}, ${outer}, ${ends[outer]});
        }
        const int column = block ^ (x / 8 & 3);
        % for part in range(4):
        transposed[4 * x${f" + {part}" if part else ""}][column] = (quad)(lines[0].s${part}, lines[1].s${part}, lines[2].s${part}, lines[3].s${part});
        % endfor
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int row = y; row < 4 * BLOCKS; row += ROWS) {
        const extent ${inner} = first_${inner} + 4 * x;
        const extent ${outer} = first_${outer} + row;
        if (${inner} < padded_${ends[inner]} && ${outer} < padded_${ends[outer]}) {
            const long entry = (long)${outer} * ${leading_dimension} + ${inner};
            *(__global quad *)(destination + entry) = transposed[row][x ^ (row / 32 & 3)];
        }
    }
}
