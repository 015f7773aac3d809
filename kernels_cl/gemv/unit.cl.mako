## Few rows by NVIDIA's matrix units. B, by far the largest matrix, is read once, directly into the registers of
## the lanes that multiply it, without local memory; there is no barrier until sums are joined.
##
## The unit computes the transposed product: the rows of its fragments are columns of B, the columns rows of A.
## All depths of a fragment are summed, so their order does not matter as long as it is the same for both
## operands: a lane takes RUN consecutive depths. It also takes neighbouring rows of A and columns of B.
##
## Context: gemv (a GemvUnitConfig), unit (a MatrixUnit), a and b (LaneOperand), columns (of B that a lane has
## in a fragment), fragment_of_b (the elements of its fragment j of B, from an array), result, steps and joined (a
## Join), words.
<%namespace name="fragment" file="/common/matrix_fragment.mako"/>
<%namespace name="join" file="/gemv/join.mako"/>
<%namespace name="prelude" file="/common/prelude.mako"/>
<%namespace name="streaming" file="/common/cache_hints.mako"/>
<%
    pairs = unit.word == 2  # whether a register holds two elements
    parts = "[2]" if problem.complex else ""
    sums = element.parts * unit.result_registers  # of a lane in a fragment
%>\
${prelude.types()}

#define MR ${gemv.MR}  // rows of a work-group
#define VW ${gemv.VW}  // columns of a lane
#define COLUMNS (8 * VW)  // of a work-group, and of each of its sub-groups
#define RUN ${gemv.run}  // consecutive depths of a lane
#define WORDS ${"(RUN / 2)" if pairs else "RUN"}  // registers with elements of a row of A or column of B
#define LANES_N ${unit.lanes}  // lanes of a sub-group
#define SUBGROUPS ${gemv.SUBGROUPS}  // along k
#define ITEMS (SUBGROUPS * LANES_N)
#define DEPTH (4 * RUN)  // depths of a sub-group at a time
#define A_FRAGMENTS (MR / 8)  // and rows of a lane
#define B_FRAGMENTS ${f"(VW / {columns})" if columns > 1 else "VW"}  // of ${unit.m} columns
#define FRAGMENTS (A_FRAGMENTS * B_FRAGMENTS)

${prelude.address("a", problem.a)}
${prelude.address("b", problem.b)}
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif

${prelude.epilogue()}

${fragment.multiply_by_ptx()}
% if b.past_cache:

${streaming.function(b.vector * element.stored_bytes)}
% endif
% if pairs:

// Two elements in a register, the first in its lower half.
static inline uint pair(const ushort first, const ushort second)
{
    return first | (uint)second << 16;
}
% endif

## Loads a lane's elements of A or B: all its depths of one row or column after the other, or all rows or columns
## of one depth after the other, as they lie in memory.
<%def name="load(operand, whole)" filter="trim">
<%
    vector = operand.vector if whole else 0
    rows = f"for (int i = 0; i < {'A_FRAGMENTS' if operand.name == 'a' else 'VW'}; "
    rows += "++i) {" if operand.along_k or vector < 2 else f"i += {vector}) {{"
    depths = "for (int p = 0; p < RUN; "
    step = max(vector if operand.along_k else 1, unit.word)
    depths += "++p) {" if step == 1 else f"p += {step}) {{"
    outer, inner = (rows, depths) if operand.along_k else (depths, rows)
%>\
    #pragma unroll
    ${outer}
        #pragma unroll
        ${inner}
            ${load_pairs(operand, vector, whole) if pairs else load_elements(operand, vector, whole)}
        }
    }
</%def>

<%def name="load_elements(operand, vector, whole)" filter="trim">
<%
    words = f"{operand.name}_words"
    one = operand.vector_at("depth + p") if vector else operand.element_at("depth + p", whole)
%>\
            % if problem.complex:
            const element loaded = ${one};
            ${words}[0][i][p] = loaded.x;
            ${words}[1][i][p] = ${"-" if operand.layout.conjugate else ""}loaded.y;
            % elif vector < 2:
            ${words}[i][p] = ${one};
            % else:
            const ${operand.loaded} loaded = ${one};
            % for lane in range(vector):
<% index = f"[i][{plus('p', lane)}]" if operand.along_k else f"[{plus('i', lane)}][p]" %>\
            ${words}${index} = loaded.s${lane};
            % endfor
            % endif
</%def>

<%def name="load_pairs(operand, vector, whole)" filter="trim">
<%
    words = f"{operand.name}_words"
    halves = [f".s{word}" for word in range(vector // 2)] if vector > 2 else [""]
%>\
            % if not vector:
            ${words}[i][p / 2] = pair(
                ${operand.element_at("depth + p", whole)},
                ${operand.element_at("depth + p + 1", whole)});
            % elif operand.along_k:
            const ${operand.loaded} loaded = ${operand.vector_at("depth + p")};
            % for word, half in enumerate(halves):
            ${words}[i][${plus("p / 2", word)}] = loaded${half};
            % endfor
            % else:
            const ${operand.loaded} first = ${operand.vector_at("depth + p")};
            const ${operand.loaded} second = ${operand.vector_at("depth + p + 1")};
            % for word, half in enumerate(halves):
            ${words}[${plus("i", 2 * word)}][p / 2] = (first${half} & 0xffff) | second${half} << 16;
            ${words}[${plus("i", 2 * word + 1)}][p / 2] = first${half} >> 16 | (second${half} & 0xffff0000);
            % endfor
            % endif
</%def>

<%def name="multiply()" filter="trim">
<%
    depths = unit.depth_groups  # registers of a lane for a row or column of a fragment
    real = "accumulators[i * B_FRAGMENTS + j]"
    imaginary = f"{real} + {unit.result_registers}"
%>\
    #pragma unroll
    for (int p = 0; p < WORDS; ${"++p" if depths == 1 else f"p += {depths}"}) {
        #pragma unroll
        for (int j = 0; j < B_FRAGMENTS; ++j) {
            % if problem.complex:
            const double b_real[] = {${fragment_of_b("b_words[0]")}};
            const double b_imaginary[] = {${fragment_of_b("b_words[1]")}};
            const double b_negated[] = {${fragment_of_b("-b_words[1]")}};
            #pragma unroll
            for (int i = 0; i < A_FRAGMENTS; ++i) {
                multiply_accumulate(${real}, b_real, a_words[0][i] + p);
                multiply_accumulate(${imaginary}, b_imaginary, a_words[0][i] + p);
                multiply_accumulate(${real}, b_negated, a_words[1][i] + p);
                multiply_accumulate(${imaginary}, b_real, a_words[1][i] + p);
            }
            % else:
            const ${unit.register} b_fragment[] = {${fragment_of_b("b_words")}};
            #pragma unroll
            for (int i = 0; i < A_FRAGMENTS; ++i) {
                multiply_accumulate(${real}, b_fragment, a_words[i] + p);
            }
            % endif
        }
    }
</%def>

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({work_items}, 1, 1)))", arguments)}
{
    % if steps:
    __local ${unit.result_register} sums[${joined}];
    % endif
    ${prelude.offsets("a", "b", "out")}

    const int item = get_local_id(0);
    const int lane_n = item % LANES_N;
    const int lane_k = item / LANES_N;
    const extent strips = (n + COLUMNS - 1) / COLUMNS;
    ${prelude.own_group("group", "strips * ((m + MR - 1) / MR)")}
    const extent first_row = group / strips * MR;
    % if b.strips_may_overlap:
    // The last strip ends with the matrix, so that it is whole, too; the strip before it stores what both have.
    const extent own_column = group % strips * COLUMNS;
    const extent first_column = max(min(own_column, n - COLUMNS), (extent)0);
    % else:
    const extent first_column = group % strips * COLUMNS;
    % endif
    const extent row = first_row + lane_n / 4 * A_FRAGMENTS;
    const extent column = first_column + lane_n / 4 * VW;

    ${unit.result_register} accumulators[FRAGMENTS][${sums}];
    #pragma unroll
    for (int i = 0; i < FRAGMENTS; ++i) {
        #pragma unroll
        for (int r = 0; r < ${sums}; ++r) {
            accumulators[i][r] = 0;
        }
    }
    #pragma unroll 1
    for (extent slab = 0; slab < k; slab += SUBGROUPS * DEPTH) {
        const extent first_depth = slab + lane_k * DEPTH;
        const extent depth = first_depth + lane_n % 4 * RUN;
        ${unit.register} a_words${parts}[A_FRAGMENTS][WORDS];
        ${unit.register} b_words${parts}[VW][WORDS];
        // All lanes of a sub-group take the same branch, as all must multiply.
        if (first_depth + DEPTH <= k && first_column + COLUMNS <= n) {
            ${load(b, True)}
            ${load(a, True)}
        } else {
            // Elements outside the matrices are zero.
            ${load(b, False)}
            ${load(a, False)}
        }
        ${multiply()}
    }

    ${join.join_all(steps, "FRAGMENTS", sums, unit.result_register)}

    if (lane_k == 0) {
        #pragma unroll
        for (int i = 0; i < A_FRAGMENTS; ++i) {
            #pragma unroll
            for (int j = 0; j < VW; ++j) {
                #pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const extent stored_row = first_row + (lane_n % 4 * 2 + r) * A_FRAGMENTS + i;
                    if (stored_row < m && ${"column + j >= own_column && " if b.strips_may_overlap else ""}column + j < n) {
                        ${wide.assign(result, "out", "OUT_AT(stored_row, column + j)")}
                    }
                }
            }
        }
    }
}
