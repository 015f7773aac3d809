## Reads local memory by neighbouring vectors, without bank conflicts.
typedef float4 vector;

__kernel __attribute__((reqd_work_group_size(${items}, 1, 1)))
void ceiling_local(const int rounds, const int step, __global float *out)
{
    __local vector data[${items * loads}];
    const int item = get_local_id(0);
    % for load in range(loads):
    data[item + ${load * items}] = (vector)(item + ${load});
    vector sum${load} = (vector)(0);
    % endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    int position = item;
    for (int round = 0; round < rounds; ++round) {
        % for repeat in range(repeats):
        % for load in range(loads):
        sum${load} += data[position + ${load * items}];
        % endfor
        position = (position + step) & ${items - 1};
        % endfor
    }
    const vector total = ${" + ".join(f"sum{load}" for load in range(loads))};
    out[get_global_id(0)] = total.x + total.y + total.z + total.w;
}
