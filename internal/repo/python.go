package repo

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// interpreters are the interpreters that can run check: those the environment
// variable lists (as PATH does), else python3. Each prints what check prints, its
// library's version. Without any the test is skipped with the reason.
func interpreters(t testing.TB, variable, check string) []string {
	t.Helper()
	list := filepath.SplitList(os.Getenv(variable))
	if len(list) == 0 {
		list = []string{"python3"}
	}
	var found []string
	for _, name := range list {
		out, err := exec.Command(name, "-c", check).CombinedOutput()
		text := bytes.TrimSpace(out)
		if err != nil {
			t.Logf("%s: not usable: %v: %s", name, err, text[max(0, len(text)-80):])
			continue
		}
		t.Logf("%s: %s", name, text)
		found = append(found, name)
	}
	if len(found) == 0 {
		t.Skipf("skipped: no Python that can run %q; %s names interpreters", check, variable)
	}
	return found
}

// XGBoosts are the interpreters with XGBoost, numpy and pandas (BLIS_TRAIN_XGBOOST).
func XGBoosts(t testing.TB) []string {
	t.Helper()
	return interpreters(t, "BLIS_TRAIN_XGBOOST", "import numpy, pandas, xgboost; print('XGBoost', xgboost.__version__)")
}
