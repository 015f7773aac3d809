## Copies the elements of an array to another place, in another order: a stack of matrices whose rows are
## contiguous in the destination. Each work-group copies a tile, so that it uses whole cache lines of both.
<%namespace name="prelude" file="/common/prelude.mako"/>
typedef ${stored} stored;

${prelude.address("source", source)}
${prelude.address("out", out)}

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({items[0]}, {items[1]}, 1)))", arguments)}
{
    source += source_offset;
    out += out_offset;
    // Work-groups are numbered along the rows of tiles, then down, then through the stack.
    long place = get_group_id(0);
    const long first_column = place % column_tiles * tile_columns;
    place /= column_tiles;
    const long first_row = place % row_tiles * tile_rows;
    place /= row_tiles;
    % for index in range(stack):
    source += place % extent${index} * source_stride${index};
    out += place % extent${index} * out_stride${index};
    place /= extent${index};
    % endfor
    const long last_row = min(first_row + tile_rows, rows);
    const long last_column = min(first_column + tile_columns, columns);
    for (long row = first_row + get_local_id(1); row < last_row; row += ${items[1]}) {
        for (long column = first_column + get_local_id(0); column < last_column; column += ${items[0]}) {
            out[OUT_AT(row, column)] = source[SOURCE_AT(row, column)];
        }
    }
}
