package export

import (
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

func exampleSource() Source {
	return Source{
		Fit: testkit.ExampleFit(), FitInput: result.Input{Name: "fit.json", Bytes: 1234, SHA256: "cafe"},
		Step: func(d deploy.Deployment) (StepTimer, error) { return affine{2000, 8 / float64(d.TP), 0.02}, nil },
		Loads: func(deploy.Deployment, []float64, float64, float64, ConsumerModel) (*OnLoads, error) {
			return &OnLoads{Points: []LoadPoint{
				{LoadFrac: 0.3, RateRPS: 2, TTFTMs: 40, ITLMs: 9, E2EMs: 900, TTFTRatio: 1.02, ITLRatio: 1.01, E2ERatio: 1.01},
				{LoadFrac: 0.8, RateRPS: 5, TTFTMs: 90, ITLMs: 18, E2EMs: 1900, TTFTRatio: 0.95, ITLRatio: 0.96, E2ERatio: 0.93}}}, nil
		},
	}
}

// affine is a step time that is exactly the consumers' line: base us, us per
// computed token, us per KV token read.
type affine struct{ base, computed, read float64 }

func (a affine) StepUs(batch []trace.Chunk) (float64, error) {
	us := a.base
	for _, c := range batch {
		us += a.computed*float64(c.New) + a.read*float64(c.Computed+c.New)
	}
	return us, nil
}

func mustExport(t *testing.T, src Source, f Format, opt Options) *Output {
	t.Helper()
	out, err := Export(src, writerOf(f), opt)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func writerOf(f Format) Writer {
	for _, w := range Writers() {
		if w.Format == f {
			return w
		}
	}
	panic(f)
}

func fileOf(t *testing.T, out *Output, suffix string) []byte {
	t.Helper()
	for _, f := range out.Files {
		if f.Suffix == suffix {
			return f.Data
		}
	}
	t.Fatalf("no file with suffix %q", suffix)
	return nil
}
