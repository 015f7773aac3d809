## Products of int8 in the CPU family: a packed element is a pair of neighbours along k, two shorts in an int.
##
## Context: kernel, cpu.
<%def name="functions()" filter="trim">
<%
    lanes = kernel.pair_lanes
    part, shorts = kernel.element.vector(lanes), 2 * lanes
    selectors = [".s" + "".join(f"{i:x}" for i in range(first, first + lanes)) for first in range(0, cpu.VW, lanes)]
%>
% if kernel.pair_instruction == "vpdpwssd":
// c + a.even * b.even + a.odd * b.odd, of shorts
static inline vector add_pairs(const vector a, const vector b, vector c)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
}
% else:
// a.even * b.even + a.odd * b.odd, of shorts${"" if kernel.pair_instruction else ": compilers find vpmaddwd"}
static inline ${part} sum_pairs(const ${part} a, const ${part} b)
{
    % if kernel.pair_instruction:
    ${part} sums;
    __asm__("vpmaddwd %2, %1, %0" : "=v"(sums) : "v"(a), "v"(b));
    return sums;
    % else:
    const int${shorts} products = convert_int${shorts}(as_short${shorts}(a)) * convert_int${shorts}(as_short${shorts}(b));
    return products.even + products.odd;
    % endif
}

static inline vector add_pairs(const vector a, const vector b, const vector c)
{
    % if lanes == cpu.VW:
    return c + sum_pairs(a, b);
    % else:
    return c + (vector)(${", ".join(f"sum_pairs(a{lanes}, b{lanes})" for lanes in selectors)});
    % endif
}
% endif
</%def>
