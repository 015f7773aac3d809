## One contraction of three by a matrix unit, C(i, j) = sum over d of A(d, i) B(d, j), where A is a tensor
## viewed as K x K^2, B the matrix, and C, viewed as K^2 x K, the next tensor. The fragments of B stay in
## registers. A sub-group computes tiles of unit.m rows of C. Elements beyond K count as zero.
##
## Context: also extent (K), unit (a MatrixUnit), sub_groups, tiles (of a sub-group).
<%namespace name="transform" file="/mra/transform.mako"/>
<%namespace name="fragment" file="/common/matrix_fragment.mako"/>
<%
    lanes, result = unit.operand_lanes, unit.result_lanes
    a_groups, b_groups = unit.m // lanes.positions, unit.n // lanes.positions
    is_ptx = unit.spelling == "ptx"
    c_element = lambda i: f"c[{i}]" if is_ptx else f"c.s{'0123456789abcdef'[i]}"
%>
${transform.types()}
% if is_ptx:
typedef real element;
% else:
typedef ${real}${unit.result_elements} sums;  // a lane's elements of a fragment of C
% endif

#define K ${extent}
#define DEPTHS ${-(-extent // unit.k)}  // fragments along the rows of the matrix
#define COLUMNS ${-(-extent // unit.n)}  // and along its columns
#define TILES ${-(-extent**2 // unit.m)}  // of a tensor
#define SUB_GROUP_TILES ${tiles}  // of a sub-group
#define SUB_GROUPS ((TILES + SUB_GROUP_TILES - 1) / SUB_GROUP_TILES)  // that compute a tensor

${transform.addresses()}

${fragment.multiply_by_ptx() if is_ptx else fragment.multiply_by_builtin()}

${transform.signature(sub_groups * unit.lanes)}
{
    ${transform.skip_offsets()}
    const int lane = get_local_id(0) % ${unit.lanes};
    const int position = ${lanes.position};  // of the lane's elements: a row of A, a column of B
    const int run = ${lanes.run_index};  // the number of their run of depths
    double b[DEPTHS][COLUMNS][${unit.b_registers}];
    #pragma unroll
    for (int d = 0; d < DEPTHS; ++d) {
        #pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            % for depth_group in range(unit.depth_groups):
            % for group in range(b_groups):
            {
                const int row = ${plus(f"{unit.k} * d + run", lanes.depths * depth_group)};
                const int column = ${plus(f"{unit.n} * j + position", lanes.positions * group)};
                const real one = row < K && column < K ? matrix[MATRIX_AT(row, column)] : 0;
                b[d][j][${group + b_groups * depth_group}] = one;
            }
            % endfor
            % endfor
        }
    }

    const long sub_group = (long)get_group_id(0) * ${sub_groups} + get_local_id(0) / ${unit.lanes};
    const long n = sub_group / SUB_GROUPS;
    if (n >= count) {
        return;
    }
    tensors += TENSORS_START(n);
    out += OUT_START(n);
    const int first_tile = sub_group % SUB_GROUPS * SUB_GROUP_TILES;
    const int last_tile = min(first_tile + SUB_GROUP_TILES, TILES);
    for (int tile = first_tile; tile < last_tile; ++tile) {
        double a[DEPTHS][${unit.a_registers}];
        #pragma unroll
        for (int d = 0; d < DEPTHS; ++d) {
            % for depth_group in range(unit.depth_groups):
            % for group in range(a_groups):
            {
                const int depth = ${plus(f"{unit.k} * d + run", lanes.depths * depth_group)};
                const int row = ${plus(f"{unit.m} * tile + position", lanes.positions * group)};
                const bool is_inside = depth < K && row < K * K;
                a[d][${group + a_groups * depth_group}] = is_inside ? tensors[TENSORS_AT(depth, row / K, row % K)] : 0;
            }
            % endfor
            % endfor
        }
        #pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            % if is_ptx:
            real c[${unit.result_elements}] = {0};
            % else:
            sums c = 0;
            % endif
            #pragma unroll
            for (int d = 0; d < DEPTHS; ++d) {
                multiply_accumulate(${"c" if is_ptx else "&c"}, a[d], b[d][j]);
            }
            % for group in range(result.groups):
            % for i in range(result.width):
            {
                const int row = ${plus(f"{unit.m} * tile + {result.row}", group * result.row_step)};
                const int column = ${plus(f"{unit.n} * j + {result.column}", i)};
                if (row < K * K && column < K) {
                    out[OUT_AT(row / K, row % K, column)] = ${c_element(result.width * group + i)};
                }
            }
            % endfor
            % endfor
        }
    }
}
