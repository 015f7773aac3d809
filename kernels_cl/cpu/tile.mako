## The sums of a tile of the CPU family, in the vectors `sum<row>_<vector>`.
##
## Context: kernel, element, cpu, problem, zeroed. The generated text uses the tile's
## position (`tile_row`, `first_column`), its block (`row_begin`, `first_depth`, `depth`) and the packed
## operands (`a_block`, `panel`).
<%def name="multiply()" filter="trim">
% if kernel.prefetches_b:
const int tile = (tile_row - row_begin) / MR;
for (int p = tile * fetched; p < min(next_rows, (tile + 1) * fetched); ++p) {
    % for j in range(cpu.vectors):
    __builtin_prefetch(b + B_AT(next_depth + p, ${plus("next_column", times(j, "VW"))}), 0, 2);
    % endfor
}
% endif
// ${cpu.MR} x ${cpu.vectors} vectors${" twice" if problem.complex else ""} in registers.
% for names in kernel.sum_names:
% for part in kernel.sums:
% for sums in zeroed(part + name for name in names):
vector ${sums};
% endfor
% endfor
% endfor
const __global ${element.real} *a_tile = (const __global ${element.real} *)(a_block + (tile_row - row_begin) * A_STEP);
% if kernel.in_place:
const __global ${element.stored} *b_row =
    in_place ? b + B_AT(first_depth, first_column) : (const __global ${element.stored} *)panel;
const long b_step = in_place ? b_row_stride : NR;
% else:
const __global vector *b_row = (const __global vector *)panel;
% endif
% if len(kernel.widths) == 1:
${add_products(cpu.vectors)}
% else:
// The columns that remain at the right end may need fewer vectors.
% for count, fewer in zip(kernel.widths, [*kernel.widths[1:], 0]):
${"} else " if count < cpu.vectors else ""}${f"if (tile_columns > {times(fewer, 'VW')}) " if fewer else ""}{
    ${add_products(count)}
% endfor
}
% endif
% if problem.complex:
% for names in kernel.sum_names:
% for name in names:
const vector ${name} = re${name} + times_i(im${name});
% endfor
% endfor
% endif
</%def>

## Adds the products of all depths of the block, for the first `count` vectors of each row.
<%def name="add_products(count)" filter="trim">
<%
    a_step = times(element.parts, "MR" if kernel.a_by_column else 1)
    b_step = times(1 + kernel.pairs, "b_step") if kernel.in_place else "VECTORS"
%>\
% if kernel.streams > 1:
% if count == cpu.vectors:
// Few rows wait for memory, and a core fetches several streams faster than one: rows of B from ${kernel.streams} places
// of the panel in turn.
% endif
const int run = depth / ${kernel.streams};
for (int p = 0; p < run; ++p) {
    #pragma unroll
    for (int stream = 0; stream < ${kernel.streams}; ++stream) {
        const __global ${element.real} *a_at = ${plus("a_tile", times("stream * run", a_step))};
        const __global vector *b_at = ${plus("b_row", times("stream * run", b_step))};
        ${add_row(count, "a_at", "b_at")}
    }
    a_tile += ${a_step};
    b_row += ${b_step};
}
a_tile += ${times(kernel.streams - 1, "run", a_step)};
b_row += ${times(kernel.streams - 1, "run", b_step)};
for (int p = ${kernel.streams} * run; p < depth; ++p) {
% else:
for (int p = 0; p < depth; ++p) {
% endif
    % if kernel.pairs and kernel.in_place:
    // A zero in A follows an odd k: the other factor may be any.
    const long b_half = 2 * (first_depth + p) + 1 < k ? b_step : 0;
    % endif
    ${add_row(count, "a_tile", "b_row")}
    a_tile += ${a_step};
    b_row += ${b_step};
}
</%def>

## Adds the products of one depth, at the given pointers.
<%def name="add_row(count, a, b)" filter="trim">
<%
    def loaded(j):
        """Vector j of a row of B."""
        if not kernel.in_place:
            return f"{b}[{j}]"
        return f"{kernel.operands[1].loader}({plus(b, times(j, 'VW'))}{', b_half' if kernel.pairs else ''})"
%>\
    % for j in range(count):
    const vector b${j} = ${loaded(j)};
    % endfor
    % for r, names in enumerate(kernel.sum_names):
    % for i, part in enumerate(kernel.sums):
    const vector ${part}a${r} = ${a}[${plus(times(element.parts * r, "1" if kernel.a_by_column else "A_STEP"), i)}];
    % for j, name in enumerate(names[:count]):
    ${part}${name} = ${kernel.add_product(f"{part}a{r}", f"b{j}", f"{part}{name}")};
    % endfor
    % endfor
    % endfor
</%def>
