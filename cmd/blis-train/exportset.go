package main

import (
	"cmp"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/result"
)

// exportSet writes what a coefficient set says of one deployment: without a
// fit, from a file or the library.
func (con *console) exportSet(c *cli.Context, o pipeline.ExportOptions) error {
	write, err := o.Resolve()
	if err != nil {
		return err
	}
	dep, err := loadDeployment(c.String("deployment"))
	if err != nil {
		return err
	}
	set, in, err := con.loadSetFor(c.String("coefficients"), dep)
	if err != nil {
		return err
	}
	purpose := cmp.Or(o.For, set.ValidatedFor)
	if err := asGate(o.Judge(purpose, coeff.ScopeAll, set.VerdictFor(purpose), nil)); err != nil {
		return err
	}
	out := &export.Output{}
	if o.Format == export.FormatNative {
		data, err := setBytes(features.On(set, dep))
		if err != nil {
			return err
		}
		out.Files = []export.File{{Data: data}}
	} else {
		doc, err := learn.Document(set, dep)
		if err != nil {
			return err
		}
		doc.Header = result.NewHeader(folder.ToolVersion, "export --coefficients "+in.Name)
		doc.Inputs = []result.Input{in}
		src := export.Source{Fit: doc, FitInput: in}
		pipeline.Predicts(&src, func() (*coeff.Set, error) { return set, nil })
		if set.Library != nil { // nothing of it was left unlearned by a recording: a zero is what its terms say, and warned about
			o.Force += ",unlearned_value"
			src.Library = set.Library.Version
		}
		if out, err = export.Export(src, write, o.Options); err != nil {
			return err
		}
		if err := asGate(o.TooFarOff(out)); err != nil {
			return err
		}
	}
	got, err := pipeline.WriteExport(o.Out, o.Format, out)
	if err != nil {
		return err
	}
	return showExport(con, o.Out, got)
}
