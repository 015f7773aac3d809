## Multiply-adds in registers: the peak of the device's arithmetic. Several independent chains hide the latency
## of one, as in S. Williams et al., "Roofline" (Communications of the ACM 52(4), 2009).
% if real in ("half", "double"):
#pragma OPENCL EXTENSION cl_khr_${"fp16" if real == "half" else "fp64"} : enable

% endif
typedef ${vector} vector;

__kernel __attribute__((reqd_work_group_size(${items}, 1, 1)))
void ceiling_arithmetic(const int rounds, const float factor, const float addend, __global float *out)
{
    const int item = get_global_id(0);
    const vector x = (vector)((${real})factor);
    const vector y = (vector)((${real})addend);
    % for chain in range(chains):
    vector chain${chain} = (vector)((${real})(0.25f * (item % 7) + 0.5f * ${chain + 1}));
    % endfor
    for (int round = 0; round < rounds; ++round) {
        % for step in range(steps):
        % for chain in range(chains):
        chain${chain} = ${f"fma(chain{chain}, x, y)" if fused else f"chain{chain} * x + y"};
        % endfor
        % endfor
    }
    const vector total = ${" + ".join(f"chain{chain}" for chain in range(chains))};
    out[item] = (float)(${" + ".join(f"total{lane}" for lane in lanes)});
}
