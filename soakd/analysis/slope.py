"""The slope of a noisy, correlated series, averaged over what its noise and its warm-up may be.

The regression is done on cosine transforms (DCT-II) of the readings. They diagonalise both white noise and a demeaned
random walk, and nearly every AR(1) between them (Mueller & Watson, 'Low-frequency econometrics', 2017), so that
generalised least squares under each candidate noise spectrum is a weighted regression with diagonal weights. The
candidates are AR(1) spectra from white noise to a random walk, each with several shares of unrelated noise on top (what
quantisation and block minima leave). Restricted likelihood weighs the spectra, BIC weighs the warm-up curves, and the
slope and its variance are averaged over all of them: no pretest, hence no discontinuity near a unit root.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.fft import dct

from soakd.analysis.series import Floats

_LENGTHS = (0.0, 0.7, 1.5, 3.0, 5.0, 8.0, 13.0, 22.0, 40.0, 80.0, 200.0, np.inf)
_NUGGETS = (0.0, 0.3, 1.0, 3.0, 10.0, 40.0, 200.0)

_RANDOM_WALK_PRIOR = 3.0
"""Prior odds of a random walk against each other spectrum: the likelihood alone mistakes one for an AR(1) too often."""

_EXACT = 1e-12
"""Share of the readings' variance below which a residual is rounding, not noise."""


@dataclass(frozen=True, slots=True)
class TrendFit:
    """``slope`` per unit of ``t`` with standard deviation ``sd``; ``effects`` are the fixed columns' coefficients.

    ``rho`` is the correlation of neighbouring readings, ``noise`` their residual's standard deviation, ``warm`` the
    share (0 to 1) of the evidence that is for a warm-up curve, ``curve`` the likeliest one (None: none), ``curve_size``
    its coefficient, ``fitted`` what the likeliest model says at each reading.
    """

    slope: float
    sd: float
    rho: float
    noise: float
    effects: tuple[float, ...]
    warm: float
    curve: int | None
    curve_size: float
    fitted: Floats

    @property
    def ratio(self) -> float:
        """Slope over standard deviation; its tail is in ``critical``."""
        if self.sd > 0:
            return self.slope / self.sd
        return 0.0 if self.slope == 0 else float(np.copysign(np.inf, self.slope))


@dataclass(frozen=True, slots=True)
class _Spectra:
    """Candidate noise spectra at the frequencies of n readings: weights (g x n-1), log prior plus half log
    determinant, and lag-1 correlation of each."""

    weights: Floats
    half_log: Floats
    prior: Floats
    correlation: Floats


@lru_cache(maxsize=64)
def _spectra(points: int) -> _Spectra:
    omega = np.pi * np.arange(1, points) / points
    shapes: list[Floats] = [np.ones_like(omega)]
    prior = [0.0]
    for length in _LENGTHS[1:]:
        rho = float(np.exp(-1.0 / length))
        core = 1.0 / (1.0 + rho * rho - 2.0 * rho * np.cos(omega))
        for nugget in _NUGGETS:
            shapes.append(core + nugget)
            prior.append(np.log(_RANDOM_WALK_PRIOR) if np.isinf(length) else 0.0)
    spectra = np.array(shapes)
    weights = 1.0 / spectra
    return _Spectra(
        weights=weights,
        half_log=0.5 * np.log(weights).sum(axis=1),
        prior=np.array(prior),
        correlation=(spectra * np.cos(omega)).sum(axis=1) / spectra.sum(axis=1),
    )


@dataclass(frozen=True, slots=True)
class _Model:
    """One choice of columns under every spectrum."""

    beta: Floats
    variance: Floats
    share: Floats
    bic: float


def _fit_columns(gram: Floats, index: list[int], rows: int, spectra: _Spectra) -> _Model:
    p = len(index)
    sub = gram[:, index][:, :, index]
    inverse = np.linalg.pinv(sub, hermitian=True, rcond=1e-10)
    cross = gram[:, index, 0]
    beta = np.einsum("gij,gj->gi", inverse, cross)
    rss = np.maximum(gram[:, 0, 0] - (beta * cross).sum(axis=1), _EXACT * gram[:, 0, 0] + 1e-300)
    freedom = max(rows - p, 1)
    values = np.linalg.eigvalsh(sub)
    logdet = np.log(np.maximum(values, 1e-10 * values[:, -1:])).sum(axis=1)
    restricted = spectra.prior + spectra.half_log - 0.5 * logdet - 0.5 * freedom * np.log(rss)
    share = np.exp(restricted - restricted.max())
    likelihood = float((spectra.half_log - 0.5 * rows * np.log(rss)).max())
    return _Model(beta, rss / freedom * inverse[:, 0, 0], share / share.sum(), likelihood - 0.5 * p * np.log(rows))


def fit_trend(t: Floats, y: Floats, fixed: Floats | None = None, curves: Floats | None = None) -> TrendFit:
    """Fit ``y = level + slope t + fixed effects + at most one of the curves + correlated noise``.

    ``t`` and ``y`` hold n readings in order of ``t`` (at least 4); ``fixed`` is n x k, ``curves`` n x w (either may be
    None). The noise is modelled along the order of the readings, so gaps in ``t`` are allowed.
    """
    span = float(t[-1] - t[0]) or 1.0
    scale = float(np.ptp(y)) or 1.0
    given = [part for part in (fixed, curves) if part is not None and part.shape[1]]
    extra = np.hstack(given) if given else np.empty((len(t), 0))
    k = fixed.shape[1] if fixed is not None else 0
    width = np.ptp(extra, axis=0)
    width = np.where(width > 0, width, 1.0)
    columns = np.column_stack([(y - y[0]) / scale, (t - t[0]) / span, extra / width])
    z = dct(columns, type=2, norm="ortho", axis=0)[1:]
    rows, c = z.shape
    spectra = _spectra(len(t))
    gram = (spectra.weights @ (z[:, :, None] * z[:, None, :]).reshape(rows, c * c)).reshape(-1, c, c)

    base = list(range(1, 2 + k))
    choices = [base] + [[*base, j] for j in range(2 + k, c)]
    models = [_fit_columns(gram, index, rows, spectra) for index in choices]
    # a warm-up curve of any time constant is as likely beforehand as none
    odds = np.array([m.bic for m in models]) - np.log([1.0] + [max(len(models) - 1.0, 1.0)] * (len(models) - 1))
    share = np.exp(odds - odds.max())
    share /= share.sum()
    mix = share[:, None] * np.array([m.share for m in models])
    slopes = np.array([m.beta[:, 0] for m in models])
    slope = float((mix * slopes).sum())
    variance = float((mix * (np.array([m.variance for m in models]) + (slopes - slope) ** 2)).sum())

    best = int(share.argmax())
    beta = models[best].share @ models[best].beta
    shape = columns[:, choices[best]] @ beta
    level = float(np.mean(columns[:, 0] - shape))
    return TrendFit(
        slope=slope * scale / span,
        sd=float(np.sqrt(variance)) * scale / span,
        rho=float(mix.sum(axis=0) @ spectra.correlation),
        noise=float(np.std(columns[:, 0] - shape)) * scale,
        effects=tuple(float(b * scale / width[i]) for i, b in enumerate(beta[1 : 1 + k])),
        warm=float(share[1:].sum()),
        curve=best - 1 if best else None,
        curve_size=float(beta[-1] * scale / width[k + best - 1]) if best else 0.0,
        fitted=y[0] + scale * (level + shape),
    )


WARM_UP_SHARES = (0.03, 0.045, 0.067, 0.1, 0.15, 0.22, 0.33, 0.5)
"""Time constants of the warm-up curves tried, as shares of the span."""


def warm_up_curves(t: Floats, origin: float | None = None) -> Floats:
    """One column per candidate: saturating exponentials over the span of ``t``, then the logarithm of the time since
    ``origin`` (a third of the span before ``t`` where not given), which is how records of a steady demand grow."""
    span = float(t[-1] - t[0]) or 1.0
    share = (t - t[0]) / span
    past = 1.0 / 3.0 if origin is None else max(float(t[0] - origin) / span, 0.02)
    return np.column_stack([*(np.exp(-share / tau) for tau in WARM_UP_SHARES), np.log(share + past)])
