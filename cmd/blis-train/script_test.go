package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var updateScripts = flag.Bool("update", false, "rewrite what scripts compare with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"blis-train": main})
}

// Each testdata/script/*.txtar is one behaviour of the command line; the first
// word of its name is the subcommand. $TRACES is the folder of bundled traces,
// $EXAMPLE a coefficient file, $KERNELS a folder with kernel tables.
func TestScripts(t *testing.T) {
	traces, err := filepath.Abs("../../testdata/traces")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *updateScripts,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TRACES", traces)
			env.Setenv("EXAMPLE", filepath.Join(traces, "../../coeff/testdata/example/coefficients.yaml"))
			env.Setenv("KERNELS", filepath.Join(traces, "../../pipeline/kernels/testdata"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("TMPDIR", filepath.Join(env.WorkDir, ".tmp"))
			return os.MkdirAll(filepath.Join(env.WorkDir, ".tmp"), 0o755)
		},
	})
}
