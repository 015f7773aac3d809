## The tile of a work-item: where it lies, its multiply-adds, and its way to memory.
##
## Context: element, wide, problem and tiles (an XgemmConfig; the direct family is described in
## the same names).

<%def name="defines()" filter="trim">
#define MWG ${tiles.MWG}  // rows of a work-group's tile
#define NWG ${tiles.NWG}  // columns of it
#define KWG ${tiles.KWG}  // depth of a slab
#define MDIMC ${tiles.MDIMC}  // work-items along the rows
#define NDIMC ${tiles.NDIMC}  // and along the columns
#define MWI (MWG / MDIMC)  // rows of a work-item's tile
#define NWI (NWG / NDIMC)  // columns of it
#define VWM ${tiles.VWM}  // vector width along the rows
#define VWN ${tiles.VWN}  // and along the columns
% if tiles.SA:
#define A_PITCH ${tiles.MWG + tiles.PADA}  // elements from one k to the next in local memory: MWG + PADA
% endif
% if tiles.SB:
#define B_PITCH ${tiles.NWG + tiles.PADB}  // likewise NWG + PADB
% endif

// First row of vector i, and first column of vector j, of a work-item's tile.
% if tiles.STRM:
#define ROW(i) (((i) * MDIMC + item_m) * VWM)
% else:
#define ROW(i) (item_m * MWI + (i) * VWM)
% endif
% if tiles.STRN:
#define COLUMN(j) (((j) * NDIMC + item_n) * VWN)
% else:
#define COLUMN(j) (item_n * NWI + (j) * VWN)
% endif
</%def>

<%def name="locals(slabs)" filter="trim">
% for slab in slabs:
    __local element ${slab.name}_local[${"2 * " if tiles.STAGES == 2 else ""}KWG * ${slab.name.upper()}_PITCH] __attribute__((aligned(64)));
% endfor
</%def>

<%def name="place()" filter="trim">
    const extent group = get_group_id(0);
    const extent tiles_n = (n + NWG - 1) / NWG;
% if tiles.GROUP_M > 1:
    // Tiles are walked in bands of ${tiles.GROUP_M} tile rows, column by column: groups that run at the
    // same time then share rows of A and columns of B in the cache.
    const extent tiles_m = (m + MWG - 1) / MWG;
    const extent band = group / (${tiles.GROUP_M} * tiles_n);
    const extent band_rows = min(tiles_m - band * ${tiles.GROUP_M}, (extent)${tiles.GROUP_M});
    const extent place = group - band * ${tiles.GROUP_M} * tiles_n;
    const extent a_tile = (band * ${tiles.GROUP_M} + place % band_rows) * MWG;
    const extent b_tile = place / band_rows * NWG;
% else:
    const extent a_tile = group / tiles_n * MWG;
    const extent b_tile = group % tiles_n * NWG;
% endif

    const int item = get_local_id(0);
% if tiles.LANES_M == tiles.MDIMC and tiles.LANES_N == 1:
    const int item_m = item % MDIMC;
    const int item_n = item / MDIMC;
% else:
<% run = tiles.LANES_M * tiles.LANES_N %>
<% runs_m = tiles.MDIMC // tiles.LANES_M %>
    // A run of ${run} neighbouring work-items covers ${tiles.LANES_M} x ${tiles.LANES_N} places of the tile.
    const int item_m = item / ${run} % ${runs_m} * ${tiles.LANES_M} + item % ${tiles.LANES_M};
    const int item_n = item / ${run * runs_m} * ${tiles.LANES_N} + item % ${run} / ${tiles.LANES_M};
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

## The share of a work-item in one row of a slab, vector by vector.
<%def name="fragment(name, count, width, source)" filter="trim">
    element ${name}_fragment[${count}];
    #pragma unroll
    for (int i = 0; i < ${count} / ${width}; ++i) {
        const ${element.vector(width)} v = ${source};
        % for lane in range(width):
        ${name}_fragment[i * ${width} + ${lane}] = v${element.lane(lane, width)};
        % endfor
    }
</%def>

## The multiply-adds of the slab at `depth`.
<%def name="multiply()" filter="trim">
    #pragma unroll ${tiles.KWI}
    for (int p = 0; p < KWG; ++p) {
        % if tiles.SA:
        ${fragment("a", "MWI", tiles.VWM, f"*(const __local {element.vector(tiles.VWM)} *)(a_slab + p * A_PITCH + ROW(i))")}
        % else:
        ${fragment("a", "MWI", tiles.VWM, element.load("a + A_AT(a_tile + ROW(i), depth + p)", tiles.VWM))}
        % endif
        % if tiles.SB:
        ${fragment("b", "NWI", tiles.VWN, f"*(const __local {element.vector(tiles.VWN)} *)(b_slab + p * B_PITCH + COLUMN(i))")}
        % else:
        ${fragment("b", "NWI", tiles.VWN, element.load("b + B_AT(depth + p, b_tile + COLUMN(i))", tiles.VWN))}
        % endif
        #pragma unroll
        for (int i = 0; i < MWI; ++i) {
            #pragma unroll
            for (int j = 0; j < NWI; ++j) {
                accumulators[i][j] = multiply_add(a_fragment[i], b_fragment[j], accumulators[i][j]);
            }
        }
    }
</%def>

## The statements that take the accumulator to the result, in `value`.
<%def name="finish(accumulator, addend, lane)" filter="trim">
    wide value = scale(alpha, ${f"({wide.real}){accumulator}" if wide.real != element.real else accumulator});
    % if problem.c:
    value += scale(beta, ${addend});
    % endif
    % if problem.bias == "column":
    value += biases[j * VWN + ${lane}];
    % elif problem.bias == "row":
    value += biases[i];
    % endif
    % if problem.activation:
    value = activate(value);
    % endif
</%def>

<%def name="load_biases()" filter="trim">
% if problem.bias == "column":
    wide biases[NWI];
    #pragma unroll
    for (int j = 0; j < NWI; ++j) {
        const extent column = b_tile + COLUMN(j / VWN) + j % VWN;
        biases[j] = column < n ? ${wide.load("bias + column * bias_stride", 1)} : (wide)(0);
    }
% elif problem.bias == "row":
    wide biases[MWI];
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        const extent row = a_tile + ROW(i / VWM) + i % VWM;
        biases[i] = row < m ? ${wide.load("bias + row * bias_stride", 1)} : (wide)(0);
    }
% endif
</%def>

## The only write to the result: alpha, beta C, bias and activation are applied on the way.
<%def name="store()" filter="trim">
<%
    width = tiles.VWN
    whole = width > 1 and problem.out.order == "row" and problem.out.alignment >= width
    c_whole = whole and problem.c and problem.c.order == "row" and problem.c.alignment >= width
%>
${load_biases()}
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        const extent row = a_tile + ROW(i / VWM) + i % VWM;
        #pragma unroll
        for (int j = 0; j < NWI / VWN; ++j) {
            const extent column = b_tile + COLUMN(j);
% if whole:
            if (row < m && column + VWN <= n) {
                ${wide.vector(width)} results;
                % if c_whole:
                const ${wide.vector(width)} addends = ${wide.load("c + C_AT(row, column)", width)};
                % endif
                % for lane in range(width):
                {
                    ${finish(f"accumulators[i][j * VWN + {lane}]", f"addends{wide.lane(lane, width)}" if c_whole else wide.load(f"c + C_AT(row, column + {lane})", 1), lane)}
                    results${wide.lane(lane, width)} = value;
                }
                % endfor
                ${wide.store("results", "out + OUT_AT(row, column)", width)}
                continue;
            }
% endif
            #pragma unroll
            for (int lane = 0; lane < VWN; ++lane) {
                if (row < m && column + lane < n) {
                    ${finish("accumulators[i][j * VWN + lane]", wide.load("c + C_AT(row, column + lane)", 1), "lane")}
                    ${wide.store("value", "out + OUT_AT(row, column + lane)", 1)}
                }
            }
        }
    }
</%def>
