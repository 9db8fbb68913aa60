package pipeline

import (
	"context"
	"fmt"
	"github.com/blis-train/blis-train/pipeline/extract"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

// composedPrior is the library's set; its pool has seen the model.
func composedPrior(t *testing.T, _ *deploy.Model) func(*deploy.Deployment) (*coeff.Set, error) {
	t.Helper()
	return fit.LibraryFor
}

// composedSources are the composed runs, extracted.
func composedSources(t *testing.T) []fit.Source {
	t.Helper()
	return extractedSources(t, "composed")
}

// extractedSources are the runs of a folder of the shared data, extracted.
func extractedSources(t *testing.T, folder string) []fit.Source {
	t.Helper()
	repo.NeedEval(t)
	out, doc := extractedSet(t, folder)
	return FitSources(out, doc)
}

func priorOptions(lib func(*deploy.Deployment) (*coeff.Set, error)) fit.Options {
	o := fit.DefaultOptions()
	o.Bootstraps, o.Models, o.AlphaTargets, o.Workers = fit.MinBootstraps, []string{}, []string{coeff.Overhead}, 2
	if lib != nil {
		o.Prior, o.Library = fit.PriorLibrary, lib
		o.Spec = ""
	}
	return o
}

// sameFamily are the sources of one GPU and kind of model.
func sameFamily(all []fit.Source, of *deploy.Deployment) []fit.Source {
	return slices.DeleteFunc(slices.Clone(all), func(s fit.Source) bool {
		return s.Deployment.Hardware.Name != of.Hardware.Name || s.Deployment.Model.IsMoE() != of.Model.IsMoE()
	})
}

// TestEvalPriorLeaveOneConfigurationOut: every composed configuration from the
// others of its GPU and a library that has not seen its model.
func TestEvalPriorLeaveOneConfigurationOut(t *testing.T) {
	all := composedSources(t)
	priors := map[string]func(*deploy.Deployment) (*coeff.Set, error){}
	var mapes []float64
	fmt.Println("composed, leave one configuration out, library without its model:")
	for i := range all {
		d := &all[i].Deployment
		if priors[d.Model.ID] == nil {
			priors[d.Model.ID] = composedPrior(t, &d.Model)
		}
		family := sameFamily(all, d)
		doc, err := fit.Fit(context.Background(), family, priorOptions(priors[d.Model.ID]), nil)
		if err != nil {
			t.Fatal(err)
		}
		mape := math.NaN()
		for _, l := range doc.Beta.Loco {
			if l.Config == d.Config() && l.MAPE != nil {
				mape = *l.MAPE
			}
		}
		mapes = append(mapes, mape)
		fmt.Printf("  %-26s of %d runs: %.2f %%\n", all[i].ID, len(family), 100*mape)
	}
	known := slices.DeleteFunc(mapes, math.IsNaN)
	median, worst := stat.Median(known), slices.Max(known)
	fmt.Printf("  median %.2f %%, worst %.2f %% of %d\n", 100*median, 100*worst, len(known))
	if median > 0.035 || worst > 0.065 || len(known) < 15 {
		t.Errorf("got median %.2f %%, worst %.2f %% of %d, want at most 3.5 and 6.5 %% of 15", 100*median, 100*worst, len(known))
	}
}

// certain is a library that no data move.
func certain(lib func(*deploy.Deployment) (*coeff.Set, error)) func(*deploy.Deployment) (*coeff.Set, error) {
	return func(d *deploy.Deployment) (*coeff.Set, error) {
		set, err := lib(d)
		if err != nil {
			return nil, err
		}
		on := *features.On(set, d)
		rows := on.Covariance
		on.Covariance = make([][]float64, len(rows))
		for j, row := range rows {
			on.Covariance[j] = make([]float64, len(row))
			for k, v := range row {
				on.Covariance[j][k] = v * 1e-4
			}
		}
		return &on, nil
	}
}

// TestEvalPriorFirstRows: the first 100 rows of one configuration and a library
// without its model predict the rest at least as well as the better of the two
// alone; with the usual 80 % of the rows the prior moves nothing.
func TestEvalPriorFirstRows(t *testing.T) {
	all := composedSources(t)
	priors := map[string]func(*deploy.Deployment) (*coeff.Set, error){}
	fitted := func(s fit.Source, o fit.Options) *result.Fit {
		doc, err := fit.Fit(context.Background(), []fit.Source{s}, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	good := 0
	fmt.Println("hold-out MAPE, %: first 100 rows and library | library alone | 100 rows alone || 80 % of the rows with and without the " +
		"library")
	for _, s := range all {
		d := &s.Deployment
		if priors[d.Model.ID] == nil {
			priors[d.Model.ID] = composedPrior(t, &d.Model)
		}
		lib := priors[d.Model.ID]
		whole := priorOptions(lib)
		plain := priorOptions(nil)
		plain.Spec = "1.2"
		a, b := fitted(s, whole), fitted(s, plain)
		share := 100 / float64(a.Beta.Rows.Kept)
		few := func(o fit.Options) float64 {
			o.Split = share
			return 100 * *fitted(s, o).Beta.Holdout.MAPE
		}
		both, alone, data := few(whole), few(priorOptions(certain(lib))), few(plain)
		if both <= math.Min(alone, data)+0.005 { // to the hundredth of a percent that is printed
			good++
		}
		fmt.Printf("  %-26s %5.2f | %5.2f | %5.2f || %5.2f %5.2f\n", s.ID, both, alone, data, 100**a.Beta.Holdout.MAPE, 100**b.Beta.Holdout.MAPE)
	}
	fmt.Printf("at least as good as the better of the two on %d of %d\n", good, len(all))
	if good < 14 {
		t.Errorf("got %d, want at least 14", good)
	}
}

// TestEvalPriorAllRows: with all training rows the library (without the run's model) moves the error
// on the hold-out by no more than the hold-out itself would, drawn again in blocks.
func TestEvalPriorAllRows(t *testing.T) {
	all := composedSources(t)
	priors := map[string]func(*deploy.Deployment) (*coeff.Set, error){}
	within, worse := 0, 0
	fmt.Println("hold-out MAPE, %: zero prior | library's | difference in standard errors of the first | coefficients inside its intervals")
	for _, s := range all {
		d := &s.Deployment
		if priors[d.Model.ID] == nil {
			priors[d.Model.ID] = composedPrior(t, &d.Model)
		}
		plain, with := priorOptions(nil), priorOptions(priors[d.Model.ID])
		plain.Spec, plain.Bootstraps = "1.2", 500
		a, table := fittedRows(t, s, plain)
		b, _ := fittedRows(t, s, with)
		moved := (*b.Beta.Holdout.MAPE - *a.Beta.Holdout.MAPE) / blockError(apesOf(table, &a.Beta))
		inside, of := 0, 0
		for j, c := range a.Beta.Coefficients {
			if c.CI95 != nil && c.CI95[1] > c.CI95[0] {
				of++
				if v := b.Beta.Coefficients[j].Value; v >= c.CI95[0] && v <= c.CI95[1] {
					inside++
				}
			}
		}
		switch {
		case math.Abs(moved) <= 2:
			within++
		case moved > 2:
			worse++
		}
		fmt.Printf("  %-26s %5.2f | %5.2f | %+5.1f | %d of %d\n", s.ID, 100**a.Beta.Holdout.MAPE, 100**b.Beta.Holdout.MAPE, moved, inside, of)
	}
	fmt.Printf("within two standard errors on %d of %d, worse beyond them on %d\n", within, len(all), worse)
	if worse > 0 {
		t.Errorf("the library's prior makes %d fits worse, want none", worse)
	}
}

// fittedRows is a fit and the table of its step times.
func fittedRows(t *testing.T, s fit.Source, o fit.Options) (*result.Fit, *rows.Table) {
	t.Helper()
	var table *rows.Table
	o.Rows = func(d *fit.Dump) error { table = d.Tables[0]; return nil }
	doc, err := fit.Fit(context.Background(), []fit.Source{s}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return doc, table
}

// apesOf are the absolute relative errors of the hold-out rows, in time.
func apesOf(t *rows.Table, m *result.Model) []float64 {
	var out []float64
	for i := range t.Kept {
		pred := 0.0
		for j, x := range t.Row(i) {
			pred += x * m.Coefficients[j].Value
		}
		if t.HoldOut[i] {
			out = append(out, math.Abs(pred/t.Y[i]-1))
		}
	}
	return out
}

// blockError is the standard error of a mean over rows in time, from draws of blocks.
func blockError(v []float64) float64 {
	const block, draws = 25, 400
	rng := rand.New(rand.NewPCG(1, 17))
	means := make([]float64, draws)
	for k := range means {
		n := 0
		for n < len(v) {
			from := rng.IntN(max(1, len(v)-block))
			for _, e := range v[from:min(from+block, len(v))] {
				means[k], n = means[k]+e, n+1
			}
		}
		means[k] /= float64(n)
	}
	return stat.StdErr(means) * math.Sqrt(draws)
}

// TestEvalPriorFindsTheWrongDevice: run.yaml names another GPU than the steps
// were measured on; the finding says so.
func TestEvalPriorFindsTheWrongDevice(t *testing.T) {
	all := composedSources(t)
	lib := composedPrior(t, nil)
	found, quiet := 0, 0
	for _, s := range all {
		for _, wrong := range []bool{false, true} {
			if wrong {
				name := "A100"
				if strings.HasPrefix(s.Deployment.Hardware.Name, "A100") {
					name = "H100"
				}
				s.Deployment.Hardware, _ = deploy.Datasheet(name)
			}
			doc, err := fit.Fit(context.Background(), []fit.Source{s}, priorOptions(lib), nil)
			if err != nil {
				t.Fatal(err)
			}
			k := slices.IndexFunc(doc.Beta.Warnings, func(f trace.Finding) bool {
				return f.Code == fit.Implausible && strings.Contains(f.Message, "what the prior")
			})
			if wrong && k >= 0 {
				found++
				fmt.Println("  ", s.ID, doc.Beta.Warnings[k].Message)
			}
			if !wrong && k < 0 {
				quiet++
			}
			if !wrong && k >= 0 {
				fmt.Println("   right device, but", s.ID, doc.Beta.Warnings[k].Message)
			}
		}
	}
	fmt.Printf("wrong device found in %d of %d runs, nothing said of the right one in %d\n", found, len(all), quiet)
	if found < 14 || quiet < 14 {
		t.Errorf("got %d found and %d quiet, want at least 14 each", found, quiet)
	}
}

// extractedSet are all runs of a data set beside the repository, and the folder of their tables.
func extractedSet(t testing.TB, set string) (out string, doc *result.Extract) {
	t.Helper()
	found, err := extract.Discover([]string{repo.Shared(t, "data", set)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := extract.DefaultOptions()
	o.Out = t.TempDir()
	if doc, err = extract.Run(context.Background(), found, o); err != nil {
		t.Fatal(err)
	}
	return o.Out, doc
}
