## The sums of a tile of the CPU family, in the vectors `sum<row>_<vector>`.
##
## Context: kernel, element, cpu, problem, zeroed. The generated text uses the tile's
## position (`tile_row`, `first_column`), its block (`row_begin`, `first_depth`, `depth`) and the packed
## operands (`a_block`, `panel`).
<%def name="multiply()" filter="trim">
<%
    def loaded(j):
        """Vector j of a row of B."""
        if not kernel.in_place:
            return f"b_row[{j}]"
        return f"{kernel.operands[1].loader}({plus('b_row', times(j, 'VW'))}{', b_half' if kernel.pairs else ''})"
%>\
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
    whole ? b + B_AT(first_depth, first_column) : (const __global ${element.stored} *)panel;
const long b_step = whole ? b_row_stride : NR;
% else:
const __global vector *b_row = (const __global vector *)panel;
% endif
for (int p = 0; p < depth; ++p) {
    % if kernel.pairs and kernel.in_place:
    // A zero in A follows an odd k: the other factor may be any.
    const long b_half = 2 * (first_depth + p) + 1 < k ? b_step : 0;
    % endif
    % for j in range(cpu.vectors):
    const vector b${j} = ${loaded(j)};
    % endfor
    % for r, names in enumerate(kernel.sum_names):
    % for i, part in enumerate(kernel.sums):
    const vector ${part}a${r} = a_tile[${plus(times(element.parts * r, "1" if kernel.a_by_column else "A_STEP"), i)}];
    % for j, name in enumerate(names):
    ${part}${name} = ${kernel.add_product(f"{part}a{r}", f"b{j}", f"{part}{name}")};
    % endfor
    % endfor
    % endfor
    a_tile += ${times(element.parts, "MR" if kernel.a_by_column else 1)};
    b_row += ${times(1 + kernel.pairs, "b_step") if kernel.in_place else "VECTORS"};
}
% if problem.complex:
% for names in kernel.sum_names:
% for name in names:
const vector ${name} = re${name} + times_i(im${name});
% endfor
% endfor
% endif
</%def>
