package main

import (
	"bytes"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/ridge/cells"
	"github.com/blis-train/blis-train/result"
)

// gramFlags are the options of sums that travel in place of traces.
func gramFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "save-gram", Usage: "also write the rows' sums to `FILE`, to be merged and fitted elsewhere"},
		&cli.StringSliceFlag{Name: "from-gram", Usage: "fit these Gram `FILE`s in place of OUT (repeatable, or as arguments); needs -o"},
		&cli.BoolFlag{Name: "dump-rows", Usage: "also write rows.parquet: every row of the fit with its features"},
	}
}

// runFromGram fits the sums of other places: no folder of tables is read.
func runFromGram(c *cli.Context, con *console) error {
	files := append(c.StringSlice("from-gram"), c.Args().Slice()...)
	switch {
	case c.String("save-gram") != "" || c.Bool("dump-rows"):
		return usagef("fit: --from-gram has no rows to save")
	case c.String("out") == "":
		return usagef("fit: --from-gram needs -o OUT")
	}
	var err error
	if con.settings, err = applyConfig(c, con, c.String("config"), "fit"); err != nil {
		return err
	}
	o, err := fitOptions(c)
	if err != nil {
		return err
	}
	out := c.String("out")
	if err := con.claim(out, c.Bool("force")); err != nil {
		return err
	}
	grams, inputs, err := con.readGrams(files)
	if err != nil {
		return err
	}
	doc, err := fit.FromGrams(c.Context, grams, o)
	if err != nil {
		return err
	}
	command, err := pipeline.FitCommand(o)
	if err != nil {
		return err
	}
	doc.Header = con.header(command + " --from-gram")
	doc.Header.Inputs = inputs
	if err := writeDoc(filepath.Join(out, fitFile), doc); err != nil {
		return err
	}
	if err := writeArtifact(filepath.Join(out, coefficientsFile), doc, nil); err != nil {
		return err
	}
	showFit(con, doc)
	if err := con.appendLedger(c.String("ledger"), "fit", doc.Header, doc, nil, filepath.Join(out, coefficientsFile)); err != nil {
		return err
	}
	return con.document(doc)
}

// readGrams reads Gram files and describes them as inputs, by base name.
func (con *console) readGrams(files []string) ([]cells.File, []result.Input, error) {
	var grams []cells.File
	inputs := []result.Input{}
	for _, name := range files {
		b, in, err := con.readInput(name)
		if err != nil {
			return nil, nil, err
		}
		g, err := cells.Read(bytes.NewReader(b))
		if err != nil {
			return nil, nil, &hinted{&fileError{name, err}, "blis-train fit OUT --save-gram FILE writes such files"}
		}
		grams = append(grams, g)
		inputs = append(inputs, in)
	}
	return grams, inputs, nil
}

// fileError names the file of an error.
type fileError struct {
	file string
	err  error
}

func (e *fileError) Error() string { return e.file + ": " + e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// saveGram writes the sums of the same runs under the same options.
func saveGram(c *cli.Context, con *console, in string, ext *result.Extract, o fit.Options) error {
	path := c.String("save-gram")
	if path == "" {
		return nil
	}
	g, err := fit.Grams(c.Context, pipeline.FitSources(in, ext), o, con.progress())
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := cells.Write(&b, g); err != nil {
		return err
	}
	return files.Write(path, b.Bytes())
}
