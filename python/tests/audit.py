"""Recomputes what a fit and its validation say from the tables alone: `python audit.py OUT SIM`.

OUT is what `run` wrote for one recording whose every step has snapshots, with spec 1.1 and prior zero; SIM is what `simulate` wrote
for the same recording with its coefficients. Nothing of blis-train is used but the formulas of the features (formulas.json, which
golden.py holds against the specification): rows, weights, ridge, factors, errors and distances are done again with numpy, another
way where there is one. Every number must agree to 1e-10.
"""
import json
import os
import sys

import numpy as np
import pyarrow.parquet as pq

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import blis_train_coefficients as btc  # noqa: E402

TOLERANCE = 1e-10
WARM_UP, EPS_US, SPLIT, FEW = 10, 50.0, 0.8, 20
FREE, DECODE, PREFILL, MIXED = 1e-10, 0, 1, 2
MICROSECOND = 0.001 + 1e-9  # ms: simulate rounds an arrival to whole ones after the first request of the file, a replay of the phase
PENALTY = {"prefill_decode_mix": 10.0, "moe_activation": 10.0, "gqa_efficiency": 100.0, "preemption_overhead": 10.0,
           "chunked_prefill_mixed": 10.0}  # of the specification's table of step features; bias has 1 in a fit of one configuration
worst, numbers, wrong = 0.0, 0, []


def same(name, got, want, scale=None, unit=0):
    """scale: what a difference near zero is measured by; unit: a difference of rounding alone."""
    global worst, numbers
    numbers += 1
    error = max(0, abs(got - want) - unit) / max(abs(want), scale or 0, 1e-300)
    worst = max(worst, error if error == error else np.inf)
    if not error <= TOLERANCE:
        wrong.append("%s: got %r, want %r" % (name, float(got), want))


def columns(*path):
    table = pq.read_table(os.path.join(*path) + ".parquet")
    return {c: table.column(c).to_pylist() for c in table.column_names}


def recorded(out, run, name):
    return columns(out, "tables", "run=" + run, name)


def rows_of(out, run, deployment, gamma):
    """Features, targets (us), regimes, factors and times of the rows that a synchronous engine's steps give."""
    steps, snaps = recorded(out, run, "steps"), recorded(out, run, "snapshots")
    space = btc.Space(deployment, "1.1")
    members = {}
    for i, step in enumerate(snaps["step_id"]):
        members.setdefault(step, []).append((snaps["num_computed_tokens"][i], snaps["num_prompt_tokens"][i], snaps["scheduled_tokens"][i]))
    x, y, regime, factor, at = [], [], [], [], []
    ema, n = 0.0, len(steps["step_id"])
    for i in range(n):
        preempted = steps["num_preempted"][i] / max(1, steps["running_depth"][i])
        ema = btc.preemption_ema(ema, gamma, steps["num_preempted"][i], steps["running_depth"][i])
        batch = members.get(steps["step_id"][i], [])
        busy = steps["scheduled_tokens"][i] > 0 and steps["running_depth"][i] > 0
        if i < WARM_UP or not busy or i + 1 == n or steps["step_id"][i + 1] != steps["step_id"][i] + 1:
            continue
        if len(batch) != steps["running_depth"][i] or sum(m[2] for m in batch) != steps["scheduled_tokens"][i]:
            raise SystemExit("step %d has no complete snapshots" % steps["step_id"][i])
        counts = btc.step_of(batch)
        counts["preemption_ema"] = ema
        features, hits = space.beta(counts)
        assert not hits
        x.append(features)
        y.append((steps["ts_start_ns"][i + 1] - steps["ts_start_ns"][i]) / 1000)
        regime.append(DECODE if not counts["num_prefill_reqs"] else MIXED if counts["num_decode_reqs"] else PREFILL)
        factor.append(0.5 if preempted > 0.5 else 1.0)
        at.append(steps["ts_start_ns"][i])
    last = steps["ts_start_ns"][-1]
    cut = steps["ts_start_ns"][0] + SPLIT * (last - steps["ts_start_ns"][0])
    x, y, regime, factor = np.array(x), np.array(y), np.array(regime), np.array(factor)
    held = np.array(at) >= cut
    far = np.zeros(len(y), bool)
    for r in range(3):  # outliers of a cell: they judge, and do not train
        cell = regime == r
        if cell.any():
            far |= cell & (y > 5 * np.median(y[cell]))
    return [v[held | ~far] for v in (x, y, regime, factor, held, far)]


def weights(y, regime, factor):
    w = factor / np.maximum(y, EPS_US) ** 2
    count = np.bincount(regime, minlength=3)
    home = np.where(count[regime] < FEW, count.argmax(), regime)
    groups = [r for r in range(3) if (home == r).any()]
    out = np.zeros(len(w))
    for r in groups:
        cell = home == r
        out[cell] = w[cell] / (len(groups) * (w[cell] * y[cell] ** 2).sum())
    return out


def ridge(x, y, w, lam, d, active):
    """Coefficients, half gradients and the terms' degrees of freedom, for terms known to be above zero."""
    total = w.sum()
    scale, ybar = np.sqrt((w[:, None] * x * x).sum(0) / total), np.sqrt((w * y * y).sum() / total)
    z = np.sqrt(w / total)[:, None] * x / np.where(scale > 0, scale, 1)
    t = np.sqrt(w / total) * y / ybar
    a = z[:, active]
    # the stacked least-squares problem, by QR: no normal equations as in the program
    q, r = np.linalg.qr(np.vstack([a, np.diag(np.sqrt(lam * d[active]))]))
    gamma = np.zeros(x.shape[1])
    gamma[active] = np.linalg.solve(r, q[:len(t)].T @ t)
    gradient = z.T @ (z @ gamma - t) + lam * d * gamma
    df = np.zeros(x.shape[1])
    inverse = np.linalg.inv(r)
    df[active] = np.einsum("ij,ji->i", inverse @ inverse.T, a.T @ a)
    beta = np.where(scale > 0, gamma * ybar / np.where(scale > 0, scale, 1), 0)
    return beta, gradient, df


def errors(y, pred, far):
    e = np.abs(pred - y)
    near = e[~far] if far.mean() <= 0.01 else e  # the largest error leaves a hundredth of outliers out
    return {"rows": len(y), "outliers": far.sum(), "mape": (e / y).mean(), "median_ape": np.median(e / y), "p95_ape": np.percentile(e / y, 95),
            "wape": e.sum() / y.sum(), "bias": (pred - y).sum() / y.sum(), "rmse_us": np.sqrt((e * e).mean()),
            "max_error_ratio": near.max() / np.median(y)}


def best_constant(y):
    """The constant of the smallest mean relative error: the median of y weighted by 1/y."""
    order = np.argsort(y, kind="stable")
    mass = np.cumsum(1 / y[order])
    return y[order][np.searchsorted(mass, mass[-1] / 2)]


def steps(fit, out):
    beta, run = fit["beta"], fit["runs"][0]["id"]
    terms = json.load(open(os.path.join(os.path.dirname(btc.__file__), "formulas.json")))["versions"]["1.1"]["beta"]
    x, y, regime, factor, held, far = rows_of(out, run, fit["configs"][0]["deployment"], beta["gamma_ema"])
    same("rows kept", len(y), beta["rows"]["kept"])
    same("rows held out", held.sum(), beta["rows"]["holdout"])
    train = ~held
    d = np.array([PENALTY.get(t["name"], 1.0) for t in terms])
    base = weights(y[train], regime[train], factor[train])
    xt, yt = x[train], y[train]
    first, df = solve(xt, yt, base, beta["lambda"], d)
    for _ in range(beta["reweighting"]["passes"] if beta["reweighting"]["kept"] else 0):
        w = base / np.maximum(np.abs(yt - xt @ first) / np.maximum(yt, EPS_US), 0.01)
        first, df = solve(xt, yt, w, beta["lambda"], d)
    for j, c in enumerate(beta["coefficients"]):
        same("coefficient " + c["name"], first[j], c["value"])
        same("degrees of freedom of " + c["name"], df[j], c["df"], 1)
    same("degrees of freedom", df.sum(), beta["df_eff"])
    prompt = np.array([t["prompt"] for t in terms])
    kinds = [regime[train] == DECODE, regime[train] != DECODE]
    parts = np.array([[(xt[k][:, of] @ first[of]).sum() for of in (~prompt, prompt)] for k in kinds])
    level, work = np.linalg.solve(parts, [yt[k].sum() for k in kinds])  # what both parts take, so that both sums are the measured ones
    extra = work / level
    found = next(f for f in beta["deployment_factors"] if f.get("config"))
    same("factor", level, found["factor"])
    same("prompt factor", extra, found["prompt_factor"])
    on = first * level * np.where(prompt, extra, 1)
    for name, part in (("holdout", held), ("train", train)):
        for k, v in errors(y[part], x[part] @ on, far[part]).items():
            same("%s %s" % (name, k), v, beta[name][k], 1 if k in ("bias", "outliers") else None)
        constant = best_constant(yt)
        same(name + " mape_const", np.abs(constant / y[part] - 1).mean(), beta[name]["mape_const"])


def solve(x, y, w, lam, d):
    """The signed ridge by an active set: terms leave at the smallest value below zero and enter at the steepest gradient."""
    usable = (x != 0).any(0)
    active = np.flatnonzero(usable)
    while True:
        beta, gradient, df = ridge(x, y, w, lam, d, active)
        if (beta[active] < 0).any():
            scaled = beta * np.sqrt((w[:, None] * x * x).sum(0))
            active = active[active != active[np.argmin(scaled[active])]]
            continue
        idle = [j for j in np.flatnonzero(usable) if j not in active]
        if not idle or min(gradient[idle]) > -FREE:
            return beta, df
        active = np.sort(np.append(active, idle[int(np.argmin(gradient[idle]))]))


def ks(a, b):
    at = np.unique(np.concatenate([a, b]))
    return np.abs(np.searchsorted(np.sort(a), at, "right") / len(a) - np.searchsorted(np.sort(b), at, "right") / len(b)).max()


def requests(validation, out, replayed):
    for entry in validation["runs"]:
        t = recorded(out, entry["id"], "requests")
        order = sorted(range(len(t["arrived_ns"])), key=lambda i: t["arrived_ns"][i])
        times = {k: [] for k in ("ttft", "itl", "e2e")}
        n = entry["requests"]
        for i in order[len(order) - n:]:
            times["ttft"].append((t["first_token_ns"][i] - t["arrived_ns"][i]) / 1e6)
            times["e2e"].append((t["departed_ns"][i] - t["arrived_ns"][i]) / 1e6)
            tokens = t["output_tokens"][i] - 1
            times["itl"].append((t["finished_ns"][i] - t["first_token_ns"][i]) / 1e6 / tokens if tokens > 0 else None)
        for name, real in times.items():
            metric, simulated = entry["metrics"][name], [replayed[t["core_id"][i]][name] for i in order[len(order) - n:]]
            pairs = [(a, b) for a, b in zip(real, simulated) if a is not None and b is not None]
            a, b = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
            label = "%s %s " % (entry["split"]["kind"], name)
            same(label + "requests", len(a), metric["n_real"])
            same(label + "KS", ks(a, b), metric["ks_d"])
            same(label + "KS of the halves", ks(a[:len(a) // 2], a[len(a) // 2:]), metric["real_vs_real_d"])
            same(label + "Wasserstein", np.abs(np.sort(a) - np.sort(b)).mean(), metric["wasserstein_ms"], None, MICROSECOND)
            same(label + "median error", np.median(np.abs(b / a - 1)), metric["median_rel_err_paired"], None, MICROSECOND / a.min())
            for sample, found, unit in ((a, metric["real_ms"], 0), (b, metric["sim_ms"], MICROSECOND)):
                for q in (50, 90, 99):
                    same(label + "P%d" % q, np.percentile(sample, q), found["p%d" % q], None, unit)
                same(label + "mean", sample.mean(), found["mean"], None, unit)


def main():
    out = sys.argv[1]
    documents = [json.load(open(os.path.join(out, n + ".json"))) for n in ("fit", "validation")]
    steps(documents[0], out)
    t = columns(sys.argv[2], "requests")
    names = ("ttft", "itl", "e2e")
    requests(documents[1], out, {r: {k: t[k + "_ms"][i] for k in names} for i, r in enumerate(t["request_id"])})
    print("numpy %s: %d numbers, largest relative difference %.1e" % (np.__version__, numbers, worst))
    for line in wrong[:20]:
        print("  " + line)
    sys.exit(1 if wrong else 0)


main()
