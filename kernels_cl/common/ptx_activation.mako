## Activations of results by NVIDIA's approximate instructions: inline PTX (PTX ISA, "ex2", "rcp", "tanh",
## "max"; from compute capability 8.0 on). Their errors: tests/support/reference.py, 5.
##
## silu, gelu and gelu_tanh are x W(x) with a weight W(x) = 1 - W(-x), which equals max(x, 0) - |x| W(-|x|).
## This form has no cancellation and no overflow. With t = |x|:
##
## - gelu: log2(Phi(-t)), with the normal distribution Phi, is nearly a polynomial. Its coefficients minimize
##   the largest error relative to 1 + 2 t (results of 16 bits, t up to 5), or to 1 + t (of 32 bits, t up to
##   6). The relative errors of Phi are 7e-5 at 0 and 4e-4 at 5, or 2e-6 and 1.1e-5. For larger t the
##   polynomial keeps decreasing, and t Phi(-t) is below 2e-6.
## - silu, gelu_tanh, sigmoid: the logistic function of y is 1 / (1 + exp(-y)), where y is x, or
##   2 sqrt(2 / pi) (x + 0.044715 x^3). exp(-y) is a power of 2, whose exponent has the factor -log2(e) for x;
##   or -2 sqrt(2 / pi) log2(e) for x, and 0.044715 times that for x^3.
##
## Context: problem, wide.

## `activate`, for a `wide2` with `pairs`, else for one result. The latter is not inlined: a kernel would contain
## it once for each of a work-item's results.
<%def name="functions(pairs)" filter="trim">
% if wide.real != "float":
// ${problem.activation}
${head(pairs)}
{
    return ${activation_of("wide2" if pairs else "wide")};
}
% elif problem.activation in ("silu", "gelu_tanh"):
${positive()}

${power_of_2()}

${reciprocal()}

${by_odds(pairs)}
% else:
${single()}

${head(pairs)}
{
% if pairs:
    return (wide2)(${problem.activation}_of(x.x), ${problem.activation}_of(x.y));
% else:
    return ${problem.activation}_of(x);
% endif
}
% endif
</%def>

<%def name="head(pairs)" filter="trim">
% if pairs:
static inline wide2 activate(const wide2 x)
% else:
static __attribute__((noinline)) wide activate(const wide x)
% endif
</%def>

## The function of one result.
<%def name="single()" filter="trim">
% if problem.activation == "relu":
${positive("relu_of")}
% elif problem.activation == "gelu":
${positive()}

${power_of_2()}

// log2 of the normal distribution's Phi(-t) is nearly a polynomial of t.
static inline float gelu_of(const float x)
{
    const float t = fmin(fabs(x), 1024.0f);
% if wide.stored_bytes == 2:
    float exponent = -0.000310988237f;
    exponent = fma(exponent, t, 0.00579362971f);
    exponent = fma(exponent, t, -0.0483967534f);
    exponent = fma(exponent, t, -0.463413265f);
    exponent = fma(exponent, t, -1.14979455f);
    exponent = fma(exponent, t, -1.00005198f);
% else:
    float exponent = -1.66547434e-06f;
    exponent = fma(exponent, t, 5.82850683e-05f);
    exponent = fma(exponent, t, -0.000905402661f);
    exponent = fma(exponent, t, 0.00841509111f);
    exponent = fma(exponent, t, -0.0537881668f);
    exponent = fma(exponent, t, -0.458611314f);
    exponent = fma(exponent, t, -1.15120597f);
    exponent = fma(exponent, t, -0.999997418f);
% endif
    return fma(-t, power_of_2(exponent), positive(x));
}
% elif problem.activation == "sigmoid":
${power_of_2()}

${reciprocal()}

static inline float sigmoid_of(const float x)
{
    return reciprocal(1.0f + power_of_2(-1.44269504f * x));
}
% elif wide.stored_bytes == 2:
// tanh(x) with a relative error of 2^-11.
static inline float tanh_of(const float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
% else:
static inline float tanh_of(const float x)
{
    return tanh(x);
}
% endif
</%def>

## Activations whose weight is a logistic function.
<%def name="by_odds(pairs)" filter="trim">
// W(-t) / W(t).
static inline float odds_of(const float t)
{
% if problem.activation == "gelu_tanh":
    return power_of_2(t * fma(-0.10294324f, t * t, -2.3022082f));
% else:
    return power_of_2(-1.44269504f * t);
% endif
}

% if pairs:
// One reciprocal for both: its throughput is lower than that of multiplications.
${head(pairs)}
{
    const wide2 t = (wide2)(fmin(fabs(x.x), 1024.0f), fmin(fabs(x.y), 1024.0f));
    const wide2 odds = (wide2)(odds_of(t.x), odds_of(t.y));
    const wide2 sums = 1.0f + odds;
    const wide2 parts = t * odds * sums.yx;
    const float both = reciprocal(sums.x * sums.y);
    return (wide2)(fma(-both, parts.x, positive(x.x)), fma(-both, parts.y, positive(x.y)));
}
% else:
${head(pairs)}
{
    const float t = fmin(fabs(x), 1024.0f);
    const float odds = odds_of(t);
    return fma(-t * odds, reciprocal(1.0f + odds), positive(x));
}
% endif
</%def>

<%def name="positive(name='positive')" filter="trim">
// The larger of x and 0; a NaN stays a NaN.
static inline float ${name}(const float x)
{
    float y;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
}
</%def>

<%def name="power_of_2()" filter="trim">
// 2^x with a relative error of 2^-22; 0 below the normal numbers.
static inline float power_of_2(const float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
</%def>

<%def name="reciprocal()" filter="trim">
// 1 / x with an error of one ulp.
static inline float reciprocal(const float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
</%def>
