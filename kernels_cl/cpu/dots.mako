## The sums of a tile of the CPU family where B is read in place and its vectors lie along k: each
## element of the tile is a dot product, summed in a vector of its own. Few rows take it, for which
## transposing B would cost more than multiplying.
##
## Context: kernel, element, cpu, problem, multiply_add_of. The text sees the tile's position
## (`tile_row`, `first_column`), its block (`row_begin`, `first_depth`, `depth`) and `a_block`; it
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
% if problem.complex:

// A sum of complex products from those by each of the factors' parts.
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
<% dots = kernel.dots %>
// ${cpu.MR} x ${dots.columns} dot products at once${kernel.twice}, each a vector whose lanes add every VW-th product.
element dots[MR * NR];
const __global element *a_tile = a_block + (tile_row - row_begin) * KC;
% if dots.loops:
for (int j = 0; j < NR; j += ${dots.columns}) {
    ${columns_at_once(dots)}
}
% else:
${columns_at_once(dots)}
% endif
% for name, vector in zip(sum(kernel.sum_names, []), kernel.dot_vectors):
const vector ${name} = ${vector};
% endfor
</%def>

<%def name="columns_at_once(dots)" filter="trim">
% for j, column in enumerate(dots.b_columns):
const __global ${element.stored} *b${j} = b + B_AT(first_depth, min(${column}, n - 1));
% endfor
% for part in kernel.sums:
% for sums in zeroed(part + name for name, _ in dots.results):
vector ${sums};
% endfor
% endfor
int p = 0;
for (; p + VW <= depth; p += VW) {
    % for r, pointer in enumerate(dots.a_vectors):
    const vector a${r} = *(const __global vector *)(${pointer});
    % endfor
    % for j in range(dots.columns):
    const vector x${j} = load_vector(b${j} + p);
    % for part, selector in zip(kernel.sums, ("", kernel.swapped)):
    % for r in range(cpu.MR):
    ${part}dot${r}_${j} = ${multiply_add_of(f"a{r}", f"x{j}{selector}", f"{part}dot{r}_{j}")};
    % endfor
    % endfor
    % endfor
}
% for name, result in dots.results:
% if problem.complex:
${result} = join(total(re${name}), total(im${name}));
% else:
${result} = total(${name});
% endif
% endfor
% if cpu.VW > 1:
for (; p < depth; ++p) {
    % for j in range(dots.columns):
    const element y${j} = ${element.entry(f"b{j}", "p")};
    % endfor
    <%cpu_loop:repeat variable="r" condition="r < MR" turns="${cpu.MR}">
    const element x = a_tile[${"r * KC + p" if cpu.MR > 1 else "p"}];
    % for j, result in enumerate(dots.tails):
    % if problem.complex:
    ${result} += product_of(x, y${j});
    % else:
    ${result} += x * y${j};
    % endif
    % endfor
    </%cpu_loop:repeat>
}
% endif
</%def>
