## The sums of the work-items that divide k, joined in local memory until the first have all.
##
## A work-item has accumulators[`rows`][`columns`]; its place is `lane_n`, of LANES_N, and `lane_k`
## along k. Of the templates of few rows.

<%def name="join_all(steps, rows, columns)" filter="trim">
    % for step in steps:
    ${join(step, loop.first, loop.last, rows, columns)}

    % endfor
</%def>

## Some work-items along k give their sums to the others.
<%def name="join(step, first, last, rows, columns)" filter="trim">
<%
    shares = step.givers // step.takers
    holders = f" && lane_k < {step.givers + step.takers}" if not first else ""
    several = step.takers > 1
    taker = f"lane_k % {step.takers} * LANES_N + lane_n" if several else "lane_n"
    share_of_giver = f"lane_k / {step.takers} - 1" if several else "lane_k - 1"
    step_between = f"{step.takers} * LANES_N" if several else "LANES_N"
%>
    // Of the sums of ${step.givers + step.takers} work-items along k, ${f"those of {step.takers} are" if several else "that of one is"} left.
    {
        __local element *place = sums + ${taker};
        if (lane_k >= ${step.takers}${holders}) {
            #pragma unroll
            for (int r = 0; r < ${rows}; ++r) {
                #pragma unroll
                for (int j = 0; j < ${columns}; ++j) {
                    place[((${share_of_giver}) * ${rows} * ${columns} + r * ${columns} + j) * ${step_between}] = accumulators[r][j];
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane_k < ${step.takers}) {
            #pragma unroll
            for (int share = 0; share < ${shares}; ++share) {
                #pragma unroll
                for (int r = 0; r < ${rows}; ++r) {
                    #pragma unroll
                    for (int j = 0; j < ${columns}; ++j) {
                        accumulators[r][j] += place[(share * ${rows} * ${columns} + r * ${columns} + j) * ${step_between}];
                    }
                }
            }
        }
        % if not last:
        barrier(CLK_LOCAL_MEM_FENCE);
        % endif
    }
</%def>
