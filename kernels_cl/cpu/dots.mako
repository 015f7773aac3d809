## A tile of the CPU family where B is read in place and its vectors lie along k: each element of
## the tile is a dot product, summed in a vector of its own. Few rows take it, for which
## transposing B would cost more than multiplying.
##
## Context: element, cpu, problem, multiply_add_of. The text sees the tile's place (`tile_row`,
## `first_column`), its block (`row_begin`, `first_depth`, `depth`) and `a_block`; it leaves the
## sums in the vectors `sum<row>_<vector>`, as the tile in registers does.

<%def name="functions()" filter="trim">
// The sum of the elements of a vector.
static inline element total(const vector x${cpu.VW})
{
    % for width in (1 << i for i in reversed(range(cpu.VW.bit_length() - 1))):
    const ${element.vector(width)} x${width} = x${2 * width}.lo + x${2 * width}.hi;
    % endfor
    return x1;
}
</%def>

<%def name="multiply(columns, sums, swapped)" filter="trim">
<% places = [(r, j) for r in range(cpu.MR) for j in range(columns)] %>
// ${columns} columns at once: sums of ${cpu.MR} x ${columns} products${" twice" if problem.complex else ""}, each over VW depths.
element dots[MR * NR];
const __global element *a_tile = a_block + (tile_row - row_begin) * KC;
for (int j = 0; j < NR; j += ${columns}) {
    % for j in range(columns):
    const __global ${element.stored} *b${j} = b + B_AT(first_depth, min(first_column + j + ${j}, n - 1));
    % endfor
    % for s in sums:
    vector ${", ".join(f"{s}dot{r}_{j} = 0" for r, j in places)};
    % endfor
    int p = 0;
    for (; p + VW <= depth; p += VW) {
        % for r in range(cpu.MR):
        const vector a${r} = *(const __global vector *)(a_tile + ${r} * KC + p);
        % endfor
        % for j in range(columns):
        {
            const vector x = ${element.load(f"b{j} + p", cpu.VW, aligned=False)};
            % for s in sums:
            % for r in range(cpu.MR):
            ${s}dot${r}_${j} = ${multiply_add_of(f"a{r}", f"x.s{swapped}" if s == "im" else "x", f"{s}dot{r}_{j}")};
            % endfor
            % endfor
        }
        % endfor
    }
    % for r, j in places:
    % if problem.complex:
    {
        const element re = total(redot${r}_${j}), im = total(imdot${r}_${j});
        dots[${r} * NR + j + ${j}] = (element)(re.x - re.y, im.x + im.y);
    }
    % else:
    dots[${r} * NR + j + ${j}] = total(dot${r}_${j});
    % endif
    % endfor
    for (; p < depth; ++p) {
        % for j in range(columns):
        {
            const element y = ${element.load(f"b{j} + p", 1)};
            for (int r = 0; r < MR; ++r) {
                const element x = a_tile[r * KC + p];
                % if problem.complex:
                dots[r * NR + j + ${j}] += (element)(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
                % else:
                dots[r * NR + j + ${j}] += x * y;
                % endif
            }
        }
        % endfor
    }
}
<% lanes = cpu.VW * element.parts %>
% for r in range(cpu.MR):
% for j in range(cpu.NR // cpu.VW):
const vector sum${r}_${j} = ${f"dots[{r * cpu.NR + j}]" if lanes == 1 else f"vload{lanes}({j}, ({element.real} *)(dots + {r} * NR))"};
% endfor
% endfor
</%def>
