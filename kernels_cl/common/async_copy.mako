## Copies from global to local memory that run beside the arithmetic: NVIDIA's cp.async (PTX ISA,
## "Data Movement and Conversion Instructions: cp.async"), by inline PTX.

## `count` bytes, 4, 8 or 16, of which those from `valid` on are written as zeros.
<%def name="copy(to, source, count, valid)" filter="trim">
<% cache = "cg" if count == 16 else "ca" %>
asm volatile("cp.async.${cache}.shared.global [%0], [%1], ${count}, %2;"
    : : "r"((uint)(size_t)(${to})), "l"(${source}), "r"(${valid}) : "memory");
</%def>

## The copies since the last group form a group.
<%def name="end_group()" filter="trim">
asm volatile("cp.async.commit_group;" : : : "memory");
</%def>

## Until all but the newest `pending` groups of this work-item have arrived.
<%def name="wait(pending)" filter="trim">
asm volatile("cp.async.wait_group ${pending};" : : : "memory");
</%def>
