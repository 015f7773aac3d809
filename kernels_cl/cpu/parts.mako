## Sums of a slice of k, where several work-items of the CPU family have the same block of the result. The sums of a
## work-item fill whole tiles, so that no vector reaches beyond them.
##
## Context: kernel, cpu, problem. The generated text uses the tile's position (`tile_row`, `first_column`), the
## block (`block`, `blocks`, `group_begin`, `group_end`, `column_begin`, `column_end`), `first` (whether the block of
## k is the first of the slice), and the sums `sum<row>_<vector>`.
<%namespace name="cpu_loop" file="/cpu/loop.mako"/>
<%namespace name="result" file="/cpu/result.mako"/>

<%def name="functions()" filter="trim">
<% vectors = range(cpu.vectors) %>\
// Adds the sums of a block of k to a row of a tile of the sums of a slice.
static inline void add_row(${", ".join(f"const vector sum{j}" for j in vectors)}, const bool first, __global vector *row)
{
    % for j in vectors:
    row[${j}] = first ? sum${j} : row[${j}] + sum${j};
    % endfor
}
</%def>

## A work-item's sums, of which the tile's are a part.
<%def name="pointer()" filter="trim">
const extent row_vectors = columns_per_group / VW;
__global vector *part = (__global vector *)parts + (long)group * rows_per_group * row_vectors
    + (tile_row - group_begin) * row_vectors + (first_column - column_begin) / NR * VECTORS;
</%def>

<%def name="add()" filter="trim">
% for r, names in enumerate(kernel.sum_names):
add_row(${", ".join(names)}, first, ${plus("part", times(r, "row_vectors"))});
% endfor
</%def>

<%def name="join()" filter="trim">
<%
    j = "j" if cpu.vectors > 1 else "0"
    columns = "tile_columns - j * VW" if cpu.vectors > 1 else "tile_columns"
%>\
// The last work-item to arrive adds up the sums of all slices. Each work-item is a work-group and runs in one
// thread: fences and the atomic increment order its accesses before and after those of others.
mem_fence(CLK_GLOBAL_MEM_FENCE);
const int slices = get_num_groups(0) / blocks;
if (atomic_inc(counters + block) + 1 < slices) {
    return;
}
counters[block] = 0;  // ready for the next launch
mem_fence(CLK_GLOBAL_MEM_FENCE);
const bool first = true;
% if kernel.result.ends_differently:
const bool last = true;
% endif
const extent row_vectors = columns_per_group / VW;
const long slice_vectors = (long)blocks * rows_per_group * row_vectors;
for (extent first_column = column_begin; first_column < column_end; first_column += NR) {
    const int tile_columns = min(column_end - first_column, (extent)NR);
    % if problem.bias == "column":
    ${result.load_bias()}
    % endif
    for (extent tile_row = group_begin; tile_row < group_end; ++tile_row) {
        const __global vector *part = (const __global vector *)parts + (long)block * rows_per_group * row_vectors
            + (tile_row - group_begin) * row_vectors + (first_column - column_begin) / NR * VECTORS;
        ${result.pointers()}
        <%cpu_loop:repeat variable="j" condition="j * VW < tile_columns" turns="${cpu.vectors}">
        vector sum = part[${j}];
        for (int slice = 1; slice < slices; ++slice) {
            sum += part[${plus("slice * slice_vectors", j)}];
        }
        ${kernel.result.functions[0].call(["sum"], "0", j, columns)}
        </%cpu_loop:repeat>
    }
}
</%def>
