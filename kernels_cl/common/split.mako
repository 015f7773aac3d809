## A float32 split into terms that matrix units multiply. Context: none; `term` is a PartType.

## Functions that split an element.
<%def name="functions(term, several)" filter="trim">
// The leading ${term.kept} bits of x, rounded to nearest, but never to infinity.
static inline float leading(const float x)
{
    const uint bits = as_uint(x);
    const float rounded = as_float((bits + ${term.rounding} + (bits >> ${term.dropped} & 1)) & ${term.mask});
    if (!(fabs(x) < INFINITY)) {
        return isnan(x) ? NAN : x;
    }
    return fabs(rounded) < INFINITY ? rounded : as_float(bits & ${term.mask});
}
% if several:

// What is left of x, which leaves no NaN behind where x is infinite.
static inline float tail_of(const float x, const float lead)
{
    return fabs(x) < INFINITY ? x - lead : 0.0f;
}
% endif
</%def>
