## The way from the sums of a tile of the CPU family to the result.
##
## Context: kernel (its `result`, a _CpuResult), element, wide, cpu, problem, activation_of. The text
## sees the tile's position (`tile_row`, `first_column`), its bounds (`row_end`, `column_end`),
## `first` and `last` (whether the block of k is the first and the last one), and the sums
## `sum<row>_<vector>`.
<%namespace name="cpu_loop" file="/cpu/loop.mako"/>

<%def name="types()" filter="trim">
<% vector = kernel.result.vector %>
% if vector != "vector":
typedef ${wide.vector(cpu.VW)} ${vector};  // VW elements of C and of the result
% endif
% if cpu.VW > 1 and (vector != "vector" or element.converts):
typedef ${vector} __attribute__((aligned(${wide.real_bytes}))) unaligned_${vector};
% endif
</%def>

<%def name="functions()" filter="trim">
<%
    result = kernel.result
    vector = result.vector
%>
% if result.is_loaded:
${load_function("result", wide, result.load_has_step)}

% endif
${store_function("result", wide, result.store_has_step)}

% if wide.converts:
${load_function("partial", result.partial, False)}

${store_function("partial", result.partial, False)}

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
% for function in result.functions:

${finish_function(function)}
% endfor
</%def>

<%def name="load_function(kind, memory, has_step)" filter="trim">
<%
    vector = kernel.result.vector
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
    vector = kernel.result.vector
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

<%def name="finish_function(function)" filter="trim">
<%
    result, vectors = kernel.result, function.vectors
    vector = result.vector
%>
% if function.count > 1:
// Takes the sums of a block of k${", not of the last," if function.is_never_last else ""} to a row of a whole tile.
% elif cpu.VW > 1:
// Takes the sums of a block of k to VW columns of the result, of which `count` exist.
% else:
// Takes the sum of a block of k to the result.
% endif
static inline void ${function.signature}
{
% for v in vectors:
    ${vector} ${v.value} = ${result.scaled(v.sum)};
% endfor
% if problem.c:
    if (first) {
        % for v in vectors:
        ${v.value} += scale(beta, ${v.c});
        % endfor
    } else {
% else:
    if (!first) {
% endif
        % for v in vectors:
        ${v.value} += ${v.partial};
        % endfor
    }
% if wide.converts and function.asks_last:
    if (!last) {
        ${store_partial(vectors)}
        return;
    }
    % if kernel.result.has_epilogue:
    ${epilogue(vectors)}
    % endif
% elif function.asks_last:
    if (last) {
        ${epilogue(vectors)}
    }
% endif
% if wide.converts and function.is_never_last:
    ${store_partial(vectors)}
% else:
    % for v in vectors:
    ${v.store}
    % endfor
% endif
}
</%def>

<%def name="store_partial(vectors)" filter="trim">
% for v in vectors:
${v.store_partial}
% endfor
</%def>

<%def name="epilogue(vectors)" filter="trim">
% for v in vectors:
% if problem.bias == "column":
${v.value} += ${v.bias};
% elif problem.bias == "row":
${v.value} += (${wide.load("bias", 1)})${kernel.result.broadcast};
% endif
% if problem.activation:
${v.value} = activate(${v.value});
% endif
% endfor
</%def>

<%def name="load_bias()" filter="trim">
<% result = kernel.result %>
${result.vector} biases[VECTORS];
% if cpu.vectors > 1:
for (int j = 0; j < VECTORS; ++j) {
    const extent column = first_column + j * VW;
    biases[j] = ${result.load_bias("column")};
}
% else:
biases[0] = ${result.load_bias("first_column")};
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
% for vector in kernel.result.prefetched:
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
    % for call in kernel.result.whole_rows:
    ${call}
    % endfor
} else {
    % if cpu.MR * cpu.vectors > 1:
    const vector sums[MR][VECTORS] = {
        % for names in kernel.sum_names:
        {${", ".join(names)}},
        % endfor
    };
    % endif
    <%cpu_loop:repeat variable="r" condition="r < tile_rows" turns="${cpu.MR}">
    <%cpu_loop:repeat variable="j" condition="j * VW < tile_columns" turns="${cpu.vectors}">
    ${kernel.result.edge}
    </%cpu_loop:repeat>
    </%cpu_loop:repeat>
}
</%def>
