## The CPU family. One work-item a core computes its own block of the result. For each block of
## KC along k it copies its rows of A and, panel by panel, its columns of B into contiguous
## memory, and multiplies MR x NR tiles that stay in vector registers (K. Goto and R. van de
## Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008).
##
## A complex tile keeps two sums, of Re(a) b and of Im(a) b, and joins them at the end.
##
## With PACKB=0 B is read where it lies (`in_place`); if it is column-major, by dot products along k.
<%namespace name="prelude" file="/common/prelude.mako"/>
<%namespace name="panel" file="/common/panel.mako"/>
<%namespace name="block" file="/cpu/block.mako"/>
<%namespace name="tile" file="/cpu/tile.mako"/>
<%namespace name="dots" file="/cpu/dots.mako"/>
<%
    vector = element.vector(cpu.VW)
    wide_vector = wide.vector(cpu.VW)
    sums = ("re", "im") if problem.complex else ("",)
    digits = "0123456789abcdef"
    swapped = "".join(digits[i ^ 1] for i in range(2 * cpu.VW)) if problem.complex else ""
    signs = ", ".join(["-1", "1"] * cpu.VW)
    partial_type = type(wide)(wide.dtype if not wide.converts else wide.arithmetic, wide.arithmetic)
    step = {"row": "1", "column": "{}_column_stride", "strided": "{}_column_stride"}
    out_step = step[problem.out.order].format("out")
    c_step = step[problem.c.order].format("c") if problem.c else ""
    access = [("stored", wide)] + ([("partial", partial_type)] if wide.converts else [])
    partial = "partial" if wide.converts else "stored"
    partial_at = "partial + (long)row * n + column" if wide.converts else "out + OUT_AT(row, column)"
    partial_step = "1" if wide.converts else out_step
    prefetches_c = cpu.PREFETCHC and (wide.converts or problem.out.order == "row")
    unpacked = in_place and problem.b.order == "row"
    by_dots = in_place and problem.b.order == "column"
    # Sums that hide the latency of a multiply-add, and fit AVX2's registers.
    at_once = max(j for j in range(1, cpu.NR + 1) if cpu.NR % j == 0 and j * cpu.MR * len(sums) <= 12 or j == 1)
    prefetches_b = cpu.PREFETCHB and problem.b.order == "row" and not (problem.packed or in_place)
    own_group = "own_group" if moved else "group"
    a_by_column = problem.a.order == "column" and not by_dots
%>
${prelude.types()}
typedef ${vector} vector;  // VW elements of A or B
typedef ${wide_vector} wide_vector;  // VW elements of C and of the result
% if unpacked and not element.converts:
typedef vector __attribute__((aligned(${element.real_bytes}))) b_vector;  // as B lies
% endif
typedef wide_vector __attribute__((aligned(${wide.real_bytes}))) unaligned_vector;

#define MR ${cpu.MR}  // rows of a tile in registers
${panel.defines()}
#define VECTORS (NR / VW)  // vectors in a row of a tile
${prelude.address("a", problem.a)}
% if not problem.packed:
${prelude.address("b", problem.b)}
% endif
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif

% for kind, memory in access:
// Up to VW elements, `step` elements apart; what is missing reads as zero.
static inline wide_vector load_${kind}(const __global ${memory.stored} *p, const long step, const int count)
{
    if (step == 1 && count >= VW) {
        return ${memory.load("p", cpu.VW, aligned=False)};
    }
    wide lanes[VW];
    for (int i = 0; i < VW; ++i) {
        lanes[i] = i < count ? ${memory.load("p + i * step", 1)} : (wide)(0);
    }
    return ${"lanes[0]" if cpu.VW * wide.parts == 1 else f"vload{cpu.VW * wide.parts}(0, ({wide.real} *)lanes)"};
}

static inline void store_${kind}(const wide_vector x, __global ${memory.stored} *p, const long step, const int count)
{
    if (step == 1 && count >= VW) {
        % if memory.converts:
        ${memory.store("x", "p", cpu.VW, aligned=False)}
        % else:
        *(__global unaligned_vector *)p = x;  // one instruction, which vstore is not everywhere
        % endif
        return;
    }
    wide lanes[VW];
    ${"lanes[0] = x;" if cpu.VW * wide.parts == 1 else f"vstore{cpu.VW * wide.parts}(x, 0, ({wide.real} *)lanes);"}
    for (int i = 0; i < VW && i < count; ++i) {
        ${memory.store("lanes[i]", "p + i * step", 1)}
    }
}
% endfor

% if problem.complex:
// Multiplication of each element by the imaginary unit.
static inline wide_vector times_i(const wide_vector x)
{
    return x.s${swapped} * (wide_vector)(${signs});
}

static inline wide_vector scale(const wide factor, const wide_vector x)
{
    return factor.x * x + factor.y * times_i(x);
}
% else:
static inline wide_vector scale(const wide factor, const wide_vector x)
{
    return factor * x;
}
% endif
% if by_dots:

${dots.functions()}
% elif not (problem.packed or unpacked):

${panel.functions(problem.b)}
% endif
% if problem.activation:

// ${problem.activation}
static inline wide_vector activate(const wide_vector x)
{
    return ${activation_of(wide_vector)};
}
% endif

${prelude.signature("__kernel __attribute__((reqd_work_group_size(1, 1, 1)))", arguments)}
{
    ${prelude.offsets("a", "out") if problem.packed else prelude.offsets("a", "b", "out")}

    // The part of the result that this work-item computes.
    const extent group = get_group_id(0);
% if moved:
    const extent own_groups = (m + rows_per_group - 1) / rows_per_group * ((n + columns_per_group - 1) / columns_per_group);
    const extent own_group = group % own_groups;
% endif
    const extent groups_n = (n + columns_per_group - 1) / columns_per_group;
    const extent group_begin = ${own_group} / groups_n * rows_per_group;
    const extent group_end = min(group_begin + rows_per_group, m);
    const extent column_begin = ${own_group} % groups_n * columns_per_group;
    const extent column_end = min(column_begin + columns_per_group, n);

    // Its own workspace: KC columns of a block of rows of A${"" if problem.packed or by_dots else ", then one panel of B"}.
    __global element *a_block = (__global element *)(workspace + group * workspace_per_group);
    % if not (problem.packed or by_dots):
    __global element *panel = a_block + (rows_per_block + MR - 1) / MR * MR * KC;
    % endif

    % if moved:
    // Of the products of the batch every so many-th.
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
        // One round even where k is 0: the result is still beta C, bias and activation.
        extent first_depth = 0;
        do {
            const int depth = min(k - first_depth, (extent)KC);
            ${block.pack(problem.a, a_by_column)}

            for (extent first_column = column_begin; first_column < column_end; first_column += NR) {
                % if problem.packed:
                const long panels = (n + NR - 1) / NR;
                const __global element *panel =
                    b + b_offset + (first_depth * panels + (long)(first_column / NR) * depth) * NR;
                % elif unpacked:
                // B is read where it lies, except for columns that do not fill a panel.
                const bool whole = n - first_column >= NR;
                if (!whole) {
                    ${panel.copy()}
                }
                % elif not by_dots:
                ${panel.pack(problem.b)}
                % endif
                % if prefetches_b:
                // Rows of the panel to come that each tile fetches: all at once would hold up
                // the loads of the tile.
                const int tiles = (row_end - row_begin + MR - 1) / MR;
                const int fetched = column_end - first_column > NR ? (depth + tiles - 1) / tiles : 0;
                % endif
                % if problem.bias == "column":
                wide_vector biases[VECTORS];
                for (int j = 0; j < VECTORS; ++j) {
                    const extent column = first_column + j * VW;
                    biases[j] = load_stored(bias + column * bias_stride, bias_stride, column_end - column);
                }
                % endif
                for (extent tile_row = row_begin; tile_row < row_end; tile_row += MR) {
                    % if prefetches_c:
                    ${tile.prefetch_result(partial_at)}
                    % endif
                    % if by_dots:
                    ${dots.multiply(at_once, sums, swapped)}
                    % else:
                    ${tile.multiply(a_by_column, sums, unpacked, prefetches_b)}
                    % endif
                    ${tile.finish(partial, partial_at, partial_step, out_step, c_step)}
                }
            }
            first_depth += KC;
        } while (first_depth < k);
    }
    % if moved:
    }
    % endif
}
