## Batches of small products on CPUs. A work-item computes one product after the other, in tiles that
## stay in vector registers; the operands are read where they lie, since a small matrix is in the
## nearest cache once it has been touched. A B whose rows are not contiguous is copied first. Sizes
## are constants.
##
## Context: kernel (SmallCpuKernel), and what all gemm templates see.
<%namespace name="prelude" file="/common/prelude.mako"/>
${prelude.types()}

${prelude.address("a", problem.a)}
${prelude.address("b", problem.b)}
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif
% for width in kernel.widths:

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
        % if kernel.copies_b:

        // The rows of B.
        element b_rows[${problem.k}][${problem.n}];
        for (int column = 0; column < ${problem.n}; ++column) {
            for (int p = 0; p < ${problem.k}; ++p) {
                b_rows[p][column] = ${element.entry("b", "B_AT(p, column)")};
            }
        }
        % endif
        % for block in kernel.blocks:
        % for tile in kernel.tiles:

        // Rows ${tile.first} to ${tile.end - 1}, columns ${block[0].column} to ${block[-1].end - 1}.
        % if tile.tiles > 1:
        for (int row = ${tile.first}; row < ${tile.end}; row += ${tile.height}) {
        % else:
        {
        % endif
            ${multiply(block, tile)}
            % for r, row in enumerate(tile.rows):
            % for vector in block:
            ${kernel.finish(vector, r, row)}
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
const ${element.vector(vector.width)} b${vector.number} = ${kernel.b_vector(vector)};
% endfor
% for r, row in enumerate(tile.rows):
const element a${r} = ${kernel.a_element(row)};
% for vector in block:
<% sums = f"sum{r}_{vector.number}" %>\
${sums} = ${multiply_add_of(f"({element.vector(vector.width)})(a{r})", f"b{vector.number}", sums)};
% endfor
% endfor
</%def>

## One vector of sums to the result.
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
% for parameter in kernel.finish_parameters(width):
    ${parameter}${"," if not loop.last else ")"}
% endfor
{
    % if wide.real != element.real:
    ${vector} value = alpha * convert_${vector}(sum);
    % else:
    ${vector} value = alpha * sum;
    % endif
% if problem.c and problem.c.order == "row":
    value += beta * ${kernel.contiguous("c", width)};
% elif problem.c:
    % for lane, i in lanes:
    value${lane} += beta * ${kernel.strided("c", i)};
    % endfor
% endif
% if problem.bias == "row":
    value += ${kernel.strided("bias", 0)};
% elif problem.bias:
    % for lane, i in lanes:
    value${lane} += ${kernel.strided("bias", i)};
    % endfor
% endif
% if problem.activation:
    value = activate${width}(value);
% endif
% if problem.out.order == "row":
    ${kernel.store(width)}
% else:
    % for lane, i in lanes:
    ${kernel.store_lane(f"value{lane}", i)}
    % endfor
% endif
}
</%def>
