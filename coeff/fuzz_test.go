package coeff_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Whatever text is given, Load answers with a set that saves and loads to
// itself, or with one error that has a code.
func FuzzCoefficients(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "example", "coefficients.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	zeros := func(n int) string { return "[" + strings.Repeat("0,", n-1) + "0]" }
	f.Add("physics_coefficients: {spec_version: \"1.0\", alpha_coefficients: " + zeros(11) + ", beta_coefficients: " + zeros(16) + "}")
	f.Add("a: &x [*x]")
	f.Add(strings.Repeat("a: 1\n", 30))
	f.Fuzz(func(t *testing.T, text string) {
		set, err := Load(strings.NewReader(text), "f", features.CheckSet)
		if err != nil {
			var placed *trace.SyntaxError
			var coded *trace.Error
			if !(errors.As(err, &placed) && placed.Code != "" || errors.As(err, &coded) && coded.Code != "") {
				t.Fatalf("error without a code: %v", err)
			}
			return
		}
		var first, second bytes.Buffer
		if err := set.Save(&first); err != nil {
			t.Fatalf("a loaded set does not save: %v", err)
		}
		again, err := Load(bytes.NewReader(first.Bytes()), "f", features.CheckSet)
		if err != nil {
			t.Fatalf("a saved set does not load: %v\n%s", err, first.String())
		}
		if err := again.Save(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Fatalf("other bytes after loading (%v)", err)
		}
	})
}

// The loader was quadratic: half a megabyte of keys took it a minute.
func TestManyKeysInACoefficientFile(t *testing.T) {
	lags := "physics_coefficients:\n  pipeline_lag:\n" + strings.Repeat("    r: {lag: 0, measured: true}\n", 20_000)
	for _, text := range []string{strings.Repeat("a: 1\n", 100_000), lags} {
		var e *trace.SyntaxError
		if _, err := Load(strings.NewReader(text), "f", features.CheckSet); !errors.As(err, &e) || e.Code != BadFile ||
			!strings.Contains(e.Msg, "keys") {
			t.Errorf("got %v", err)
		}
	}
}

// One file is one set: what follows it is not read over.
func TestTrailingDocumentsAreRefused(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "example", "coefficients.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"\n---\nschema_version: 2\n", "\n...\nrubbish: [\n", "\nschema_version: \"1\"\n"} {
		if _, err := Load(strings.NewReader(string(text)+more), "f", features.CheckSet); err == nil {
			t.Errorf("%q behind the set: no error", more)
		}
	}
}
