## Splits a float32 into terms that matrix units multiply. `term` is a PartType.

## Functions that split an element, with `several` into more than one term.
<%def name="functions(term, several)" filter="trim">
// The leading ${term.kept} bits of x, rounded to nearest, but not to infinity.
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

// The rest of x after its leading bits; 0 for an infinite x, where the difference would be NaN.
static inline float tail_of(const float x, const float lead)
{
    return fabs(x) < INFINITY ? x - lead : 0.0f;
}
% endif
</%def>
