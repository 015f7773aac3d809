## Stores the results of a work-group of matrix units from its registers.
##
## Context: collected (a CollectedResults or None), joined (a JoinedResults or None), results (a ResultText),
## unit (a MatrixUnit), products (ElementProducts), whole (the layouts of the operands before splitting, or
## None), and what all gemm templates see.

<%def name="store_results()" filter="trim">
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

## For each row of fragment row i in which a lane has results.
<%def name="each_group(statements)" filter="trim">
% if unit.result_lanes.groups > 1:
        #pragma unroll
        for (int group = 0; group < ${unit.result_lanes.groups}; ++group) {
            ${statements()}
        }
% else:
        ${statements()}
% endif
</%def>

<%def name="join_and_store()" filter="trim">
    // Each slice writes its sums to local memory, over slabs that all have multiplied. Then each
    // work-item adds up the sums of ${joined.width} results at a time, in the order of the slices.
    barrier(CLK_LOCAL_MEM_FENCE);
    __local wide *joined = (__local wide *)${joined.slab}_local;
    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        ${each_group(write_group)}
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll 1
    for (int number = item; number < MWG * ROW_VECTORS; number += ITEMS) {
        const int tile_row = number / ROW_VECTORS;
        const int tile_column = number % ROW_VECTORS${f" * {joined.width}" if joined.width > 1 else ""};
        const extent row = a_tile + tile_row;
        const extent column = b_tile + tile_column;
        wide sums[${joined.width}] = { ${"(wide)(0)" if products.complex else "0"} };
        #pragma unroll
        for (int each = 0; each < SLICES; ++each) {
            const __local wide *from = joined + each * JOINED_TILE + tile_row * JOINED_PITCH + tile_column;
            ${add_slice()}
        }
        % if whole:
        ${sum_again()}
        % endif
        ${store()}
    }
</%def>

## Writes a lane's sums in one row of all fragments side by side.
<%def name="write_group()" filter="trim">
            const int tile_row = a_first + ${unit.m} * i + ${results.row};
            __local wide *to_row = joined + slice * JOINED_TILE + tile_row * JOINED_PITCH + b_first;
            #pragma unroll
            for (int j = 0; j < B_FRAGMENTS; ++j) {
<%
    at_once = min(unit.result_lanes.width, joined.vector)
    vector = f"{wide.real}{at_once}"
%>\
                % for first in range(0, unit.result_lanes.width, at_once):
                % if at_once > 1:
                *(__local ${vector} *)(to_row + ${plus(results.column, first)}) =
                    (${vector})(${", ".join(results.lane_sum(first + one) for one in range(at_once))});
                % else:
                to_row[${plus(results.column, first)}] = ${results.lane_sum(first)};
                % endif
                % endfor
            }
</%def>

<%def name="add_slice()" filter="trim">
<% vector = f"{wide.real}{joined.read}" %>\
            % for first in range(0, joined.width, joined.read):
            % if joined.read > 1:
            {
                const ${vector} read = *(const __local ${vector} *)(${plus("from", first)});
                % for lane in range(joined.read):
                sums[${first + lane}] += read.s${lane};
                % endfor
            }
            % else:
            sums[${first}] += from[${first}];
            % endif
            % endfor
</%def>

<%def name="collect_and_store()" filter="trim">
    // A lane's results are a few bytes of each row, and storing them so is slow: a sub-group collects
    // them in local memory, over slabs that all have multiplied.
    barrier(CLK_LOCAL_MEM_FENCE);
    __local ${wide.stored} *collected =
        (__local ${wide.stored} *)${collected.slab}_local + item / ${unit.lanes} * (${unit.m} * COLLECTED_PITCH);
    const extent first_column = b_tile + b_first;
    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        const extent first_row = a_tile + a_first + ${unit.m} * i;
        % if collected.c_in_vectors:
        ${each_vector("c", read_of_c)}
        ${sub_group_barrier()}
        % endif
        ${each_group(collect_group)}
        ${sub_group_barrier()}
        ${each_vector("out", write_of_out)}
        ${sub_group_barrier()}
    }
</%def>

## The lanes of a sub-group wait for each other.
<%def name="sub_group_barrier()" filter="trim">
asm volatile("bar.warp.sync 0xffffffff;" : : : "memory");
</%def>

## Copies vectors of rows of `matrix`, and single elements where a row ends within a vector. A sub-group copies
## neighbouring vectors, of one row if that is long enough.
<%def name="each_vector(matrix, copy)" filter="trim">
<%
    space = "const __global" if matrix == "c" else "__global"
    bits, vector = collected.bits, collected.vector
%>
        #pragma unroll${" 8" if collected.width * wide.stored_bytes < 16 else ""}
        for (int v = 0; v < ${unit.m} * ROW_VECTORS / ${unit.lanes}; ++v) {
            const int number = v * ${unit.lanes} + lane;
            const int fragment_row = number / ROW_VECTORS;
            const int fragment_column = number % ROW_VECTORS${f" * {collected.width}" if collected.width > 1 else ""};
            const extent row = first_row + fragment_row;
            const extent column = first_column + fragment_column;
            __local ${bits} *here = (__local ${bits} *)collected + fragment_row * COLLECTED_PITCH + fragment_column;
            ${space} ${bits} *there = (${space} ${bits} *)${matrix} + ${matrix.upper()}_AT(row, column);
            % if collected.edges == "vectors":
            if (row < m && column < n) {
                ${copy(f"*(__local {vector} *)here", f"*({space} {vector} *)there")}
            }
            % else:
            if (row < m && column + ${collected.width} <= n) {
                ${copy(f"*(__local {vector} *)here", f"*({space} {vector} *)there")}
            } else if (row < m) {
                #pragma unroll 1
                for (int one = 0; one < n - column; ++one) {
                    ${copy("here[one]", "there[one]")}
                }
            }
            % endif
        }
</%def>

<%def name="read_of_c(here, there)" filter="trim">
${here} = ${there};
</%def>

<%def name="write_of_out(here, there)" filter="trim">
${there} = ${here};
</%def>

## Collects a lane's results in one row of all fragments side by side.
<%def name="collect_group()" filter="trim">
<%
    width, reads_c = unit.result_lanes.width, problem.c and not collected.c_in_vectors
    addends = [f"addends{wide.lane(part, width)}" if collected.c_in_vectors else "" for part in range(width)]
%>\
            const int fragment_row = ${results.row};
            % if reads_c or problem.bias == "row" or whole:
            const extent row = first_row + fragment_row;
            % endif
            __local ${wide.stored} *to_row = collected + fragment_row * COLLECTED_PITCH;
            #pragma unroll
            for (int j = 0; j < B_FRAGMENTS; ++j) {
                const int fragment_column = ${results.column};
                % if reads_c or problem.bias == "column" or whole:
                const extent column = first_column + fragment_column;
                % endif
                % if whole:
                ${sum_again()}
                % endif
                % if collected.c_in_vectors:
                const ${wide.vector(width)} addends = ${wide.load("to_row + fragment_column", width, space="__local")};
                % endif
                ${wide.vector(width)} results;
                % for part in range(width):
                results${wide.lane(part, width)} = ${results.result(part, addends[part])};
                % endfor
                ${wide.store("results", "to_row + fragment_column", width, space="__local")}
            }
</%def>

## Stores a lane's results in one row of all fragments side by side.
<%def name="store_group()" filter="trim">
    const extent row = a_tile + a_first + ${unit.m} * i + ${results.row};
    #pragma unroll
    for (int j = 0; j < B_FRAGMENTS; ++j) {
        const extent column = b_tile + b_first + ${results.column};
        % if whole:
        ${sum_again()}
        % endif
        ${store()}
    }
</%def>

## An infinity times the second split term of a number may be NaN or have the wrong sign.
<%def name="sum_again()" filter="trim">
    // A sum that is not finite is computed again from the elements themselves.
    #pragma unroll
    for (int r = 0; r < ${results.run}; ++r) {
        if (row < m && column + r < n && !isfinite(${results.sum("r")})) {
            element sum = 0;
            #pragma unroll 1
            for (extent p = 0; p < k; ++p) {
                sum = fma(whole_a[WHOLE_A_AT(row, p)], whole_b[WHOLE_B_AT(p, column + r)], sum);
            }
            ${results.sum("r")} = sum;
        }
    }
</%def>

<%def name="store()" filter="trim">
% for first in range(0, results.run, results.stored):
% if results.stored > 1:
    if (row < m && ${plus("column", first)} + ${results.stored} <= n) {
        ${wide.vector(results.stored)} results;
        % for lane in range(results.stored):
        results${wide.lane(lane, results.stored)} = ${results.result(first + lane)};
        % endfor
        ${wide.store("results", f"out + OUT_AT(row, {plus('column', first)})", results.stored)}
    } else {
        % for lane in range(results.stored - 1):
        ${store_one(first + lane)}
        % endfor
    }
% else:
    ${store_one(first)}
% endif
% endfor
</%def>

<%def name="store_one(part)" filter="trim">
    if (row < m && ${plus("column", part)} < n) {
        ${wide.assign(results.result(part), "out", f"OUT_AT(row, {plus('column', part)})")}
    }
</%def>
