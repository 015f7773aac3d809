## The fragments of a work-item: what it needs of a row of a slab, from memory to registers.
##
## Context: element, problem, tiles (an XgemmConfig) and fragments (a FragmentReader for A and one
## for B, see pyclgemm/families/tiled/codegen.py).

## Expression for vector i of what a work-item loads of row `row` of a slab.
<%def name="vector_of(one, row)" filter="trim">
% if not one.staged:
${element.load(f"{one.name} + {one.upper}_AT({', '.join(one.entry(slab_row(row)))})", one.width)}
% elif tiles.SWIZZLE > 1:
*(const __local ${element.vector(one.width)} *)(${one.vector_at(slab_row(row))})
% else:
*(const __local ${element.vector(one.width)} *)(${one.name}_row + ${row} * ${one.pitch} + i * ${one.step})
% endif
</%def>

## What a work-item needs of row `row` of a slab into the array `to`: what it loads itself, vector
## by vector, and what others of the sub-group have loaded.
<%def name="load_one(one, to, row)" filter="trim">
<%
    # A copy past the registers cannot conjugate on its way.
    late = tiles.ASYNC and getattr(problem, one.name).conjugate
    signs = element.conjugation(one.width) if late else ""
    loaded = f"{one.name}_part" if one.source else to
%>
    % if one.source:
    element ${loaded}[${one.part}];
    % endif
    #pragma unroll
    % if one.width > 1:
    for (int i = 0; i < ${one.part} / ${one.width}; ++i) {
        const ${element.vector(one.width)} v = ${vector_of(one, row)}${signs};
        % for lane in range(one.width):
        ${loaded}[i * ${one.width}${f" + {lane}" if lane else ""}] = v${element.lane(lane, one.width)};
        % endfor
    }
    % else:
    for (int i = 0; i < ${one.part}; ++i) {
        ${loaded}[i] = ${vector_of(one, row)}${signs};
    }
    % endif
    % if one.source:
    #pragma unroll
    for (int i = 0; i < ${one.length}; ++i) {
        ${to}[i] = shuffle(${loaded}[i % ${one.part}], ${one.source});
    }
    % endif
</%def>

## Where what a work-item loads of the rows of a slab begins.
<%def name="rows_of_slab()" filter="trim">
% for one in fragments:
% if one.staged and tiles.SWIZZLE == 1:
    const __local element *${one.name}_row = ${one.row_at("slice_row" if tiles.SLICES > 1 else 0)};
% endif
% endfor
</%def>

## What a work-item needs of row `row` of both slabs, into the given arrays.
<%def name="load(a_to, b_to, row)" filter="trim">
% for one, to in zip(fragments, (a_to, b_to)):
    ${load_one(one, to, row)}
% endfor
</%def>
