## Multiply-accumulates of a matrix unit with fragments in registers: the peak of the unit. Several independent
## sums hide the latency of one, as in ceilings/arithmetic.cl.mako.
##
## Context: that of common/matrix_fragment.mako, and real (the C type of sums), pattern (the bits of a register
## that vary, and those that are set), items, chains, steps.
<%namespace name="fragment" file="/common/matrix_fragment.mako"/>
<% address = "&" if unit.spelling == "builtin" else "" %>
% if real == "double":
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

% endif
typedef ${real} element;
% if unit.spelling == "builtin":
typedef ${real}${unit.result_elements} sums;  // a lane's elements of a fragment of the result
% endif

${fragment.functions()}

// Different bits for each register: with like numbers a unit needs less power, and may run faster.
static inline ${unit.register} number(const uint index)
{
    const uint bits = (index + 1) * 2654435761u;
% if unit.register == "double":
    return 0.5 + (bits >> 8) * 0x1p-25;
% else:
    return (bits & ${f"{pattern[0]:#x}"})${f" | {pattern[1]:#x}" if pattern[1] else ""};
% endif
}

__kernel __attribute__((reqd_work_group_size(${items}, 1, 1)))
void ceiling_matrix(const int rounds, __global float *out)
{
    const int item = get_global_id(0);
    ${unit.register} a[${unit.a_registers}];
    ${unit.register} b[${unit.b_registers}];
    for (int i = 0; i < ${unit.a_registers}; ++i) {
        a[i] = number(item * ${unit.a_registers + unit.b_registers} + i);
    }
    for (int i = 0; i < ${unit.b_registers}; ++i) {
        b[i] = number(item * ${unit.a_registers + unit.b_registers} + ${unit.a_registers} + i);
    }
    // All are different, as equal ones would be computed only once.
    % for chain in range(chains):
    % if unit.spelling == "builtin":
    sums chain${chain} = (sums)((${real})${chain});
    % else:
    element chain${chain}[${unit.result_elements}] = {${chain}};
    % endif
    % endfor
    for (int round = 0; round < rounds; ++round) {
        % for step in range(steps):
        % for chain in range(chains):
        multiply_accumulate(${address}chain${chain}, a, b);
        % endfor
        % endfor
    }
    float total = 0;
    for (int i = 0; i < ${unit.result_elements}; ++i) {
        total += (float)(${" + ".join(f"chain{chain}[i]" for chain in range(chains))});
    }
    out[item] = total;
}
