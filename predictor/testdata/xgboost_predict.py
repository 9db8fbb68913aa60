"""Load an XGBoost model document and predict rows; used by xgboost_test.go.

usage: xgboost_predict.py MODEL ROWS OUT: ROWS and OUT are little-endian float64.
Prints the library's version. The rows become a data frame with the model's column
names; a column typed c becomes a pandas category, as llm-d's server feeds it.
"""
import json
import sys

import numpy as np
import pandas as pd
import xgboost as xgb

model, rows, out = sys.argv[1:4]
learner = json.load(open(model))["learner"]
names, types = learner["feature_names"], learner["feature_types"]
x = np.fromfile(rows, dtype="<f8").reshape(-1, len(names))
frame = pd.DataFrame(x, columns=names)
for name, kind in zip(names, types):
    if kind == "c":
        categories = ["", "prefill", "decode"] if name == "pod_type_cat" else [0, 1, 2, 3]
        frame[name] = pd.Categorical([categories[int(v)] for v in frame[name]], categories=categories, ordered=name != "pod_type_cat")
    if kind == "int":
        frame[name] = frame[name].astype("int64")
booster = xgb.Booster()
booster.load_model(model)
y = booster.predict(xgb.DMatrix(frame, enable_categorical=True))
y.astype("<f8").tofile(out)
print(xgb.__version__)
