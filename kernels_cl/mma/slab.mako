## Copies slabs of A and B into local memory, in the order of global memory.
##
## Past the registers, `copy_slab` starts a slab's copies. Through registers a copy takes two steps:
## `fetch_slab` reads a work-item's vectors from global memory, `store_slab` writes them to local memory. So
## the next slab can be read while this one is multiplied.
##
## Rows and columns of a slab are those in memory: the elements of a row are contiguous.
##
## Context: slabs (MatrixSlab), copied (the slabs whose copying functions differ), tiles (a MatrixConfig),
## past_registers, caches_slabs, first_depth and last_depth (in C: the depths that a work-group multiplies).
<%namespace name="async_copy" file="/common/async_copy.mako"/>

<%def name="functions()" filter="trim">
<% by_elements = [slab for slab in copied if slab.edges == "elements" and not slab.turned] %>\
% if not past_registers and by_elements:
${elements_function(by_elements[0])}

% endif
% for slab in copied:
% if past_registers:
${copy_function(slab)}
% elif slab.turned:
${fetch_turned_function(slab)}

${write_turned_function(slab)}
% else:
${fetch_function(slab)}

${write_function(slab)}
% endif

% endfor
</%def>

## The loop over the vectors of a slab that a work-item copies.
<%def name="each_vector(slab)" filter="trim">
% if slab.copies > 1:
    #pragma unroll
    for (int i = 0; i < ${slab.copies}; ++i) {
        ${capture(caller.body) | trim}
    }
% else:
    ${capture(caller.body) | trim}
% endif
</%def>

<%def name="elements_function(slab)" filter="trim">
// The first `count` elements of a vector; the others are zero.
static inline vector load_elements(const __global ${slab.element.stored} *from, const int count)
{
    ${load_by_elements(slab, "vector", "stored", slab.width)}
}
</%def>

## Loads the first `count` elements of a C vector; the others are zero.
<%def name="load_by_elements(slab, vector, element, width)" filter="trim">
    const __global ${element} *elements = (const __global ${element} *)from;
    ${vector} loaded = (${vector})(0);
    % for one in range(width):
    if (${one} < count) loaded${slab.element.lane(one, width)} = elements[${one}];
    % endfor
    return loaded;
</%def>

<%def name="fetch_function(slab)" filter="trim">
<%
    loads = slab.width // slab.vector  # of a vector
    load_type = f"{slab.bits}{slab.vector if slab.vector > 1 else ''}"
    row_of_number, column_of_number = slab.place("number")
%>
% if loads > 1:
// Loads a vector in parts: its address is aligned to less than its size.
static inline vector load_vector${slab.suffix}(const __global ${slab.element.stored} *from)
{
    const __global ${load_type} *loads = (const __global ${load_type} *)from;
    return (vector)(${", ".join(f"loads[{one}]" for one in range(loads))});
}

% endif
// Reads this work-item's vectors of a slab of ${slab.rows} rows and ${slab.length} columns. Elements outside
// the matrix are zero, and add nothing.
static inline void fetch_slab${slab.suffix}(
    vector *fetched, const __global ${slab.element.stored} *matrix, const long stride, const int item,
    const extent first_row, const extent row_end, const extent first_column, const extent column_end)
{
    if (first_row + ${slab.rows} <= row_end && first_column + ${slab.length} <= column_end) {
        <%call expr="each_vector(slab)">
            const int number = ${slab.number};
            const extent row = first_row + ${row_of_number};
            const extent column = first_column + ${column_of_number};
            % if loads > 1:
            fetched[${slab.i}] = load_vector${slab.suffix}(matrix + row * stride + column);
            % else:
            fetched[${slab.i}] = *(const __global vector *)(matrix + row * stride + column);
            % endif
        </%call>
    } else {
        <%call expr="each_vector(slab)">
            const int number = ${slab.number};
            const extent row = first_row + ${row_of_number};
            const extent column = first_column + ${column_of_number};
            % if slab.edges == "elements":
            const int inside = row < row_end ? clamp(column_end - column, (extent)0, (extent)${slab.width}) : 0;
            fetched[${slab.i}] = load_elements(matrix + (inside ? row * stride + column : 0), inside);
            % else:
            fetched[${slab.i}] = (vector)(0);
            if (row < row_end && column < column_end) {
                fetched[${slab.i}] = *(const __global vector *)(matrix + row * stride + column);
            }
            % endif
        </%call>
    }
}
</%def>

<%def name="write_function(slab)" filter="trim">
// Writes them to local memory, where rows are ${slab.pitch} elements apart.
static inline void store_slab${slab.suffix}(__local stored *slab, const vector *fetched, const int item)
{
    <%call expr="each_vector(slab)">
        const int number = ${slab.number};
<% row, column = slab.place("number") %>\
        const int row = ${row};
        const int column = ${column};
        *(__local vector *)(slab + row * ${slab.pitch} + ${slab.column("row", "column")}) = fetched[${slab.i}];
    </%call>
}
</%def>

## A slab that work-items transpose: k is contiguous in local memory only. A work-item reads blocks of 4 x 4
## elements, a word of each of 4 rows.
<%def name="fetch_turned_function(slab)" filter="trim">
<%
    position, depth = slab.turned_place("number")
    whole = slab.vector == 4
%>
// Loads a word of four elements of a row, of which ${"all or none are" if slab.edges == "vectors" else "the first `count` are"} inside the matrix; others are zero.
static inline uchar4 load_word${slab.suffix}(const __global ${slab.element.stored} *from, const extent count)
{
    % if slab.edges == "vectors":
    return as_uchar4(count > 0 ? *(const __global uint *)from : 0);
    % else:
    % if whole:
    if (count >= 4) return as_uchar4(*(const __global uint *)from);
    % endif
    ${load_by_elements(slab, "uchar4", "uchar", 4)}
    % endif
}

// Reads this work-item's blocks of a slab of ${slab.length} rows and ${slab.rows} columns, and transposes them.
static inline void fetch_slab${slab.suffix}(
    vector *fetched, const __global ${slab.element.stored} *matrix, const long stride, const int item,
    const extent first_row, const extent row_end, const extent first_column, const extent column_end)
{
    <%call expr="each_vector(slab)">
        const int number = ${slab.number};
        const extent row = first_row + ${depth};
        const extent columns = column_end - first_column - ${position};  // before the end
        const __global ${slab.element.stored} *from = matrix + row * stride + first_column + ${position};
        % for one in range(4):
        const uchar4 row_${one} = load_word${slab.suffix}(from${f" + {times(one, 'stride')}" if one else ""}, row${f" + {one}" if one else ""} < row_end ? columns : 0);
        % endfor
        fetched[${slab.i}] = as_${slab.element.stored}16((uchar16)(
            % for one in range(4):
            row_0.s${one}, row_1.s${one}, row_2.s${one}, row_3.s${one}${"," if one < 3 else "));"}
            % endfor
    </%call>
}
</%def>

<%def name="write_turned_function(slab)" filter="trim">
// Writes them to local memory, where the elements of a column are contiguous and columns are ${slab.pitch} apart.
static inline void store_slab${slab.suffix}(__local stored *slab, const vector *fetched, const int item)
{
    <%call expr="each_vector(slab)">
        const int number = ${slab.number};
<% position, depth = slab.turned_place("number") %>\
        __local uint *words = (__local uint *)(slab + ${times(position, slab.pitch)} + ${depth});
        const uint4 block = as_uint4(fetched[${slab.i}]);
        % for one in range(4):
        words[${one * slab.pitch // 4}] = block.s${one};
        % endfor
    </%call>
}
</%def>

<%def name="copy_function(slab)" filter="trim">
<%
    # Rows and columns from a work-item's first vector to its vector i.
    vectors = slab.length // slab.width  # of a row
    row_step, column_step = times(slab.i, slab.items // vectors), "0"
    if slab.items < vectors:
        in_row = vectors // slab.items
        row_step, column_step = divided(slab.i, in_row), times(modulo(slab.i, in_row), slab.items * slab.width)
    row_of_copy, column_of_copy = plus("row", row_step), plus("column", column_step)
    target = plus("slab", times(row_of_copy, slab.pitch), slab.column(row_of_copy, column_of_copy))
    source = plus("next", times(row_step, "stride"), column_step)
%>
// Starts the copies of this work-item's vectors of a slab. The first one comes from `next` and goes to
// (row, column). Elements outside the matrix are not read; they become zeros, which add nothing.
static inline void copy_slab${slab.suffix}(
    __local stored *slab, const __global ${slab.element.stored} *next, const long stride,
    const int row, const int column,
    const extent first_row, const extent row_end, const extent first_column, const extent column_end)
{
    <%call expr="each_vector(slab)">
        const bool in_rows = ${row_of_copy} < row_end - first_row;
        const extent columns = ${minus("column_end", "first_column", "column", column_step)};
        % if slab.edges == "vectors":
        const int bytes = in_rows && columns > 0 ? ${slab.piece} : 0;
        % else:
        const int left = clamp(columns, (extent)0, (extent)${slab.width});
        const int bytes = in_rows ? left * ${slab.element.stored_bytes} : 0;
        % endif
        ${async_copy.copy(target, source, slab.piece, "bytes", cached=caches_slabs)}
    </%call>
}
</%def>

## A work-item's first vector of a slab, and the address of that of the next slab. All work-items have
## their other vectors at the same distances from the first one.
<%def name="first_copies()" filter="trim">
    ${part_sizes()}
    % for slab in slabs:
<%
    row, column = slab.place("item")
    rows, columns = f"{slab.name}_tile", first_depth
    if not slab.along_k:
        rows, columns = columns, rows
    first = plus(slab.name, times(plus(rows, f"{slab.name}_row"), slab.stride), columns, f"{slab.name}_column")
%>\
    const int ${slab.name}_row = ${row};
    const int ${slab.name}_column = ${column};
    const __global ${slab.element.stored} *${slab.name}_next = ${first};
    % endfor
</%def>

## Elements from a split term of an operand to the next.
<%def name="part_sizes()" filter="trim">
    % for slab in slabs:
    % if slab.terms > 1:
    const long ${slab.name}_term = ${slab.index} * ${slab.stride};  // elements from a split term to the next
    % endif
    % endfor
</%def>

## A statement for each split term of a slab. Its arguments are the distances from the first term in global
## memory and in local memory, and the index of the fetched array.
<%def name="each_term(slab, statement)" filter="trim">
% if slab.terms > 1:
    #pragma unroll
    for (int term = 0; term < ${slab.terms}; ++term) {
        ${statement(slab, f" + term * {slab.name}_term", f" + term * {slab.name.upper()}_TERM", "[term]")}
    }
% else:
    ${statement(slab, "", "", "")}
% endif
</%def>

<%def name="copy_slabs(stage)" filter="trim">
<%def name="statement(slab, in_matrix, in_local, own)" filter="trim">
    copy_slab${slab.suffix}(
        ${slab.in_stage(stage)}${in_local}, ${slab.name}_next${in_matrix}, ${slab.stride},
        ${slab.name}_row, ${slab.name}_column, ${slab.region("depth", last_depth)});
</%def>
    % for slab in slabs:
    ${each_term(slab, statement)}
    ${slab.name}_next += ${"KWG" if slab.along_k else f"KWG * {slab.stride}"};
    % endfor
</%def>

## Reads the slabs at `depth`.
<%def name="fetch(depth)" filter="trim">
<%def name="statement(slab, in_matrix, in_local, own)" filter="trim">
<% arguments = f"{slab.name}_fetched{own}, {slab.name}{in_matrix}, {slab.stride}, item" %>\
    fetch_slab${slab.suffix}(${arguments}, ${slab.region(depth, last_depth)});
</%def>
    % for slab in slabs:
    ${each_term(slab, statement)}
    % endfor
</%def>

<%def name="write(stage)" filter="trim">
<%def name="statement(slab, in_matrix, in_local, own)" filter="trim">
    store_slab${slab.suffix}(${slab.in_stage(stage)}${in_local}, ${slab.name}_fetched${own}, item);
</%def>
    % for slab in slabs:
    ${each_term(slab, statement)}
    % endfor
</%def>

## The loop over the slabs with STAGES slabs of each operand in local memory, of which all but one are being
## copied. A copy is complete once its work-item has waited for it and all have passed the barrier.
<%def name="walk_past_registers(start, multiply)" filter="trim">
    ${first_copies()}
    extent depth = ${first_depth};  // of the slab that is copied next
% if tiles.STAGES > 2:
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        ${copy_slabs("stage")}
        ${async_copy.end_group()}
        depth += KWG;
    }
% else:
    ${copy_slabs("0")}
    ${async_copy.end_group()}
    depth += KWG;
% endif
    int stage = 0;
    int stage_to_fill = STAGES - 1;
    ${start()}
    #pragma unroll 1
    for (extent multiplied = ${first_depth}; multiplied < ${last_depth}; multiplied += KWG) {
        ${multiply()}
    }
    ${async_copy.wait(0)}
</%def>

## Afterwards the slab that is multiplied next has arrived, and the previous one may be overwritten.
<%def name="wait_for_slab()" filter="trim">
    ${async_copy.wait(tiles.STAGES - 2)}
    barrier(CLK_LOCAL_MEM_FENCE);
</%def>

## Starts the copies of another slab, over the one that was multiplied last.
<%def name="copy_next()" filter="trim">
    ${copy_slabs("stage_to_fill")}
    ${async_copy.end_group()}
    depth += KWG;
    stage_to_fill = stage_to_fill == STAGES - 1 ? 0 : stage_to_fill + 1;
</%def>

<%def name="next_stage()" filter="trim">
    stage = stage == STAGES - 1 ? 0 : stage + 1;
</%def>

## The loop over the slabs with one or two slabs of each operand in local memory. While one is multiplied,
## the next is read into registers; then it is written to the other stage, or over the multiplied slab.
<%def name="walk_through_registers(multiply)" filter="trim">
    ${part_sizes()}
    % for slab in slabs:
    vector ${slab.name}_fetched${f"[{slab.terms}]" if slab.terms > 1 else ""}[${slab.copies}];
    % endfor
    ${fetch(first_depth)}
    ${write("0")}
    barrier(CLK_LOCAL_MEM_FENCE);
    % if tiles.STAGES > 1:
    int stage = 0;
    % elif tiles.SLICES > 1:
    ${slab_pointers()}
    % endif
    #pragma unroll 1
    for (extent depth = ${first_depth}; depth < ${last_depth}; depth += KWG) {
        % if tiles.STAGES > 1:
        ${slab_pointers()}
        % endif
        const bool more = depth + KWG < ${last_depth};
        if (more) {
            ${fetch("depth + KWG")}
        }
        ${multiply()}
        % if tiles.STAGES > 1:
        stage ^= 1;
        % else:
        barrier(CLK_LOCAL_MEM_FENCE);
        % endif
        if (more) {
            ${write("stage")}
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
</%def>

## Pointers to the sub-group's part of the slabs.
<%def name="slab_pointers()" filter="trim">
    % for slab in slabs:
    const __local stored *${slab.pointer} = ${slab.multiplied};
    % endfor
</%def>

<%def name="move_slab_pointers()" filter="trim">
    % for slab in slabs:
    ${slab.pointer} = ${slab.multiplied};
    % endfor
</%def>
