## Loads of elements that are read only once: NVIDIA's ld.global with cache hints, by inline PTX (PTX ISA,
## "Cache Eviction Priority Hints" and "ld.global.nc").
##
## Context: words, the C types of 4, 8 and 16 bytes.

## `load_streamed`, for 4, 8 or 16 bytes at an address that is a multiple of their number.
<%def name="function(count)" filter="trim">
<%
    number = count // 4
    suffix = f".v{number}.u32" if number > 1 else ".u32"
    registers = f"{{{', '.join(f'%{i}' for i in range(number))}}}" if number > 1 else "%0"
    results = ", ".join(f'"=r"(x.s{i})' for i in range(number)) if number > 1 else '"=r"(x)'
%>
// For data that are read once: they are not kept in the first-level cache; whole lines are fetched.
static inline ${words[count]} load_streamed(const __global void *from)
{
    ${words[count]} x;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B${suffix} ${registers}, [%${number}];" : ${results} : "l"(from));
    return x;
}
</%def>

## Loads elements at an address to `v`, as bits.
<%def name="load(element, width, at, signs)" filter="trim">
        const ${words[width * element.stored_bytes]} bits = load_streamed(${at});
<% loaded = element.load(f"(const __private {element.stored} *)&bits", width, space="__private") %>
        const ${element.vector(width)} v = ${loaded}${signs};
</%def>
