## The tile of a work-item: its position, its multiply-adds, and how it is stored.
##
## Context: element, wide, problem, tiles (an XgemmConfig, also for the direct family), fragments (as in
## common/fragment.mako), tile_item (a work-item's number within its slice), width (results that are stored
## at once), c_in_vectors (whether as many elements of C are loaded at once).

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
<% elements = times(tiles.STAGES, "KWG", f"{slab.upper}_PITCH") %>\
    __local element ${slab.name}_local[${elements}] __attribute__((aligned(64)));
% endfor
</%def>

## The first row and the first column of a tile of the result, from the tile's number.
<%def name="first_entry(tile='tile')" filter="trim">
% if tiles.GROUP_M > 1:
    // Tiles are numbered in bands of ${tiles.GROUP_M} tile rows, column by column, so that work-groups that run
    // at the same time read the same rows of A and columns of B from the cache. A band has at most
    // tiles_m rows, so that products of these numbers stay in range.
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

## The position of the work-item's part of the tile.
<%def name="item()" filter="trim">
<%
    lanes_m, lanes_n = tiles.LANES_M, tiles.LANES_N
    run, runs_m = lanes_m * lanes_n, tiles.MDIMC // lanes_m
    # The work-item's number along the rows and the columns of its run; and the run's.
    lane_m = modulo(tile_item, lanes_m)
    lane_n = divided(modulo(tile_item, run), lanes_m)
    run_m = modulo(divided(tile_item, run), runs_m)
    run_n = divided(tile_item, run * runs_m)
%>
    const int item = get_local_id(0);
% if tiles.SLICES > 1:
    // Each slice of the work-items computes the whole tile from its own rows of every slab.
    const int slice = item / TILE_ITEMS;
    const int tile_item = item % TILE_ITEMS;
    const int slice_row = slice * SLICE_DEPTH;
% endif
% if tiles.LANES_M == tiles.MDIMC and tiles.LANES_N == 1:
    const int item_m = ${tile_item} % MDIMC;
    const int item_n = ${tile_item} / MDIMC;
% else:
    // A run of ${run} neighbouring work-items covers ${lanes_m} x ${lanes_n} work-items of the tile.
    const int item_m = ${plus(times(run_m, lanes_m), lane_m)};
    const int item_n = ${plus(times(run_n, lanes_n), lane_n)};
% endif
% if tiles.SHUFFLE:
    // The run is a sub-group. Work-items with the same rows share the loads of A's row of a slab;
    // work-items with the same columns share those of B's.
    const int lane_m = ${lane_m};
    const int lane_n = ${lane_n};
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

## Serpentine: every second row starts with the column with which the row before ended.
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

## The same one row behind: while a row is multiplied, the fragments of the next row are loaded from local
## memory. The last row of a slab is multiplied at the start of the next slab, after the barrier. `start`
## starts the loads of a later slab.
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

## The only write to the result; it applies alpha, beta C, bias and activation.
<%def name="store()" filter="trim">
<%
    def result(j, column, addend=""):
        """The result in column j of the work-item's tile, at `column` of the matrix."""
        addend = addend or wide.entry("c", f"C_AT(row, {column})")
        bias = f"biases[{j}]" if problem.bias == "column" else "biases[i]"
        return result_of(f"accumulators[i][{j}]", addend, bias)

    def result_of_vector(lane):
        addend = f"addends{wide.lane(lane, width)}" if c_in_vectors else ""
        return result(plus("j * VWN", lane), plus("column", lane), addend)
%>\
${load_biases()}
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        const extent row = a_tile + ${row_of_i};
        #pragma unroll
% if tiles.VWN == 1:
        for (int j = 0; j < NWI; ++j) {
            const extent column = b_tile + COLUMN(j);
            if (row < m && column < n) {
                ${wide.assign(result("j", "column"), "out", "OUT_AT(row, column)")}
            }
        }
% else:
        for (int j = 0; j < NWI / VWN; ++j) {
            const extent column = b_tile + COLUMN(j);
% if width > 1:
            if (row < m && column + VWN <= n) {
                ${wide.vector(width)} results;
                % if c_in_vectors:
                const ${wide.vector(width)} addends = ${wide.load("c + C_AT(row, column)", width)};
                % endif
                % for lane in range(width):
                results${wide.lane(lane, width)} = ${result_of_vector(lane)};
                % endfor
                ${wide.store("results", "out + OUT_AT(row, column)", width)}
                continue;
            }
% endif
            #pragma unroll
            for (int lane = 0; lane < VWN; ++lane) {
                if (row < m && column + lane < n) {
                    ${wide.assign(result("j * VWN + lane", "column + lane"), "out", "OUT_AT(row, column + lane)")}
                }
            }
        }
% endif
    }
</%def>
