"""Train XGBoost on rows written by xgboost_test.go and print its hold-out loss.

usage: xgboost_train.py FOLDER: reads settings.json and train.x, train.y, test.x,
test.y (little-endian float64, rows of `columns` values).
"""
import json
import os
import sys

import numpy as np
import xgboost as xgb

folder = sys.argv[1]
s = json.load(open(os.path.join(folder, "settings.json")))


def load(name):
    return np.fromfile(os.path.join(folder, name), dtype="<f8")


x, y = load("train.x").reshape(-1, s["columns"]), load("train.y")
xt, yt = load("test.x").reshape(-1, s["columns"]), load("test.y")
q = s["quantile"]
params = dict(
    objective="reg:quantileerror" if q else "reg:squarederror", tree_method="hist", max_bin=256, max_depth=s["depth"],
    eta=s["rate"], subsample=s["rows"], colsample_bytree=s["cols"], reg_lambda=s["lambda"], reg_alpha=s["alpha"],
    min_child_weight=s["min_child"], seed=s["seed"], nthread=1, verbosity=0,
)
if q:
    params["quantile_alpha"] = q
model = xgb.train(params, xgb.QuantileDMatrix(x, y, max_bin=256), num_boost_round=s["trees"])
r = yt - model.predict(xgb.DMatrix(xt))
loss = np.mean(np.maximum(q * r, (q - 1) * r)) if q else np.mean(r * r)
print(json.dumps({"version": xgb.__version__, "loss": float(loss)}))
