package extract

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Options are the settings of an extraction.
type Options struct {
	Out          string       // output folder
	Workers      int          // parsing goroutines; 0 for every core
	Format       table.Format // parquet or arrow
	MaxBadFrac   float64      // share of unreadable input above which the run fails, 0..1
	MaxLine      int64        // bytes of one line or message
	MaxExpansion int64        // most decompressed bytes per compressed byte, of files above files.FreeExpansion bytes
	SplitEngines bool         // accept engine runs that overlap in time
	WhyRejected  bool         // write OUT/rejected.jsonl
	Force        bool         // parse again even if nothing changed
	Memory       int          // bytes of rows waiting to be sorted before they spill to disk
	ClientMemory int64        // bytes that the requests of a run's client files may take
	Set          []string     // overrides of run.yaml, "key.path=value": recorded here, applied by Find
	ToolVersion  string
	Config       *result.Config // the pipeline.yaml that set options, for extract.json; nil for none
	Stdin        io.Reader
	Progress     trace.Progress

	// Batches reconstructs from the tables of a run what ran in each step. Without it, and for a run of
	// more than maxBatchRows, these figures of extract.json are null.
	Batches func(runDir string, dep *deploy.Deployment) (result.StepQuality, error)
}

// DefaultOptions returns the defaults of every option.
func DefaultOptions() Options {
	return Options{Format: table.Parquet, MaxBadFrac: 0.01, MaxLine: 128 << 20, MaxExpansion: files.MaxExpansion,
		Memory: 16 << 20, ClientMemory: clients.DefaultMemory}
}

// Check returns an error for the first option out of bounds.
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
	case o.ClientMemory < 1<<20:
		return fmt.Errorf("extract: --max-client-memory: got %d, want at least 1048576 bytes", o.ClientMemory)
	}
	return nil
}

// streaming returns the settings of package source.
func (o *Options) streaming() source.Options {
	limits := source.Limits{MaxLine: o.MaxLine, MaxExpansion: o.MaxExpansion}
	return source.Options{Workers: o.workers(), Limits: limits, Stdin: o.Stdin}
}

// workers returns the number of parsing goroutines.
func (o *Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return runtime.GOMAXPROCS(0)
}
