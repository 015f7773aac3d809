## A tile of the CPU family: its sums in registers, and their way to the result.
##
## Context: element, wide, cpu, problem, multiply_add_of. The text sees the tile's place
## (`tile_row`, `first_column`), its block (`row_begin`, `row_end`, `column_end`,
## `first_depth`, `depth`) and what was packed (`a_block`, `panel`).

<%def name="prefetch_result(partial_at)" filter="trim">
// The tile of the result comes near while its sums are formed.
for (int r = 0; r < MR; ++r) {
    const extent row = tile_row + r;
    for (int j = 0; j < VECTORS; ++j) {
        const extent column = first_column + j * VW;
        __builtin_prefetch(${partial_at}, 1, 3);
    }
}
</%def>

<%def name="multiply(a_by_column, sums, unpacked, prefetches_b)" filter="trim">
<%
    vectors = cpu.NR // cpu.VW
    places = [(r, j) for r in range(cpu.MR) for j in range(vectors)]

    def load_b(j):
        if unpacked and element.converts:
            return element.load(f"b_row + {j} * VW", cpu.VW, aligned=False)
        return f"((const __global {'b_vector' if unpacked else 'vector'} *)b_row)[{j}]"
%>
% if prefetches_b:
const int tile = (tile_row - row_begin) / MR;
for (int p = tile * fetched; p < min(depth, (tile + 1) * fetched); ++p) {
    for (int j = 0; j < VECTORS; ++j) {
        __builtin_prefetch(b + B_AT(first_depth + p, first_column + NR + j * VW), 0, 2);
    }
}
% endif
// ${cpu.MR} x ${vectors} vectors${" twice" if problem.complex else ""} in registers.
% for r in range(cpu.MR):
vector ${", ".join(f"{s}sum{r}_{j} = 0" for s in sums for j in range(vectors))};
% endfor
const __global element *a_tile = a_block + (tile_row - row_begin) * KC;
% if unpacked:
const __global ${element.stored} *b_row =
    whole ? b + B_AT(first_depth, first_column) : (const __global ${element.stored} *)panel;
const long b_step = whole ? b_row_stride : NR;
% else:
const __global element *b_row = panel;
const int b_step = NR;
% endif
for (int p = 0; p < depth; ++p) {
    const vector ${", ".join(f"b{j} = {load_b(j)}" for j in range(vectors))};
    % for r in range(cpu.MR):
    {
        const __global ${element.real} *x = (const __global ${element.real} *)(a_tile + ${r if a_by_column else f"{r} * KC"});
        % for s in sums:
        const vector ${s or "a"} = (vector)(x[${"1" if s == "im" else "0"}]);
        % for j in range(vectors):
        ${s}sum${r}_${j} = ${multiply_add_of(s or "a", f"b{j}", f"{s}sum{r}_{j}")};
        % endfor
        % endfor
    }
    % endfor
    a_tile += ${"MR" if a_by_column else "1"};
    b_row += b_step;
}
% if problem.complex:
% for r, j in places:
const vector sum${r}_${j} = resum${r}_${j} + times_i(imsum${r}_${j});
% endfor
% endif
</%def>

<%def name="finish(partial, partial_at, partial_step, out_step, c_step)" filter="trim">
<%
    vectors = cpu.NR // cpu.VW
    places = [(r, j) for r in range(cpu.MR) for j in range(vectors)]
    place = "const extent row = tile_row + {}, column = first_column + {} * VW;".format
%>
% for r, j in places:
% if wide.real != element.real:
wide_vector value${r}_${j} = scale(alpha, convert_${wide.vector(cpu.VW)}(sum${r}_${j}));
% else:
wide_vector value${r}_${j} = scale(alpha, sum${r}_${j});
% endif
% endfor
const bool last = first_depth + KC >= k;
// A whole tile stays in registers${"; an activation would make that too much text" if problem.activation else ""}.
if (row_end - tile_row >= MR && column_end - first_column >= NR${" && !last" if problem.activation else ""}) {
    if (first_depth > 0) {
        % for r, j in places:
        {
            ${place(r, j)}
            value${r}_${j} += load_${partial}(${partial_at}, ${partial_step}, VW);
        }
        % endfor
    }
    % if problem.c:
    if (first_depth == 0) {
        % for r, j in places:
        {
            ${place(r, j)}
            value${r}_${j} += scale(beta, load_stored(c + C_AT(row, column), ${c_step}, VW));
        }
        % endfor
    }
    % endif
    if (!last) {
        % for r, j in places:
        {
            ${place(r, j)}
            store_${partial}(value${r}_${j}, ${partial_at}, ${partial_step}, VW);
        }
        % endfor
        continue;
    }
    % if not problem.activation:
    % for r, j in places:
    {
        ${place(r, j)}
        % if problem.bias == "column":
        value${r}_${j} += biases[${j}];
        % elif problem.bias == "row":
        value${r}_${j} += load_stored(bias + row * bias_stride, 0, VW);
        % endif
        store_stored(value${r}_${j}, out + OUT_AT(row, column), ${out_step}, VW);
    }
    % endfor
    continue;
    % endif
}
const wide_vector values[MR * VECTORS] = {
    % for r in range(cpu.MR):
    ${", ".join(f"value{r}_{j}" for j in range(vectors))},
    % endfor
};
for (int i = 0; i < MR * VECTORS; ++i) {
    const extent row = tile_row + i / VECTORS;
    const extent column = first_column + i % VECTORS * VW;
    if (row >= row_end || column >= column_end) {
        continue;
    }
    const int count = min(column_end - column, (extent)VW);
    wide_vector value = values[i];
    if (first_depth > 0) {
        value += load_${partial}(${partial_at}, ${partial_step}, count);
    }
    % if problem.c:
    if (first_depth == 0) {
        value += scale(beta, load_stored(c + C_AT(row, column), ${c_step}, count));
    }
    % endif
    if (!last) {
        store_${partial}(value, ${partial_at}, ${partial_step}, count);
        continue;
    }
    % if problem.bias == "column":
    value += biases[i % VECTORS];
    % elif problem.bias == "row":
    value += load_stored(bias + row * bias_stride, 0, VW);
    % endif
    % if problem.activation:
    value = activate(value);
    % endif
    store_stored(value, out + OUT_AT(row, column), ${out_step}, count);
}
</%def>
