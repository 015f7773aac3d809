## Activations of pairs of results by NVIDIA's approximate instructions: inline PTX (PTX ISA, "ex2",
## "rcp", "tanh", "max"). Errors are within what the tests allow for each result.
##
## silu, gelu and gelu_tanh are x W(x) with a weight W(x) = 1 - W(-x), thus max(x, 0) - |x| W(-|x|):
## nothing cancels, and nothing overflows.
##
## Context: problem, wide, approximation (what the activation is made of; see approximation.py).

<%def name="functions()" filter="trim">
% if wide.real != "float":
// ${problem.activation}
static inline wide2 activate(const wide2 x)
{
    return ${activation_of("wide2")};
}
% elif problem.activation == "tanh" and wide.stored_bytes == 2:
// tanh(x), to 2^-11 of it.
static inline float tanh_of(const float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static inline wide2 activate(const wide2 x)
{
    return (wide2)(tanh_of(x.x), tanh_of(x.y));
}
% elif problem.activation == "tanh":
static inline wide2 activate(const wide2 x)
{
    return (wide2)(tanh(x.x), tanh(x.y));
}
% else:
% if problem.activation != "sigmoid":
// The larger of x and 0; NaN stays what it is.
static inline float positive(const float x)
{
    float y;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
}
% endif
% if problem.activation == "relu":

static inline wide2 activate(const wide2 x)
{
    return (wide2)(positive(x.x), positive(x.y));
}
% else:
${weighted()}
% endif
% endif
</%def>

<%def name="weighted()" filter="trim">

// 2^x, to 2^-22 of it; 0 where it would be below the normal numbers.
static inline float power_of_2(const float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
% if problem.activation == "gelu":

// log2 of the normal distribution's Phi(-t) is nearly a polynomial of t.
static inline float gelu(const float x)
{
    const float t = fmin(fabs(x), 1024.0f);
    float exponent = ${approximation[-1]}f;
% for coefficient in reversed(approximation[:-1]):
    exponent = fma(exponent, t, ${coefficient}f);
% endfor
    return fma(-t, power_of_2(exponent), positive(x));
}

static inline wide2 activate(const wide2 x)
{
    return (wide2)(gelu(x.x), gelu(x.y));
}
% else:

// 1 / x, to an ulp.
static inline float reciprocal(const float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
% if problem.activation == "sigmoid":

static inline float sigmoid(const float x)
{
    return reciprocal(1.0f + power_of_2(${approximation[0]}f * x));
}

static inline wide2 activate(const wide2 x)
{
    return (wide2)(sigmoid(x.x), sigmoid(x.y));
}
% else:

// W(-t) : W(t).
static inline float odds_of(const float t)
{
% if len(approximation) > 1:
    return power_of_2(t * fma(${approximation[1]}f, t * t, ${approximation[0]}f));
% else:
    return power_of_2(${approximation[0]}f * t);
% endif
}

// One reciprocal does for both: such instructions are scarcer than multiplications.
static inline wide2 activate(const wide2 x)
{
    const wide2 t = (wide2)(fmin(fabs(x.x), 1024.0f), fmin(fabs(x.y), 1024.0f));
    const wide2 odds = (wide2)(odds_of(t.x), odds_of(t.y));
    const wide2 sums = 1.0f + odds;
    const wide2 parts = t * odds * sums.yx;
    const float both = reciprocal(sums.x * sums.y);
    return (wide2)(fma(-both, parts.x, positive(x.x)), fma(-both, parts.y, positive(x.y)));
}
% endif
% endif
</%def>
