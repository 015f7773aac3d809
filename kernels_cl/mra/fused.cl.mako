## All three contractions in one launch. A work-group holds TENSORS tensors in local memory, or a part of one
## tensor: the entries of the second dimension from `first_row` on. The second dimension is contracted first,
## from global memory, so that only this part is held. Then the third dimension is contracted in place, and
## the first into global memory. Neighbouring work-items read and write neighbouring vectors of global memory.
##
## Context: also extent (K), config (a FusedConfig), held (a HeldTensor), element (an ElementType), aligned
## (whether all vectors are aligned), matrix_width and part_width (elements of the vectors of the matrix that
## are read from the start of a row, and from `first_row`), unroll (depths), load_local, store_local.
<%namespace name="transform" file="/mra/transform.mako"/>
<%
    width = config.VW
    vectors = -(-extent // width)
    last_vector = extent - width  # the offset of the last vector of a row
    vectors_overlap = last_vector != width * (vectors - 1)
    is_split = config.PARTS > 1
    has_tail = held.rows * config.PARTS > extent
    rows_at_once = range(config.ROWS)
    nth_row = ["unit", "unit + units", *(f"unit + {r} * units" for r in rows_at_once[2:])]
    unrolled_vectors = max(1, unroll // width)
    first_second = "first_row + second" if is_split else "second"
%>
${transform.types()}
typedef ${element.vector(width)} vector;  // along the third dimension

#define K ${extent}
#define ITEMS ${config.ITEMS}  // work-items of a work-group
#define TENSORS ${config.TENSORS}  // tensors of a work-group
#define ROWS ${held.rows}  // entries of the second dimension that a work-group holds
#define VECTORS ${vectors}  // vectors of a row of a tensor
#define MATRIX_ROW ${held.matrix_row}  // elements from a row of the matrix to the next, in local memory
#define HELD_SIZE ${held.size}  // elements of a tensor in local memory,
#define HELD_SLICE ${held.slice}  // from an entry of its first dimension to the next,
#define HELD_ROW ${held.row}  // and of its second

% if vectors_overlap:
#define VECTOR_AT(index) min(${width} * (index), ${last_vector})  // the last overlaps the one before
% else:
#define VECTOR_AT(index) (${width} * (index))
% endif
#define SLICE_AT(tensor, first) ((tensor) * HELD_SIZE + (first) * HELD_SLICE)
#define HELD_AT(tensor, first, second, third) (SLICE_AT(tensor, first) + (second) * HELD_ROW + (third))
#define ROW_AT(row) HELD_AT((row) / (K * ROWS), (row) / ROWS % K, (row) % ROWS, 0)

${transform.addresses()}
% for step in sorted({matrix_width, part_width} - {1}):

// sums[i] += x * from[i]
static inline void multiply_add_${step}(vector *sums, const vector x, const __local real *from)
{
    const ${element.vector(step)} b = ${load_local("from", step)};
    % for i in range(step):
    sums[${i}] = ${multiply_add_of("x", f"(vector)(b{element.lane(i, step)})", f"sums[{i}]")};
    % endfor
}
% endfor

${transform.signature(config.ITEMS)}
{
    __local real matrix_held[K * MATRIX_ROW] __attribute__((aligned(16)));
    __local real held[TENSORS * HELD_SIZE] __attribute__((aligned(16)));
    ${transform.skip_offsets()}
    const int item = ${"get_local_id(0)" if config.ITEMS > 1 else "0"};
    % if is_split:
    const long n = get_group_id(0) / ${config.PARTS};
    const int first_row = get_group_id(0) % ${config.PARTS} * ROWS;
    % else:
    const long n = (long)get_group_id(0) * TENSORS;
    % endif
    for (int i = item; i < K * MATRIX_ROW; i += ITEMS) {
        const int row = i / MATRIX_ROW;
        const int column = i % MATRIX_ROW;
        matrix_held[i] = column < K ? matrix[MATRIX_AT(row, column)] : 0;
    }
    % if config.TENSORS > 1:
    const int present = min((long)TENSORS, count - n);
    % else:
    const int present = 1;
    % endif
    tensors += TENSORS_START(n);
    out += OUT_START(n);
    barrier(CLK_LOCAL_MEM_FENCE);

    // The second dimension. A work-item computes a vector along the third, for all entries of the second.
    for (int unit = item; unit < present * K * VECTORS; unit += ITEMS) {
        const int tensor = unit / (K * VECTORS);
        const int first = unit / VECTORS % K;
        const int third = VECTOR_AT(unit % VECTORS);
        const __global real *from = tensors + TENSORS_START(tensor) + TENSORS_AT(first, 0, third);
        vector sums[ROWS];
        #pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            sums[j] = 0;
        }
        #pragma unroll ${unroll}
        for (int depth = 0; depth < K; ++depth) {
            const vector x = ${load("from + TENSORS_AT(0, depth, 0)")};
            % if is_split:
            const __local real *b_row = matrix_held + depth * MATRIX_ROW + first_row;
            % else:
            const __local real *b_row = matrix_held + depth * MATRIX_ROW;
            % endif
            ${multiply_add_row(held.rows, part_width)}
        }
        #pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            ${store_local("sums[j]", "held + HELD_AT(tensor, first, j, third)")}
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    // The third dimension. A work-item replaces whole rows by their results.
    % if config.ROWS > 1:
    const int units = present * K * ROWS / ${config.ROWS};
    % else:
    const int units = present * K * ROWS;
    % endif
    for (int unit = item; unit < units; unit += ITEMS) {
        % for r in rows_at_once:
        __local real *row${r} = held + ROW_AT(${nth_row[r]});
        vector sums${r}[VECTORS];
        % endfor
        #pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            % for r in rows_at_once:
            sums${r}[j] = 0;
            % endfor
        }
        % if aligned and width > 1:
        #pragma unroll ${unrolled_vectors}
        for (int depth = 0; depth < K; depth += ${width}) {
            % for r in rows_at_once:
            const vector x${r} = ${load_local(f"row{r} + depth", width)};
            % endfor
            % for i in range(width):
            ${multiply_add_rows(f"(depth + {i})" if i else "depth", "x{r}" + element.lane(i, width))}
            % endfor
        }
        % else:
        #pragma unroll ${unroll}
        for (int depth = 0; depth < K; ++depth) {
            ${multiply_add_rows("depth", "row{r}[depth]")}
        }
        % endif
        #pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            % for r in rows_at_once:
            ${store_local(f"sums{r}[j]", f"row{r} + VECTOR_AT(j)")}
            % endfor
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    // The first dimension. A work-item computes a vector along the third, for all entries of the first.
    for (int unit = item; unit < present * ROWS * VECTORS; unit += ITEMS) {
        const int tensor = unit / (ROWS * VECTORS);
        const int second = unit / VECTORS % ROWS;
        const int third = VECTOR_AT(unit % VECTORS);
        % if has_tail:
        if (first_row + second >= K) {
            continue;
        }
        % endif
        vector sums[K];
        #pragma unroll
        for (int j = 0; j < K; ++j) {
            sums[j] = 0;
        }
        #pragma unroll ${unroll}
        for (int depth = 0; depth < K; ++depth) {
            const vector x = ${load_local("held + HELD_AT(tensor, depth, second, third)", width)};
            const __local real *b_row = matrix_held + depth * MATRIX_ROW;
            ${multiply_add_row(extent, matrix_width)}
        }
        __global real *to = out + OUT_START(tensor) + OUT_AT(0, ${first_second}, third);
        #pragma unroll
        for (int j = 0; j < K; ++j) {
            ${store("sums[j]", "to + OUT_AT(j, 0, 0)")}
        }
    }
}

## Loads a vector along the third dimension from a pointer to its start. On a CPU vectors may overlap, and then
## not all of them are aligned.
<%def name="load(pointer)" filter="trim">
<% width, stack = config.VW, stacks["tensors"] %>
% if stack.has_rows or width == 1:
${element.load(pointer, width, aligned=aligned and stack.alignment >= width)}
% else:
(vector)(${", ".join(f"({pointer})[TENSORS_AT(0, 0, {i})]" for i in range(width))})
% endif
</%def>

<%def name="store(value, pointer)" filter="trim">
<% width, stack = config.VW, stacks["out"] %>
% if stack.has_rows or width == 1:
${element.store(value, pointer, width, aligned=aligned and stack.alignment >= width)}
% else:
% for i in range(width):
(${pointer})[OUT_AT(0, 0, ${i})] = ${value}${element.lane(i, width)};
% endfor
% endif
</%def>

## sums[j] += x * b_row[j] for all j < count; b_row is read by vectors of `step` elements.
<%def name="multiply_add_row(count, step)" filter="trim">
<%
    tail = count % step
    whole = count - tail
%>
    % if step == 1:
            #pragma unroll
            for (int j = 0; j < ${count}; ++j) {
                sums[j] = ${multiply_add_of("x", "(vector)(b_row[j])", "sums[j]")};
            }
    % else:
    % for start in range(0, whole, step):
            multiply_add_${step}(${plus("sums", start)}, x, ${plus("b_row", start)});
    % endfor
    % if tail:
            const ${element.vector(step)} b = ${load_local(plus("b_row", whole), step)};
    % endif
    % for i in range(tail):
            sums[${whole + i}] = ${multiply_add_of("x", f"(vector)(b{element.lane(i, step)})", f"sums[{whole + i}]")};
    % endfor
    % endif
</%def>

## Adds to the sums of each row r its element `x` (an expression in {r}) times row `depth` of the matrix.
<%def name="multiply_add_rows(depth, x)" filter="trim">
            #pragma unroll
            for (int j = 0; j < VECTORS; ++j) {
                const vector b = ${load_local(f"matrix_held + {depth} * MATRIX_ROW + VECTOR_AT(j)", config.VW)};
                % for r in range(config.ROWS):
                sums${r}[j] = ${multiply_add_of("(vector)(%s)" % x.format(r=r), "b", f"sums{r}[j]")};
                % endfor
            }
</%def>
