# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""The standard normal distribution function and its inverse, float64 numbers, to a few units in the last place.

Sources as in `stream_tpp.kernels.triton.normal`: Wichura (1988, algorithm AS 241) for quantiles; for the tails of the
distribution function one polynomial in t = (x - 3.75) / (x + 3.75), in the form of Shepherd and Laframboise (1981).
"""

import math

from stream_tpp.kernels.native.native import native

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
_LOWEST_LOG = -700.0
_FARTHEST = 1e200
# fmt: off
_ERFCX = (
    1.2375126308378275, -0.14024059858554525, 0.0035854154854790257, 0.08227673848999506, -0.10880393014244462,
    0.09230432116428125, -0.05869339857664934, 0.02836227737211114, -0.009746579683265262, 0.0017556261651970652,
    0.000293714378044958, -0.00029015535246077655, 5.164652974177416e-05, 2.2387565714911816e-05,
    -1.1438048033346894e-05, -9.792625707303523e-07, 1.7419821586224816e-06, -5.084465378687302e-08,
    -2.4857126248016745e-07, 1.879082322370048e-08, 3.197926671666804e-08, -1.9551358868985616e-09,
    -2.623107347133476e-09,
)
_MIDDLE = (
    3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125, 45921.953931549871457,
    67265.770927008700853, 33430.575583588128105, 2509.0809287301226727,
)
_MIDDLE_BELOW = (
    1.0, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077, 21213.794301586595867,
    39307.895800092710610, 28729.085735721942674, 5226.4952788528545610,
)
_TAIL = (
    1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
    1.27045825245236838258, 0.241780725177450611770, 0.0227238449892691845833, 7.74545014278341407640e-4,
)
_TAIL_BELOW = (
    1.0, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550, 0.148103976427480074590,
    0.0151986665636164571966, 5.47593808499534494600e-4, 1.05075007164441684324e-9,
)
_FAR_TAIL = (
    6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 0.296560571828504891230,
    0.0265321895265761230930, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
)
_FAR_TAIL_BELOW = (
    1.0, 0.599832206555887937690, 0.136929880922735805310, 0.0148753612908506148525, 7.86869131145613259100e-4,
    1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15,
)
# fmt: on


@native
def _polynomial(x, coefficients):
    """The constant coefficient comes first."""
    value = coefficients[-1]
    for i in range(2, len(coefficients) + 1):
        value = value * x + coefficients[-i]
    return value


@native
def log_ndtr(z):
    """Log of the standard normal distribution function, however far out; z may be infinite, and NaN stays NaN."""
    x = min(abs(z), _FARTHEST) * _SQRT_HALF if z == z else z
    scaled = _polynomial((x - 3.75) / (x + 3.75), _ERFCX) / (1.0 + 2.0 * x)
    log_tail = math.log(0.5 * scaled) - x * x
    return log_tail if z < 0.0 else math.log1p(-math.exp(log_tail))


@native
def _middle_quantile(from_half):
    """The quantile of 1/2 + from_half, where that is within 0.425 of 1/2."""
    r = 0.180625 - from_half * from_half
    return from_half * _polynomial(r, _MIDDLE) / _polynomial(r, _MIDDLE_BELOW)


@native
def _lower_quantile(log_p):
    """The quantile of exp(log_p), where that is below 0.075 and log_p above -729."""
    r = math.sqrt(-log_p)
    if r <= 5.0:
        return -_polynomial(r - 1.6, _TAIL) / _polynomial(r - 1.6, _TAIL_BELOW)
    return -_polynomial(r - 5.0, _FAR_TAIL) / _polynomial(r - 5.0, _FAR_TAIL_BELOW)


@native
def ndtri(p):
    """The standard normal quantile of p in (0, 1)."""
    from_half = p - 0.5
    if abs(from_half) <= 0.425:
        return _middle_quantile(from_half)
    return _lower_quantile(math.log(p)) if from_half < 0.0 else -_lower_quantile(math.log(1.0 - p))


@native
def log_ndtri(log_p):
    """The z whose log_ndtr is log_p <= 0, also where exp(log_p) would underflow."""
    if log_p >= _LOWEST_LOG:
        p = math.exp(log_p)
        if abs(p - 0.5) <= 0.425:
            return _middle_quantile(p - 0.5)
        return _lower_quantile(log_p) if p < 0.5 else -_lower_quantile(math.log(1.0 - p))
    tail = -math.sqrt(-2.0 * log_p)
    for _ in range(4):  # Newton; the slope of log Phi at z is phi(z) / Phi(z)
        log_cdf = log_ndtr(tail)
        tail -= (log_cdf - log_p) / math.exp(-0.5 * tail * tail - _HALF_LOG_2PI - log_cdf)
    return tail
