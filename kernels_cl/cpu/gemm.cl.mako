## The CPU family. One work-item for each core computes its own block of the result. For each block of KC
## along k it copies its rows of A and, panel by panel, its columns of B into contiguous memory, and
## multiplies MR x NR tiles that stay in vector registers (K. Goto and R. van de Geijn, "Anatomy of
## High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008).
##
## A complex tile keeps two sums, of Re(a) b and of Im(a) b, and joins them at the end.
##
## A packed element of int8 is a pair of neighbours along k, widened to int16, whose products are summed by one
## instruction. `first_depth`, `depth` and KC count packed elements.
##
## Where few tiles would leave cores idle, k is divided among work-items as well. Each keeps its sums in
## `parts`, and the last one to arrive at a block of the result adds them up, in the order of k; nobody waits.
##
## Where k is shallow all panels of B are packed first, and stay in a cache.
##
## With PACKB=0 B is read in place: by rows, or by dot products along k if it is column-major.
##
## Context: kernel (_CpuKernel), cpu (CpuConfig), in_tile, zeroed, and what all gemm templates see.
<%namespace name="prelude" file="/common/prelude.mako"/>
<%namespace name="panel" file="/common/panel.mako"/>
<%namespace name="block" file="/cpu/block.mako"/>
<%namespace name="parts" file="/cpu/parts.mako"/>
<%namespace name="tile" file="/cpu/tile.mako"/>
<%namespace name="result" file="/cpu/result.mako"/>
<%namespace name="dots" file="/cpu/dots.mako"/>
<%namespace name="pairs" file="/cpu/pairs.mako"/>
<%
    a_operand, b_operand = kernel.operands
    number = "own_group" if moved else "block" if kernel.splits else "group"
%>
${prelude.types()}
${panel.types()}
${result.types()}

#define MR ${cpu.MR}  // rows of a tile in registers
#define A_STEP ${cpu.row_step}  // elements from a row of a packed A to the next
${panel.defines()}
${panel.vectors()}
${prelude.address("a", problem.a, **a_operand.indices)}
% if not problem.packed:
${prelude.address("b", problem.b, **b_operand.indices)}
% endif
${prelude.address("out", problem.out)}
% if wide.converts:
#define PARTIAL_AT(row, column) ((long)(row) * n + (column))
% endif
% if problem.c:
${prelude.address("c", problem.c)}
% endif

% if kernel.pairs:
${panel.pair_function()}

${pairs.functions()}

% endif
% for operand in kernel.loaders:
${panel.load_function(operand)}

% endfor
% if kernel.by_dots:
${dots.functions()}

% elif kernel.packs_b:
${panel.functions(b_operand)}

% endif
${result.functions()}
% if kernel.splits:

${parts.functions()}
% endif

${prelude.signature("__kernel __attribute__((reqd_work_group_size(1, 1, 1)))", arguments)}
{
    ${prelude.offsets("a", "out") if problem.packed else prelude.offsets("a", "b", "out")}

    // The block of the result that this work-item computes.
    const extent group = get_group_id(0);
    const extent groups_n = (n + columns_per_group - 1) / columns_per_group;
% if moved:
    const extent own_groups = (m + rows_per_group - 1) / rows_per_group * groups_n;  // of a product
    const extent own_group = group % own_groups;
% endif
% if kernel.splits:
    // Work-items with the same block have different slices of k.
    const extent blocks = (m + rows_per_group - 1) / rows_per_group * groups_n;
    const extent block = group % blocks;
    const extent slice_begin = group / blocks * depth_per_slice;
    const extent slice_end = min(slice_begin + depth_per_slice, k);
% endif
    const extent group_begin = ${number} / groups_n * rows_per_group;
    const extent group_end = min(group_begin + rows_per_group, m);
    const extent column_begin = ${number} % groups_n * columns_per_group;
    const extent column_end = min(column_begin + columns_per_group, n);

    % if kernel.pairs:
    const extent pairs = k / 2 + k % 2;  // along k; the last one of an odd k has a zero

    % endif
    // Its workspace: ${"panels of B, then " if kernel.sweeps else "a panel of B, then " if kernel.has_panel else ""}a block of rows of A.
    % if kernel.sweeps:
    __global element *panels = (__global element *)(workspace + group * workspace_per_group);
    __global element *a_block = panels + ${kernel.depths} * columns_per_group;
    % elif kernel.has_panel:
    __global element *panel = (__global element *)(workspace + group * workspace_per_group);
    __global element *a_block = panel + KC * NR;
    % else:
    __global element *a_block = (__global element *)(workspace + group * workspace_per_group);
    % endif

    % if moved:
    // The groups of a product compute all products of the batch whose numbers have the same remainder
    // modulo `sets`.
    const long sets = get_num_groups(0) / own_groups;
    % if wide.converts:
    partial += group / own_groups * (long)m * n;
    % endif
    long product = 0;
    for (long next = group / own_groups; next < batch; next += sets) {
        ${prelude.move_on("next", "product")}
        product = next;
    % endif
    for (extent row_begin = group_begin; row_begin < group_end; row_begin += rows_per_block) {
        const extent row_end = min(row_begin + rows_per_block, group_end);
        % if kernel.prefetches_b or not kernel.a_by_column:
        const int tiles = (row_end - row_begin + MR - 1) / MR;
        % endif
        // Where k is 0, one round stores beta C, bias and activation.
        extent first_depth = ${kernel.first_depth};
        do {
            const int depth = min(${kernel.depths} - first_depth, (extent)KC);
            const bool first = first_depth == ${kernel.first_depth};
            % if kernel.result.ends_differently and not kernel.splits:
            const bool last = first_depth + KC >= ${kernel.depths};
            % endif

            ${block.pack(a_operand)}

            % if kernel.sweeps:
            // All panels of B stay in a cache, and rows of tiles are finished in turn: long runs of the result are written.
            for (extent first_column = column_begin; first_column < column_end; first_column += NR) {
                __global element *panel = panels + (first_column - column_begin) * depth;
                ${panel.pack(b_operand)}
            }
            for (extent tile_row = row_begin; tile_row < row_end; tile_row += MR) {
                for (extent first_column = column_begin; first_column < column_end; first_column += NR) {
                    const __global element *panel = panels + (first_column - column_begin) * depth;
                    % if problem.bias == "column":
                    ${result.load_bias()}
                    % endif
                    ${result_tile()}
                }
            }
            % else:
            for (extent first_column = column_begin; first_column < column_end; first_column += NR) {
                % if problem.packed:
                const long panels = (n + NR - 1) / NR;
                const __global element *panel =
                    b + b_offset + (first_depth * panels + (long)(first_column / NR) * depth) * NR;
                % elif kernel.in_place:
                // B is read in place, except for columns that do not fill the vectors that a tile reads.
                const int columns = min(n - first_column, (extent)NR);
                const bool in_place = ${kernel.fills_vectors};
                if (!in_place) {
                    ${panel.copy()}
                }
                % elif kernel.packs_b:
                ${panel.pack(b_operand)}
                % endif
                % if kernel.prefetches_b:

                // Each tile prefetches some rows of the panel that is packed next, here or in the next block of k; all
                // at once would delay the loads of the tile.
                const bool is_last_panel = column_end - first_column <= NR;
                const extent next_column = is_last_panel ? column_begin : first_column + NR;
                const extent next_depth = is_last_panel ? first_depth + KC : first_depth;
                const int next_rows = min(${kernel.depths} - next_depth, (extent)KC);  // may be negative
                const int fetched = (next_rows + tiles - 1) / tiles;
                % endif
                % if problem.bias == "column" and not kernel.splits:

                ${result.load_bias()}
                % endif

                for (extent tile_row = row_begin; tile_row < row_end; tile_row += MR) {
                    ${result_tile()}
                }
            }
            % endif
            first_depth += KC;
        } while (first_depth < ${kernel.depths});
    }
    % if moved:
    }
    % endif
    % if kernel.splits:

    ${parts.join()}
    % endif
}

## The sums of a tile, and what becomes of them.
<%def name="result_tile()" filter="trim">
${parts.pointer() if kernel.splits else result.pointers()}
% if kernel.counts_columns:
const int tile_columns = min(column_end - first_column, (extent)NR);
% endif
% if kernel.prefetches_result:
${result.prefetch()}
% endif
% if kernel.by_dots:
${dots.multiply()}
% else:
${tile.multiply()}
% endif

${parts.add() if kernel.splits else result.finish()}
</%def>
