## Matrix units: a work-group computes a MWG x NWG tile of the result, slab of k by slab of k. Slabs
## are copied as they lie, past the registers; sub-groups multiply fragments of them.
<%namespace name="async_copy" file="async_copy.mako"/>
<%namespace name="fragment" file="matrix_fragment.mako"/>
<%namespace name="prelude" file="prelude.mako"/>
<%namespace name="tile" file="tile.mako"/>
${prelude.types()}
typedef ${stored} stored;  // an element of A or B in local memory

#define MWG ${tiles.MWG}  // rows of a work-group's tile
#define NWG ${tiles.NWG}  // columns of it
#define KWG ${tiles.KWG}  // depth of a slab
#define STAGES ${tiles.STAGES}  // slabs of each operand in local memory
#define ITEMS ${work_items}  // work-items of a group
#define SUBGROUP_M ${tiles.MWG // tiles.SUBGROUPS_M}  // rows of a sub-group's tile
#define SUBGROUP_N ${tiles.NWG // tiles.SUBGROUPS_N}  // columns of it
#define A_FRAGMENTS (SUBGROUP_M / ${unit.m})
#define B_FRAGMENTS (SUBGROUP_N / ${unit.n})
% if unit.operand == "float16":
#define A_LOADS (SUBGROUP_M / 16)  // of 16 rows or columns, and 16 deep
#define B_LOADS (SUBGROUP_N / 16)
% endif
% for slab in slabs:

// ${slab.name.upper()} in local memory: ${"k" if slab.along_k else slab.index} is contiguous, as in memory.
#define ${slab.name.upper()}_PITCH ${slab.pitch}  // elements from one ${slab.index if slab.along_k else "k"} to the next
#define ${slab.name.upper()}_SLAB ${slab.rows * slab.pitch}
% if slab.along_k:
#define ${slab.name.upper()}_PLACE(position, depth) ((position) * ${slab.name.upper()}_PITCH + (depth))
% else:
#define ${slab.name.upper()}_PLACE(position, depth) ((depth) * ${slab.name.upper()}_PITCH + (position))
% endif
% endfor

${prelude.address("a", problem.a)}
${prelude.address("b", problem.b)}
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif

${prelude.epilogue()}

${fragment.functions()}

<%def name="copy_slabs(stage)" filter="trim">
    % for slab in slabs:
    #pragma unroll
    for (int i = 0; i < ${slab.copies}; ++i) {
        const int chunk = item + i * ITEMS;
        const int within = chunk % ${slab.chunks} * ${slab.width};
        const int row = chunk / ${slab.chunks};
        % if slab.along_k:
        const extent position = ${slab.name}_tile + row;
        const extent from = depth + within;
        const int inside = position < ${slab.index} ? clamp(k - from, (extent)0, (extent)${slab.width}) : 0;
        % else:
        const extent from = depth + row;
        const extent position = ${slab.name}_tile + within;
        const int inside = from < k ? clamp(${slab.index} - position, (extent)0, (extent)${slab.width}) : 0;
        % endif
        // What lies outside the matrix is zero, and adds nothing.
        const __global ${slab.element.stored} *first = ${slab.name} + (inside ? ${slab.name.upper()}_AT(${slab.at("position", "from")}) : 0);
        ${async_copy.copy(f"{slab.name}_local + {stage} * {slab.name.upper()}_SLAB + row * {slab.name.upper()}_PITCH + within", "first", 16, f"inside * {slab.element.stored_bytes}")}
    }
    % endfor
</%def>

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({work_items}, 1, 1)))", arguments)}
{
% for slab in slabs:
    __local stored ${slab.name}_local[STAGES * ${slab.name.upper()}_SLAB] __attribute__((aligned(16)));
% endfor
    ${prelude.offsets("a", "b", "out")}

% if tiles.GROUP_M > 1:
    const extent tiles_m = (m + MWG - 1) / MWG;
% endif
    const extent tiles_n = (n + NWG - 1) / NWG;
    const extent tile = get_group_id(0);
    ${tile.place()}
    const int item = get_local_id(0);
    const int lane = item % ${lanes};
    const int a_first = item / ${lanes} % ${tiles.SUBGROUPS_M} * SUBGROUP_M;
    const int b_first = item / ${lanes * tiles.SUBGROUPS_M} * SUBGROUP_N;

    element accumulators[A_FRAGMENTS][B_FRAGMENTS][${unit.result_elements}];
    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        #pragma unroll
        for (int j = 0; j < B_FRAGMENTS; ++j) {
            #pragma unroll
            for (int r = 0; r < ${unit.result_elements}; ++r) {
                accumulators[i][j][r] = 0;
            }
        }
    }

    extent depth = 0;  // of the slab that is copied next
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (depth < k) {
            ${copy_slabs("stage")}
        }
        ${async_copy.end_group()}
        depth += KWG;
    }
    int stage = 0;
    int stage_to_fill = STAGES - 1;
    #pragma unroll 1
    for (extent multiplied = 0; multiplied < k; multiplied += KWG) {
        ${async_copy.wait(tiles.STAGES - 2)}
        barrier(CLK_LOCAL_MEM_FENCE);
        if (depth < k) {
            ${copy_slabs("stage_to_fill")}
        }
        ${async_copy.end_group()}
        depth += KWG;
        stage_to_fill = stage_to_fill == STAGES - 1 ? 0 : stage_to_fill + 1;
% for slab in slabs:
        const __local stored *${slab.name}_slab = ${slab.name}_local + stage * ${slab.name.upper()}_SLAB;
% endfor
        #pragma unroll
        for (int p = 0; p < KWG; p += ${unit.k}) {
            ${register} a_fragments[${parts}][A_FRAGMENTS * ${unit.a_registers}];
            ${register} b_fragments[${parts}][B_FRAGMENTS * ${unit.b_registers}];
            ${fragment.load(slabs[0])}
            ${fragment.load(slabs[1])}
            ${fragment.multiply()}
        }
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }

    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        #pragma unroll
        for (int half_fragment = 0; half_fragment < ${unit.row_groups}; ++half_fragment) {
            const extent row = a_tile + a_first + ${unit.m} * i + 8 * half_fragment + lane / 4;
            #pragma unroll
            for (int j = 0; j < B_FRAGMENTS; ++j) {
                const extent column = b_tile + b_first + ${unit.n} * j + 2 * (lane % 4);
                % if parts > 1:
                ${sum_again()}
                % endif
                ${store()}
            }
        }
    }
}

## An infinity times the second part of a number may be NaN, or of the wrong sign.
<%def name="sum_again()" filter="trim">
    // Where a sum is not finite, it is formed again from the elements themselves.
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (row < m && column + r < n && !isfinite(accumulators[i][j][2 * half_fragment + r])) {
            element sum = 0;
            #pragma unroll 1
            for (extent p = 0; p < k; ++p) {
                sum = fma(a[A_AT(row, p)], b[B_AT(p, column + r)], sum);
            }
            accumulators[i][j][2 * half_fragment + r] = sum;
        }
    }
</%def>

<%def name="store()" filter="trim">
<% whole = problem.out.order == "row" and problem.out.alignment >= 2 %>
% if whole:
    if (row < m && column + 2 <= n) {
        ${wide.vector(2)} results;
        % for part in range(2):
        {
            ${finish_one(part, f"column + {part}" if part else "column")}
            results${wide.lane(part, 2)} = value;
        }
        % endfor
        ${wide.store("results", "out + OUT_AT(row, column)", 2)}
        continue;
    }
% endif
% for part in range(1 if whole else 2):
    if (row < m && column${f" + {part}" if part else ""} < n) {
        ${finish_one(part, f"column + {part}" if part else "column")}
        ${wide.store("value", f"out + OUT_AT(row, column{f' + {part}' if part else ''})", 1)}
    }
% endfor
</%def>

## The result at `column`, in `value`.
<%def name="finish_one(part, column)" filter="trim">
<%
    bias_at = {"row": "row", "column": column}.get(problem.bias, "")
    bias = wide.load(f"bias + ({bias_at}) * bias_stride", 1)
    addend = wide.load(f"c + C_AT(row, {column})", 1)
%>
${prelude.finish(f"accumulators[i][j][2 * half_fragment + {part}]", addend, bias)}
</%def>
