## Batches of small products on GPUs. A work-group copies A and B of several products into local memory,
## whole, with all its work-items side by side; then each multiplies a tile of one product in registers.
## Sizes are constants.
##
## Context: small (a SmallConfig), tiling (a SmallTiling), operands (those in local memory: none where k is
## 0), store_width (results that are stored at once), edge_m and edge_n (whether tiles reach beyond the
## result), and what all gemm templates see.
<%namespace name="prelude" file="/common/prelude.mako"/>
${prelude.types()}

#define MWI ${small.MWI}  // rows of a work-item's tile
#define NWI ${small.NWI}  // columns of it
#define ITEMS_M ${tiling.items_m}  // work-items along the rows of a product
#define ITEMS_N ${tiling.items_n}  // and along its columns
#define PRODUCTS ${tiling.products}  // of a work-group
#define ITEMS ${tiling.work_items}  // work-items of a group

// Of a work-item's tile: rows and columns, which come in groups of ${tiling.a.group} and ${tiling.b.group}.
#define ROW(i) (((i) / ${tiling.a.group} * ITEMS_M + item_m) * ${tiling.a.group} + (i) % ${tiling.a.group})
#define COLUMN(j) (((j) / ${tiling.b.group} * ITEMS_N + item_n) * ${tiling.b.group} + (j) % ${tiling.b.group})

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
    const int own = item / ${tiling.items_of_product};
    const int item_m = item % ${tiling.items_of_product} / ITEMS_N;
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

## A work-item's vectors of an operand of all products, neighbours beside neighbours: a statement for each.
<%def name="each_vector(one, unrolling, statement)" filter="trim">
    #pragma unroll ${unrolling}
    for (int i = 0; i < ${tiling.copies(one)}; ++i) {
        const int number = i * ITEMS + item;
        const int copied = number / ${one.vectors};  // the product
        const int line = number % ${one.vectors} / ${one.length // one.width};
        const int place = number % ${one.length // one.width} * ${one.width};
        if (${"" if tiling.products * one.vectors % tiling.work_items == 0 else f"copied < PRODUCTS && "}first_product + copied < batch) {
            ${statement}
        }
    }
</%def>

## Where such a vector lies.
<%def name="in_global(one)" filter="trim">
<%
    layout = getattr(problem, one.name)
    signs = element.conjugation(one.width) if layout.conjugate else ""
    matrix = f"{one.name}_offsets[first_product + copied]" if layout.scattered else f"(first_product + copied) * {one.name}_batch_stride"
%>
${element.load(f"{one.name} + {matrix} + {one.name.upper()}_AT({one.at('line', 'place')})", one.width)}${signs}
</%def>
<%def name="in_local(one)" filter="trim">
*(__local ${element.vector(one.width)} *)(${one.name}_local + copied * ${one.size} + line * ${one.pitch} + place)
</%def>

## Into registers, so that all loads are on their way at once; more than fit there go straight to
## local memory, and the loop stays one.
<%def name="fetch(one)" filter="trim">
% if tiling.fits_registers(one, element):
    ${element.vector(one.width)} ${one.name}_fetched[${tiling.copies(one)}];
    ${each_vector(one, "", f"{one.name}_fetched[i] = {capture(in_global, one)};")}
% else:
    ${each_vector(one, 8, f"{capture(in_local, one)} = {capture(in_global, one)};")}
% endif
</%def>

## From there to local memory.
<%def name="stage(one)" filter="trim">
% if tiling.fits_registers(one, element):
    ${each_vector(one, "", f"{capture(in_local, one)} = {one.name}_fetched[i];")}
% endif
</%def>

## The values of a step of k at a work-item's rows or columns.
<%def name="load(one, extent, position)" filter="trim">
% if one.along_k:
    #pragma unroll
    for (int i = 0; i < ${extent}; ++i) {
        const ${element.vector(tiling.step)} v = *(const __local ${element.vector(tiling.step)} *)(${one.name}_local + own * ${one.size} + ${position}(i) * ${one.pitch} + p);
        % for lane in range(tiling.step):
        ${one.name}_values[${lane}][i] = v${element.lane(lane, tiling.step)};
        % endfor
    }
% else:
    #pragma unroll
    for (int q = 0; q < ${tiling.step}; ++q) {
        #pragma unroll
        for (int i = 0; i < ${extent}; i += ${one.group}) {
            const ${element.vector(one.group)} v = *(const __local ${element.vector(one.group)} *)(${one.name}_local + own * ${one.size} + (p + q) * ${one.pitch} + ${position}(i));
            % for lane in range(one.group):
            ${one.name}_values[q][i + ${lane}] = v${element.lane(lane, one.group)};
            % endfor
        }
    }
% endif
</%def>

<%def name="store()" filter="trim">
<%
    whole = store_width > 1
    c_whole = whole and problem.c and problem.c.order == "row" and problem.c.alignment >= store_width
    bias_at = {"row": "row", "column": "(column + {})"}.get(problem.bias, "").format
    inside = [f"row < {problem.m}"] * edge_m + [f"column < {problem.n}"] * edge_n
%>
    ${prelude.move_on("product")}
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        const int row = ROW(i);
        #pragma unroll
        for (int j = 0; j < NWI; j += ${store_width}) {
            const int column = COLUMN(j);
            % if inside:
            if (!(${" && ".join(inside)})) {
                continue;
            }
            % endif
            % if whole:
            ${wide.vector(store_width)} results;
            % if c_whole:
            const ${wide.vector(store_width)} addends = ${wide.load("c + C_AT(row, column)", store_width)};
            % endif
            % endif
            % for lane in range(store_width):
            {
                ${prelude.finish(f"accumulators[i][j + {lane}]", f"addends{wide.lane(lane, store_width)}" if c_whole else wide.load(f"c + C_AT(row, column + {lane})", 1), wide.load(f"bias + {bias_at(lane)} * bias_stride", 1))}
                % if whole:
                results${wide.lane(lane, store_width)} = value;
                % else:
                ${wide.store("value", "out + OUT_AT(row, column)", 1)}
                % endif
            }
            % endfor
            % if whole:
            ${wide.store("results", "out + OUT_AT(row, column)", store_width)}
            % endif
        }
    }
</%def>
