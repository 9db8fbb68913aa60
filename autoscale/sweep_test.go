package autoscale

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/forms"
)

// published are the parameters and errors that llm-inferno/model-trainer reports for its two
// sweeps (scripts/VALIDATION_SCATTER_README.md@047f0ae).
var published = []struct {
	file      string
	x         []float64
	ttft, itl float64
}{
	{"llama-3.1-8b.csv", []float64{6.58, 1.93e-2, 5.46e-5}, 0.146, 0.060},
	{"qwen2.5-14b-report.csv", []float64{9.87, 3.58e-2, 8.63e-5}, 0.163, 0.080},
}

func readSweep(t *testing.T, name string, o *Options) *Server {
	t.Helper()
	r, err := os.Open(filepath.Join("../testdata/sweeps", name))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := forms.Read(r, name)
	if err != nil {
		t.Fatal(err)
	}
	return serverOfSweep(name, f.Points, o)
}

// sweepOptions are model-trainer's: 256 seats, as much waiting room, seven loads a sweep.
func sweepOptions(f Flavour) Options {
	o := DefaultOptions()
	o.Flavour, o.QueueRatio, o.Sweep.Loads = f, 1, 7
	return o
}

// halves splits the windows into two times eight shapes, a chessboard over prompt and output.
func halves(w []window) (train, held []window) {
	shapes := map[string]int{}
	for i := range w {
		k, seen := shapes[w[i].Name]
		if !seen {
			k = len(shapes)
			shapes[w[i].Name] = k
		}
		if (k/4+k%4)%2 == 0 {
			train = append(train, w[i])
		} else {
			held = append(held, w[i])
		}
	}
	return train, held
}

// TestPublishedSweeps: on the 112 points of each of two published sweeps the fit is no worse
// than the published parameters, in the flavour they were made with (wva-3p reproduces the
// published errors to the digit), and a fit to eight shapes holds on the other eight.
func TestPublishedSweeps(t *testing.T) {
	for _, p := range published {
		for _, f := range []Flavour{wvA3P, inferno3P} {
			o := sweepOptions(f)
			s := readSweep(t, p.file, &o)
			if len(s.Windows) != 112 || s.Account.Read != 160 {
				t.Fatalf("%s: got %d windows, want 112 of 160: %+v", p.file, len(s.Windows), s.Account)
			}
			fitted := func(w []window) []float64 {
				fit, err := Fit(w, defaultFit(f))
				if err != nil {
					t.Fatal(err)
				}
				return fit.X
			}
			x := fitted(s.Windows)
			in := evaluate(s.Windows, f, x, asSized)
			train, held := halves(s.Windows)
			out := evaluate(held, f, fitted(train), asSized)
			pub := evaluate(s.Windows, f, p.x, asSized)
			t.Logf("%s %s: WAPE TTFT/ITL %.1f/%.1f %% in-sample, %.1f/%.1f %% on eight unseen shapes, %.1f/%.1f %% with the published "+
				"parameters; alpha %.3g beta %.3g gamma %.3g",
				p.file, f, 100**in.TTFTWape, 100**in.ITLWape,
				100**out.TTFTWape, 100**out.ITLWape, 100**pub.TTFTWape, 100**pub.ITLWape, x[0], x[1], x[2])
			switch f {
			case wvA3P:
				if math.Abs(*pub.TTFTWape-p.ttft) > 0.0015 || math.Abs(*pub.ITLWape-p.itl) > 0.0005 {
					t.Errorf("%s: published parameters give %.4f and %.4f, published %.3f and %.3f", p.file, *pub.TTFTWape, *pub.ITLWape, p.ttft, p.itl)
				}
				if *in.TTFTWape > p.ttft || *in.ITLWape > p.itl+0.0005 {
					t.Errorf("%s %s: in-sample %.4f and %.4f, want at most %.3f and %.3f", p.file, f, *in.TTFTWape, *in.ITLWape, p.ttft, p.itl)
				}
			case inferno3P:
				if *in.TTFTWape > p.ttft || *in.ITLWape > p.itl+0.0005 || *out.TTFTWape > 0.2 || *out.ITLWape > 0.08 {
					t.Errorf("%s %s: %.4f and %.4f in-sample, %.4f and %.4f held out, want at most %.3f, %.3f, 0.2, 0.08",
						p.file, f, *in.TTFTWape, *in.ITLWape, *out.TTFTWape, *out.ITLWape, p.ttft, p.itl)
				}
			}
		}
	}
}
