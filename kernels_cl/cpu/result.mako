## The way from the sums of a tile of the CPU family to the result.
##
## Context: kernel, element, wide, cpu, problem, activation_of. The text sees the tile's position
## (`tile_row`, `first_column`), its bounds (`row_end`, `column_end`), `first` and `last` (whether
## the block of k is the first and the last one), and the sums `sum<row>_<vector>`.
<%namespace name="cpu_loop" file="/cpu/loop.mako"/>

<%def name="types()" filter="trim">
% if kernel.result_vector != "vector":
typedef ${wide.vector(cpu.VW)} wide_vector;  // VW elements of C and of the result
% endif
% if cpu.VW > 1 and (kernel.result_vector != "vector" or element.converts):
typedef ${kernel.result_vector} __attribute__((aligned(${wide.real_bytes}))) unaligned_${kernel.result_vector};
% endif
</%def>

<%def name="functions()" filter="trim">
<% vector = kernel.result_vector %>
% if kernel.loads_result:
${load_function("result", wide, kernel.load_has_step)}

% endif
${store_function("result", wide, kernel.store_has_step)}

% if wide.converts:
${load_function("partial", kernel.partial, False)}

${store_function("partial", kernel.partial, False)}

% endif
% if problem.complex:
// Multiplication of each element by the imaginary unit.
static inline ${vector} times_i(const ${vector} x)
{
    return x${kernel.swapped} * (${vector})(${", ".join(["-1", "1"] * cpu.VW)});
}

static inline ${vector} scale(const wide factor, const ${vector} x)
{
    return factor.x * x + factor.y * times_i(x);
}
% else:
static inline ${vector} scale(const wide factor, const ${vector} x)
{
    return factor * x;
}
% endif
% if problem.activation:

// ${problem.activation}
static inline ${vector} activate(const ${vector} x)
{
    return ${activation_of(wide.vector(cpu.VW))};
}
% endif

${finish_function()}
</%def>

<%def name="load_function(kind, memory, has_step)" filter="trim">
<%
    vector = kernel.result_vector
    step = "const long step, " if has_step else ""
    contiguous = "step == 1 && count >= VW" if has_step else "count >= VW"
    index = "i * step" if has_step else "i"
    lanes = "lanes" if wide.parts == 1 else f"({wide.real} *)lanes"
%>
% if cpu.VW == 1:
static inline ${vector} load_${kind}(const __global ${memory.stored} *p)
{
    return ${memory.entry("p", "0")};
}
% else:
// The first `count` of VW elements${", `step` elements apart" if has_step else ""}; the others are zero.
static inline ${vector} load_${kind}(const __global ${memory.stored} *p, ${step}const int count)
{
    if (${contiguous}) {
        % if memory.converts:
        return ${memory.load("p", cpu.VW, aligned=False)};
        % else:
        return *(const __global unaligned_${vector} *)p;
        % endif
    }
    wide lanes[VW];
    for (int i = 0; i < VW; ++i) {
        lanes[i] = i < count ? ${memory.entry("p", index)} : (wide)(0);
    }
    return vload${cpu.VW * wide.parts}(0, ${lanes});
}
% endif
</%def>

<%def name="store_function(kind, memory, has_step)" filter="trim">
<%
    vector = kernel.result_vector
    step = "const long step, " if has_step else ""
    contiguous = "step == 1 && count >= VW" if has_step else "count >= VW"
    index = "i * step" if has_step else "i"
    lanes = "lanes" if wide.parts == 1 else f"({wide.real} *)lanes"
%>
% if cpu.VW == 1:
static inline void store_${kind}(const ${vector} x, __global ${memory.stored} *p)
{
    ${memory.assign("x", "p", "0")}
}
% else:
// Stores the first `count` of VW elements${", `step` elements apart" if has_step else ""}.
static inline void store_${kind}(const ${vector} x, __global ${memory.stored} *p, ${step}const int count)
{
    if (${contiguous}) {
        % if memory.converts:
        ${memory.store("x", "p", cpu.VW, aligned=False)}
        % else:
        *(__global unaligned_${vector} *)p = x;  // one instruction, which vstore is not everywhere
        % endif
        return;
    }
    wide lanes[VW];
    vstore${cpu.VW * wide.parts}(x, 0, ${lanes});
    for (int i = 0; i < VW && i < count; ++i) {
        ${memory.assign("lanes[i]", "p", index)}
    }
}
% endif
</%def>

## One vector of a tile, from the sums of a block of k.
<%def name="finish_function()" filter="trim">
% if cpu.VW > 1:
// Takes the sums of a block of k to VW columns of the result, of which `count` exist.
% else:
// Takes the sum of a block of k to the result.
% endif
static inline void finish(
% for parameter in kernel.finish_parameters:
    ${parameter}${"," if not loop.last else ")"}
% endfor
{
% if wide.real != element.real:
    ${kernel.result_vector} value = scale(alpha, convert_${wide.vector(cpu.VW)}(sum));
% else:
    ${kernel.result_vector} value = scale(alpha, sum);
% endif
% if problem.c:
    if (first) {
        value += scale(beta, ${kernel.load_c});
    } else {
        value += ${kernel.load_partial};
    }
% else:
    if (!first) {
        value += ${kernel.load_partial};
    }
% endif
% if wide.converts:
    if (!last) {
        ${kernel.store_partial}
        return;
    }
% endif
% if kernel.has_epilogue and wide.converts:
    ${epilogue()}
% elif kernel.has_epilogue:
    if (last) {
        ${epilogue()}
    }
% endif
    ${kernel.store}
}
</%def>

<%def name="epilogue()" filter="trim">
% if problem.bias == "column":
value += bias;
% elif problem.bias == "row":
value += (${wide.load("bias", 1)})${kernel.broadcast};
% endif
% if problem.activation:
value = activate(value);
% endif
</%def>

<%def name="load_bias()" filter="trim">
${kernel.result_vector} biases[VECTORS];
% if kernel.vectors > 1:
for (int j = 0; j < VECTORS; ++j) {
    const extent column = first_column + j * VW;
    biases[j] = ${kernel.load_bias("column")};
}
% else:
biases[0] = ${kernel.load_bias("first_column")};
% endif
</%def>

## Pointers to the tile's first element.
<%def name="pointers()" filter="trim">
% if wide.converts:
__global ${wide.real} *partial_tile = partial + PARTIAL_AT(tile_row, first_column);
% endif
__global ${wide.stored} *out_tile = out + OUT_AT(tile_row, first_column);
% if problem.c:
const __global ${wide.stored} *c_tile = c + C_AT(tile_row, first_column);
% endif
</%def>

<%def name="prefetch()" filter="trim">
// Prefetch the result while its sums are formed.
<%cpu_loop:repeat variable="r" condition="r < MR" turns="${cpu.MR}">
% for vector in kernel.prefetched:
__builtin_prefetch(${vector}, 1, 3);
% endfor
</%cpu_loop:repeat>
</%def>

<%def name="finish()" filter="trim">
const int tile_rows = min(row_end - tile_row, (extent)MR);
const int tile_columns = min(column_end - first_column, (extent)NR);
% if problem.activation:
// A whole tile stays in registers; an activation of each vector would make that too much text.
if (tile_rows == MR && tile_columns == NR && !last) {
% else:
// A whole tile stays in registers.
if (tile_rows == MR && tile_columns == NR) {
% endif
    % for call in kernel.whole_tile:
    ${call}
    % endfor
} else {
    % if cpu.MR * kernel.vectors > 1:
    const vector sums[MR][VECTORS] = {
        % for names in kernel.sum_names:
        {${", ".join(names)}},
        % endfor
    };
    % endif
    <%cpu_loop:repeat variable="r" condition="r < tile_rows" turns="${cpu.MR}">
    <%cpu_loop:repeat variable="j" condition="j * VW < tile_columns" turns="${kernel.vectors}">
    ${kernel.edge}
    </%cpu_loop:repeat>
    </%cpu_loop:repeat>
}
</%def>
