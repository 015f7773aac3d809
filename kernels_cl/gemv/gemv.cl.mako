## Few rows: B, by far the largest matrix, is read once, in place. A work-group multiplies MR rows of A by some
## columns of B; its work-items divide k, and add their sums in local memory at the end.
##
## Context: gemv (a GemvConfig), b_along_k (whether B's vectors lie along k; neighbouring work-items read
## neighbouring vectors), a_in_vectors and b_in_vectors (whether a work-item reads VW elements at once),
## a_sign and b_sign (the factor that conjugates a vector, by its width).
<%namespace name="join" file="/gemv/join.mako"/>
<%namespace name="prelude" file="/common/prelude.mako"/>
<%namespace name="streaming" file="/common/cache_hints.mako"/>
${prelude.types()}

#define MR ${gemv.MR}  // rows of a work-group
#define LANES_N ${gemv.LANES_N}  // work-items along the columns
#define LANES_K ${gemv.lanes_k}  // and along k
#define VW ${gemv.VW}  // columns of a work-item, and depths that it takes at a time

${prelude.address("a", problem.a)}
${prelude.address("b", problem.b)}
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif

${prelude.arithmetic()}
% if gemv.STREAMB and b_in_vectors:

${streaming.function(gemv.VW * element.stored_bytes)}
% endif

## The multiply-adds of `depths` depths.
<%def name="multiply(depths)" filter="trim">
    #pragma unroll
    for (int p = 0; p < ${depths}; ++p) {
        ${multiply_depth("[p]")}
    }
</%def>

<%def name="multiply_depth(p)" filter="trim">
        #pragma unroll
        for (int r = 0; r < MR; ++r) {
            #pragma unroll
            for (int j = 0; j < VW; ++j) {
                accumulators[r][j] = multiply_add(a_values[r]${p}, b_values${p}[j], accumulators[r][j]);
            }
        }
</%def>

## Loads the values at `depth` and the VW - 1 depths after it. Rows and columns beyond the matrix repeat the
## last one, and are not stored.
<%def name="load(a_in_vectors, b_in_vectors)" filter="trim">
    #pragma unroll
    for (int r = 0; r < MR; ++r) {
        const extent row = min(first_row + r, m - 1);
        % if a_in_vectors:
        const ${vector} v = ${element.load("a + A_AT(row, depth)", gemv.VW)}${a_sign(gemv.VW)};
        % for lane in range(gemv.VW):
        a_values[r][${lane}] = v${element.lane(lane, gemv.VW)};
        % endfor
        % else:
        #pragma unroll
        for (int p = 0; p < VW; ++p) {
            a_values[r][p] = ${element.entry("a", "A_AT(row, depth + p)")}${a_sign(1)};
        }
        % endif
    }
    % if b_in_vectors and b_along_k:
    #pragma unroll
    for (int j = 0; j < VW; ++j) {
        ${load_b_vector("b + B_AT(depth, min(column + j, n - 1))")}
        % for lane in range(gemv.VW):
        b_values[${lane}][j] = v${element.lane(lane, gemv.VW)};
        % endfor
    }
    % elif b_in_vectors:
    #pragma unroll
    for (int p = 0; p < VW; ++p) {
        ${load_b_vector("b + B_AT(depth + p, column)")}
        % for lane in range(gemv.VW):
        b_values[p][${lane}] = v${element.lane(lane, gemv.VW)};
        % endfor
    }
    % else:
    #pragma unroll
    for (int p = 0; p < VW; ++p) {
        #pragma unroll
        for (int j = 0; j < VW; ++j) {
            b_values[p][j] = ${element.entry("b", "B_AT(depth + p, min(column + j, n - 1))")}${b_sign(1)};
        }
    }
    % endif
</%def>

<%def name="load_b_vector(at)" filter="trim">
% if gemv.STREAMB:
        ${streaming.load(element, gemv.VW, at, b_sign(gemv.VW))}
% else:
        const ${vector} v = ${element.load(at, gemv.VW)}${b_sign(gemv.VW)};
% endif
</%def>

## Loads the values at `depth` alone.
<%def name="load_one_depth()" filter="trim">
    #pragma unroll
    for (int r = 0; r < MR; ++r) {
        a_values[r] = ${element.entry("a", "A_AT(min(first_row + r, m - 1), depth)")}${a_sign(1)};
    }
    #pragma unroll
    for (int j = 0; j < VW; ++j) {
        b_values[j] = ${element.entry("b", "B_AT(depth, min(column + j, n - 1))")}${b_sign(1)};
    }
</%def>

<%def name="walk(a_in_vectors, b_in_vectors)" filter="trim">
    extent depth = lane_k * VW;
    #pragma unroll ${gemv.KWI}
    for (; depth + VW <= k; depth += LANES_K * VW) {
        element a_values[MR][VW];
        element b_values[VW][VW];
        ${load(a_in_vectors, b_in_vectors)}
        ${multiply("VW")}
    }
    % if gemv.VW > 1:
    // The tail of k is shorter than a vector, and belongs to one work-item.
    for (; depth < k; ++depth) {
        element a_values[MR];
        element b_values[VW];
        ${load_one_depth()}
        ${multiply_depth("")}
    }
    % endif
</%def>

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({gemv.WGS}, 1, 1)))", arguments)}
{
    % if steps:
    __local element sums[${joined}];
    % endif
    ${prelude.offsets("a", "b", "out")}

    const int item = get_local_id(0);
    % if b_along_k:
    const int lane_k = item % LANES_K;
    const int lane_n = item / LANES_K;
    % else:
    const int lane_n = item % LANES_N;
    const int lane_k = item / LANES_N;
    % endif
    const extent strips = (n + LANES_N * VW - 1) / (LANES_N * VW);
    ${prelude.own_group("group", "strips * ((m + MR - 1) / MR)")}
    const extent first_row = group / strips * MR;
    const extent column = (group % strips * LANES_N + lane_n) * VW;

    element accumulators[MR][VW];
    #pragma unroll
    for (int r = 0; r < MR; ++r) {
        #pragma unroll
        for (int j = 0; j < VW; ++j) {
            accumulators[r][j] = (element)(0);
        }
    }
    % if b_in_vectors and not b_along_k:
    if (column + VW <= n) {
        ${walk(a_in_vectors, True)}
    } else if (column < n) {
        ${walk(False, False)}
    }
    % else:
    if (column < n) {
        ${walk(a_in_vectors, b_in_vectors)}
    }
    % endif

    ${join.join_all(steps, "MR", "VW")}

    if (lane_k == 0) {
        #pragma unroll
        for (int r = 0; r < MR; ++r) {
            #pragma unroll
            for (int j = 0; j < VW; ++j) {
                const extent row = first_row + r;
                if (row < m && column + j < n) {
                    ${wide.assign(result, "out", "OUT_AT(row, column + j)")}
                }
            }
        }
    }
}
