## The sums of the work-items that divide k, joined in local memory until the first have all.
##
## A work-item has accumulators[`rows`][`columns`]; its numbers are `lane_n`, of LANES_N, and `lane_k`
## along k. Of the templates of few rows.

<%def name="join_all(steps, rows, columns)" filter="trim">
    % for step in steps:
    ${join(step, loop.first, loop.last, rows, columns)}

    % endfor
</%def>

## For each of the work-items whose sums one takes.
<%def name="each_share(step)" filter="trim">
% if step.shares > 1:
    #pragma unroll
    for (int share = 0; share < ${step.shares}; ++share) {
        ${capture(caller.body) | trim}
    }
% else:
    ${capture(caller.body) | trim}
% endif
</%def>

## Some work-items along k give their sums to the others.
<%def name="join(step, first, last, rows, columns)" filter="trim">
    % if step.takers > 1:
    // Of the sums of ${step.givers + step.takers} work-items along k, those of ${step.takers} are left.
    % else:
    // Of the sums of ${step.givers + step.takers} work-items along k, that of one is left.
    % endif
    if (lane_k >= ${step.takers}${f" && lane_k < {step.givers + step.takers}" if not first else ""}) {
        __local element *given = sums + (${step.given(rows, columns)});
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
        const __local element *given = sums + (${step.taker});
        <%call expr="each_share(step)">
            #pragma unroll
            for (int r = 0; r < ${rows}; ++r) {
                #pragma unroll
                for (int j = 0; j < ${columns}; ++j) {
                    accumulators[r][j] += given[${step.taken(rows, columns)} * ${step.distance}];
                }
            }
        </%call>
    }
    % if not last:
    barrier(CLK_LOCAL_MEM_FENCE);
    % endif
</%def>
