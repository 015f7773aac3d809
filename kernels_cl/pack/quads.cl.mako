## Copies an operand of 1- or 2-byte elements into rows along the other index, padded with zeros. Accesses of
## single elements would be inefficient: work-items transpose blocks of 4 x 4 in registers, and a local tile
## transposes the blocks.
<%namespace name="prelude" file="/common/prelude.mako"/>
typedef ${extent_type} extent;
typedef ${stored} stored;
typedef ${stored}4 quad;

#define BLOCKS ${block}  // of 4 x 4 elements, along both indices: one for each work-item

// Loads the first `count` of four elements; the others are zero.
static inline quad load_elements(const __global stored *from, const int count)
{
    return (quad)(
        count > 0 ? from[0] : (stored)0,
        count > 1 ? from[1] : (stored)0,
        count > 2 ? from[2] : (stored)0,
        count > 3 ? from[3] : (stored)0);
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
    // All lines are loaded before the first is used. Only their elements before the end exist.
    quad lines[4];
    const int count = clamp(${ends[outer]} - first_${outer} - 4 * x, (extent)0, (extent)4);
    % if layout.alignment >= 4:
    if (count == 4) {
        ${each_line("*(const __global quad *)from")}
    } else {
        ${each_line("load_elements(from, count)")}
    }
    % else:
    ${each_line("load_elements(from, count)")}
    % endif
    % for part in range(4):
    transposed[4 * x${f" + {part}" if part else ""}][y ^ (x / 4)] = (quad)(lines[0].s${part}, lines[1].s${part}, lines[2].s${part}, lines[3].s${part});
    % endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row = y + i * BLOCKS;
        const extent ${inner} = first_${inner} + 4 * x;
        const extent ${outer} = first_${outer} + row;
        if (${inner} < padded_${ends[inner]} && ${outer} < padded_${ends[outer]}) {
            const long entry = (long)${outer} * ${leading_dimension} + ${inner};
            *(__global quad *)(destination + entry) = transposed[row][x ^ (row / 16)];
        }
    }
}

<%def name="each_line(loaded)" filter="trim">
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const extent ${inner} = first_${inner} + 4 * y + i;
            const extent ${outer} = first_${outer} + 4 * x;
            const __global stored *from = source + ${offset};
            lines[i] = ${inner} < ${ends[inner]} ? ${loaded} : (quad)(0);
        }
</%def>
