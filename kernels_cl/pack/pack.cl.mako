## Copies an operand into rows along k, or along the positions of a tile, padded with zeros. Reads and writes
## are both contiguous within a row of work-items; if the source is contiguous along the other index, a
## local tile transposes it. Elements may be split into terms.
<%namespace name="split_terms" file="/common/split.mako"/>
<%namespace name="prelude" file="/common/prelude.mako"/>
<%
    element = f"source[{offset}]"
    read = f"({stored})({element}.x, -{element}.y)" if layout.conjugate else element
%>
typedef ${extent_type} extent;
typedef ${stored} stored;

#define TILE ${block}  // rows and columns of a work-group's block
#define ROWS ${rows}  // rows of it that are copied at a time
% if split:

${split_terms.functions(split, terms > 1)}
% endif

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({block}, {rows}, 1)))", arguments)}
{
% if turned:
    // One element of padding avoids bank conflicts along rows and columns.
    __local stored transposed[TILE][TILE + 1];
% endif
    source += source_offset;
    destination += destination_offset;
    const int x = get_local_id(0);
    const int y = get_local_id(1);
    % if moved:
    ${prelude.own_group("block_column", f"({row_length} + TILE - 1) / TILE")}
    const extent first_${inner} = block_column * TILE;
    % else:
    const extent first_${inner} = get_group_id(0) * TILE;
    % endif
    const extent first_${outer} = get_group_id(1) * TILE;
% if turned:
    #pragma unroll
    for (int i = 0; i < TILE / ROWS; ++i) {
        const int row = y + i * ROWS;
        const extent ${inner} = first_${inner} + row;
        const extent ${outer} = first_${outer} + x;
        transposed[row][x] = (position < positions && depth < k) ? ${read} : (stored)(0);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    #pragma unroll
    for (int i = 0; i < TILE / ROWS; ++i) {
        const int row = y + i * ROWS;
        const extent ${inner} = first_${inner} + x;
        const extent ${outer} = first_${outer} + row;
        % if turned:
        const stored value = transposed[x][row];
        % else:
        const stored value = (position < positions && depth < k) ? ${read} : (stored)(0);
        % endif
        if (position < padded_positions && depth < padded_k) {
% if split:
            const long entry = (long)${outer} * ${leading_dimension} + ${inner};
            % if terms > 1:
            const long term_size = (long)padded_positions * padded_k;
            % endif
            % for term in range(terms):
            <% left = f"tail{term - 1}" if term else "value" %>\
            const float lead${term} = leading(${left});
            % if split.stored == "ushort":
            destination[${plus(times(term, "term_size"), "entry")}] = as_uint(lead${term}) >> 16;
            % else:
            destination[${plus(times(term, "term_size"), "entry")}] = lead${term};
            % endif
            % if term < terms - 1:
            const float tail${term} = tail_of(${left}, lead${term});
            % endif
            % endfor
% else:
            destination[(long)${outer} * ${leading_dimension} + ${inner}] = value;
% endif
        }
    }
}
