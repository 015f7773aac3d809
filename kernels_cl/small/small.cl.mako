## Batches of small products on GPUs. All work-items of a group copy A and B of several products, whole,
## into local memory; then each multiplies a tile of one product in registers. Sizes are constants.
##
## Context: small (a SmallConfig), tiling (a SmallTiling), operands (SmallOperand; none where k is 0), width
## (results that are stored at once), c_in_vectors (whether as many elements of C are loaded at once),
## result_at (of GemmKernel), and what all gemm templates see.
<%namespace name="prelude" file="/common/prelude.mako"/>
${prelude.types()}

#define MWI ${small.MWI}  // rows of a work-item's tile
#define NWI ${small.NWI}  // columns of it
#define ITEMS_M ${tiling.items_m}  // work-items along the rows of a product
#define ITEMS_N ${tiling.items_n}  // and along its columns
#define PRODUCTS ${tiling.products}  // of a work-group
#define ITEMS ${tiling.work_items}  // work-items of a group

// Rows and columns of a work-item's tile: groups of ${tiling.a.group} rows and of ${tiling.b.group} columns.
#define ROW(i) (${position(tiling.a, "(i)", "ITEMS_M", "item_m")})
#define COLUMN(j) (${position(tiling.b, "(j)", "ITEMS_N", "item_n")})

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

    // The work-item's tile in its own product.
<% items = tiling.items_m * tiling.items_n %>\
    const int own = ${divided("item", items)};
    const int item_m = ${divided(modulo("item", items), tiling.items_n)};
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

## The position in the product of position `number` of a work-item's tile.
<%def name="position(one, number, items, item)" filter="trim">
<% group = plus(times(divided(number, one.group), items), item) %>\
${plus(times(group, one.group), modulo(number, one.group))}
</%def>

## A statement for each vector of an operand that a work-item copies; neighbours copy neighbours.
<%def name="each_vector(one, unrolling='')" filter="trim">
<%
    in_line = one.length // one.width  # vectors of a line
    is_even = tiling.products * one.vectors % tiling.work_items == 0
%>\
    #pragma unroll ${unrolling}
    for (int i = 0; i < ${one.copies}; ++i) {
        const int number = i * ITEMS + item;
        const int copied = ${divided("number", one.vectors)};  // the product
        const int line = ${divided(modulo("number", one.vectors), in_line)};
        const int position = ${times(modulo("number", in_line), one.width)};
        if (${"" if is_even else "copied < PRODUCTS && "}first_product + copied < batch) {
            ${capture(caller.body) | trim}
        }
    }
</%def>

## That vector in global memory.
<%def name="in_global(one)" filter="trim">
<%
    layout, number = problem.operand(one.name), "first_product + copied"
    matrix = f"{one.name}_offsets[{number}]" if layout.scattered else f"({number}) * {one.name}_batch_stride"
    entry = "line, position" if one.along_k == (one.name == "a") else "position, line"
    signs = element.conjugation(one.width) if layout.conjugate else ""
%>\
${element.load(f"{one.name} + {matrix} + {one.name.upper()}_AT({entry})", one.width)}${signs}
</%def>

## That vector in local memory.
<%def name="in_local(one)" filter="trim">
*(__local ${element.vector(one.width)} *)(${one.name}_local + copied * ${one.size} + line * ${one.pitch} + position)
</%def>

## Fetches an operand into registers, so that all loads are under way at once. If it does not fit
## there, a loop that is not fully unrolled copies it to local memory directly.
<%def name="fetch(one)" filter="trim">
% if one.fits_registers:
    ${element.vector(one.width)} ${one.name}_fetched[${one.copies}];
    <%call expr="each_vector(one)">
    ${one.name}_fetched[i] = ${in_global(one)};
    </%call>
% else:
    <%call expr="each_vector(one, 8)">
    ${in_local(one)} = ${in_global(one)};
    </%call>
% endif
</%def>

## Writes the fetched operand to local memory.
<%def name="stage(one)" filter="trim">
% if one.fits_registers:
    <%call expr="each_vector(one)">
    ${in_local(one)} = ${one.name}_fetched[i];
    </%call>
% endif
</%def>

## Where the work-item's product starts in local memory.
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
<%
    # Which entries belong to the result, where tiles reach beyond it.
    inside = [f"row < {problem.m}"] if tiling.items_m * small.MWI > problem.m else []
    inside += [f"column < {problem.n}"] if tiling.items_n * small.NWI > problem.n else []

    def result(lane):
        addend = f"addends{wide.lane(lane, width)}" if c_in_vectors else ""
        return result_at(f"accumulators[i][{plus('j', lane)}]", "row", plus("column", lane), addend)
%>\
    ${prelude.move_on("product")}
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        const int row = ROW(i);
        #pragma unroll
        for (int j = 0; j < NWI; ${f"j += {width}" if width > 1 else "++j"}) {
            const int column = COLUMN(j);
            % if inside:
            if (!(${" && ".join(inside)})) {
                continue;
            }
            % endif
            % if width > 1:
            ${wide.vector(width)} results;
            % if c_in_vectors:
            const ${wide.vector(width)} addends = ${wide.load("c + C_AT(row, column)", width)};
            % endif
            % for lane in range(width):
            results${wide.lane(lane, width)} = ${result(lane)};
            % endfor
            ${wide.store("results", "out + OUT_AT(row, column)", width)}
            % else:
            ${wide.assign(result(0), "out", "OUT_AT(row, column)")}
            % endif
        }
    }
</%def>
