## From the sums of a tile of the CPU family to the result.
##
## Context: kernel (its `result` is a _CpuResult), in_tile (pointer to a vector of a tile), element, wide,
## cpu, problem, activation_of. The generated text uses the tile's position (`tile_row`, `first_column`), its
## bounds (`row_end`, `column_end`), `first` and `last` (whether the block of k is the first or the last one),
## and the sums `sum<row>_<vector>`.
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
    result, vector = kernel.result, kernel.result.vector
    count = "VW" if function.count > 1 else "count"
    suffixes = list(enumerate(function.suffixes))

    def step_of(name, layout):
        return f"{name}_step" if function.has_step(layout) else "1"

    def at(name, j, layout=None):
        """Pointer to vector j."""
        return plus(name, times(j, "VW", step_of(name, layout)))

    def load(name, j, layout):
        return result.load(at(name, j, layout), step_of(name, layout), count)

    def load_partial(j):
        """The sums of earlier blocks of k."""
        if wide.converts:
            return result.access("load_partial", [at("partial", j)], "", count)
        return load("out", j, problem.out)

    step = "out_step" if result.store_has_step else ""
    stores = [
        result.access("store_result", [f"value{suffix}", at("out", j, problem.out)], step, count)
        for j, suffix in suffixes
    ]
    partial_stores = [
        result.access("store_partial", [f"value{suffix}", at("partial", j)], "", count) for j, suffix in suffixes
    ]
%>
% if function.count > 1:
// Adds the sums of a block of k${", not of the last one," if function.is_never_last else ""} to a row of a whole tile.
% elif cpu.VW > 1:
// Adds the sums of a block of k to VW columns of the result, of which `count` exist.
% else:
// Adds the sum of a block of k to the result.
% endif
static inline void ${function.signature}
{
% for suffix in function.suffixes:
    % if wide.real != element.real:
    ${vector} value${suffix} = scale(alpha, convert_${wide.vector(cpu.VW)}(sum${suffix}));
    % else:
    ${vector} value${suffix} = scale(alpha, sum${suffix});
    % endif
% endfor
% if problem.c:
    if (first) {
        % for j, suffix in suffixes:
        value${suffix} += scale(beta, ${load("c", j, problem.c)});
        % endfor
    } else {
% else:
    if (!first) {
% endif
        % for j, suffix in suffixes:
        value${suffix} += ${load_partial(j)};
        % endfor
    }
% if wide.converts and function.asks_last:
    if (!last) {
        % for statement in partial_stores:
        ${statement};
        % endfor
        return;
    }
    % if problem.bias or problem.activation:
    ${epilogue(suffixes)}
    % endif
% elif function.asks_last:
    if (last) {
        ${epilogue(suffixes)}
    }
% endif
% for statement in partial_stores if wide.converts and function.is_never_last else stores:
    ${statement};
% endfor
}
</%def>

<%def name="epilogue(suffixes)" filter="trim">
<% broadcast = f".s{'01' * cpu.VW}" if problem.complex and cpu.VW > 1 else "" %>\
% for j, suffix in suffixes:
% if problem.bias == "column":
value${suffix} += bias[${j}];
% elif problem.bias == "row":
value${suffix} += (${wide.load("bias", 1)})${broadcast};
% endif
% if problem.activation:
value${suffix} = activate(value${suffix});
% endif
% endfor
</%def>

<%def name="load_bias()" filter="trim">
<%
    def load(column):
        loaded = kernel.result.load(f"bias + {column} * bias_stride", "bias_stride", f"column_end - {column}")
        return loaded if cpu.VW > 1 else f"{column} < column_end ? {loaded} : (wide)(0)"
%>
${kernel.result.vector} biases[VECTORS];
% if cpu.vectors > 1:
for (int j = 0; j < VECTORS; ++j) {
    const extent column = first_column + j * VW;
    biases[j] = ${load("column")};
}
% else:
biases[0] = ${load("first_column")};
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
<% name, r = "partial" if wide.converts else "out", "r" if cpu.MR > 1 else "0" %>\
// Prefetch the result while its sums are formed.
<%cpu_loop:repeat variable="r" condition="r < MR" turns="${cpu.MR}">
% for j in range(cpu.vectors):
__builtin_prefetch(${in_tile(name, r, str(j))}, 1, 3);
% endfor
</%cpu_loop:repeat>
</%def>

<%def name="finish()" filter="trim">
<%
    edge, row = kernel.result.functions[0], kernel.result.functions[-1]
    r, j = "r" if cpu.MR > 1 else "0", "j" if cpu.vectors > 1 else "0"
    vector = f"sums[{r}][{j}]" if cpu.MR * cpu.vectors > 1 else "sum0_0"
    columns = "tile_columns - j * VW" if cpu.vectors > 1 else "tile_columns"
%>
const int tile_rows = min(row_end - tile_row, (extent)MR);
% if problem.activation:
// A whole tile stays in registers. An activation of each of its vectors would be too much code.
if (tile_rows == MR && tile_columns == NR && !last) {
% else:
// A whole tile stays in registers.
if (tile_rows == MR && tile_columns == NR) {
% endif
    % for number, names in enumerate(kernel.sum_names):
    ${row.call(names, str(number), "0", "VW")}
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
    ${edge.call([vector], r, j, columns)}
    </%cpu_loop:repeat>
    </%cpu_loop:repeat>
}
</%def>
