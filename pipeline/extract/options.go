package extract

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Options says what to extract and how.
type Options struct {
	Out          string       // output folder
	Workers      int          // parsing goroutines; 0 = every core
	Parser       string       // fast | pdata
	Format       table.Format // parquet | arrow
	MaxBadFrac   float64      // share of unreadable input that fails the run, 0..1
	MaxLine      int64        // bytes of one line or message
	MaxExpansion int64        // decompressed bytes per compressed byte
	SplitEngines bool         // go on when engine runs overlap in time
	WhyRejected  bool         // write OUT/rejected.jsonl
	Force        bool         // parse again even when nothing changed
	Memory       int          // bytes all rows that wait to be sorted may hold before they spill
	Set          []string     // what overrides run.yaml, "key.path=value": recorded, not applied here (see Discover)
	ToolVersion  string
	Config       *result.Config // the pipeline.yaml that set options, for extract.json; nil for none
	Stdin        io.Reader
	Progress     trace.Progress

	// Batches finds out what ran in each step of a run from its tables; nil, or
	// a run above maxBatchRows, leaves those figures of extract.json null.
	Batches func(runDir string, dep *deploy.Deployment) (result.StepQuality, error)
}

// DefaultOptions are the defaults of every option.
func DefaultOptions() Options {
	return Options{Parser: "fast", Format: table.Parquet, MaxBadFrac: 0.01, MaxLine: 128 << 20, MaxExpansion: 12000, Memory: 24 << 20}
}

// Check reports the first option out of bounds.
func (o *Options) Check() error {
	switch {
	case o.Out == "":
		return errors.New("extract: Out: got an empty name, want a folder")
	case o.Workers < 0:
		return fmt.Errorf("extract: --workers: got %d, want 0 or more", o.Workers)
	case o.Parser != "fast" && o.Parser != "pdata":
		return fmt.Errorf("extract: --parser: got %q, want fast or pdata", o.Parser)
	case o.Format != table.Parquet && o.Format != table.Arrow:
		return fmt.Errorf("extract: --format: got %q, want parquet or arrow", o.Format)
	case !(o.MaxBadFrac >= 0 && o.MaxBadFrac <= 1):
		return fmt.Errorf("extract: --max-bad-frac: got %v, want 0..1", o.MaxBadFrac)
	case o.MaxLine < 1<<10:
		return fmt.Errorf("extract: --max-line: got %d, want at least 1024 bytes", o.MaxLine)
	case o.MaxExpansion < 1:
		return fmt.Errorf("extract: --max-expansion: got %d, want 1 or more", o.MaxExpansion)
	}
	return nil
}

// command is the call as recorded in extract.json: the stage and the options
// that can change the result, sorted.
func (o *Options) command() string {
	c := fmt.Sprintf("extract --format %s --max-expansion %d --max-line %d --parser %s", o.Format, o.MaxExpansion, o.MaxLine, o.Parser)
	if o.SplitEngines {
		c += " --split-engines"
	}
	for _, s := range slices.Sorted(slices.Values(o.Set)) {
		c += " --set " + s
	}
	return c
}

func (o *Options) streaming() source.Options {
	return source.Options{Workers: o.workers(), Limits: source.Limits{MaxLine: o.MaxLine, MaxExpansion: o.MaxExpansion}, Stdin: o.Stdin}
}

func (o *Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return runtime.GOMAXPROCS(0)
}
