## One contraction of three, C(i, j) = sum over d of A(d, i) B(d, j), by a matrix unit: A is a tensor
## seen as K x K^2, C the next one, seen as K^2 x K, and B the matrix, whose fragments stay in registers.
## A sub-group computes tiles of ${unit.m} rows of C. What lies beyond K counts as zero.
##
## Context: also unit (a MatrixUnit), extent, sub_groups, tiles (of a sub-group).
<%namespace name="transform" file="/mra/transform.mako"/>
<%namespace name="fragment" file="/common/matrix_fragment.mako"/>
<%
    depths, columns = -(-extent // unit.k), -(-extent // unit.n)
    a_groups, b_groups = unit.m // unit.places.positions, unit.n // unit.places.positions
    result = unit.result
%>
${transform.types()}
% if unit.spelling == "builtin":
typedef ${real}${unit.result_elements} sums;  // a lane's share of a fragment of C
% else:
typedef real element;
% endif

#define K ${extent}
#define DEPTHS ${depths}  // fragments of the matrix along its rows
#define COLUMNS ${columns}  // and along its columns
#define TILES ${-(-extent**2 // unit.m)}  // of a tensor
#define SUB_GROUP_TILES ${tiles}  // of a sub-group
#define SUB_GROUPS ((TILES + SUB_GROUP_TILES - 1) / SUB_GROUP_TILES)  // that share a tensor

${transform.address("tensors")}
${transform.address("out")}

${fragment.multiply_by_ptx() if unit.spelling == "ptx" else fragment.multiply_by_builtin()}

${transform.signature(sub_groups * unit.lanes)}
{
    ${transform.offsets()}
    const int lane = get_local_id(0) % ${unit.lanes};
    const int position = ${unit.places.position};
    const int piece = ${unit.places.piece};
    double b[DEPTHS][COLUMNS][${unit.b_registers}];
    #pragma unroll
    for (int d = 0; d < DEPTHS; ++d) {
        #pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            % for depth_group in range(unit.depth_groups):
            % for group in range(b_groups):
            {
                const int row = ${unit.k} * d + ${unit.places.depths * depth_group} + piece;
                const int column = ${unit.n} * j + ${unit.places.positions * group} + position;
                b[d][j][${group + b_groups * depth_group}] = row < K && column < K ? matrix[row * matrix_row_stride + column * matrix_column_stride] : 0;
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
                const int depth = ${unit.k} * d + ${unit.places.depths * depth_group} + piece;
                const int row = ${unit.m} * tile + ${unit.places.positions * group} + position;
                a[d][${group + a_groups * depth_group}] = depth < K && row < K * K ? tensors[TENSORS_AT(depth, row / K, row % K)] : 0;
            }
            % endfor
            % endfor
        }
        #pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            % if unit.spelling == "builtin":
            sums c = 0;
            #pragma unroll
            for (int d = 0; d < DEPTHS; ++d) {
                multiply_accumulate(&c, a[d], b[d][j]);
            }
            % else:
            real c[${unit.result_elements}] = {0};
            #pragma unroll
            for (int d = 0; d < DEPTHS; ++d) {
                multiply_accumulate(c, a[d], b[d][j]);
            }
            % endif
            % for group in range(result.groups):
            % for i in range(result.width):
            {
                const int row = ${unit.m} * tile + ${result.row} + ${group * result.row_step};
                const int column = ${unit.n} * j + ${result.column} + ${group * result.column_step + i};
                if (row < K * K && column < K) {
                    out[OUT_AT(row / K, row % K, column)] = ${f"c.s{'0123456789abcdef'[result.width * group + i]}" if unit.spelling == "builtin" else f"c[{result.width * group + i}]"};
                }
            }
            % endfor
            % endfor
        }
    }
}
