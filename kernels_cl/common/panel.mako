## A panel of B for the CPU family: `depth` rows of NR neighbouring columns, one row after the
## other; columns beyond the matrix are zero.
##
## `copy` leaves elements as they are stored, for a tile that reads the other columns in place.
##
## Context: element, cpu (CpuConfig), problem. The text sees `first_depth`, `depth`,
## `first_column` and `panel`.

<%def name="defines()" filter="trim">
#define NR ${cpu.NR}  // columns of a panel
#define KC ${cpu.KC}  // depth of a block
#define VW ${cpu.VW}  // vector width
</%def>

## The functions that `pack` calls.
<%def name="functions(layout)" filter="trim">
% if layout.order == "column" and cpu.VW > 1:
<%
    vector, half, parts = element.vector(cpu.VW), cpu.VW // 2, range(element.parts)
    # Component by component: Oclgrind stops at a vector made of pairs.
    merged = {
        name: [
            f"{operand}.s{(first + i) * element.parts + part:x}"
            for i in range(half) for operand in "xy" for part in parts
        ]
        for name, first in (("lower", 0), ("upper", half))
    }
%>
% for name, lanes in merged.items():
// The elements of the ${name} halves of two vectors in turn.
static inline ${vector} merge_${name}(const ${vector} x, const ${vector} y)
{
    return (${vector})(${", ".join(lanes)});
}
% endfor
% endif
</%def>

<%def name="pack(layout)" filter="trim">
<%
    sign, signs = (element.conjugation(w) if layout.conjugate else "" for w in (1, cpu.VW))
    vector = element.vector(cpu.VW)
%>
const int columns = min(n - first_column, (extent)NR);
% if layout.order == "row":
for (int p = 0; p < depth; ++p) {
    const __global ${element.stored} *row = b + B_AT(first_depth + p, first_column);
    if (columns == NR) {
        #pragma unroll
        for (int j = 0; j < NR; j += VW) {
            *(__global ${vector} *)(panel + p * NR + j) = ${element.load("row + j", cpu.VW, aligned=False)}${signs};
        }
    } else {
        for (int j = 0; j < NR; ++j) {
            panel[p * NR + j] = j < columns ? ${element.load("row + j", 1)}${sign} : (element)(0);
        }
    }
}
% else:
for (int j = 0; j < NR; j += VW) {
    int p = 0;
    % if layout.order == "column":
    // Squares of VW x VW elements, which merging the vectors i and i + VW / 2 turns in log2(VW)
    // rounds: each round moves a bit of an element's column into its row.
    for (; j + VW <= columns && p + VW <= depth; p += VW) {
        % for i in range(cpu.VW):
        const ${vector} x0_${i} = ${element.load(f"b + B_AT(first_depth + p, first_column + j + {i})", cpu.VW, aligned=False)}${signs};
        % endfor
        <% rounds = cpu.VW.bit_length() - 1 %>
        % for r in range(rounds):
        % for i in range(cpu.VW):
        const ${vector} x${r + 1}_${i} = merge_${"upper" if i % 2 else "lower"}(x${r}_${i // 2}, x${r}_${i // 2 + cpu.VW // 2});
        % endfor
        % endfor
        % for i in range(cpu.VW):
        *(__global ${vector} *)(panel + (p + ${i}) * NR + j) = x${rounds}_${i};
        % endfor
    }
    % endif
    for (int i = j; i < j + VW; ++i) {
        for (int q = p; q < depth; ++q) {
            panel[q * NR + i] = i < columns ? ${element.load("b + B_AT(first_depth + q, first_column + i)", 1)}${sign} : (element)(0);
        }
    }
}
% endif
</%def>

<%def name="copy()" filter="trim">
<% bits = "ushort" if element.stored == "half" else element.stored %>
const int columns = n - first_column;
for (int p = 0; p < depth; ++p) {
    const __global ${bits} *row = (const __global ${bits} *)b + B_AT(first_depth + p, first_column);
    for (int j = 0; j < NR; ++j) {
        ((__global ${bits} *)panel)[p * NR + j] = j < columns ? row[j] : (${bits})(0);
    }
}
</%def>
