## Common parts of all gemm kernels: element types, arithmetic, addressing and the argument list.
##
## Context: element, wide (ElementType), problem, extent_type, multiply_add_of, activation_of,
## result_parameters, result_of, moved (the matrices that differ from product to product of a batch; empty
## without a batch).

<%def name="types()" filter="trim">
% if "half" in (element.real, wide.real):
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

% endif
% if "double" in (element.real, wide.real):
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

% endif
typedef ${extent_type} extent;  // m, n, k and positions within them
typedef ${element.vector(1)} element;  // an element of A or B in registers
typedef ${wide.vector(1)} wide;  // an element of C, of the bias and of the result
% if wide.dtype == "bfloat16":

// x rounded to the nearest bfloat16, ties to even. A NaN must not become an infinity.
static inline ushort bfloat16_of(const float x)
{
    const uint bits = as_uint(x);
    return isnan(x) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
% for width in (2, 4, 8, 16):

// The elements of x rounded to the nearest bfloat16, ties to even. A NaN must not become an infinity.
static inline ushort${width} bfloat16_of${width}(const float${width} x)
{
    const uint${width} bits = as_uint${width}(x);
    const uint${width} rounded = bits + 0x7fff + (bits >> 16 & 1);
    return convert_ushort${width}(select(rounded, bits | 0x400000, isnan(x)) >> 16);
}
% endfor
% endif
% for width, word in (element.words | wide.words).items():

// Halves are loaded and stored as words: vload_half and vstore_half move each by itself.
static inline float${width} floats_of${width}(const ${word} halves)
{
    return vload_half${width}(0, (const __private half *)&halves);
}

static inline ${word} halves_of${width}(const float${width} x)
{
    ${word} halves;
    vstore_half${width}(x, 0, (__private half *)&halves);
    return halves;
}
% endfor
</%def>

<%def name="arithmetic()" filter="trim">
static inline element multiply_add(const element a, const element b, const element c)
{
% if problem.complex:
    element result = c;
    result.x = ${multiply_add_of("a.x", "b.x", "result.x")};
    result.x = ${multiply_add_of("-a.y", "b.y", "result.x")};
    result.y = ${multiply_add_of("a.x", "b.y", "result.y")};
    result.y = ${multiply_add_of("a.y", "b.x", "result.y")};
    return result;
% else:
    return ${multiply_add_of("a", "b", "c")};
% endif
}

${epilogue()}
</%def>

## The functions that turn a sum of products into the result. With `called` the activation is not inlined,
## since a kernel would then contain it once for each of a work-item's many results.
<%def name="epilogue(called=False)" filter="trim">
% if problem.activation:
// ${problem.activation}
static ${"__attribute__((noinline))" if called else "inline"} wide activate(const wide x)
{
    return ${activation_of(wide.vector(1))};
}

% endif
${scaling()}
</%def>

## The functions that `GemmKernel.result_of` calls.
<%def name="scaling()" filter="trim">
% if problem.complex:
static inline wide scale(const wide factor, const wide x)
{
    return (wide)(factor.x * x.x - factor.y * x.y, factor.x * x.y + factor.y * x.x);
}

% endif
% if problem.c or problem.bias or problem.activation:
static inline wide result_of(${result_parameters})
{
    wide value = ${scaled("alpha", "sum")};
% if problem.c:
    // In a single statement the compiler could form a multiply-add, which would not round this product.
    const wide scaled = ${scaled("beta", "addend")};
    value += scaled;
% endif
% if problem.bias:
    value += bias;
% endif
    return ${"activate(value)" if problem.activation else "value"};
}
% endif
</%def>

## Factor times x.
<%def name="scaled(factor, x)" filter="trim">
% if problem.complex:
scale(${factor}, ${x})
% else:
${factor} * ${x}
% endif
</%def>

## The offset of entry (row, column) of a matrix from its entry (0, 0). `row` and `column` are the entry's
## indices by those of the macro.
<%def name="address(name, layout, row='(row)', column='(column)')" filter="trim">
% if layout.order == "row":
#define ${name.upper()}_AT(row, column) ((long)${row} * ${name}_row_stride + ${column})
% elif layout.order == "column":
#define ${name.upper()}_AT(row, column) (${row} + (long)${column} * ${name}_column_stride)
% else:
#define ${name.upper()}_AT(row, column) ((long)${row} * ${name}_row_stride + (long)${column} * ${name}_column_stride)
% endif
</%def>

<%def name="signature(kind, arguments)" filter="trim">
${kind} void ${name}(
% for argument in arguments:
    ${argument.declaration}${"," if not loop.last else ")"}
% endfor
</%def>

## Pointers are passed as whole buffers; afterwards they point to entry (0, 0).
<%def name="offsets(*names)" filter="trim">
% for name in names:
    ${name} += ${name}_offset;
% endfor
% if problem.c:
    c += c_offset;
% endif
% if problem.bias:
    bias += bias_offset;
% endif
</%def>

## In a batch: moves pointers from the matrices of product number `product` (0 by default) to those of product
## `next`.
<%def name="move_on(next, product='')" filter="trim">
% for name, scattered in moved:
% if scattered:
    ${name} += ${name}_offsets[${next}]${f" - {name}_offsets[{product}]" if product else ""};
% else:
    ${name} += ${f"({next} - {product})" if product else next} * ${name}_batch_stride;
% endif
% endfor
</%def>

## The number of this work-group among the `count` work-groups of its product.
<%def name="own_group(number, count)" filter="trim">
% if moved:
    // Work-groups are numbered consecutively over all products of the batch.
    const extent own_groups = ${count};
    const extent in_batch = get_group_id(0);
    const extent ${number} = in_batch % own_groups;
    const long product = in_batch / own_groups;
    ${move_on("product")}
% else:
    const extent ${number} = get_group_id(0);
% endif
</%def>
