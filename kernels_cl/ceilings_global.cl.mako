## Reads of global memory. Work-item i starts at i * start_step and goes on by `step`, in
## vectors, round the buffer: side by side on a GPU, each in a part of its own on a CPU.
typedef ${vector} vector;

__kernel __attribute__((reqd_work_group_size(${items}, 1, 1)))
void ceiling_global(
    const int rounds,
    const __global vector *restrict source,
    const long start_step,
    const long step,
    const long mask,
    __global float *out)
{
    const long item = get_global_id(0);
    long position = item * start_step;
    % for load in range(loads):
    vector sum${load} = (vector)(0);
    % endfor
    for (int round = 0; round < rounds; ++round) {
        % for load in range(loads):
        const vector v${load} = source[(position + ${load} * step) & mask];
        % endfor
        % for load in range(loads):
        sum${load} += v${load};
        % endfor
        position += ${loads} * step;
    }
    const vector total = ${" + ".join(f"sum{load}" for load in range(loads))};
    out[item] = ${" + ".join(f"total{lane}" for lane in lanes)};
}
