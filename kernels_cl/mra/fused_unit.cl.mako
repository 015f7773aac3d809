## All three contractions in one launch, by NVIDIA's matrix units for float64. A work-group computes TENSORS
## tensors, or a part of one: the entries of the second dimension from `first_row` on.
##
## A slice X is a tensor at one entry of the first dimension. A sub-group computes B^T X B in registers. After
## the first product each lane holds the elements that the second product takes from it as elements of A
## (PTX ISA, "mma", the figures of .f64), but with the columns in another order. The columns of X are read in
## an order that corrects this. The slices are then written to local memory, where the first dimension is
## contracted.
##
## The same array of fragments of the matrix is used as A (B^T, row by row) and as B (column by column), as a
## lane holds the same elements for both. Elements beyond K count as zero.
##
## Context: also extent (K), config (a FusedUnitConfig), unit (a MatrixUnit), tiles (UnitTiles).
<%namespace name="transform" file="/mra/transform.mako"/>
<%namespace name="fragment" file="/common/matrix_fragment.mako"/>
<%
    steps, high = config.UNIT_K // 4, config.UNIT_M // 8
    column_group = max(1, steps // 2)  # tiles of columns whose products fill an instruction's depth
    all_rows = max(tiles.row_tiles * config.PARTS, tiles.column_tiles)
    row_tiles = range(0, -(-extent // (8 * high)) * high, high)
    is_split, has_tail = config.PARTS > 1, tiles.rows * config.PARTS > extent
    result = stacks["out"]
    # Whether two neighbours of a row are stored at once: in local memory, and in global memory.
    local_pairs = extent % 2 == 0
    global_pairs = local_pairs and result.has_rows and result.alignment >= 2
    own = "own" if is_split else "b"
    rows = "rows" if config.SLICES > 1 else "ROWS"
    fragment_of = lambda elements: "{" + ", ".join(elements) + "}"

    def matrix_tiles(array, depth, tile):
        """The matrix as A: `high` tiles of rows, at all steps of an instruction."""
        return fragment_of(f"{array}[{depth + q}][{tile + r}]" for q in range(steps) for r in range(high))

    def by_depth(pattern, depth):
        """An operand B: one element for each step."""
        return fragment_of(pattern.format(depth + q) for q in range(steps))

    def first_products(step):
        """The results of the first product as A of the second."""
        numbers = [(step + q, r) for q in range(steps) for r in range(high)]
        return fragment_of(f"y{number // 2}[{2 * r + number % 2}]" for number, r in numbers)
%>
${transform.types()}
typedef real element;

#define K ${extent}
#define TENSORS ${config.TENSORS}  // tensors of a work-group
#define SUB_GROUPS ${config.SUBGROUPS}  // sub-groups of it
#define SLICES ${config.SLICES}  // slices that a sub-group loads before it multiplies
#define STEP (SUB_GROUPS * SLICES)  // from the slices of a sub-group to its next ones
#define ROWS ${tiles.rows}  // entries of the second dimension that the work-group holds
#define DEPTHS ${tiles.depths}  // steps of 4 rows of the matrix
#define TILES ${all_rows}  // tiles of 8 columns of the matrix
#define COLUMN_TILES ${tiles.column_tiles}  // tiles of 8 columns of a slice
#define SLICE ${tiles.slice}  // elements from a slice to the next, in local memory
#define HELD_TILES ((ROWS * K + 7) / 8)  // tiles of 8 neighbours in a slice

${transform.addresses()}
## The row of element `p` of a slice in local memory, and its offset in `out`.
#define ROW_OF(p) (${"first_row + " if is_split else ""}(p) / K)
% if result.is_contiguous:
#define RESULT_AT(first, p) (OUT_AT(first, 0, 0) + ${"first_row * K + " if is_split else ""}(p))
% else:
#define RESULT_AT(first, p) OUT_AT(first, ROW_OF(p), (p) % K)
% endif
% if has_tail:
#define IS_RESULT(p) ((p) < ROWS * K && ROW_OF(p) < K)
% else:
#define IS_RESULT(p) ((p) < ROWS * K)
% endif

${fragment.multiply_by_ptx()}

${transform.signature(32 * config.SUBGROUPS)}
{
    __local real held[TENSORS * K * SLICE] __attribute__((aligned(16)));
    ${transform.skip_offsets()}
    const int sub_group = get_local_id(0) / 32;
    const int position = get_local_id(0) % 32 / 4;  // the lane's row of A, or column of B,
    const int depth = get_local_id(0) % 4;  // and its depth
    % if is_split:
    const long n = get_group_id(0) / ${config.PARTS};
    const int first_row = get_group_id(0) % ${config.PARTS} * ROWS;
    % else:
    const long n = (long)get_group_id(0) * TENSORS;
    % endif
    % if config.TENSORS > 1:
    const int present = min((long)TENSORS, count - n);
    % else:
    const int present = 1;
    % endif
    tensors += TENSORS_START(n);
    out += OUT_START(n);

    real b[DEPTHS][TILES];
    ${load_matrix("b", "TILES", "")}
    % if is_split:
    real own[DEPTHS][${tiles.row_tiles}];  // the columns that correspond to this work-group's rows
    ${load_matrix("own", tiles.row_tiles, "first_row + ")}
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
                ${multiply_tiles(row_tile, first_tile, min(first_tile + column_group, tiles.column_tiles))}
                % endfor
                #pragma unroll
                for (int j = 0; j < COLUMN_TILES; ++j) {
                    const int third = 8 * j + 2 * depth;
                    % for r in range(high):
                    ${hold_pair(8 * (row_tile + r), f"sums[j][{2 * r}]", f"sums[j][{2 * r + 1}]")}
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
        const int start = tile % HELD_TILES * 8;
        const __local real *from = held + tensor * K * SLICE + start + position;
        real x[DEPTHS];
        #pragma unroll
        for (int d = 0; d < DEPTHS; ++d) {
            const int first = 4 * d + depth;
            x[d] = first < K && start + position < ROWS * K ? from[first * SLICE] : 0;
        }
        __global real *to = out + OUT_START(tensor);
        const int p = start + 2 * depth;
        % for row_tile in row_tiles:
        {
            real z[${2 * high}] = {0};
            % for d in range(0, tiles.depths, steps):
            {
                const real fragment_a[] = ${matrix_tiles("b", d, row_tile)};
                const real fragment_b[] = ${by_depth("x[{}]", d)};
                multiply_accumulate(z, fragment_a, fragment_b);
            }
            % endfor
            % for r in range(high):
            ${store_pair(8 * (row_tile + r), f"z[{2 * r}]", f"z[{2 * r + 1}]")}
            % endfor
        }
        % endfor
    }
}

## Loads the fragments of the matrix, starting at a column.
<%def name="load_matrix(array, count, first_column)" filter="trim">
    #pragma unroll
    for (int d = 0; d < DEPTHS; ++d) {
        #pragma unroll
        for (int j = 0; j < ${count}; ++j) {
            const int row = 4 * d + depth;
            const int column = ${first_column}8 * j + position;
            ${array}[d][j] = row < K && column < K ? matrix[MATRIX_AT(row, column)] : 0;
        }
    }
</%def>

## Loads the fragments of slices from `slice` on; beyond the last slice, the last one is loaded again.
<%def name="load(to, slice)" filter="trim">
        #pragma unroll
        for (int s = 0; s < SLICES; ++s) {
            const int one = min(${slice} + s, present * K - 1);
            const __global real *from = tensors + TENSORS_START(one / K) + TENSORS_AT(one % K, 0, 0);
            #pragma unroll
            for (int t = 0; t < COLUMN_TILES; ++t) {
                #pragma unroll
                for (int d = 0; d < DEPTHS; ++d) {
                    const int second = 4 * d + depth;
                    const int third = 8 * t + position / 2 + position % 2 * 4;
                    ${to}[s][t][d] = second < K && third < K ? from[TENSORS_AT(0, second, third)] : 0;
                }
            }
        }
</%def>

## Computes tiles of columns of B^T X and adds their contribution to B^T X B.
<%def name="multiply_tiles(row_tile, first_tile, last_tile)" filter="trim">
                % for t in range(first_tile, last_tile):
                real y${t}[${2 * high}] = {0};
                % for d in range(0, tiles.depths, steps):
                {
                    const real fragment_a[] = ${matrix_tiles(own, d, row_tile)};
                    const real fragment_b[] = ${by_depth(f"x[s][{t}][{{}}]", d)};
                    multiply_accumulate(y${t}, fragment_a, fragment_b);
                }
                % endfor
                % endfor
                % for step in range(2 * first_tile, min(2 * last_tile, tiles.depths), steps):
                {
                    const real fragment_a[] = ${first_products(step)};
                    #pragma unroll
                    for (int j = 0; j < COLUMN_TILES; ++j) {
                        const real fragment_b[] = ${by_depth("b[{}][j]", step)};
                        multiply_accumulate(sums[j], fragment_a, fragment_b);
                    }
                }
                % endfor
</%def>

## Writes two neighbours of a row of a slice to local memory.
<%def name="hold_pair(first_row, left, right)" filter="trim">
                    {
                        const int second = ${plus("position", first_row)};
                        % if local_pairs:
                        if (second < ${rows} && third < K) {
                            *(__local double2 *)(to + second * K + third) = (double2)(${left}, ${right});
                        }
                        % else:
                        if (second < ${rows} && third < K) {
                            to[second * K + third] = ${left};
                        }
                        if (second < ${rows} && third + 1 < K) {
                            to[second * K + third + 1] = ${right};
                        }
                        % endif
                    }
</%def>

## Writes two neighbours of a row of the result to global memory.
<%def name="store_pair(first_entry, left, right)" filter="trim">
            {
                const int first = ${plus("position", first_entry)};
                % if global_pairs:
                if (first < K && IS_RESULT(p)) {
                    *(__global double2 *)(to + RESULT_AT(first, p)) = (double2)(${left}, ${right});
                }
                % else:
                if (first < K && IS_RESULT(p)) {
                    to[RESULT_AT(first, p)] = ${left};
                }
                if (first < K && IS_RESULT(p + 1)) {
                    to[RESULT_AT(first, p + 1)] = ${right};
                }
                % endif
            }
</%def>
