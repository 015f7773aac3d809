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
// Blocks of 16 rows keep what is written in the first-level cache while B is read along k.
for (int block = 0; block < depth; block += 16) {
    const int block_end = min(block + 16, depth);
    for (int j = 0; j < NR; ++j) {
        for (int p = block; p < block_end; ++p) {
            panel[p * NR + j] = j < columns ? ${element.load("b + B_AT(first_depth + p, first_column + j)", 1)}${sign} : (element)(0);
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
