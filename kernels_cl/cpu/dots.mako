## The sums of a tile of the CPU family where B is read in place and its vectors lie along k. Each element
## of the tile is a dot product, summed in a vector of its own. This is for few rows, where transposing B
## would take longer than multiplying.
##
## Context: kernel, element, cpu, problem, zeroed. The generated text uses the tile's
## position (`tile_row`, `first_column`), its block (`row_begin`, `first_depth`, `depth`) and `a_block`, and
## leaves the sums in the vectors `sum<row>_<vector>`.
<%namespace name="cpu_loop" file="/cpu/loop.mako"/>
<%def name="functions()" filter="trim">
// The sum of the elements of a vector.
static inline element total(const vector x${cpu.VW})
{
    % for width in (1 << i for i in reversed(range(cpu.VW.bit_length() - 1))):
    const ${element.vector(width)} x${width} = x${2 * width}.lo + x${2 * width}.hi;
    % endfor
    return x1;
}
% if kernel.pairs:

// x.even * y.even + x.odd * y.odd, of shorts
static inline int product_of(const int x, const int y)
{
    const int2 products = convert_int2(as_short2(x)) * convert_int2(as_short2(y));
    return products.x + products.y;
}
% endif
% if problem.complex:

// The sum of complex products, from the sums of products by the real and by the imaginary parts of a.
static inline element join(const element re, const element im)
{
    return (element)(re.x - re.y, im.x + im.y);
}
% if cpu.VW > 1:

static inline element product_of(const element x, const element y)
{
    return (element)(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
}
% endif
% endif
</%def>

<%def name="multiply()" filter="trim">
<%
    columns = kernel.dot_columns
    twice = " twice" if problem.complex else ""
    lanes = cpu.VW * element.parts
    pointer = "dots" if element.parts == 1 else f"({element.real} *)dots"
%>
// ${cpu.MR} x ${columns} dot products at once${twice}, each a vector whose lanes add every VW-th product.
element dots[MR * NR]${" = {0}" if columns < cpu.NR else ""};
const __global element *a_tile = a_block + (tile_row - row_begin) * A_STEP;
% if columns < cpu.NR:
for (int j = 0; j < tile_columns; j += ${columns}) {
    ${columns_at_once([plus("j", j) for j in range(columns)])}
}
% else:
${columns_at_once([str(j) for j in range(columns)])}
% endif
% for i, name in enumerate(sum(kernel.sum_names, [])):
const vector ${name} = ${f"dots[{i}]" if lanes == 1 else f"vload{lanes}({i}, {pointer})"};
% endfor
</%def>

## Adds the products of VW elements of k, from number p on; with `masked`, without those before.
<%def name="one_vector(columns, masked=False)" filter="trim">
<%
    vector = "unaligned_vector" if masked else "vector"
    wanted = "select({}, (vector)(0), before)" if masked else "{}"
%>\
    % for r in range(cpu.MR):
<% row = f"*(const __global {vector} *)({plus('a_tile', times(r, 'A_STEP'), 'p')})" %>\
    const vector a${r} = ${wanted.format(row)};
    % endfor
    % for j, _ in columns:
<% column = f"load_vector(b{j} + {times(1 + kernel.pairs, 'p')})" %>\
    const vector x${j} = ${wanted.format(column)};
    % for part, selector in zip(kernel.sums, ("", kernel.swapped)):
    % for r in range(cpu.MR):
    ${part}dot${r}_${j} = ${kernel.add_product(f"a{r}", f"x{j}{selector}", f"{part}dot{r}_{j}")};
    % endfor
    % endfor
    % endfor
</%def>

## The dot products with the columns of these numbers in the tile.
<%def name="columns_at_once(columns)" filter="trim">
<%
    rows, numbers = range(cpu.MR), list(enumerate(columns))
    sums = [f"dot{r}_{j}" for r in rows for j, _ in numbers]
    results = [f"dots[{plus(times(r, 'NR'), column)}]" for r in rows for column in columns]
    row = "r * NR" if cpu.MR > 1 else "0"
    pair = "pair_at(b{j} + 2 * p, 1, 2 * (first_depth + p) + 1 < k)"
%>\
% for j, column in numbers:
const __global ${element.stored} *b${j} = b + B_AT(first_depth, min(${plus("first_column", column)}, n - 1));
% endfor
% for part in kernel.sums:
% for declarators in zeroed(part + name for name in sums):
vector ${declarators};
% endfor
% endfor
int p = 0;
for (; p + VW <= ${kernel.operands[1].filled}; p += VW) {
    ${one_vector(numbers)}
}
% if kernel.masks_dots:
if (p < depth && depth >= VW) {
    // The last VW elements; those that were multiplied before count as zeros, whatever they are.
    const ${kernel.lane_mask} before = (${kernel.lane_mask})(${kernel.lane_numbers}) < p + VW - depth;
    p = depth - VW;
    ${one_vector(numbers, masked=True)}
    p = depth;
}
% endif
% for name, result in zip(sums, results):
% if problem.complex:
${result} = join(total(re${name}), total(im${name}));
% else:
${result} = total(${name});
% endif
% endfor
% if cpu.VW > 1 or kernel.pairs:
for (; p < depth; ++p) {
    % for j, _ in numbers:
    const element y${j} = ${pair.format(j=j) if kernel.pairs else element.entry(f"b{j}", "p")};
    % endfor
    <%cpu_loop:repeat variable="r" condition="r < MR" turns="${cpu.MR}">
    const element x = a_tile[${"r * A_STEP + p" if cpu.MR > 1 else "p"}];
    % for j, column in numbers:
    % if problem.complex or kernel.pairs:
    dots[${plus(row, column)}] += product_of(x, y${j});
    % else:
    dots[${plus(row, column)}] += x * y${j};
    % endif
    % endfor
    </%cpu_loop:repeat>
}
% endif
</%def>
