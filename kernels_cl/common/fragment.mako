## The fragments of a work-item: the elements of a row of a slab that it multiplies, from memory to
## registers.
##
## Context: element, problem, tiles (an XgemmConfig), slab_row (the number of a row in the slab), fragments
## (a FragmentReader for A and one for B, see pyclgemm/families/tiled/codegen.py).

## Expression for vector i of the elements that a work-item loads of row `row` of a slab.
<%def name="vector_of(one, row)" filter="trim">
% if not one.staged:
<% entry = [f"{one.name}_tile + {one.position}", f"depth + {slab_row(row)}"] %>\
${element.load(f"{one.name} + {one.upper}_AT({', '.join(entry if one.name == 'a' else entry[::-1])})", one.width)}
% elif tiles.SWIZZLE > 1:
<% index = f"{one.upper}_INDEX({slab_row(row)}, {one.first} + i * {one.step})" %>\
*(const __local ${element.vector(one.width)} *)(${one.slab} + ${index})
% else:
*(const __local ${element.vector(one.width)} *)(${one.name}_row + ${row} * ${one.pitch} + i * ${one.step})
% endif
</%def>

## Loads a fragment of row `row` of a slab into the array `to`: a work-item loads vectors itself, and takes
## the rest from others of the sub-group if they share the fragment.
<%def name="load_one(one, to, row)" filter="trim">
<%
    # A copy past the registers cannot conjugate.
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

## Pointers to the first elements that a work-item loads of a slab.
<%def name="rows_of_slab()" filter="trim">
% for one in fragments:
% if one.staged and tiles.SWIZZLE == 1:
<% row = "slice_row" if tiles.SLICES > 1 else 0 %>\
    const __local element *${one.name}_row = ${plus(one.slab, one.first, times(row, one.pitch))};
% endif
% endfor
</%def>

## Loads the fragments of row `row` of both slabs into two arrays.
<%def name="load(a_to, b_to, row)" filter="trim">
% for one, to in zip(fragments, (a_to, b_to)):
    ${load_one(one, to, row)}
% endfor
</%def>
