## All three contractions in one launch. A work-group keeps TENSORS tensors in local memory, or a part of
## one: the entries of the second dimension from `first_row` on. That dimension is contracted first, out
## of global memory, so that no more need be held; then the third, in place; then the first, into global
## memory. Neighbouring work-items read and write neighbouring vectors there.
##
## Context: also extent, config (a FusedConfig), held (a HeldTensor), matrix_row, vector, starts (the
## first element of each vector of a row; the last vector may overlap the one before), aligned, width
## and part_width (of vectors of a row of the matrix, from its start and from `first_row`), load, store
## (of vectors in global memory).
<%namespace name="transform" file="/mra/transform.mako"/>
<%
    k, rows, vw = extent, held.rows, config.VW
    lanes = "0123456789abcdef"
    vectors = len(starts)
    vector_of = lambda lanes: "real" if lanes == 1 else f"{real}{lanes}"
    is_even = starts[-1] == vw * (vectors - 1)
    start_of = (lambda index: f"{vw} * ({index})") if is_even else (lambda index: f"min({vw} * ({index}), {starts[-1]})")
    spread = lambda value: value if vw == 1 else f"(vector)({value})"
    whole = held.rows * config.PARTS == k
    factor_of = lambda i, width: "b" if width == 1 else f"b.s{lanes[i]}"
    held_load = lambda place: f"held[{place}]" if vw == 1 else (f"*(const __local vector *)(held + {place})" if aligned else f"vload{vw}(0, held + {place})")
    held_store = lambda value, place: f"held[{place}] = {value};" if vw == 1 else (f"*(__local vector *)(held + {place}) = {value};" if aligned else f"vstore{vw}({value}, 0, held + {place});")
    units = lambda count: f"for (int unit = item; unit < {count}; unit += ITEMS)" if config.ITEMS > 1 else f"for (int unit = 0; unit < {count}; ++unit)"
%>
${transform.types()}
% if vw > 1:
typedef ${real}${vw} vector;
% else:
typedef real vector;
% endif

#define K ${k}
#define ITEMS ${config.ITEMS}  // work-items of a group
#define TENSORS ${config.TENSORS}  // tensors of a group
#define ROWS ${rows}  // entries of the second dimension that it holds
#define VECTORS ${vectors}  // vectors of the third dimension
#define MATRIX_ROW ${matrix_row}  // elements from a row of the matrix to the next, in local memory
#define HELD_AT(tensor, first, second, third) ((tensor) * ${held.size} + (first) * ${held.slice} + (second) * ${held.row} + (third))

${transform.address("tensors")}
${transform.address("out")}

## sums[j] += x * B(depth, j + column) for all j < count, by vectors of a row of B.
<%def name="multiply_add(count, column, width)" filter="trim">
        % for group in range(-(-count // width)):
        {
            const ${vector_of(width)} b = *(const __local ${vector_of(width)} *)(matrix_held + depth * MATRIX_ROW + ${f"{column} + " if column else ""}${width * group});
            % for i in range(min(width, count - width * group)):
            sums[${width * group + i}] = ${multiply_add_of("x", spread(factor_of(i, width)), f"sums[{width * group + i}]")};
            % endfor
        }
        % endfor
</%def>

${transform.signature(config.ITEMS)}
{
    __local real matrix_held[K * MATRIX_ROW] __attribute__((aligned(16)));
    __local real held[TENSORS * ${held.size}] __attribute__((aligned(16)));
    ${transform.offsets()}
    % if config.ITEMS > 1:
    const int item = get_local_id(0);
    % endif
    % if config.PARTS > 1:
    const long n = get_group_id(0) / ${config.PARTS};
    const int first_row = get_group_id(0) % ${config.PARTS} * ROWS;
    % else:
    const long n = (long)get_group_id(0) * TENSORS;
    % endif
    ${units("K * MATRIX_ROW")} {
        const int row = unit / MATRIX_ROW;
        const int column = unit % MATRIX_ROW;
        matrix_held[unit] = column < K ? matrix[row * matrix_row_stride + column * matrix_column_stride] : 0;
    }
    % if config.TENSORS > 1:
    const int present = min((long)TENSORS, count - n);
    % else:
    const int present = 1;
    % endif
    tensors += TENSORS_START(n);
    out += OUT_START(n);
    barrier(CLK_LOCAL_MEM_FENCE);

    // The second dimension. A work-item has a vector of the third, and reads it at all depths.
    ${units("present * K * VECTORS")} {
        const int tensor = unit / (K * VECTORS);
        const int first = unit / VECTORS % K;
        const int third = ${start_of("unit % VECTORS")};
        const __global real *from = tensors + TENSORS_START(tensor) + TENSORS_AT(first, 0, third);
        vector sums[ROWS];
        #pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            sums[j] = 0;
        }
        #pragma unroll ${unroll}
        for (int depth = 0; depth < K; ++depth) {
            const vector x = ${load("from + TENSORS_AT(0, depth, 0)")};
            ${multiply_add(rows, "first_row" if config.PARTS > 1 else "", part_width)}
        }
        #pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            ${held_store("sums[j]", "HELD_AT(tensor, first, j, third)")}
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    // The third dimension. A work-item has whole rows of it, and puts their results in their place.
    ${units(f"present * K * ROWS / {config.ROWS}" if config.ROWS > 1 else "present * K * ROWS")} {
        % for r in range(config.ROWS):
        <% row = f"(unit + {r} * (present * K * ROWS / {config.ROWS}))" if r else "unit" %>
        const int place${r} = HELD_AT(${row} / (K * ROWS), ${row} / ROWS % K, ${row} % ROWS, 0);
        vector sums${r}[VECTORS];
        % endfor
        #pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            % for r in range(config.ROWS):
            sums${r}[j] = 0;
            % endfor
        }
        % if aligned and vw > 1:
        #pragma unroll ${max(1, unroll // vw)}
        for (int depth = 0; depth < K; depth += ${vw}) {
            % for r in range(config.ROWS):
            const vector x${r} = ${held_load(f"place{r} + depth")};
            % endfor
            % for i in range(vw):
            #pragma unroll
            for (int j = 0; j < VECTORS; ++j) {
                const vector b = *(const __local vector *)(matrix_held + (depth + ${i}) * MATRIX_ROW + ${start_of("j")});
                % for r in range(config.ROWS):
                sums${r}[j] = ${multiply_add_of(spread(f"x{r}.s{lanes[i]}"), "b", f"sums{r}[j]")};
                % endfor
            }
            % endfor
        }
        % else:
        #pragma unroll ${unroll}
        for (int depth = 0; depth < K; ++depth) {
            #pragma unroll
            for (int j = 0; j < VECTORS; ++j) {
                const vector b = ${f"matrix_held[depth * MATRIX_ROW + {start_of('j')}]" if vw == 1 else f"vload{vw}(0, matrix_held + depth * MATRIX_ROW + {start_of('j')})"};
                % for r in range(config.ROWS):
                sums${r}[j] = ${multiply_add_of(spread(f"held[place{r} + depth]"), "b", f"sums{r}[j]")};
                % endfor
            }
        }
        % endif
        #pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            % for r in range(config.ROWS):
            ${held_store(f"sums{r}[j]", f"place{r} + {start_of('j')}")}
            % endfor
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    // The first dimension. A work-item has a vector of the third, as at the start.
    ${units("present * ROWS * VECTORS")} {
        const int tensor = unit / (ROWS * VECTORS);
        const int second = unit / VECTORS % ROWS;
        const int third = ${start_of("unit % VECTORS")};
        % if not whole:
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
            const vector x = ${held_load("HELD_AT(tensor, depth, second, third)")};
            ${multiply_add(k, "", width)}
        }
        __global real *to = out + OUT_START(tensor) + OUT_AT(0, ${"first_row + second" if config.PARTS > 1 else "second"}, third);
        #pragma unroll
        for (int j = 0; j < K; ++j) {
            ${store("sums[j]", "to + OUT_AT(j, 0, 0)")}
        }
    }
}
