## Joins, in local memory, the sums of the work-items that divide k. Afterwards those with lane_k = 0
## hold the totals. A work-item has accumulators[`rows`][`columns`] and the numbers `lane_n` (of LANES_N)
## along the columns and `lane_k` along k. `type` is that of the accumulators.

<%def name="join_all(steps, rows, columns, type='element')" filter="trim">
    % for step in steps:
    ${join(step, loop.first, loop.last, rows, columns, type)}

    % endfor
</%def>

## For each of the `count` work-items that pass their sums to one taker.
<%def name="each_giver(count)" filter="trim">
% if count > 1:
    #pragma unroll
    for (int giver = 0; giver < ${count}; ++giver) {
        ${capture(caller.body) | trim}
    }
% else:
    ${capture(caller.body) | trim}
% endif
</%def>

## Some work-items along k pass their sums to the others.
<%def name="join(step, first, last, rows, columns, type)" filter="trim">
<%
    holders = step.givers + step.takers
    fan_in = step.givers // step.takers
    add = "add" if step.takers > 1 else "adds"
    row = f"(giver * {rows} + r)" if fan_in > 1 else "r"
    # From one sum of a work-item to its next in local memory; where a taker's sums start.
    distance = f"({step.takers} * LANES_N)" if step.takers > 1 else "LANES_N"
    taker = plus(times(modulo("lane_k", step.takers), "LANES_N"), "lane_n")
%>
    // ${holders} work-items along k hold sums; ${step.takers} of them ${add} those of the others.
    % if first:
    if (lane_k >= ${step.takers}) {
    % else:
    if (lane_k >= ${step.takers} && lane_k < ${holders}) {
    % endif
        __local ${type} *given =
            sums + (${divided("lane_k", step.takers)} - 1) * ${rows} * ${columns} * ${distance} + ${taker};
        #pragma unroll
        for (int r = 0; r < ${rows}; ++r) {
            #pragma unroll
            for (int j = 0; j < ${columns}; ++j) {
                given[(r * ${columns} + j) * ${distance}] = accumulators[r][j];
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane_k < ${step.takers}) {
        const __local ${type} *given = sums + ${taker};
        <%call expr="each_giver(fan_in)">
            #pragma unroll
            for (int r = 0; r < ${rows}; ++r) {
                #pragma unroll
                for (int j = 0; j < ${columns}; ++j) {
                    accumulators[r][j] += given[(${row} * ${columns} + j) * ${distance}];
                }
            }
        </%call>
    }
    % if not last:
    barrier(CLK_LOCAL_MEM_FENCE);
    % endif
</%def>
