"""The selection of BenchmarkSelect1M with numpy, scipy and scikit-learn.

usage: sklearn_selection.py FOLDER

FOLDER holds meta.json and raw little-endian arrays written by the benchmark:
per lag L  x_L.f64 (rows x columns), y_L.f64, regime_L.i32, gamma_L_K.f64 (the
column that depends on gamma); config.i32 for all. Rows of a configuration are
contiguous and in time order.

The script does what the Go benchmark does, with the same shortcuts (Gram
matrices per fold segment, columns of all gammas in one pass): weights, 13
lambdas x gammas x lags x forward folds, nested leave-one-configuration-out,
the chosen fit, 500 studentised bootstrap draws over blocks. It prints one JSON
line: seconds (rows in memory to intervals), the choice, and for comparison how
long one scikit-learn Ridge(positive=True) fit on the rows of the last fold
takes, since a selection without Gram matrices needs one per fit.
"""

import json
import os
import sys
import time

import numpy as np
from scipy.linalg import cho_factor, solve_triangular
from scipy.optimize import nnls
from sklearn.linear_model import Ridge


def weights(y, config, regime, eps, min_cell, configs):
    """Relative weights, cells balanced (spec#weights)."""
    w = 1.0 / np.maximum(y, eps) ** 2
    mass = w * y * y
    for c in range(configs):
        rows = config == c
        labels = regime[rows]
        count = np.bincount(labels, minlength=3)
        labels = np.where(count[labels] < min_cell, np.argmax(count), labels)
        sums = np.bincount(labels, weights=mass[rows], minlength=3)
        share = np.zeros_like(sums)
        share[sums > 0] = 1.0 / (configs * np.count_nonzero(sums) * sums[sums > 0])
        w[rows] *= share[labels]
    return w


def bounds(n, blocks):
    size = np.full(blocks, n // blocks)
    size[: n % blocks] += 1
    return np.concatenate([[0], np.cumsum(size)])


def train_end(b, j, embargo):
    return b[j + 1] - min(embargo, b[j + 1] // 2)


def grams(wide, ends, folds, embargoes):
    """Gram of every segment between cut points, per configuration."""
    out = []
    for lo, hi in zip(ends[:-1], ends[1:]):
        b = bounds(hi - lo, folds + 1)
        cuts = set(b)
        for e in embargoes:
            cuts |= {train_end(b, j, e) for j in range(folds)}
        cuts = sorted(cuts)
        parts = []
        for s, t in zip(cuts[:-1], cuts[1:]):
            part = wide[lo + s : lo + t]
            parts.append((s, t, part.T @ part))
        out.append((b, parts))
    return out


def solve(g, total_w, lam, penalty):
    """The scaled objective and its solver on a Gram whose last row and column belong to y (spec#objective)."""
    p = g.shape[0] - 1
    s = np.sqrt(np.diag(g)[:p] / total_w)
    ybar = np.sqrt(g[p, p] / total_w)
    use = s > 0
    a = g[:p, :p][np.ix_(use, use)] / np.outer(s[use], s[use]) / total_w
    b = g[:p, p][use] / (s[use] * ybar * total_w)
    upper, _ = cho_factor(a + lam * np.diag(penalty[use]), lower=False)
    gamma = nnls(np.triu(upper), solve_triangular(upper, b, trans="T"))[0]
    beta = np.zeros(p)
    beta[use] = gamma * ybar / s[use]
    return beta


def score(g, beta):
    p = len(beta)
    return (g[p, p] - 2 * beta @ g[:p, p] + beta @ g[:p, :p] @ beta) / g[p, p]


def select(parts, pick, w_of, lambdas, penalty, folds, embargo):
    """Grid for one (lag, gamma): fold scores, nested leave-one-out, the choice."""
    ix = np.ix_(pick, pick)
    configs = len(parts)
    totals = [sum(g for _, _, g in p)[ix] for _, p in parts]
    within = np.zeros((len(lambdas), folds))
    for j in range(folds):
        train = sum(g for b, p in parts for s, t, g in p if t <= train_end(b, j, embargo))[ix]
        test = [sum(g for s, t, g in p if b[j + 1] <= s and t <= b[j + 2])[ix] for b, p in parts]
        for i, lam in enumerate(lambdas):
            beta = solve(train, w_of(train), lam, penalty)
            within[i, j] = np.mean([score(g, beta) for g in test])
    loco = np.zeros((len(lambdas), configs))
    pairs = {}
    for i, lam in enumerate(lambdas):
        for a in range(configs):
            train = sum(t for k, t in enumerate(totals) if k != a)
            loco[i, a] = score(totals[a], solve(train, w_of(train), lam, penalty))
            for b in range(a + 1, configs):
                train = sum(t for k, t in enumerate(totals) if k not in (a, b))
                beta = solve(train, w_of(train), lam, penalty)
                pairs[i, a, b] = score(totals[a], beta)
                pairs[i, b, a] = score(totals[b], beta)
    nested = []
    for a in range(configs):
        inner = [np.mean([pairs[i, b, a] for b in range(configs) if b != a]) for i in range(len(lambdas))]
        nested.append(loco[np.argmin(inner), a])
    cross = loco.mean(axis=1)
    best = int(np.argmin(cross))
    return cross[best], lambdas[best], within, float(np.mean(nested)), sum(totals)


def bootstrap(x, y, w, ends, blocks, draws, rng):
    """Studentised block bootstrap of the fit without penalty."""
    root = np.sqrt(w)[:, None]
    a, b, strata = [], [], []
    for lo, hi in zip(ends[:-1], ends[1:]):
        cut = bounds(hi - lo, blocks) + lo
        strata.append(range(len(a), len(a) + blocks))
        for s, t in zip(cut[:-1], cut[1:]):
            part = x[s:t] * root[s:t]
            a.append(part.T @ part)
            b.append(part.T @ (y[s:t] * root[s:t, 0]))
    a, b = np.array(a), np.array(b)
    use = np.diag(a.sum(0)) > 0
    a, b = a[:, use][:, :, use], b[:, use]
    scale = np.sqrt(np.diag(a.sum(0)))
    a, b = a / np.outer(scale, scale), b / scale

    def fit(times):
        inverse = np.linalg.inv(np.tensordot(times, a, 1) + 1e-9 * np.eye(len(scale)))
        gamma = inverse @ (times @ b)
        z = (b - a @ gamma) @ inverse
        var = 0
        for s in strata:
            m, zs = times[s.start : s.stop], z[s.start : s.stop]
            mean = m @ zs / m.sum()
            var = var + m.sum() / (m.sum() - 1) * (m @ (zs - mean) ** 2)
        return gamma, np.sqrt(var)

    gamma, se = fit(np.ones(len(a)))
    t = []
    for _ in range(draws):
        times = np.concatenate([np.bincount(rng.integers(0, len(s), len(s)), minlength=len(s)) for s in strata])
        g, e = fit(times.astype(float))
        t.append(np.abs(g - gamma) / e)
    return gamma / scale, se / scale * np.quantile(t, 0.95, axis=0)


def main(folder):
    meta = json.load(open(os.path.join(folder, "meta.json")))
    n, p, configs = meta["rows"], meta["columns"], meta["configs"]

    def load(name, kind=np.float64):
        return np.fromfile(os.path.join(folder, name), dtype=kind)

    config = load("config.i32", np.int32)
    lags = []
    for lag in range(meta["lags"]):
        lags.append((
            load(f"x_{lag}.f64").reshape(n, p), load(f"y_{lag}.f64"), load(f"regime_{lag}.i32", np.int32),
            [load(f"gamma_{lag}_{k}.f64") for k in range(len(meta["gammas"]))],
        ))
    penalty, lambdas, folds = np.array(meta["penalty"]), meta["lambdas"], meta["folds"]
    ends = np.searchsorted(config, range(configs + 1))

    start = time.perf_counter()
    best, fits = None, 0
    for lag, (x, y, regime, columns) in enumerate(lags):
        w = weights(y, config, regime, meta["eps_us"], meta["min_cell_rows"], configs)
        wide = np.column_stack([x, *columns, y, np.ones(n)])
        wide *= np.sqrt(w)[:, None]
        parts = grams(wide, ends, folds, meta["embargo"])
        for k, gamma in enumerate(meta["gammas"]):
            cols = np.arange(p)
            cols[meta["gamma_column"]] = p + k
            pick = np.concatenate([cols, [p + len(columns)]])
            constant = p - 1  # the last column is 1: its square sums the weights
            got = select(parts, pick, lambda g: g[constant, constant], lambdas, penalty, folds, meta["embargo"][k])
            fits += len(lambdas) * (folds + configs + configs * (configs - 1) // 2)
            if best is None or got[0] < best[0]:
                best = (got[0], lag, k, got[1], got[3], w)
    score_, lag, k, lam, nested, w = best
    x, y = lags[lag][0], lags[lag][1]
    bootstrap(x, y, w, ends, meta["blocks"], meta["draws"], np.random.default_rng(1))
    seconds = time.perf_counter() - start

    start = time.perf_counter()
    scale = np.sqrt(w @ x**2 / w.sum())
    scale[scale == 0] = 1
    model = Ridge(alpha=lam * w.sum(), fit_intercept=False, positive=True)
    model.fit(x / scale, y, sample_weight=w)
    one = time.perf_counter() - start
    print(json.dumps({
        "seconds": seconds, "score": score_, "lag": lag, "gamma": meta["gammas"][k], "lambda": lam, "nested": nested,
        "fits": fits, "one_sklearn_fit_seconds": one,
    }))


if __name__ == "__main__":
    main(sys.argv[1])
