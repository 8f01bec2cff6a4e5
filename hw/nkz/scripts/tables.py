#!/usr/bin/env python3
"""Writes src/frequencies.rs: the static frequency tables of the entropy coder, from the formulas of docs/nkz.md.

Run by hand when a formula changes: python3 hw/nkz/scripts/tables.py > hw/nkz/src/frequencies.rs
"""
from math import erf, exp, pi, sqrt

TOTAL = 1024


def normalise(p, peak):
    """Counts of at least one that sum to TOTAL; what rounding left over goes to the symbol at `peak`."""
    f = [max(1, int(TOTAL * x + 0.5)) for x in p]
    f[peak] += TOTAL - sum(f)
    assert f[peak] > 0
    return f


def code_table(i):
    """Discretised logistic of sigma = 2^(-2.5 + i/2) steps; low bits stay raw from sigma = 4 steps on."""
    sigma = 2 ** (-2.5 + i / 2)
    low = max(0, (i - 7) // 2)
    s = sigma * sqrt(3) / pi
    cdf = lambda z: 1 / (1 + exp(-z / s)) if z > -700 * s else 0.0
    reach = min(15, max(1, int(6 * sigma / 2**low + 0.999999)))
    cell = lambda k: cdf(((k + 1) << low) - 0.5) - cdf((k << low) - 0.5)
    p = [cell(k) for k in range(-reach, reach + 1)]
    return low, reach, normalise(p + [1 - sum(p)], reach)


RATIOS = [0, 0.75, 1.25, 2, 3, 4.5, 7, 12]


def exponent_table(i):
    """Exponent of a normal variable of mean/sigma = RATIOS[i / 2], less that of its root mean square, which lies a
    quarter or three quarters of an octave above a power of two."""
    ratio, phase = RATIOS[i // 2], (0.25, 0.75)[i % 2]
    rms = 2**phase
    sigma = rms / sqrt(1 + ratio * ratio)
    mu = ratio * sigma
    cdf = lambda z: 0.5 * (1 + erf((z - mu) / sigma / sqrt(2)))
    inside = lambda a: cdf(a) - cdf(-a)
    p = [inside(2.0 ** (k + 1)) - inside(2.0**k) for k in range(-15, 16)]
    return 0, 15, normalise(p + [max(0.0, 1 - sum(p))], max(range(31), key=lambda k: p[k]))


def rust(name, doc, tables):
    print(f"\n/// {doc}\npub(crate) const {name}: [Shape; 16] = [")
    for low, reach, f in tables:
        print(f"    Shape {{ low: {low}, reach: {reach}, frequencies: &{f} }},")
    print("];")


print("//! The frequency tables, written by `scripts/tables.py`; docs/nkz.md gives the formulas.\n")
print("use crate::tables::Shape;")
rust("CODES", "Quantiser codes.", [code_table(i) for i in range(16)])
rust("EXPONENTS", "BF16 exponents of the lossless mode.", [exponent_table(i) for i in range(16)])
