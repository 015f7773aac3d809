## Shared by the kernels that transform stacks of K x K x K tensors.
##
## Context: real (C type of an element), multiply_add_of, strides (by argument name: the C expressions
## of the strides from a tensor to the next and along its three dimensions).

<%def name="types()" filter="trim">
% if real == "double":
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

% endif
typedef ${real} real;
</%def>

## Where an element lies within its tensor, and where a tensor starts.
<%def name="address(name)" filter="trim">
<%
    places = [f"({index})" + ("" if stride == "1" else f" * {stride}") for index, stride in zip(("first", "second", "third"), strides[name][1:])]
%>
#define ${name.upper()}_AT(first, second, third) (${" + ".join(places)})
#define ${name.upper()}_START(n) ((long)(n) * ${strides[name][0]})
</%def>

<%def name="signature(items)" filter="trim">
__kernel __attribute__((reqd_work_group_size(${items}, 1, 1)))
void ${kernel_name}(
% for argument in arguments:
    ${argument.declaration}${"," if not loop.last else ")"}
% endfor
</%def>

## Pointers arrive as whole buffers; from here on they point to the first element.
<%def name="offsets()" filter="trim">
    tensors += tensors_offset;
    matrix += matrix_offset;
    out += out_offset;
</%def>
