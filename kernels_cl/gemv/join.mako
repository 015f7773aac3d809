## The sums of the work-items that divide k, joined in local memory until the first have all.
## A work-item has accumulators[`rows`][`columns`]; its numbers are `lane_n`, of LANES_N, and `lane_k`
## along k.

<%def name="join_all(steps, rows, columns)" filter="trim">
    % for step in steps:
    ${join(step, loop.first, loop.last, rows, columns)}

    % endfor
</%def>

## For each of the work-items whose sums one takes.
<%def name="each_giver(step)" filter="trim">
% if step.fan_in > 1:
    #pragma unroll
    for (int giver = 0; giver < ${step.fan_in}; ++giver) {
        ${capture(caller.body) | trim}
    }
% else:
    ${capture(caller.body) | trim}
% endif
</%def>

## Some work-items along k give their sums to the others.
<%def name="join(step, first, last, rows, columns)" filter="trim">
<%
    holders = step.givers + step.takers
    add = "add" if step.takers > 1 else "adds"
    row = f"(giver * {rows} + r)" if step.fan_in > 1 else "r"
%>
    // ${holders} work-items along k have sums: ${step.takers} of them ${add} those of the others.
    % if first:
    if (lane_k >= ${step.takers}) {
    % else:
    if (lane_k >= ${step.takers} && lane_k < ${holders}) {
    % endif
        __local element *given =
            sums + ${step.giver} * ${rows} * ${columns} * ${step.distance} + ${step.taker};
        #pragma unroll
        for (int r = 0; r < ${rows}; ++r) {
            #pragma unroll
            for (int j = 0; j < ${columns}; ++j) {
                given[(r * ${columns} + j) * ${step.distance}] = accumulators[r][j];
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane_k < ${step.takers}) {
        const __local element *given = sums + ${step.taker};
        <%call expr="each_giver(step)">
            #pragma unroll
            for (int r = 0; r < ${rows}; ++r) {
                #pragma unroll
                for (int j = 0; j < ${columns}; ++j) {
                    accumulators[r][j] += given[(${row} * ${columns} + j) * ${step.distance}];
                }
            }
        </%call>
    }
    % if not last:
    barrier(CLK_LOCAL_MEM_FENCE);
    % endif
</%def>
