## All three contractions in one launch, by NVIDIA's matrix units for float64. A work-group has TENSORS
## tensors, or a part of one: the entries of the second dimension from `first_row` on.
##
## A sub-group takes slices X of a tensor, at one entry of the first dimension, and computes B^T X B in
## registers: a lane holds of the fragment of a result what it has to give as a fragment of A (PTX ISA,
## "mma", the figures of .f64), but for the order of columns. X is read in an order of its columns that
## makes them come out in that of the rows of B. What is left is the first dimension, for which the
## slices meet in local memory.
##
## Of the fragments of the matrix, one array serves as A (B^T, row by row) and as B (column by column):
## the lane holds the same element for both. What lies beyond K counts as zero.
##
## Context: also extent, config (a FusedUnitConfig), unit (a MatrixUnit), tiles (UnitTiles), pairs
## (whether two neighbours in a row are stored at once in local memory; and in global memory), in_a_row (whether `out` is contiguous).
<%namespace name="transform" file="/mra/transform.mako"/>
<%namespace name="fragment" file="/common/matrix_fragment.mako"/>
<%
    steps, high = config.UNIT_K // 4, config.UNIT_M // 8
    column_group = max(1, steps // 2)  # tiles of columns whose products fill an instruction's depth
    rows = "rows" if config.SLICES > 1 else "ROWS"
    all_rows = max(tiles.row_tiles * config.PARTS, tiles.column_tiles)
    whole = tiles.rows * config.PARTS == extent
%>
${transform.types()}
typedef real element;

#define K ${extent}
#define TENSORS ${config.TENSORS}  // tensors of a work-group
#define SUB_GROUPS ${config.SUBGROUPS}  // sub-groups of it
#define SLICES ${config.SLICES}  // slices that a sub-group loads before it multiplies
#define STEP (SUB_GROUPS * SLICES)  // from the slices of a sub-group to its next
#define ROWS ${tiles.rows}  // entries of the second dimension that the group holds
#define DEPTHS ${tiles.depths}  // steps of 4 rows of the matrix
#define TILES ${all_rows}  // tiles of 8 columns of it
#define COLUMN_TILES ${tiles.column_tiles}  // tiles of 8 columns of a slice
#define SLICE ${tiles.slice}  // elements from a slice to the next, in local memory
#define HELD_TILES ((ROWS * K + 7) / 8)  // tiles of 8 neighbours in a slice

${transform.address("tensors")}
${transform.address("out")}

${fragment.multiply_by_ptx()}

## The fragments of slices, from `slice` on; of what is beyond the last one, of that.
<%def name="load(to, slice)" filter="trim">
        #pragma unroll
        for (int s = 0; s < SLICES; ++s) {
            const int one = min(${slice} + s, present * K - 1);
            const __global real *from = tensors + TENSORS_START(one / K) + TENSORS_AT(one % K, 0, 0);
            #pragma unroll
            for (int t = 0; t < COLUMN_TILES; ++t) {
                #pragma unroll
                for (int d = 0; d < DEPTHS; ++d) {
                    const int second = 4 * d + place;
                    const int third = 8 * t + group / 2 + group % 2 * 4;
                    ${to}[s][t][d] = second < K && third < K ? from[TENSORS_AT(0, second, third)] : 0;
                }
            }
        }
</%def>

${transform.signature(32 * config.SUBGROUPS)}
{
    __local real held[TENSORS * K * SLICE] __attribute__((aligned(16)));
    ${transform.offsets()}
    const int sub_group = get_local_id(0) / 32;
    const int group = get_local_id(0) % 32 / 4;  // the lane's row of A, or column of B
    const int place = get_local_id(0) % 4;  // and its depth
    % if config.PARTS > 1:
    const long n = get_group_id(0) / ${config.PARTS};
    const int first_row = get_group_id(0) % ${config.PARTS} * ROWS;
    const int present = 1;
    % elif config.TENSORS > 1:
    const long n = (long)get_group_id(0) * TENSORS;
    const int present = min((long)TENSORS, count - n);
    % else:
    const long n = get_group_id(0);
    const int present = 1;
    % endif
    tensors += TENSORS_START(n);
    out += OUT_START(n);

    real b[DEPTHS][TILES];
    #pragma unroll
    for (int d = 0; d < DEPTHS; ++d) {
        #pragma unroll
        for (int j = 0; j < TILES; ++j) {
            const int row = 4 * d + place;
            const int column = 8 * j + group;
            b[d][j] = row < K && column < K ? matrix[row * matrix_row_stride + column * matrix_column_stride] : 0;
        }
    }
    % if config.PARTS > 1:
    real own[DEPTHS][${tiles.row_tiles}];  // the columns that become the rows of this group
    #pragma unroll
    for (int d = 0; d < DEPTHS; ++d) {
        #pragma unroll
        for (int i = 0; i < ${tiles.row_tiles}; ++i) {
            const int row = 4 * d + place;
            const int column = first_row + 8 * i + group;
            own[d][i] = row < K && column < K ? matrix[row * matrix_row_stride + column * matrix_column_stride] : 0;
        }
    }
    % endif

    // The second dimension and the third, slice by slice.
    % if config.STAGES > 1:
    real x[SLICES][COLUMN_TILES][DEPTHS];
    ${load("x", "sub_group * SLICES")}
    % endif
    for (int slice = sub_group * SLICES; slice < present * K; slice += STEP) {
        % if config.STAGES > 1:
        real ahead[SLICES][COLUMN_TILES][DEPTHS];
        if (slice + STEP < present * K) {
            ${load("ahead", "slice + STEP")}
        }
        % else:
        real x[SLICES][COLUMN_TILES][DEPTHS];
        ${load("x", "slice")}
        % endif
        #pragma unroll
        for (int s = 0; s < SLICES; ++s) {
            __local real *to = held + (slice + s) * SLICE;
            % if config.SLICES > 1:
            const int rows = slice + s < present * K ? ROWS : 0;
            % endif
            % for row_tile in range(0, tiles.row_tiles, high):
            {
                real sums[COLUMN_TILES][${2 * high}] = {{0}};
                % for first_tile in range(0, tiles.column_tiles, column_group):
                ## Tiles of columns of B^T X, and their share of the product with B.
                % for t in range(first_tile, min(first_tile + column_group, tiles.column_tiles)):
                real y${t}[${2 * high}] = {0};
                % for d in range(0, tiles.depths, steps):
                {
                    const real fragment_a[] = {${", ".join(f"{'own' if config.PARTS > 1 else 'b'}[{d + q}][{row_tile + r}]" for q in range(steps) for r in range(high))}};
                    const real fragment_b[] = {${", ".join(f"x[s][{t}][{d + q}]" for q in range(steps))}};
                    multiply_accumulate(y${t}, fragment_a, fragment_b);
                }
                % endfor
                % endfor
                % for first_step in range(2 * first_tile, min(2 * (first_tile + column_group), tiles.depths), steps):
                {
                    const real fragment_a[] = {${", ".join(f"y{(first_step + q) // 2}[{2 * r + (first_step + q) % 2}]" for q in range(steps) for r in range(high))}};
                    #pragma unroll
                    for (int j = 0; j < COLUMN_TILES; ++j) {
                        const real fragment_b[] = {${", ".join(f"b[{first_step + q}][j]" for q in range(steps))}};
                        multiply_accumulate(sums[j], fragment_a, fragment_b);
                    }
                }
                % endfor
                % endfor
                #pragma unroll
                for (int j = 0; j < COLUMN_TILES; ++j) {
                    const int third = 8 * j + 2 * place;
                    % for r in range(high):
                    {
                        const int second = ${8 * (row_tile + r)} + group;
                        % if pairs[0]:
                        if (second < ${rows} && third < K) {
                            *(__local double2 *)(to + second * K + third) = (double2)(sums[j][${2 * r}], sums[j][${2 * r + 1}]);
                        }
                        % else:
                        if (second < ${rows} && third < K) {
                            to[second * K + third] = sums[j][${2 * r}];
                        }
                        if (second < ${rows} && third + 1 < K) {
                            to[second * K + third + 1] = sums[j][${2 * r + 1}];
                        }
                        % endif
                    }
                    % endfor
                }
            }
            % endfor
        }
        % if config.STAGES > 1:
        #pragma unroll
        for (int s = 0; s < SLICES; ++s) {
            #pragma unroll
            for (int t = 0; t < COLUMN_TILES; ++t) {
                #pragma unroll
                for (int d = 0; d < DEPTHS; ++d) {
                    x[s][t][d] = ahead[s][t][d];
                }
            }
        }
        % endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    // The first dimension, for tiles of 8 neighbours in the second and third.
    for (int tile = sub_group; tile < present * HELD_TILES; tile += SUB_GROUPS) {
        const int tensor = tile / HELD_TILES;
        const int first_place = tile % HELD_TILES * 8;
        const __local real *from = held + tensor * K * SLICE;
        real x[DEPTHS];
        #pragma unroll
        for (int d = 0; d < DEPTHS; ++d) {
            x[d] = 4 * d + place < K && first_place + group < ROWS * K ? from[(4 * d + place) * SLICE + first_place + group] : 0;
        }
        __global real *to = out + OUT_START(tensor);
        const int held_place = first_place + 2 * place;
        <%
            row_of = lambda p: f"first_row + ({p}) / K" if config.PARTS > 1 else f"({p}) / K"
            rows_before = "first_row * K + " if config.PARTS > 1 else ""
            at_of = lambda j, p: f"OUT_AT({j}, 0, 0) + {rows_before}{p}" if in_a_row else f"OUT_AT({j}, {row_of(p)}, ({p}) % K)"
            present_of = lambda p: f"{p} < ROWS * K" + ("" if whole else f" && {row_of(p)} < K")
        %>
        % for row_tile in range(0, -(-extent // (8 * high)) * high, high):
        {
            real z[${2 * high}] = {0};
            % for d in range(0, tiles.depths, steps):
            {
                const real fragment_a[] = {${", ".join(f"b[{d + q}][{row_tile + r}]" for q in range(steps) for r in range(high))}};
                const real fragment_b[] = {${", ".join(f"x[{d + q}]" for q in range(steps))}};
                multiply_accumulate(z, fragment_a, fragment_b);
            }
            % endfor
            % for r in range(high):
            if (${8 * (row_tile + r)} + group < K) {
                % if pairs[1]:
                if (${present_of("held_place")}) {
                    *(__global double2 *)(to + ${at_of(f"{8 * (row_tile + r)} + group", "held_place")}) = (double2)(z[${2 * r}], z[${2 * r + 1}]);
                }
                % else:
                if (${present_of("held_place")}) {
                    to[${at_of(f"{8 * (row_tile + r)} + group", "held_place")}] = z[${2 * r}];
                }
                if (${present_of("held_place + 1")}) {
                    to[${at_of(f"{8 * (row_tile + r)} + group", "held_place + 1")}] = z[${2 * r + 1}];
                }
                % endif
            }
            % endfor
        }
        % endfor
    }
}
