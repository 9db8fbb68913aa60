package extract

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Options says what to extract and how.
type Options struct {
	Out          string       // output folder
	Workers      int          // parsing goroutines; 0 = every core
	Format       table.Format // parquet | arrow
	MaxBadFrac   float64      // share of unreadable input that fails the run, 0..1
	MaxLine      int64        // bytes of one line or message
	MaxExpansion int64        // decompressed bytes per compressed byte, of what grows beyond files.FreeExpansion
	SplitEngines bool         // go on when engine runs overlap in time
	WhyRejected  bool         // write OUT/rejected.jsonl
	Force        bool         // parse again even when nothing changed
	Memory       int          // bytes all rows that wait to be sorted may hold before they spill
	Set          []string     // what overrides run.yaml, "key.path=value": recorded, not applied here (see Discover)
	ToolVersion  string
	Config       *result.Config // the pipeline.yaml that set options, for extract.json; nil for none
	Stdin        io.Reader
	Progress     trace.Progress
	free         int64 // in place of files.FreeExpansion; 0: that

	// Batches finds out what ran in each step of a run from its tables; nil, or
	// a run above maxBatchRows, leaves those figures of extract.json null.
	Batches func(runDir string, dep *deploy.Deployment) (result.StepQuality, error)
}

// DefaultOptions are the defaults of every option.
func DefaultOptions() Options {
	return Options{Format: table.Parquet, MaxBadFrac: 0.01, MaxLine: 128 << 20, MaxExpansion: files.MaxExpansion, Memory: 16 << 20}
}

// Check reports the first option out of bounds.
func (o *Options) Check() error {
	switch {
	case o.Out == "":
		return errors.New("extract: Out: got an empty name, want a folder")
	case o.Workers < 0:
		return fmt.Errorf("extract: --workers: got %d, want 0 or more", o.Workers)
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

// Table is the options of an extraction as flags and as recorded.
func (o *Options) Table() option.Table {
	return option.Table{
		option.String("format", &o.Format, "table `FORMAT`: parquet or arrow").Recorded(),
		option.Real("max-bad-frac", &o.MaxBadFrac, "fail above this `SHARE` of unreadable input; 0 is any loss"),
		option.Whole("max-line", &o.MaxLine, "drop lines and messages of more `BYTES`").Recorded(),
		option.Whole("max-expansion", &o.MaxExpansion, "stop a compressed file that grows beyond 1 GB and `N` times its size").Recorded(),
		option.Switch("split-engines", &o.SplitEngines, "accept several engines whose stamps overlap: <id>.1, <id>.2").Recorded(),
		option.Switch("why-rejected", &o.WhyRejected, "write every dropped record with its reason to OUT/rejected.jsonl"),
		option.List("set", &o.Set, "supply or override a field of run.yaml, `KEY.PATH=VALUE` (repeatable)").Recorded(),
		option.Whole("workers", &o.Workers, "`N` workers; 0 uses every core"),
		option.Switch("force", &o.Force, "redo work and accept an output folder that holds foreign files"),
	}
}

func (o *Options) streaming() source.Options {
	limits := source.Limits{MaxLine: o.MaxLine, MaxExpansion: o.MaxExpansion, Free: cmp.Or(o.free, files.FreeExpansion)}
	return source.Options{Workers: o.workers(), Limits: limits, Stdin: o.Stdin}
}

func (o *Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return runtime.GOMAXPROCS(0)
}
