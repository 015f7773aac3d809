## Batches of small products on CPUs. A work-item computes one product after the other, in tiles that stay
## in vector registers; the operands are read where they lie, since a small matrix is in the nearest cache
## once it has been touched. A B whose rows are not contiguous is copied first. Sizes are constants.
##
## Context: small (a SmallCpuConfig), blocks (for each block of columns the first column and the width of
## its vectors), widths (all that occur), tiles (of rows: the first row, rows of each, and how many), and
## what all gemm templates see.
<%namespace name="prelude" file="/common/prelude.mako"/>
<%
    in_place = problem.b.order == "row"
    stored_rows = problem.out.order == "row"
    convert = lambda x, w: f"convert_{wide.vector(w)}({x})" if wide.real != element.real else x
%>
${prelude.types()}

${prelude.address("a", problem.a)}
${prelude.address("b", problem.b)}
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif
% for width in widths if problem.activation else ():

// ${problem.activation}
static inline ${wide.vector(width)} activate${width}(const ${wide.vector(width)} x)
{
    return ${activation_of(wide.vector(width))};
}
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
% if not in_place and problem.k:
        element b_rows[${problem.k} * ${problem.n}];
        for (int column = 0; column < ${problem.n}; ++column) {
            for (int p = 0; p < ${problem.k}; ++p) {
                b_rows[p * ${problem.n} + column] = ${element.load("b + B_AT(p, column)", 1)};
            }
        }
% endif
% for block in blocks:
% for first, rows, count in tiles:
% if count > 1:
        for (int row = ${first}; row < ${first + rows * count}; row += ${rows}) {
% else:
        {
            const int row = ${first};
% endif
            ${multiply(block, rows)}
            ${finish(block, rows)}
        }
% endfor
% endfor
    }
}

<%def name="multiply(block, rows)" filter="trim">
% for r in range(rows):
% for j, (column, width) in enumerate(block):
${element.vector(width)} sum${r}_${j} = (${element.vector(width)})(0);
% endfor
% endfor
% if problem.k:
for (int p = 0; p < ${problem.k}; ++p) {
% for j, (column, width) in enumerate(block):
% if in_place:
    const ${element.vector(width)} b${j} = ${element.load(f"b + B_AT(p, {column})", width, aligned=False)};
% elif width > 1:
    const ${element.vector(width)} b${j} = vload${width}(0, b_rows + p * ${problem.n} + ${column});
% else:
    const ${element.vector(width)} b${j} = b_rows[p * ${problem.n} + ${column}];
% endif
% endfor
% for r in range(rows):
    {
        const element x = ${element.load(f"a + A_AT(row + {r}, p)", 1)};
        % for j, (column, width) in enumerate(block):
        sum${r}_${j} = ${multiply_add_of(f"({element.vector(width)})(x)", f"b{j}", f"sum{r}_{j}")};
        % endfor
    }
% endfor
}
% endif
</%def>

## From the sums to the result, vector by vector.
<%def name="finish(block, rows)" filter="trim">
<% c_rows = problem.c and problem.c.order == "row" %>
% for r in range(rows):
% for j, (column, width) in enumerate(block):
{
    ${wide.vector(width)} value = alpha * ${convert(f"sum{r}_{j}", width)};
    % if problem.c and c_rows:
    value += beta * ${wide.load(f"c + C_AT(row + {r}, {column})", width, aligned=False)};
    % elif problem.c:
    % for lane in range(width):
    value${wide.lane(lane, width)} += beta * ${wide.load(f"c + C_AT(row + {r}, {column + lane})", 1)};
    % endfor
    % endif
    % if problem.bias == "row":
    value += ${wide.load(f"bias + (row + {r}) * bias_stride", 1)};
    % elif problem.bias:
    % for lane in range(width):
    value${wide.lane(lane, width)} += ${wide.load(f"bias + {column + lane} * bias_stride", 1)};
    % endfor
    % endif
    % if problem.activation:
    value = activate${width}(value);
    % endif
    % if stored_rows:
    ${wide.store("value", f"out + OUT_AT(row + {r}, {column})", width, aligned=False)}
    % else:
    % for lane in range(width):
    ${wide.store(f"value{wide.lane(lane, width)}", f"out + OUT_AT(row + {r}, {column + lane})", 1)}
    % endfor
    % endif
}
% endfor
% endfor
</%def>
