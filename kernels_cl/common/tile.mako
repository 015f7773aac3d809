## The tile of a work-item: where it lies, its multiply-adds, and its way to memory.
##
## Context: element, wide, problem, tiles (an XgemmConfig; the direct family is described in
## the same names) and fragments, as common/fragment.mako has them.

<%namespace name="fragment" file="/common/fragment.mako"/>
<%namespace name="prelude" file="/common/prelude.mako"/>

<%def name="defines()" filter="trim">
#define MWG ${tiles.MWG}  // rows of a work-group's tile
#define NWG ${tiles.NWG}  // columns of it
#define KWG ${tiles.KWG}  // depth of a slab
#define MDIMC ${tiles.MDIMC}  // work-items along the rows
#define NDIMC ${tiles.NDIMC}  // and along the columns
% if tiles.SLICES > 1 or tiles.FILL:
#define TILE_ITEMS (MDIMC * NDIMC)
% endif
% if tiles.SLICES > 1:
#define SLICE_DEPTH (KWG / ${tiles.SLICES})  // rows of a slab for each of ${tiles.SLICES} slices of the work-items
% endif
#define MWI (MWG / MDIMC)  // rows of a work-item's tile
#define NWI (NWG / NDIMC)  // columns of it
% if tiles.SHUFFLE:
#define LANES_M ${tiles.LANES_M}  // work-items of a sub-group along the rows
#define LANES_N ${tiles.LANES_N}  // and along the columns
#define A_PART (MWI / LANES_N)  // rows of a work-item's tile that it loads itself
#define B_PART (NWI / LANES_M)  // columns of it
% endif
#define VWM ${tiles.VWM}  // vector width along the rows
#define VWN ${tiles.VWN}  // and along the columns
% if tiles.SA:
#define A_PITCH ${tiles.MWG + tiles.PADA}  // elements from one k to the next in local memory: MWG + PADA
#define A_INDEX(depth, position) ${local_index("A_PITCH", "VWM")}
% endif
% if tiles.SB:
#define B_PITCH ${tiles.NWG + tiles.PADB}  // likewise NWG + PADB
#define B_INDEX(depth, position) ${local_index("B_PITCH", "VWN")}
% endif

// The first row of a work-item's tile, and rows from a vector to the next; columns likewise.
% if tiles.STRM:
#define FIRST_ROW (item_m * VWM)
#define ROW_STEP (MDIMC * VWM)
% else:
#define FIRST_ROW (item_m * MWI)
#define ROW_STEP VWM
% endif
% if tiles.STRN:
#define FIRST_COLUMN (item_n * VWN)
#define COLUMN_STEP (NDIMC * VWN)
% else:
#define FIRST_COLUMN (item_n * NWI)
#define COLUMN_STEP VWN
% endif
#define ROW(i) (FIRST_ROW + (i) * ROW_STEP)
#define COLUMN(j) (FIRST_COLUMN + (j) * COLUMN_STEP)
</%def>

## The index of an entry of a slab in local memory, within its stage.
<%def name="local_index(pitch, width)" filter="trim">
% if tiles.SWIZZLE > 1:
((depth) * ${pitch} + ((position) ^ ((depth) % ${tiles.SWIZZLE} * ${width})))
% else:
((depth) * ${pitch} + (position))
% endif
</%def>

<%def name="locals(slabs)" filter="trim">
% if tiles.SLICES > 1:
    __local element slice_sums[MWG * NWG] __attribute__((aligned(64)));
% endif
% for slab in slabs:
    __local element ${slab.name}_local[${slab.local_elements}] __attribute__((aligned(64)));
% endfor
</%def>

## The first row and the first column of one of the result's tiles, by its number.
<%def name="first_entry(tile='tile')" filter="trim">
% if tiles.GROUP_M > 1:
    // Tiles are numbered in bands of ${tiles.GROUP_M} tile rows, column by column: work-groups that run at
    // the same time then read the same rows of A and columns of B from the cache.
    // No band has more rows than there are, so that no number exceeds that of all tiles.
    const extent most_rows = min(tiles_m, (extent)${tiles.GROUP_M});
    const extent band = ${tile} / (most_rows * tiles_n);
    const extent band_rows = min(tiles_m - band * most_rows, most_rows);
    const extent in_band = ${tile} - band * most_rows * tiles_n;
    const extent a_tile = (band * most_rows + in_band % band_rows) * MWG;
    const extent b_tile = in_band / band_rows * NWG;
% else:
    const extent a_tile = ${tile} / tiles_n * MWG;
    const extent b_tile = ${tile} % tiles_n * NWG;
% endif
</%def>

## Where the work-item's part of the tile is.
<%def name="item()" filter="trim">
    const int item = get_local_id(0);
% if tiles.SLICES > 1:
    // Each slice of the work-items computes the whole tile, from its own rows of every slab.
    const int slice = item / TILE_ITEMS;
    const int tile_item = item % TILE_ITEMS;
    const int slice_row = slice * SLICE_DEPTH;
% endif
% if tiles.LANES_M == tiles.MDIMC and tiles.LANES_N == 1:
    const int item_m = ${tile_item} % MDIMC;
    const int item_n = ${tile_item} / MDIMC;
% else:
    // A run of ${lanes.run} neighbouring work-items covers ${tiles.LANES_M} x ${tiles.LANES_N} work-items of the tile.
    const int item_m = ${lanes.item_m};
    const int item_n = ${lanes.item_n};
% endif
% if tiles.SHUFFLE:
    // They are a sub-group: each of those with the same rows loads a part of A's row of a slab, each of
    // those with the same columns a part of B's.
    const int lane_m = ${lanes.lane_m};
    const int lane_n = ${lanes.lane_n};
% for one in fragments:
    const int ${one.first} = ${one.start};
% endfor
% endif
</%def>

<%def name="accumulators()" filter="trim">
    element accumulators[MWI][NWI];
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        #pragma unroll
        for (int j = 0; j < NWI; ++j) {
            accumulators[i][j] = (element)(0);
        }
    }
</%def>

## Serpentine: every second row begins with the column with which the one before ended.
<%def name="multiply_fragments(a_from, b_from)" filter="trim">
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        #pragma unroll
% if tiles.SERPENTINE:
        for (int step = 0; step < NWI; ++step) {
            const int j = i % 2 ? NWI - 1 - step : step;
% else:
        for (int j = 0; j < NWI; ++j) {
% endif
            accumulators[i][j] = multiply_add(${a_from}[i], ${b_from}[j], accumulators[i][j]);
        }
    }
</%def>

## The multiply-adds of a slab.
<%def name="multiply()" filter="trim">
    ${fragment.rows_of_slab()}
    #pragma unroll ${tiles.KWI}
    for (int p = 0; p < ${slice_depth}; ++p) {
        element a_fragment[MWI];
        element b_fragment[NWI];
        ${fragment.load("a_fragment", "b_fragment", "p")}
        ${multiply_fragments("a_fragment", "b_fragment")}
    }
</%def>

## The same one row behind: while a row is multiplied, the next one's fragments are on their way
## from local memory. The last row of a slab is multiplied at the start of the next, after the
## barrier. `start` sends for a slab that is multiplied later.
<%def name="multiply_behind(start)" filter="trim">
    #pragma unroll ${tiles.KWI}
    for (int p = 0; p < ${slice_depth}; ++p) {
        ${fragment.load("a_fragments[p % 2]", "b_fragments[p % 2]", "p")}
        if (p == 0) {
            ${start()}
        }
        ${multiply_fragments("a_fragments[(p + 1) % 2]", "b_fragments[(p + 1) % 2]")}
    }
</%def>

## The first slice adds the sums of the others, in their order.
<%def name="add_slices()" filter="trim">
    __local element *own_sums = slice_sums + tile_item;
    #pragma unroll 1
    for (int other = 1; other < ${tiles.SLICES}; ++other) {
        if (slice == other) {
            <%call expr="each_sum()">
                own_sums[(i * NWI + j) * TILE_ITEMS] = accumulators[i][j];
            </%call>
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice == 0) {
            <%call expr="each_sum()">
                accumulators[i][j] += own_sums[(i * NWI + j) * TILE_ITEMS];
            </%call>
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
</%def>

<%def name="each_sum()" filter="trim">
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        #pragma unroll
        for (int j = 0; j < NWI; ++j) {
            ${capture(caller.body) | trim}
        }
    }
</%def>

<%def name="load_biases()" filter="trim">
% if problem.bias == "column":
    wide biases[NWI];
    #pragma unroll
    for (int j = 0; j < NWI; ++j) {
        const extent column = b_tile + ${column_of_j};
        biases[j] = column < n ? ${wide.entry("bias", "column * bias_stride")} : (wide)(0);
    }
% elif problem.bias == "row":
    wide biases[MWI];
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        const extent row = a_tile + ${row_of_i};
        biases[i] = row < m ? ${wide.entry("bias", "row * bias_stride")} : (wide)(0);
    }
% endif
</%def>

## The only write to the result: alpha, beta C, bias and activation are applied on the way.
<%def name="store()" filter="trim">
${load_biases()}
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        const extent row = a_tile + ${row_of_i};
        #pragma unroll
% if tiles.VWN == 1:
        for (int j = 0; j < NWI; ++j) {
            const extent column = b_tile + COLUMN(j);
            if (row < m && column < n) {
                ${wide.assign(results.one("j", "column"), "out", "OUT_AT(row, column)")}
            }
        }
% else:
        for (int j = 0; j < NWI / VWN; ++j) {
            const extent column = b_tile + COLUMN(j);
% if results.width > 1:
            if (row < m && column + VWN <= n) {
                ${wide.vector(results.width)} results;
                % if results.c_whole:
                const ${wide.vector(results.width)} addends = ${wide.load("c + C_AT(row, column)", results.width)};
                % endif
                % for lane in range(results.width):
                results${wide.lane(lane, results.width)} = ${results.of_vector(lane)};
                % endfor
                ${wide.store("results", "out + OUT_AT(row, column)", results.width)}
                continue;
            }
% endif
            #pragma unroll
            for (int lane = 0; lane < VWN; ++lane) {
                if (row < m && column + lane < n) {
                    ${wide.assign(results.one("j * VWN + lane", "column + lane"), "out", "OUT_AT(row, column + lane)")}
                }
            }
        }
% endif
    }
</%def>
