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

_CURVE_ODDS = 0.1
"""Prior odds of a warm-up curve of any time constant against none: what is judged begins after the warm-up."""

_SHORTEST_LENGTH = 0.3
"""Correlation length that white noise counts as."""

_EXACT = 1e-12
"""Share of the readings' variance below which a residual is rounding, not noise."""


@dataclass(frozen=True, slots=True)
class TrendFit:
    """``slope`` per unit of ``t`` with standard deviation ``sd``; ``effects`` are the fixed columns' coefficients.

    ``rho`` is the correlation of neighbouring readings, ``length`` how many readings the correlated part of the noise
    lasts (geometric mean over the candidates, at most n: a random walk), ``noise`` the residual's standard deviation,
    ``warm`` the share (0 to 1) of the evidence that is for a warm-up curve, ``curve`` the likeliest one (None: none),
    ``curve_size`` its coefficient, ``spacing`` how much less likely (log evidence) its likelier neighbour in the list
    is, ``evidence`` the log likelihood less BIC's penalty (comparable between fits of the same readings), ``fitted``
    what the likeliest model says at each reading.
    """

    slope: float
    sd: float
    rho: float
    length: float
    noise: float
    effects: tuple[float, ...]
    warm: float
    curve: int | None
    curve_size: float
    spacing: float
    evidence: float
    fitted: Floats

    @property
    def ratio(self) -> float:
        """Slope over standard deviation; its tail is in ``critical``."""
        if self.sd > 0:
            return self.slope / self.sd
        return 0.0 if self.slope == 0 else float(np.copysign(np.inf, self.slope))


@dataclass(frozen=True, slots=True)
class _Spectra:
    """Candidate noise spectra at the frequencies of n readings: weights (g x n-1), log prior, half log determinant,
    lag-1 correlation and log correlation length of each."""

    weights: Floats
    half_log: Floats
    prior: Floats
    correlation: Floats
    log_length: Floats


@lru_cache(maxsize=16)
def _spectra(points: int) -> _Spectra:
    omega = np.pi * np.arange(1, points) / points
    shapes: list[Floats] = [np.ones_like(omega)]
    prior = [0.0]
    lengths = [_SHORTEST_LENGTH]
    for length in _LENGTHS[1:]:
        rho = float(np.exp(-1.0 / length))
        core = 1.0 / (1.0 + rho * rho - 2.0 * rho * np.cos(omega))
        for nugget in _NUGGETS:
            shapes.append(core + nugget)
            lengths.append(float(np.clip(length, _SHORTEST_LENGTH, points)))
            prior.append(np.log(_RANDOM_WALK_PRIOR) if np.isinf(length) else 0.0)
    spectra = np.array(shapes)
    weights = 1.0 / spectra
    return _Spectra(
        weights=weights,
        half_log=0.5 * np.log(weights).sum(axis=1),
        prior=np.array(prior),
        correlation=(spectra * np.cos(omega)).sum(axis=1) / spectra.sum(axis=1),
        log_length=np.log(lengths),
    )


@dataclass(frozen=True, slots=True)
class _Models:
    """Every choice of curve (0 is none) under every spectrum: arrays of models x spectra (x columns for ``beta``)."""

    beta: Floats
    curve: Floats
    variance: Floats
    share: Floats
    bic: Floats


def _fit_models(gram: Floats, base: int, rows: int, spectra: _Spectra) -> _Models:
    """Weighted least squares from the weighted products of columns: 0 is y, 1 to base - 1 in every model, each later
    one added alone (by its Schur complement, so that one inversion serves all)."""
    fixed = slice(1, base)
    values, vectors = np.linalg.eigh(gram[:, fixed, fixed])
    values = np.maximum(values, 1e-10 * values[:, -1:])
    inverse = (vectors / values[:, None, :]) @ vectors.transpose(0, 2, 1)
    plain = np.einsum("gij,gj->gi", inverse, gram[:, fixed, 0])
    total = gram[:, 0, 0]
    rss = total - (plain * gram[:, fixed, 0]).sum(axis=1)
    logdet = np.log(values).sum(axis=1)
    # g x p x w: what each curve shares with the fixed columns
    shared = inverse @ gram[:, fixed, base:]
    own = np.einsum("gcc->gc", gram[:, base:, base:])
    left = np.maximum(own - (gram[:, fixed, base:] * shared).sum(axis=1), 1e-9 * own)
    size = (gram[:, base:, 0] - np.einsum("gpw,gp->gw", gram[:, fixed, base:], plain)) / left

    beta = np.concatenate([plain[None], (plain[:, :, None] - shared * size[:, None, :]).transpose(2, 0, 1)])
    all_rss = np.vstack([rss[None], (rss[:, None] - size**2 * left).T])
    all_rss = np.maximum(all_rss, _EXACT * total + 1e-300)
    dets = np.vstack([logdet[None], (logdet[:, None] + np.log(left)).T])
    width = np.vstack([inverse[None, :, 0, 0], (inverse[:, 0, 0][:, None] + shared[:, 0, :] ** 2 / left).T])
    columns = np.full((len(beta), 1), float(base))
    columns[0] = base - 1.0
    freedom = np.maximum(rows - columns, 1.0)
    restricted = spectra.prior + spectra.half_log - 0.5 * dets - 0.5 * freedom * np.log(all_rss)
    share = np.exp(restricted - restricted.max(axis=1, keepdims=True))
    likelihood = (spectra.half_log - 0.5 * rows * np.log(all_rss)).max(axis=1)
    return _Models(
        beta=beta,
        curve=np.vstack([np.zeros((1, len(rss))), size.T]),
        variance=all_rss / freedom * width,
        share=share / share.sum(axis=1, keepdims=True),
        bic=likelihood - 0.5 * columns[:, 0] * np.log(rows),
    )


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

    models = _fit_models(gram, 2 + k, rows, spectra)
    count = len(models.bic)
    odds = models.bic.copy()
    odds[1:] += np.log(_CURVE_ODDS / max(count - 1.0, 1.0))
    share = np.exp(odds - odds.max())
    share /= share.sum()
    mix = share[:, None] * models.share
    slopes = models.beta[:, :, 0]
    slope = float((mix * slopes).sum())
    variance = float((mix * (models.variance + (slopes - slope) ** 2)).sum())

    best = int(share.argmax())
    beta = models.share[best] @ models.beta[best]
    size = float(models.share[best] @ models.curve[best])
    shape = columns[:, 1 : 2 + k] @ beta + (columns[:, 1 + k + best] * size if best else 0.0)
    level = float(np.mean(columns[:, 0] - shape))
    around = [models.bic[i] for i in (best - 1, best + 1) if 0 < i < count]
    constant = float(np.ptp(y)) == 0.0
    return TrendFit(
        slope=0.0 if constant else slope * scale / span,
        sd=0.0 if constant else float(np.sqrt(variance)) * scale / span,
        rho=float(mix.sum(axis=0) @ spectra.correlation),
        length=_SHORTEST_LENGTH if constant else float(np.exp(mix.sum(axis=0) @ spectra.log_length)),
        noise=float(np.std(columns[:, 0] - shape)) * scale,
        effects=tuple(float(b * scale / width[i]) for i, b in enumerate(beta[1:])),
        warm=float(share[1:].sum()),
        curve=best - 1 if best else None,
        curve_size=size * scale / float(width[k + best - 1]) if best else 0.0,
        spacing=float(models.bic[best] - max(around)) if best and around else 0.0,
        evidence=float(models.bic.max()),
        fitted=y[0] + scale * (level + shape),
    )


WARM_UP_SHARES = (0.012, 0.018, 0.03, 0.045, 0.067, 0.1, 0.15, 0.22, 0.33, 0.5)
"""Time constants of the warm-up curves tried first, as shares of the span."""

_REFINEMENTS = 5
_LEAST_REFINEMENTS = 2
_RESOLVED = 1.0
"""Difference of neighbouring candidates in log evidence below which a finer grid would say nothing new."""


def fit_growth(
    t: Floats, y: Floats, fixed: Floats | None = None, origin: float | None = None
) -> tuple[TrendFit, float]:
    """``fit_trend`` with warm-up curves whose time constants are refined until the readings can't tell them apart.

    The candidates are saturating exponentials over the span of ``t`` and the logarithm of the time since ``origin``
    (a third of the span before ``t`` where not given), which is how records of a steady demand grow. Returns the fit
    and the likeliest time constant in units of ``t`` (infinite: the logarithm; 0: no warm-up).
    """
    span = float(t[-1] - t[0]) or 1.0
    share = (t - t[0]) / span
    past = 1.0 / 3.0 if origin is None else max(float(t[0] - origin) / span, 0.02)
    logarithm = np.log(share + past)
    taus = np.array(WARM_UP_SHARES)
    for turn in range(_REFINEMENTS):
        curves = np.column_stack([np.exp(-share[:, None] / taus), logarithm])
        fit = fit_trend(t, y, fixed, curves)
        # a coarse miss passes for correlated noise: neighbours look alike until one is near enough
        resolved = turn >= _LEAST_REFINEMENTS and fit.spacing < _RESOLVED
        if fit.curve is None or fit.curve >= len(taus) or resolved:
            break
        near = taus[max(0, fit.curve - 1) : fit.curve + 2]
        taus = np.geomspace(near[0], near[-1], len(WARM_UP_SHARES))
    if fit.curve is None:
        return fit, 0.0
    return fit, float(taus[fit.curve]) * span if fit.curve < len(taus) else np.inf
