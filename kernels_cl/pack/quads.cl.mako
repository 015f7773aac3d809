## Copies an operand of 1- or 2-byte elements into rows along the other index, padded with zeros. Single
## elements would leave most of each access unused: work-items turn blocks of 4 x 4 in registers, and a
## local tile of such blocks turns the rest around.
<%namespace name="prelude" file="/common/prelude.mako"/>
typedef ${extent_type} extent;
typedef ${stored} stored;
typedef ${stored}4 quad;

#define BLOCKS ${blocks}  // of 4 x 4 elements, along both indices
#define ROWS ${rows}

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({blocks}, {rows}, 1)))", arguments)}
{
    // Row r of the source's contiguous index holds quads along the destination's. A quad's place is
    // exchanged with others of its row, lest those that are written together meet in one bank.
    __local quad turned[4 * BLOCKS][BLOCKS + 1];
    source += source_offset;
    destination += destination_offset;
    const int x = get_local_id(0);
    const int y = get_local_id(1);
    % if moved:
    ${prelude.own_group("block_column", "({} + 4 * BLOCKS - 1) / (4 * BLOCKS)".format({"depth": "padded_k", "position": "padded_positions"}[inner]))}
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
            lines[i] = (quad)(0);
            % if aligned:
            if (${inner} < ${inner_end} && ${outer} + 4 <= ${outer_end}) {
                lines[i] = *(const __global quad *)(source + ${offset});
                continue;
            }
            % endif
            const __global stored *line = source + ${offset};
            % for part in range(4):
            if (${inner} < ${inner_end} && ${outer}${f" + {part}" if part else ""} < ${outer_end}) {
                lines[i].s${part} = line[${part}];
            }
            % endfor
        }
        const int place = block ^ (x / 8 & 3);
        % for part in range(4):
        turned[4 * x + ${part}][place] = (quad)(lines[0].s${part}, lines[1].s${part}, lines[2].s${part}, lines[3].s${part});
        % endfor
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int row = y; row < 4 * BLOCKS; row += ROWS) {
        const extent ${inner} = first_${inner} + 4 * x;
        const extent ${outer} = first_${outer} + row;
        if (${inner} < padded_${inner_end} && ${outer} < padded_${outer_end}) {
            *(__global quad *)(destination + (long)${outer} * ${leading_dimension} + ${inner}) = turned[row][x ^ (row / 32 & 3)];
        }
    }
}
