## Activations of results by NVIDIA's approximate instructions: inline PTX (PTX ISA, "ex2", "rcp", "tanh",
## "max"; from compute capability 8.0 on). Their errors: tests/support/reference.py, 5.
##
## silu, gelu and gelu_tanh are x W(x) with a weight W(x) = 1 - W(-x), thus max(x, 0) - |x| W(-|x|):
## nothing cancels, and nothing overflows.
##
## Context: problem, wide, approximation (pyclgemm/codegen/kernel.py).

## `activate` for a `wide2` if `pairs`, else for one result, as code of its own: in line, it would be there
## for each of a work-item's results.
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
    float exponent = ${approximation[-1]}f;
% for coefficient in reversed(approximation[:-1]):
    exponent = fma(exponent, t, ${coefficient}f);
% endfor
    return fma(-t, power_of_2(exponent), positive(x));
}
% elif problem.activation == "sigmoid":
${power_of_2()}

${reciprocal()}

static inline float sigmoid_of(const float x)
{
    return reciprocal(1.0f + power_of_2(${approximation[0]}f * x));
}
% elif wide.stored_bytes == 2:
// tanh(x), to 2^-11 of it.
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

## Those whose weight is a logistic function.
<%def name="by_odds(pairs)" filter="trim">
// W(-t) : W(t).
static inline float odds_of(const float t)
{
% if len(approximation) > 1:
    return power_of_2(t * fma(${approximation[1]}f, t * t, ${approximation[0]}f));
% else:
    return power_of_2(${approximation[0]}f * t);
% endif
}

% if pairs:
// One reciprocal does for both: such instructions are scarcer than multiplications.
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
// The larger of x and 0; NaN stays what it is.
static inline float ${name}(const float x)
{
    float y;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
}
</%def>

<%def name="power_of_2()" filter="trim">
// 2^x, to 2^-22 of it; 0 where it would be below the normal numbers.
static inline float power_of_2(const float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
</%def>

<%def name="reciprocal()" filter="trim">
// 1 / x, to an ulp.
static inline float reciprocal(const float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
</%def>
