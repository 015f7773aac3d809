## Reads global memory, cyclically through a buffer, as `pyclgemm.analysis.ceilings.Walk` describes.
##
## `past_first_level` uses NVIDIA's cache operator .cg, "cache at global level", which bypasses the first-level
## cache (PTX ISA, "Cache Operators").
<%def name="read(name, position)" filter="trim">
% if past_first_level:
float ${", ".join(name + lane[1:] for lane in lanes)};
asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
    : ${", ".join(f'"=f"({name}{lane[1:]})' for lane in lanes)}
    : "l"(source + (${position})));
const vector ${name} = (vector)(${", ".join(name + lane[1:] for lane in lanes)});
% else:
const vector ${name} = source[${position}];
% endif
</%def>
typedef ${vector} vector;

__kernel __attribute__((reqd_work_group_size(${items}, 1, 1)))
void ceiling_global(
    const int rounds,
    const __global vector *restrict source,
    const long item_step,
    const long first_step,
    const long group_step,
    const long mask,
    __global float *out)
{
    const long item = get_global_id(0);
    const long step = first_step + (long)get_group_id(0) * group_step;
    long position = item * item_step;
    % for load in range(loads):
    vector sum${load} = (vector)(0);
    % endfor
    for (int round = 0; round < rounds; ++round) {
        % for load in range(loads):
        ${read(f"v{load}", f"(position + {load} * step) & mask")}
        % endfor
        % for load in range(loads):
        sum${load} += v${load};
        % endfor
        position += ${loads} * step;
    }
    const vector total = ${" + ".join(f"sum{load}" for load in range(loads))};
    out[item] = ${" + ".join(f"total{lane}" for lane in lanes)};
}
