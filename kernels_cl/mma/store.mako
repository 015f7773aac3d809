## The results of a work-group of matrix units, from the registers to where they belong.
##
## Context: collected (a CollectedResults or None), joined (a JoinedResults or None), unit (a MatrixUnit),
## products (ElementProducts), whole (the operands as they were before they were split into parts, or
## None), and what all gemm templates see.
<%namespace name="prelude" file="/common/prelude.mako"/>
<%!
column_of = lambda part: f"column + {part}" if part else "column"


def group_place(step, first, unit):
    """Of a lane's elements of a group, the row or column in a fragment."""
    return (f"{step} * group + " if step and unit.result.groups > 1 else "") + first


def run_of(joined, unit):
    """Results side by side: those that a work-item has joined, or a lane's own."""
    return joined.width if joined else unit.result.width
%>

<%def name="results()" filter="trim">
% if joined:
    ${join_and_store()}
% elif collected:
    ${collect_and_store()}
% else:
    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        ${each_group(store_group)}
    }
% endif
</%def>

## For each row of fragment row i of which a lane has results.
<%def name="each_group(statements)" filter="trim">
% if unit.result.groups > 1:
        #pragma unroll
        for (int group = 0; group < ${unit.result.groups}; ++group) {
            ${statements()}
        }
% else:
        ${statements()}
% endif
</%def>

## In local memory the sums of slices meet.
<%def name="join_and_store()" filter="trim">
    // Each slice leaves its sums in local memory, in the place of the slabs that all have multiplied;
    // then each work-item adds up those of ${joined.width} results at a time, in the order of the slices.
    barrier(CLK_LOCAL_MEM_FENCE);
    __local ${wide.vector(1)} *joined = (__local ${wide.vector(1)} *)${joined.slab}_local;
    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        ${each_group(leave_group)}
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll 1
    for (int piece = item; piece < MWG * ROW_PIECES; piece += ITEMS) {
        const int tile_row = piece / ROW_PIECES;
        const int tile_column = piece % ROW_PIECES * ${joined.width};
        const extent row = a_tile + tile_row;
        const extent column = b_tile + tile_column;
        ${wide.vector(1)} sums[${joined.width}] = { ${"(element)(0)" if products.complex else "0"} };
        #pragma unroll
        for (int each = 0; each < SLICES; ++each) {
            const __local ${wide.vector(1)} *from = joined + each * JOINED_TILE + tile_row * JOINED_PITCH + tile_column;
            ${add_slice()}
        }
        % if whole:
        ${sum_again()}
        % endif
        ${store()}
    }
</%def>

## A lane's sums in one row of a fragment, in all fragments side by side.
<%def name="leave_group()" filter="trim">
<% width = min(unit.result.width, joined.vector) %>
            __local ${wide.vector(1)} *place = joined + slice * JOINED_TILE + (a_first + ${unit.m} * i + ${group_place(unit.result.row_step, unit.result.row, unit)}) * JOINED_PITCH + b_first + ${group_place(unit.result.column_step, unit.result.column, unit)};
            #pragma unroll
            for (int j = 0; j < B_FRAGMENTS; ++j) {
                % for first in range(0, unit.result.width, width):
                % if width > 1:
                *(__local ${wide.real}${width} *)(place + ${unit.n} * j${f" + {first}" if first else ""}) = (${wide.real}${width})(${", ".join(capture(lane_sum_at, first + part).strip() for part in range(width))});
                % else:
                place[${unit.n} * j${f" + {first}" if first else ""}] = ${lane_sum_at(first)};
                % endif
                % endfor
            }
</%def>

<%def name="add_slice()" filter="trim">
<% width = min(joined.width, joined.vector) %>
            % for first in range(0, joined.width, width):
            % if width > 1:
            {
                const ${wide.real}${width} part = *(const __local ${wide.real}${width} *)(from${f" + {first}" if first else ""});
                % for lane in range(width):
                sums[${first + lane}] += part.s${lane};
                % endfor
            }
            % else:
            sums[${first}] += from[${first}];
            % endif
            % endfor
</%def>

## In local memory the results of a row of fragments change lanes.
<%def name="collect_and_store()" filter="trim">
    // A lane's results are a few bytes of each row, which memory takes slowly: a sub-group collects
    // them in local memory, in the place of the slabs that all have multiplied.
    barrier(CLK_LOCAL_MEM_FENCE);
    __local ${wide.stored} *collected = (__local ${wide.stored} *)${collected.slab}_local + item / ${unit.lanes} * (${unit.m} * COLLECTED_PITCH);
    const extent first_column = b_tile + b_first;
    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        const extent first_row = a_tile + a_first + ${unit.m} * i;
        % if collected.c_in_pieces:
        ${each_piece("c", copy_piece_of_c)}
        ${sub_group_barrier()}
        % endif
        ${each_group(collect_group)}
        ${sub_group_barrier()}
        ${each_piece("out", store_piece)}
        ${sub_group_barrier()}
    }
</%def>

## The lanes of a sub-group wait for each other.
<%def name="sub_group_barrier()" filter="trim">
asm volatile("bar.warp.sync 0xffffffff;" : : : "memory");
</%def>

## A piece is 16 bytes of a row of `matrix`; where rows end within one, it goes by elements.
<%def name="each_piece(matrix, copy)" filter="trim">
<%
    width, bits = collected.width, collected.bits
    space = "const __global" if matrix == "c" else "__global"
%>
        #pragma unroll
        for (int piece = 0; piece < ${unit.m} * ROW_PIECES / ${unit.lanes}; ++piece) {
            const int piece_row = (piece * ${unit.lanes} + lane) / ROW_PIECES;
            const int within = (piece * ${unit.lanes} + lane) % ROW_PIECES * ${width};
            const extent row = first_row + piece_row;
            const extent column = first_column + within;
            __local ${bits} *here = (__local ${bits} *)collected + piece_row * COLLECTED_PITCH + within;
            ${space} ${bits} *there = (${space} ${bits} *)${matrix} + ${matrix.upper()}_AT(row, column);
            % if collected.edges == "pieces":
            if (row < m && column < n) {
                ${copy("*(__local uint4 *)here", f"*({space} uint4 *)there")}
            }
            % else:
            if (row < m && column + ${width} <= n) {
                ${copy("*(__local uint4 *)here", f"*({space} uint4 *)there")}
            } else if (row < m) {
                #pragma unroll 1
                for (int one = 0; one < n - column; ++one) {
                    ${copy("here[one]", "there[one]")}
                }
            }
            % endif
        }
</%def>

<%def name="copy_piece_of_c(here, there)" filter="trim">
${here} = ${there};
</%def>

<%def name="store_piece(here, there)" filter="trim">
${there} = ${here};
</%def>

## A lane's results in one row of fragments side by side, to where they are collected.
<%def name="collect_group()" filter="trim">
<%
    reads_c = problem.c and not collected.c_in_pieces
    width = unit.result.width
%>
            const int fragment_row = ${unit.result.row_step} * group + ${unit.result.row};
            % if reads_c or problem.bias == "row" or whole:
            const extent row = first_row + fragment_row;
            % endif
            #pragma unroll
            for (int j = 0; j < B_FRAGMENTS; ++j) {
                % if reads_c or problem.bias == "column" or whole:
                const extent column = first_column + ${unit.n} * j + ${unit.result.column};
                % endif
                __local ${wide.stored} *place = collected + fragment_row * COLLECTED_PITCH + ${unit.n} * j + ${unit.result.column};
                % if whole:
                ${sum_again()}
                % endif
                % if collected.c_in_pieces:
                const ${wide.vector(width)} addends = ${wide.load("place", width, space="__local")};
                % endif
                ${wide.vector(width)} results;
                % for part in range(width):
                {
                    ${finish_one(part, f"addends{wide.lane(part, width)}" if collected.c_in_pieces else None)}
                    results${wide.lane(part, width)} = value;
                }
                % endfor
                ${wide.store("results", "place", width, space="__local")}
            }
</%def>

## A lane's elements of one row of a fragment, in all fragments side by side.
<%def name="store_group()" filter="trim">
    const extent row = a_tile + a_first + ${unit.m} * i + ${group_place(unit.result.row_step, unit.result.row, unit)};
    #pragma unroll
    for (int j = 0; j < B_FRAGMENTS; ++j) {
        const extent column = b_tile + b_first + ${unit.n} * j + ${group_place(unit.result.column_step, unit.result.column, unit)};
        % if whole:
        ${sum_again()}
        % endif
        ${store()}
    }
</%def>

## Element `part` of a run of results: of those that a work-item has joined, or of a lane's own.
<%def name="sum_at(part)" filter="trim">
% if joined:
sums[${part}]
% else:
${lane_sum_at(part)}
% endif
</%def>

## Element `part` of a lane's elements side by side.
<%def name="lane_sum_at(part)" filter="trim">
% if unit.packed_sums:
unpacked(accumulators[i][j][group]).s${part}
% else:
<%
    width = unit.result.width
    first = (f"{width} * group" if width > 1 else "group") if unit.result.groups > 1 else ""
    index = " + ".join(one for one in (first, "" if first and part == 0 else str(part)) if one)
%>
% if products.complex:
(element)(accumulators[i][j][0][${index}], accumulators[i][j][1][${index}])
% else:
accumulators[i][j][${index}]
% endif
% endif
</%def>

## An infinity times the second part of a number may be NaN, or of the wrong sign.
<%def name="sum_again()" filter="trim">
    // Where a sum is not finite, it is formed again from the elements themselves.
    #pragma unroll
    for (int r = 0; r < ${run_of(joined, unit)}; ++r) {
        if (row < m && column + r < n && !isfinite(${sum_at("r")})) {
            element sum = 0;
            #pragma unroll 1
            for (extent p = 0; p < k; ++p) {
                sum = fma(whole_a[WHOLE_A_AT(row, p)], whole_b[WHOLE_B_AT(p, column + r)], sum);
            }
            ${sum_at("r")} = sum;
        }
    }
</%def>

<%def name="store()" filter="trim">
<%
    run = run_of(joined, unit)
    whole = min(run, problem.out.alignment) if problem.out.order == "row" else 1
%>
% for first in range(0, run, whole):
% if whole > 1:
    if (row < m && ${column_of(first)} + ${whole} <= n) {
        ${wide.vector(whole)} results;
        % for part in range(whole):
        {
            ${finish_one(first + part)}
            results${wide.lane(part, whole)} = value;
        }
        % endfor
        ${wide.store("results", f"out + OUT_AT(row, {column_of(first)})", whole)}
    } else {
        % for part in range(whole - 1):
        ${store_one(first + part)}
        % endfor
    }
% else:
    ${store_one(first)}
% endif
% endfor
</%def>

<%def name="store_one(part)" filter="trim">
    if (row < m && ${column_of(part)} < n) {
        ${finish_one(part)}
        ${wide.store("value", f"out + OUT_AT(row, {column_of(part)})", 1)}
    }
</%def>

## The result in column `part` of a lane's elements side by side, in `value`. Where results are
## collected, those outside of the matrix are too: what is read for them is left out. `addend` is
## that of the result, if it is there already.
<%def name="finish_one(part, addend=None)" filter="trim">
<%
    column = column_of(part)
    bias_at = {"row": "row", "column": column}.get(problem.bias, "")
    bias = wide.load(f"bias + ({bias_at}) * bias_stride", 1)
    read = wide.load(f"c + C_AT(row, {column})", 1)
    if collected:
        inside = {"row": "row < m", "column": f"{column} < n"}.get(problem.bias, "")
        bias = f"({inside} ? {bias} : 0)"
        read = f"(row < m && {column} < n ? {read} : 0)"
%>
${prelude.finish(capture(sum_at, part).strip(), addend or read, bias)}
</%def>
