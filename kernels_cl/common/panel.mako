## Packs a panel of B for the CPU family: `depth` rows of NR neighbouring columns, one row after the other.
## Columns beyond the matrix are zero. Also the types and functions that load A and B.
##
## Context: element, cpu (CpuConfig). The generated text uses `first_depth`, `depth`, `first_column` and
## `panel`.
<%def name="types()" filter="trim">
typedef ${element.vector(cpu.VW)} vector;  // VW elements of A or B
% if not element.converts and cpu.VW > 1:
typedef vector __attribute__((aligned(${element.real_bytes}))) unaligned_vector;
% endif
</%def>

<%def name="defines()" filter="trim">
#define NR ${cpu.NR}  // columns of a panel
#define KC ${cpu.KC}  // depth of a block
#define VW ${cpu.VW}  // vector width
</%def>

<%def name="vectors()" filter="trim">
#define VECTORS (NR / VW)  // vectors in a row of a panel
</%def>

## For elements that are pairs along k, two shorts in an int.
<%def name="pair_function()" filter="trim">
// The pair of the elements at p and, if there are `both`, `step` behind it; else of one and zero.
static inline int pair_at(const __global char *p, const long step, const bool both)
{
    return as_int((short2)(p[0], both ? p[step] : 0));
}
</%def>

## The loaders of such elements: pairs that lie side by side, or whose halves are `step` apart.
<%def name="pair_loader(operand)" filter="trim">
<%
    width = min(cpu.VW, 8)
    pairs = ", ".join(
        f"as_{element.vector(width)}(convert_short{2 * width}(vload{2 * width}({i}, p)))" for i in range(cpu.VW // width)
    )
%>
% if not operand.by_halves:
// Loads VW pairs along k.
static inline vector load_vector(const __global char *p)
{
    return ${pairs if cpu.VW == width else f"(vector)({pairs})"};
}
% else:
// Loads VW elements, and those `step` behind them, as pairs.
static inline vector load_halves(const __global char *p, const long step)
{
    % if cpu.VW == 1:
    return pair_at(p, step, true);
    % else:
    return convert_int${cpu.VW}(vload${cpu.VW}(0, p)) & 0xffff | convert_int${cpu.VW}(vload${cpu.VW}(0, p + step)) << 16;
    % endif
}
% endif
</%def>

<%def name="load_function(operand)" filter="trim">
% if operand.pairs:
${pair_loader(operand)}
% else:
${vector_loader(operand)}
% endif
</%def>

<%def name="vector_loader(operand)" filter="trim">
<% conjugate = operand.layout.conjugate %>
// Loads VW elements of A or B${", conjugated," if conjugate else ""} at any element's address.
static inline vector ${operand.loader}(const __global ${element.stored} *p)
{
% if cpu.VW == 1:
    return ${element.entry("p", "0")};
% elif element.converts:
    return ${element.load("p", cpu.VW, aligned=False)};
% elif conjugate:
    return *(const __global unaligned_vector *)p${element.conjugation(cpu.VW)};
% else:
    return *(const __global unaligned_vector *)p;
% endif
}
</%def>

## The functions that `pack` calls, beside those that load.
<%def name="functions(operand)" filter="trim">
% if operand.transposes:
<%
    def merged(first):
        """Half of the elements of the vectors x and y in turn, starting at element `first`."""
        # Component by component: Oclgrind stops at a vector made of pairs.
        numbers = [element.parts * (first + i) for i in range(cpu.VW // 2)]
        lanes = [f"{v}.s{number + part:x}" for number in numbers for v in "xy" for part in range(element.parts)]
        return ",\n".join(", ".join(lanes[i : i + 8]) for i in range(0, len(lanes), 8))
%>
// The elements of the lower halves of two vectors in turn.
static inline vector merge_lower(const vector x, const vector y)
{
    return (vector)(${merged(0)});
}

// The elements of the upper halves of two vectors in turn.
static inline vector merge_upper(const vector x, const vector y)
{
    return (vector)(${merged(cpu.VW // 2)});
}
% endif
</%def>

<%def name="pack(operand)" filter="trim">
const int columns = min(n - first_column, (extent)NR);
% if not operand.loads_vectors:
for (int p = 0; p < depth; ++p) {
    for (int j = 0; j < NR; ++j) {
        panel[p * NR + j] = j < columns
            ? ${operand.entry("first_depth + p", "first_column + j")} : (element)(0);
    }
}
% elif operand.layout.order == "row":
${pack_rows(operand)}
% elif cpu.NR == cpu.VW:
${pack_columns(operand, "0", "first_column", "VW", "p * NR")}
% else:
for (int j = 0; j < NR; j += VW) {
    ${pack_columns(operand, "j", "first_column + j", "j + VW", "p * NR + j")}
}
% endif
</%def>

<%def name="pack_rows(operand)" filter="trim">
<% half = ", b_row_stride" if operand.pairs else "" %>\
for (int p = 0; p < depth; ++p) {
    const __global ${element.stored} *b_row = b + B_AT(first_depth + p, first_column);
    __global element *panel_row = panel + p * NR;
    % if operand.pairs:
    const bool both = 2 * (first_depth + p) + 1 < k;
    % endif
    if (${"both && " if operand.pairs else ""}columns == NR) {
        % if cpu.NR == cpu.VW:
        *(__global vector *)panel_row = ${operand.loader}(b_row${half});
        % else:
        #pragma unroll
        for (int j = 0; j < NR; j += VW) {
            *(__global vector *)(panel_row + j) = ${operand.loader}(b_row + j${half});
        }
        % endif
    } else {
        % if cpu.NR == cpu.VW or operand.pairs:
        for (int j = 0; j < NR; ++j) {
        % else:
        int j = 0;
        for (; j + VW <= columns; j += VW) {
            *(__global vector *)(panel_row + j) = ${operand.loader}(b_row + j);
        }
        for (; j < NR; ++j) {
        % endif
            panel_row[j] = j < columns ? ${operand.converted("b_row", "j")} : (element)(0);
        }
    }
}
</%def>

## VW columns: `begin` and `end` in the panel, `first` in B, `offset` in row p of the panel.
<%def name="pack_columns(operand, begin, first, end, offset)" filter="trim">
// Transpose squares of VW x VW elements in log2(VW) rounds: merging vectors i and i + VW / 2 moves
// a bit of an element's column number into its row number. In unrolled loops x and y are registers.
int p = 0;
for (; ${end} <= columns && p + VW <= ${operand.filled}; p += VW) {
    const __global ${element.stored} *square = b + B_AT(first_depth + p, ${first});
    vector x[VW], y[VW];
    #pragma unroll
    for (int i = 0; i < VW; ++i) {
        x[i] = ${operand.loader}(square + B_AT(0, i));
    }
    #pragma unroll
    for (int merged = 1; merged < VW; merged *= 2) {  // columns that each vector has elements of
        #pragma unroll
        for (int i = 0; i < VW / 2; ++i) {
            y[2 * i] = merge_lower(x[i], x[i + VW / 2]);
            y[2 * i + 1] = merge_upper(x[i], x[i + VW / 2]);
        }
        #pragma unroll
        for (int i = 0; i < VW; ++i) {
            x[i] = y[i];
        }
    }
    __global vector *panel_rows = (__global vector *)(panel + ${offset});
    #pragma unroll
    for (int i = 0; i < VW; ++i) {
        panel_rows[i * VECTORS] = x[i];
    }
}
for (int i = ${begin}; i < ${end}; ++i) {
    for (int q = p; q < depth; ++q) {
        panel[q * NR + i] = i < columns
            ? ${operand.entry("first_depth + q", "first_column + i")} : (element)(0);
    }
}
</%def>

## Copies `columns` columns, which do not fill vectors, unconverted, for a tile that reads others in place.
<%def name="copy()" filter="trim">
<% bits = "ushort" if element.stored == "half" else element.stored %>
% if kernel.pairs:
const int rows = min(k - 2 * first_depth, (extent)(2 * KC));
% endif
for (int p = 0; p < ${"rows" if kernel.pairs else "depth"}; ++p) {
    % if kernel.pairs:
    const __global ${bits} *b_row = b + B_AT(first_depth, first_column) + p * b_row_stride;
    % else:
    const __global ${bits} *b_row = (const __global ${bits} *)b + B_AT(first_depth + p, first_column);
    % endif
    __global ${bits} *panel_row = (__global ${bits} *)panel + p * NR;
    int j = 0;
    % if cpu.vectors > 1:
    for (; j + VW <= columns; j += VW) {
        #pragma unroll
        for (int i = 0; i < VW; ++i) {
            panel_row[j + i] = b_row[j + i];
        }
    }
    % endif
    for (; j < columns; ++j) {
        panel_row[j] = b_row[j];
    }
    for (; j < NR; ++j) {
        panel_row[j] = 0;
    }
}
</%def>
