# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""The standard normal distribution function and its inverse inside a kernel, float64, to a few units in the last place.

Triton brings neither. Quantiles are Wichura's (1988, algorithm AS 241, PPND16): rational functions of p near the middle,
of r = sqrt(-log p) in the tails. The tails of the distribution function go through one polynomial in t = (x - 3.75) / (x +
3.75) for (1 + 2 x) exp(x^2) erfc(x), all x >= 0, which is the form of Shepherd and Laframboise (1981), fitted here at the
Chebyshev nodes with 60 digits.
"""

import triton
import triton.language as tl

_HALF_LOG_2PI = tl.constexpr(0.9189385332046727)
_SQRT_HALF = tl.constexpr(0.7071067811865476)
_LOWEST_LOG = tl.constexpr(-700.0)
_FARTHEST = tl.constexpr(1e200)
# fmt: off
_ERFCX = tl.constexpr((
    1.2375126308378275, -0.14024059858554525, 0.0035854154854790257, 0.08227673848999506, -0.10880393014244462,
    0.09230432116428125, -0.05869339857664934, 0.02836227737211114, -0.009746579683265262, 0.0017556261651970652,
    0.000293714378044958, -0.00029015535246077655, 5.164652974177416e-05, 2.2387565714911816e-05,
    -1.1438048033346894e-05, -9.792625707303523e-07, 1.7419821586224816e-06, -5.084465378687302e-08,
    -2.4857126248016745e-07, 1.879082322370048e-08, 3.197926671666804e-08, -1.9551358868985616e-09,
    -2.623107347133476e-09,
))
_MIDDLE = tl.constexpr((
    3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125, 45921.953931549871457,
    67265.770927008700853, 33430.575583588128105, 2509.0809287301226727,
))
_MIDDLE_BELOW = tl.constexpr((
    1.0, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077, 21213.794301586595867,
    39307.895800092710610, 28729.085735721942674, 5226.4952788528545610,
))
_TAIL = tl.constexpr((
    1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
    1.27045825245236838258, 0.241780725177450611770, 0.0227238449892691845833, 7.74545014278341407640e-4,
))
_TAIL_BELOW = tl.constexpr((
    1.0, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550, 0.148103976427480074590,
    0.0151986665636164571966, 5.47593808499534494600e-4, 1.05075007164441684324e-9,
))
_FAR_TAIL = tl.constexpr((
    6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 0.296560571828504891230,
    0.0265321895265761230930, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
))
_FAR_TAIL_BELOW = tl.constexpr((
    1.0, 0.599832206555887937690, 0.136929880922735805310, 0.0148753612908506148525, 7.86869131145613259100e-4,
    1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15,
))
# fmt: on


@triton.jit
def _polynomial(x, coefficients: tl.constexpr, n: tl.constexpr):
    """Of n coefficients, the constant one first."""
    value = x * 0.0 + coefficients[n - 1]
    for i in tl.static_range(2, n + 1):
        value = value * x + coefficients[n - i]
    return value


@triton.jit
def _log_one_minus(x):
    """log(1 - x) for x in [0, 1/2], without the loss of a small x (Kahan)."""
    rest = 1.0 - x
    lost = 1.0 - rest
    return tl.where(lost == 0.0, -x, tl.log(rest) * (x / tl.where(lost == 0.0, 1.0, lost)))


@triton.jit
def log_ndtr(z):
    """Log of the standard normal distribution function, however far out; z may be infinite, and NaN stays NaN."""
    x = tl.abs(z)
    x = tl.where(x > _FARTHEST, _FARTHEST, x) * _SQRT_HALF
    scaled = _polynomial((x - 3.75) / (x + 3.75), _ERFCX, 23) / (1.0 + 2.0 * x)
    log_tail = tl.log(0.5 * scaled) - x * x
    return tl.where(z < 0.0, log_tail, _log_one_minus(tl.exp(log_tail)))


@triton.jit
def _middle_quantile(from_half):
    """The quantile of 1/2 + from_half, where that is within 0.425 of 1/2."""
    r = 0.180625 - from_half * from_half
    return from_half * _polynomial(r, _MIDDLE, 8) / _polynomial(r, _MIDDLE_BELOW, 8)


@triton.jit
def _lower_quantile(log_p):
    """The quantile of exp(log_p), where that is below 0.075 and log_p above -729."""
    r = tl.sqrt(-log_p)
    near = _polynomial(r - 1.6, _TAIL, 8) / _polynomial(r - 1.6, _TAIL_BELOW, 8)
    far = _polynomial(r - 5.0, _FAR_TAIL, 8) / _polynomial(r - 5.0, _FAR_TAIL_BELOW, 8)
    return -tl.where(r <= 5.0, near, far)


@triton.jit
def ndtri(p):
    """The standard normal quantile of p in (0, 1)."""
    from_half = p - 0.5
    outer = _lower_quantile(tl.log(tl.where(from_half < 0.0, p, 1.0 - p)))
    outer = tl.where(from_half < 0.0, outer, -outer)
    return tl.where(tl.abs(from_half) <= 0.425, _middle_quantile(from_half), outer)


@triton.jit
def log_ndtri(log_p):
    """The z whose log_ndtr is log_p <= 0, also where exp(log_p) would underflow."""
    near = tl.where(log_p < _LOWEST_LOG, _LOWEST_LOG, log_p)
    p = tl.exp(near)
    from_half = p - 0.5
    below = _lower_quantile(tl.where(from_half < 0.0, near, -0.7))
    above = -_lower_quantile(tl.log(tl.where(from_half < 0.0, 0.5, 1.0 - p)))
    outer = tl.where(from_half < 0.0, below, above)
    z = tl.where(tl.abs(from_half) <= 0.425, _middle_quantile(from_half), outer)
    tail = -tl.sqrt(-2.0 * tl.where(log_p < _LOWEST_LOG, log_p, _LOWEST_LOG))
    for _ in range(4):  # Newton; the slope of log Phi at z is phi(z) / Phi(z)
        log_cdf = log_ndtr(tail)
        slope = tl.exp(-0.5 * tail * tail - _HALF_LOG_2PI - log_cdf)
        tail = tail - (log_cdf - log_p) / slope
    return tl.where(log_p < _LOWEST_LOG, tail, z)
