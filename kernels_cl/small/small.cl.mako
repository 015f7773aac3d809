## Batches of small products on GPUs. A work-group copies A and B of several products into local memory,
## whole, with all its work-items side by side; then each multiplies a tile of one product in registers.
## Sizes are constants.
##
## Context: small (a SmallConfig), tiling (a SmallTiling), operands (those in local memory: none where k is
## 0), results (a SmallResults), and what all gemm templates see.
<%namespace name="prelude" file="/common/prelude.mako"/>
${prelude.types()}

#define MWI ${small.MWI}  // rows of a work-item's tile
#define NWI ${small.NWI}  // columns of it
#define ITEMS_M ${tiling.items_m}  // work-items along the rows of a product
#define ITEMS_N ${tiling.items_n}  // and along its columns
#define PRODUCTS ${tiling.products}  // of a work-group
#define ITEMS ${tiling.work_items}  // work-items of a group

// Rows and columns of a work-item's tile, which come in groups of ${tiling.a.group} and ${tiling.b.group}.
#define ROW(i) (${tiling.a.position("(i)", "ITEMS_M", "item_m")})
#define COLUMN(j) (${tiling.b.position("(j)", "ITEMS_N", "item_n")})

${prelude.address("a", problem.a)}
${prelude.address("b", problem.b)}
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif

${prelude.arithmetic()}

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({work_items}, 1, 1)))", arguments)}
{
% for one in operands:
    __local element ${one.name}_local[PRODUCTS * ${one.size}] __attribute__((aligned(64)));
% endfor
    ${prelude.offsets("a", "b", "out")}

    const int item = get_local_id(0);
    const long first_product = (long)get_group_id(0) * PRODUCTS;
% for one in operands:
    ${fetch(one)}
% endfor
% for one in operands:
    ${stage(one)}
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);

    // The work-item's tile, of one of the products.
    const int own = ${tiling.own};
    const int item_m = ${tiling.item_m};
    const int item_n = item % ITEMS_N;
    const long product = first_product + own;
    if (product >= batch) {
        return;
    }
    element accumulators[MWI][NWI];
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        #pragma unroll
        for (int j = 0; j < NWI; ++j) {
            accumulators[i][j] = (element)(0);
        }
    }
% if operands:
    #pragma unroll ${small.KWI}
    for (int p = 0; p < ${problem.k}; p += ${tiling.step}) {
        element a_values[${tiling.step}][MWI];
        element b_values[${tiling.step}][NWI];
        ${load(operands[0], "MWI", "ROW")}
        ${load(operands[1], "NWI", "COLUMN")}
        #pragma unroll
        for (int q = 0; q < ${tiling.step}; ++q) {
            #pragma unroll
            for (int i = 0; i < MWI; ++i) {
                #pragma unroll
                for (int j = 0; j < NWI; ++j) {
                    accumulators[i][j] = multiply_add(a_values[q][i], b_values[q][j], accumulators[i][j]);
                }
            }
        }
    }
% endif
    ${store()}
}

## A statement for each vector of an operand that a work-item copies; neighbours copy neighbours.
<%def name="each_vector(one, unrolling, statement)" filter="trim">
    #pragma unroll ${unrolling}
    for (int i = 0; i < ${one.copies}; ++i) {
        const int number = i * ITEMS + item;
        const int copied = ${one.copied};  // the product
        const int line = ${one.line};
        const int position = ${one.first};
        if (${one.guard}first_product + copied < batch) {
            ${statement}
        }
    }
</%def>

## Fetches an operand into registers, so that all loads are under way at once; if it does not fit
## there, copies it straight to local memory, in a loop that is not unrolled whole.
<%def name="fetch(one)" filter="trim">
% if one.fits_registers:
    ${element.vector(one.width)} ${one.name}_fetched[${one.copies}];
    ${each_vector(one, "", f"{one.name}_fetched[i] = {one.in_global};")}
% else:
    ${each_vector(one, 8, f"{one.in_local} = {one.in_global};")}
% endif
</%def>

## Stores what was fetched in local memory.
<%def name="stage(one)" filter="trim">
% if one.fits_registers:
    ${each_vector(one, "", f"{one.in_local} = {one.name}_fetched[i];")}
% endif
</%def>

## Where the work-item's own product begins in local memory.
<%def name="own(one)" filter="trim">
${one.name}_local + own * ${one.size}
</%def>

## The values of a step of k at a work-item's rows or columns.
<%def name="load(one, extent, position)" filter="trim">
% if one.along_k:
    #pragma unroll
    for (int i = 0; i < ${extent}; ++i) {
        % if tiling.step > 1:
        const __local element *values = ${own(one)} + ${position}(i) * ${one.pitch} + p;
        const ${element.vector(tiling.step)} v = *(const __local ${element.vector(tiling.step)} *)values;
        % for lane in range(tiling.step):
        ${one.name}_values[${lane}][i] = v${element.lane(lane, tiling.step)};
        % endfor
        % else:
        ${one.name}_values[0][i] = *(${own(one)} + ${position}(i) * ${one.pitch} + p);
        % endif
    }
% else:
    #pragma unroll
    for (int q = 0; q < ${tiling.step}; ++q) {
        #pragma unroll
        % if one.group > 1:
        for (int i = 0; i < ${extent}; i += ${one.group}) {
            const __local element *values = ${own(one)} + (p + q) * ${one.pitch} + ${position}(i);
            const ${element.vector(one.group)} v = *(const __local ${element.vector(one.group)} *)values;
            % for lane in range(one.group):
            ${one.name}_values[q][i${f" + {lane}" if lane else ""}] = v${element.lane(lane, one.group)};
            % endfor
        }
        % else:
        for (int i = 0; i < ${extent}; ++i) {
            ${one.name}_values[q][i] = *(${own(one)} + (p + q) * ${one.pitch} + ${position}(i));
        }
        % endif
    }
% endif
</%def>

<%def name="store()" filter="trim">
    ${prelude.move_on("product")}
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        const int row = ROW(i);
        #pragma unroll
        for (int j = 0; j < NWI; ${f"j += {results.width}" if results.width > 1 else "++j"}) {
            const int column = COLUMN(j);
            % if results.inside:
            if (!(${results.inside})) {
                continue;
            }
            % endif
            % if results.width > 1:
            ${wide.vector(results.width)} results;
            % if results.c_whole:
            const ${wide.vector(results.width)} addends = ${wide.load("c + C_AT(row, column)", results.width)};
            % endif
            % for lane in range(results.width):
            results${wide.lane(lane, results.width)} = ${results.at(lane)};
            % endfor
            ${wide.store("results", "out + OUT_AT(row, column)", results.width)}
            % else:
            ${wide.assign(results.at(0), "out", "OUT_AT(row, column)")}
            % endif
        }
    }
</%def>
