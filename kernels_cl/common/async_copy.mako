## Copies from global to local memory that run concurrently with arithmetic: NVIDIA's cp.async (PTX ISA,
## "Data Movement and Conversion Instructions: cp.async"), by inline PTX.

## Copies `count` bytes: 4, 8 or 16. Only the first `valid` bytes are read; the others become zeros. Copies of
## 16 bytes bypass the first-level cache unless `cached`; smaller ones cannot.
<%def name="copy(to, source, count, valid, cached=False)" filter="trim">
<% cache = "cg" if count == 16 and not cached else "ca" %>
asm volatile("cp.async.${cache}.shared.global [%0], [%1], ${count}, %2;"
    : : "r"((uint)(size_t)(${to})), "l"(${source}), "r"(${valid}) : "memory");
</%def>

## Makes a group of the copies since the last group.
<%def name="end_group()" filter="trim">
asm volatile("cp.async.commit_group;" : : : "memory");
</%def>

## Waits until all but the newest `pending` groups of this work-item are complete.
<%def name="wait(pending)" filter="trim">
asm volatile("cp.async.wait_group ${pending};" : : : "memory");
</%def>
