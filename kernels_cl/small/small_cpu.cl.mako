## Batches of small products on CPUs. A work-item computes one product after the other, in tiles that
## stay in vector registers. Operands are read where they lie, since a small matrix stays in the nearest
## cache once it was read; B is copied first if its rows are not contiguous. Sizes are constants.
##
## Context: tiles (of rows: _SmallTile), blocks (of columns: lists of _SmallVector), widths (of all vectors),
## copied (the element type of a copy of B), vector_at, finish_arguments (see
## pyclgemm/families/small/codegen.py), zeroed, and what all gemm templates see.
<%namespace name="prelude" file="/common/prelude.mako"/>
<%
    copies_b = problem.b.order != "row" and problem.k > 0
    depth = "p" if problem.k > 1 else "0"  # the loop over k, unless it has a single turn
%>\
${prelude.types()}

${prelude.address("a", problem.a)}
${prelude.address("b", problem.b)}
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif
% for width in widths:

${finish_function(width)}
% endfor

${prelude.signature("__kernel __attribute__((reqd_work_group_size(1, 1, 1)))", arguments)}
{
    ${prelude.offsets("a", "b", "out")}

    // The part of the batch that this work-item computes.
    const long groups = get_num_groups(0);
    const long group = get_group_id(0);
    const long last = batch * (group + 1) / groups;
    long product = 0;
    for (long next = batch * group / groups; next < last; ++next) {
        ${prelude.move_on("next", "product")}
        product = next;
        % if copies_b:

        // The rows of B.
        element b_rows[${problem.k}][${problem.n}];
        for (int column = 0; column < ${problem.n}; ++column) {
            for (int p = 0; p < ${problem.k}; ++p) {
                b_rows[p][column] = ${element.entry("b", "B_AT(p, column)")};
            }
        }
        % endif
        % for block in blocks:
        % for tile in tiles:

<% last_column = block[-1].column + block[-1].width - 1 %>\
        // Rows ${tile.first} to ${tile.end - 1}, columns ${block[0].column} to ${last_column}.
        % if tile.tiles > 1:
        for (int row = ${tile.first}; row < ${tile.end}; row += ${tile.height}) {
        % else:
        {
        % endif
            ${multiply(block, tile)}
            % for r, row in enumerate(tile.rows):
            % for vector in block:
<% pairs = finish_arguments(row, str(vector.column)) %>\
            finish${vector.width}(sum${r}_${vector.number}, ${", ".join(argument for _, argument in pairs)});
            % endfor
            % endfor
        }
        % endfor
        % endfor
    }
}

<%def name="multiply(block, tile)" filter="trim">
% for vector in block:
% for sums in zeroed(f"sum{r}_{vector.number}" for r in range(tile.height)):
${element.vector(vector.width)} ${sums};
% endfor
% endfor
% if problem.k > 1:
for (int p = 0; p < ${problem.k}; ++p) {
    ${add_products(block, tile)}
}
% elif problem.k:
${add_products(block, tile)}
% endif
</%def>

<%def name="add_products(block, tile)" filter="trim">
% for vector in block:
const ${element.vector(vector.width)} b${vector.number} = ${b_vector(vector)};
% endfor
% for r, row in enumerate(tile.rows):
const element a${r} = ${element.entry("a", f"A_AT({row}, {depth})")};
% for vector in block:
<% sums = f"sum{r}_{vector.number}" %>\
${sums} = ${multiply_add_of(f"({element.vector(vector.width)})(a{r})", f"b{vector.number}", sums)};
% endfor
% endfor
</%def>

<%def name="b_vector(vector)" filter="trim">
% if copies_b:
${vector_at(copied, f"b_rows[{depth}]", str(vector.column), vector.width)}
% else:
${vector_at(element, "b", f"B_AT({depth}, {vector.column})", vector.width)}
% endif
</%def>

## The function that takes a vector of sums to the result.
<%def name="finish_function(width)" filter="trim">
<%
    vector = wide.vector(width)
    lanes = [(wide.lane(i, width), i) for i in range(width)]
%>
% if problem.activation:
// ${problem.activation}
static inline ${vector} activate${width}(const ${vector} x)
{
    return ${activation_of(vector)};
}

% endif
% if width > 1:
// Takes the sums of ${width} neighbouring columns to the result.
% else:
// Takes the sums of a column to the result.
% endif
static inline void finish${width}(
    const ${element.vector(width)} sum,
% for parameter, _ in finish_arguments("0", "0"):
    ${parameter}${"," if not loop.last else ")"}
% endfor
{
    % if wide.real != element.real:
    ${vector} value = alpha * convert_${vector}(sum);
    % else:
    ${vector} value = alpha * sum;
    % endif
% if problem.c and problem.c.order == "row":
    value += beta * ${vector_at(wide, "c", "0", width)};
% elif problem.c:
    % for lane, i in lanes:
    value${lane} += beta * ${wide.entry("c", times(i, "c_step"))};
    % endfor
% endif
% if problem.bias == "row":
    value += ${wide.entry("bias", "0")};
% elif problem.bias:
    % for lane, i in lanes:
    value${lane} += ${wide.entry("bias", times(i, "bias_step"))};
    % endfor
% endif
% if problem.activation:
    value = activate${width}(value);
% endif
% if problem.out.order == "row":
    % if width == 1:
    ${wide.assign("value", "out", "0")}
    % elif wide.converts:
    ${wide.store("value", "out", width, aligned=False)}
    % else:
    vstore${width}(value, 0, out);
    % endif
% else:
    % for lane, i in lanes:
    ${wide.assign(f"value{lane}", "out", times(i, "out_step"))}
    % endfor
% endif
}
</%def>
