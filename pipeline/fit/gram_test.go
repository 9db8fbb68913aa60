package fit

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// through writes and reads a file.
func through(t *testing.T, g ridge.File) ridge.File {
	t.Helper()
	var b bytes.Buffer
	if err := ridge.Write(&b, g); err != nil {
		t.Fatal(err)
	}
	out, err := ridge.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func gramsOfRuns(t *testing.T, sources []Source, o Options) ridge.File {
	t.Helper()
	g, err := Save(context.Background(), sources, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return through(t, g)
}

func fromGrams(t *testing.T, o Options, g ...ridge.File) *result.Fit {
	t.Helper()
	doc, err := FitGrams(context.Background(), g, o)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// Any split of the runs over files gives the same bits.
func TestGramSplitsGiveTheSameBits(t *testing.T) {
	o, sources := Quick(), Bundled(t)
	whole := BytesOf(t, fromGrams(t, o, gramsOfRuns(t, sources, o)))
	a := gramsOfRuns(t, sources[:1], o)
	b := gramsOfRuns(t, sources[1:], o)
	for name, files := range map[string][]ridge.File{"in order": {a, b}, "reversed": {b, a}} {
		if BytesOf(t, fromGrams(t, o, files...)) != whole {
			t.Errorf("two files %s: other bytes than one", name)
		}
	}
	one := o
	one.Without = []string{sources[0].ID}
	got := fromGrams(t, one, a, b)
	want := fromGrams(t, o, b)
	got.Options.Without = want.Options.Without
	if BytesOf(t, got) != BytesOf(t, want) {
		t.Error("--without differs from a file that never held the run")
	}
}

// Sums and rows give the same selection and coefficients to 1e-10
// before the reweighting passes. Runs of one configuration are cleaned together
// on the direct route, so each is fitted alone.
func TestGramEqualsDirect(t *testing.T) {
	for _, src := range Bundled(t) {
		o := Quick()
		o.AlphaTargets = []string{"admission"} // gamma by beta alone, as from sums
		st, err := FitStepTime(context.Background(), []Source{src}, o)
		if err != nil {
			t.Fatal(err)
		}
		s := st.Model
		doc := fromGrams(t, o, gramsOfRuns(t, []Source{src}, o))
		if *doc.Beta.Lambda != s.Sel.Lambda || *doc.Beta.GammaEMA != s.Pool.Gammas[s.Variant] {
			t.Errorf("%s: chose lambda %g gamma %g, want %g and %g", src.ID, *doc.Beta.Lambda, *doc.Beta.GammaEMA, s.Sel.Lambda,
				s.Pool.Gammas[s.Variant])
		}
		for j, c := range doc.Beta.Coefficients {
			if want := s.Polish.LS.Beta[j]; math.Abs(c.Value-want) > 1e-10*math.Abs(want) {
				t.Errorf("%s %s: got %v, want %v", src.ID, c.Name, c.Value, want)
			}
		}
		s.Fit = s.Polish.LS
		if got, want := *doc.Beta.Holdout.RelErr, RelErr(s, 1); math.Abs(got-want) > 1e-10*want {
			t.Errorf("%s: hold-out %v, want %v", src.ID, got, want)
		}
		for k, p := range GridPoints(st.Selections.Rel) {
			if got := doc.Beta.Grid[k]; math.Abs(*got.Within-*p.Within) > 1e-10**p.Within {
				t.Errorf("%s grid %d: %v, want %v", src.ID, k, *got.Within, *p.Within)
			}
		}
	}
}

// What sums cannot know is null and said.
func TestGramFitSaysWhatItLacks(t *testing.T) {
	o := Quick()
	doc := fromGrams(t, o, gramsOfRuns(t, Bundled(t), o))
	h := doc.Beta.Holdout
	if h.MAPE != nil || h.MAPEFloor != nil || h.MAPEConst != nil || h.RelErr == nil || doc.Beta.Reweighting != nil || len(doc.Alpha) != 0 {
		t.Errorf("%+v", h)
	}
	if !Has(doc.Warnings, ModelSkipped, "") || !doc.Beta.Certificate.OK || doc.TrainingDate == "" || len(doc.Configs) != 1 {
		t.Errorf("%+v", doc.Warnings)
	}
	r := doc.Beta.Rows
	n := r.Kept
	for _, d := range r.Dropped {
		n += d
	}
	if n != r.Read || r.Read == 0 {
		t.Errorf("read %d, kept and dropped %d", r.Read, n)
	}
}

// Files of another feature set, recipe, target, split or with a run twice are refused.
func TestGramRefused(t *testing.T) {
	o := Quick()
	good := gramsOfRuns(t, Bundled(t)[:1], o)
	for _, c := range []struct {
		name   string
		change func(g *ridge.File, o *Options)
		want   string
	}{
		{"features", func(g *ridge.File, _ *Options) { g.Meta[metaFeatures] = "0" }, metaFeatures},
		{"version", func(g *ridge.File, _ *Options) { g.Meta[metaSpec] = "1.2" }, metaSpec},
		{"target", func(_ *ridge.File, o *Options) { o.BetaTarget = "duration" }, metaTarget},
		{"split", func(_ *ridge.File, o *Options) { o.Split = 0.5 }, metaSplit},
		{"recipe", func(_ *ridge.File, o *Options) { o.Recipe = Frozen }, metaRecipe},
		{"schema", func(g *ridge.File, _ *Options) { g.Meta[metaSchema] = "0" }, metaSchema},
		{"sets", func(g *ridge.File, _ *Options) { g.Sets = g.Sets[:3] }, "sets"},
		{"run", func(g *ridge.File, _ *Options) { g.Meta[metaRunPrefix+g.Runs[0]] = "{" }, "run " + good.Runs[0]},
	} {
		g, o := through(t, good), o
		c.change(&g, &o)
		_, err := FitGrams(context.Background(), []ridge.File{g}, o)
		refusedWith(t, c.name, err, c.want)
	}
	_, err := FitGrams(context.Background(), []ridge.File{good, good}, o)
	refusedWith(t, "twice", err, "two files")
	other := through(t, good)
	other.Meta[metaFeatures] = "0"
	_, err = FitGrams(context.Background(), []ridge.File{good, other}, o)
	refusedWith(t, "mixed", err, metaFeatures)
}

func refusedWith(t *testing.T, name string, err error, text string) {
	t.Helper()
	if trace.CodeOf(err) != features.WrongFeatureSet || !strings.Contains(err.Error(), text) || trace.HintOf(err) == "" {
		t.Errorf("%s: got %v, want wrong_feature_set with %q", name, err, text)
	}
}

// A run without rows travels as its reason, and a fit of nothing else says so.
func TestGramOfARunWithoutRows(t *testing.T) {
	o, sources := Quick(), Bundled(t)
	sources[0].Load = func() (*trace.Run, error) { return &trace.Run{ID: sources[0].ID}, nil }
	doc := fromGrams(t, o, gramsOfRuns(t, sources, o))
	k := slices.IndexFunc(doc.Runs, func(r result.FitRun) bool { return r.ID == sources[0].ID })
	if doc.Runs[k].Used || doc.Runs[k].Reason == "" {
		t.Errorf("%+v", doc.Runs[k])
	}
	_, err := FitGrams(context.Background(), []ridge.File{gramsOfRuns(t, sources[:1], o)}, o)
	if trace.CodeOf(err) != CodeNoRows {
		t.Errorf("got %v, want no_rows", err)
	}
}
