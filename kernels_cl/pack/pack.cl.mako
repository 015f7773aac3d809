## Copies an operand into rows that run along k, or along the positions of a tile, padded with zeros.
## Reads and writes are both contiguous within a row of work-items; where the source runs along the
## other index, a local tile turns it around. Elements may be split into parts on the way.
<%namespace name="parts_of" file="/common/split.mako"/>
<%namespace name="prelude" file="/common/prelude.mako"/>
typedef ${extent_type} extent;
typedef ${stored} stored;

#define TILE ${tile}
#define ROWS ${rows}
% if split:

${parts_of.functions(split, parts > 1)}
% endif

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
    % if moved:
    ${prelude.own_group("block_column", "({} + TILE - 1) / TILE".format({"depth": "padded_k", "position": "padded_positions"}[inner]))}
    const extent first_${inner} = block_column * TILE;
    % else:
    const extent first_${inner} = get_group_id(0) * TILE;
    % endif
    const extent first_${outer} = get_group_id(1) * TILE;
% if turned:
    for (int row = y; row < TILE; row += ROWS) {
        const extent ${inner} = first_${inner} + row;
        const extent ${outer} = first_${outer} + x;
        turned[row][x] = (position < positions && depth < k) ? ${read} : (stored)(0);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    for (int row = y; row < TILE; row += ROWS) {
        const extent ${inner} = first_${inner} + x;
        const extent ${outer} = first_${outer} + row;
% if turned:
        ${"" if split else "const "}stored value = turned[x][row];
% else:
        ${"" if split else "const "}stored value = (position < positions && depth < k) ? ${read} : (stored)(0);
% endif
        if (position < padded_positions && depth < padded_k) {
% if parts > 1:
            const long part_size = (long)padded_positions * padded_k;
% endif
            const long place = (long)${outer} * ${leading_dimension} + ${inner};
% if split:
            % for part in range(parts):
            const float lead${part} = leading(value);
            destination[${f"{part} * part_size + " if part else ""}place] = ${f"as_uint(lead{part}) >> 16" if split.stored == "ushort" else f"lead{part}"};
            % if part < parts - 1:
            value = rest(value, lead${part});
            % endif
            % endfor
% else:
            destination[place] = value;
% endif
        }
    }
}
