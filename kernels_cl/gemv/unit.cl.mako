## Few rows by NVIDIA's matrix units. B, by far the largest matrix, is read once, directly into the registers of
## the lanes that multiply it, without local memory; there is no barrier until sums are joined.
##
## The unit computes the transposed product: 16 columns of B by 8 rows of A. All depths of a fragment are
## summed, so their order does not matter as long as it is the same for both operands: a lane takes RUN
## consecutive depths, four for each fragment.
<%namespace name="fragment" file="/common/matrix_fragment.mako"/>
<%namespace name="join" file="/gemv/join.mako"/>
<%namespace name="prelude" file="/common/prelude.mako"/>
<%namespace name="streaming" file="/common/cache_hints.mako"/>
${prelude.types()}

#define MR ${gemv.MR}  // rows of a work-group
#define VW ${gemv.VW}  // columns of a lane
#define COLUMNS (8 * VW)  // of a work-group, and of each of its sub-groups
#define RUN ${gemv.run}  // consecutive depths of a lane
#define LANES_N ${unit.lanes}  // lanes of a sub-group
#define SUBGROUPS ${gemv.SUBGROUPS}  // along k
#define ITEMS (SUBGROUPS * LANES_N)
#define DEPTH (4 * RUN)  // depths of a sub-group at a time
#define A_FRAGMENTS (MR / 8)
#define B_FRAGMENTS (VW / 2)  // of 16 columns, two for each lane
#define FRAGMENTS (A_FRAGMENTS * B_FRAGMENTS)

${prelude.address("a", problem.a)}
${prelude.address("b", problem.b)}
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif

${prelude.epilogue()}

${fragment.multiply_by_ptx()}
% if gemv.STREAMB and b_vector:

${streaming.function(2 * b_vector)}
% endif

// Two elements in a register, the first in its lower half.
static inline uint pair(const ushort first, const ushort second)
{
    return first | (uint)second << 16;
}

## Loads `vector` elements at once to an array; `target` is the start of the text of its first entry.
<%def name="load_words(target, at, vector, streamed)" filter="trim">
    % if streamed:
    const ${words[2 * vector]} bits = load_streamed(${at});
    % else:
    const ${words[2 * vector]} bits = *(const __global ${words[2 * vector]} *)(${at});
    % endif
    % for word in range(vector // 2):
    ${target}${f" + {word}" if word else ""}] = bits${f".s{word}" if vector > 2 else ""};
    % endfor
</%def>

## A lane loads RUN depths of a row of each fragment of A. Rows beyond the matrix repeat the last one,
## and are not stored.
<%def name="load_a(whole)" filter="trim">
    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        const extent row = min(first_row + 8 * i + lane_n / 4, m - 1);
        % if whole and a_vector:
        #pragma unroll
        for (int p = 0; p < RUN; p += ${a_vector}) {
            ${load_words("a_words[i][p / 2", "a + A_AT(row, depth + p)", a_vector, False)}
        }
        % else:
        #pragma unroll
        for (int p = 0; p < RUN; p += 2) {
            a_words[i][p / 2] = pair(${element_of_a("depth + p", whole)}, ${element_of_a("depth + p + 1", whole)});
        }
        % endif
    }
</%def>

<%def name="element_of_a(depth, whole)" filter="trim">
${f"a[A_AT(row, {depth})]" if whole else f"({depth} < k ? a[A_AT(row, {depth})] : 0)"}
</%def>

## A lane loads RUN depths of VW columns of B: pairs along k where B is column-major, else pairs of
## neighbouring columns.
<%def name="load_b(whole)" filter="trim">
% if along_k:
    #pragma unroll
    for (int j = 0; j < VW; ++j) {
        #pragma unroll
        for (int p = 0; p < RUN; p += ${b_vector if whole and b_vector else 2}) {
            % if whole and b_vector:
            ${load_words("b_words[j][p / 2", "b + B_AT(depth + p, column + j)", b_vector, gemv.STREAMB)}
            % else:
            b_words[j][p / 2] = pair(
                ${element_of_b("depth + p", "column + j", whole)},
                ${element_of_b("depth + p + 1", "column + j", whole)});
            % endif
        }
    }
% else:
    #pragma unroll
    for (int p = 0; p < RUN; ++p) {
        #pragma unroll
        for (int j = 0; j < VW; j += ${b_vector if whole and b_vector else 2}) {
            % if whole and b_vector:
            ${load_words("b_words[p][j / 2", "b + B_AT(depth + p, column + j)", b_vector, gemv.STREAMB)}
            % else:
            b_words[p][j / 2] = pair(
                ${element_of_b("depth + p", "column + j", whole)},
                ${element_of_b("depth + p", "column + j + 1", whole)});
            % endif
        }
    }
% endif
</%def>

<%def name="element_of_b(depth, column, whole)" filter="trim">
${f"b[B_AT({depth}, {column})]" if whole else f"({depth} < k && {column} < n ? b[B_AT({depth}, {column})] : 0)"}
</%def>

<%def name="multiply()" filter="trim">
    #pragma unroll
    for (int p = 0; p < RUN; p += 4) {
        #pragma unroll
        for (int j = 0; j < B_FRAGMENTS; ++j) {
            // Two columns of two pairs of depths.
            % if along_k:
            const uint b_fragment[4] = {
                b_words[2 * j][p / 2], b_words[2 * j + 1][p / 2],
                b_words[2 * j][p / 2 + 1], b_words[2 * j + 1][p / 2 + 1]
            };
            % else:
            const uint b_fragment[4] = {
                (b_words[p][j] & 0xffff) | b_words[p + 1][j] << 16,
                b_words[p][j] >> 16 | (b_words[p + 1][j] & 0xffff0000),
                (b_words[p + 2][j] & 0xffff) | b_words[p + 3][j] << 16,
                b_words[p + 2][j] >> 16 | (b_words[p + 3][j] & 0xffff0000)
            };
            % endif
            #pragma unroll
            for (int i = 0; i < A_FRAGMENTS; ++i) {
                multiply_accumulate(accumulators[i * B_FRAGMENTS + j], b_fragment, a_words[i] + p / 2);
            }
        }
    }
</%def>

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({work_items}, 1, 1)))", arguments)}
{
    % if steps:
    __local element sums[${joined}];
    % endif
    ${prelude.offsets("a", "b", "out")}

    const int item = get_local_id(0);
    const int lane_n = item % LANES_N;
    const int lane_k = item / LANES_N;
    const extent strips = (n + COLUMNS - 1) / COLUMNS;
    ${prelude.own_group("group", "strips * ((m + MR - 1) / MR)")}
    const extent first_row = group / strips * MR;
    const extent first_column = group % strips * COLUMNS;
    const extent column = first_column + lane_n / 4 * VW;

    element accumulators[FRAGMENTS][4];
    #pragma unroll
    for (int i = 0; i < FRAGMENTS; ++i) {
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
            accumulators[i][r] = 0;
        }
    }
    #pragma unroll 1
    for (extent slab = 0; slab < k; slab += SUBGROUPS * DEPTH) {
        const extent first_depth = slab + lane_k * DEPTH;
        const extent depth = first_depth + lane_n % 4 * RUN;
        uint a_words[A_FRAGMENTS][RUN / 2];
        uint b_words${"[VW][RUN / 2]" if along_k else "[RUN][VW / 2]"};
        // All lanes of a sub-group take the same branch, as all must multiply.
        if (first_depth + DEPTH <= k && first_column + COLUMNS <= n) {
            ${load_b(True)}
            ${load_a(True)}
        } else {
            // Elements outside the matrices are zero.
            ${load_b(False)}
            ${load_a(False)}
        }
        ${multiply()}
    }

    ${join.join_all(steps, "FRAGMENTS", "4")}

    if (lane_k == 0) {
        #pragma unroll
        for (int i = 0; i < A_FRAGMENTS; ++i) {
            #pragma unroll
            for (int j = 0; j < VW; ++j) {
                #pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const extent row = first_row + 8 * i + lane_n % 4 * 2 + r;
                    if (row < m && column + j < n) {
                        ${wide.assign(result, "out", "OUT_AT(row, column + j)")}
                    }
                }
            }
        }
    }
}
