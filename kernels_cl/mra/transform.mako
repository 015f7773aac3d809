## Common parts of all kernels that transform stacks of K x K x K tensors.
##
## Context: kernel_name, arguments, real (the C type of an element), multiply_add_of, stacks (a TensorStack for
## "tensors" and one for "out").

<%def name="types()" filter="trim">
% if real == "double":
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

% endif
typedef ${real} real;
</%def>

<%def name="addresses()" filter="trim">
${matrix_address()}
% for name, stack in stacks.items():
<%
    arguments = [f"{name}_stride_{i}" for i in range(4)]
    each, first, second = stack.strides[:3] if stack.is_contiguous else arguments[:3]
    by_third = "" if stack.has_rows else f" * {arguments[3]}"
%>\
## The offset of tensor n, and the offset of an element in a tensor.
#define ${name.upper()}_START(n) ((long)(n) * ${each})
#define ${name.upper()}_AT(first, second, third) ((first) * ${first} + (second) * ${second} + (third)${by_third})
% endfor
</%def>

<%def name="matrix_address()" filter="trim">
#define MATRIX_AT(row, column) ((row) * matrix_row_stride + (column) * matrix_column_stride)
</%def>

<%def name="signature(items)" filter="trim">
__kernel __attribute__((reqd_work_group_size(${items}, 1, 1)))
void ${kernel_name}(
% for argument in arguments:
    ${argument.declaration}${"," if not loop.last else ")"}
% endfor
</%def>

## Pointers are passed as whole buffers; afterwards they point to the first element.
<%def name="skip_offsets()" filter="trim">
    tensors += tensors_offset;
    matrix += matrix_offset;
    out += out_offset;
</%def>

## Copies the matrix to local memory, row by row.
<%def name="hold_matrix(extent, items)" filter="trim">
    for (int i = get_local_id(0); i < ${extent} * ${extent}; i += ${items}) {
        matrix_held[i] = matrix[MATRIX_AT(i / ${extent}, i % ${extent})];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
</%def>
