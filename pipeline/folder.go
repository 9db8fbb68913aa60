package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Names of an output folder. Anything else in one is foreign.
const (
	ExtractFile      = "extract.json"
	FitFile          = "fit.json"
	ValidationFile   = "validation.json"
	CoefficientsFile = "coefficients.yaml"
	ReportFile       = "report.html"
	InspectFile      = "inspect.json"
	SimulationFile   = "simulation.json"
	QueueFile        = "queue.json"
	QueueComparePage = "compare.md"
	QueuePage        = "queue.html"
	PredictorFile    = "predictor.json"
	ScoresFile       = "predictor_scores.json"
	PredictorPage    = "predictor.html"
)

var ownNames = map[string]bool{
	"tables": true, ExtractFile: true, FitFile: true, ValidationFile: true, CoefficientsFile: true, ReportFile: true,
	InspectFile: true, SimulationFile: true, "requests.parquet": true, "rows.parquet": true, "rows": true,
	PredictorFile: true, ScoresFile: true, PredictorPage: true, PredictorRowsFile: true, "rejected.jsonl": true, QueueFile: true, QueueComparePage: true,
	QueuePage: true, "windows.parquet": true, ".extract-cache.json": true, "figures": true,
}

// maxInput is far above any document or workload file, bytes.
const maxInput = 4 << 30

// Claim makes the output folder, or refuses one that holds files which are not
// ours unless force is set. Until release is called another process is refused it.
func Claim(dir string, force bool) (release func(), err error) {
	if err := prepareOut(dir, force); err != nil {
		return nil, err
	}
	lock, taken, err := files.Lock(dir)
	switch {
	case err != nil:
		return nil, err
	case taken:
		return nil, trace.Hinted(fmt.Errorf("%s: another blis-train is writing there", dir), "wait for it, or choose another folder with -o")
	}
	return func() { lock.Close() }, nil
}

func prepareOut(dir string, force bool) error {
	if dir == "" {
		return option.Misusef("missing -o OUT")
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(dir, 0o777)
	}
	if err != nil {
		return err
	}
	var foreign []string
	for _, e := range entries {
		if name := e.Name(); !ownNames[name] && !strings.Contains(name, ".tmp") {
			foreign = append(foreign, name)
		}
	}
	slices.Sort(foreign)
	if len(foreign) > 0 && !force {
		return &option.Misuse{
			Msg:  fmt.Sprintf("%s: the output folder holds files that are not ours (%s)", dir, strings.Join(foreign[:min(3, len(foreign))], ", ")),
			Hint: "choose another folder, or add --force to write beside them",
		}
	}
	return nil
}

// WriteDocument writes a document of package result.
func WriteDocument(path string, doc any) error {
	b, err := result.Marshal(doc)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return files.Write(path, b)
}

// ReadDocument reads a document of package result.
func ReadDocument(path string, doc any) error {
	f, err := files.Open(path, false)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := result.Read(io.LimitReader(f, maxInput), doc); err != nil {
		return notOurs(path, err)
	}
	return nil
}

// notOurs is err, or says which stage wrote the file when it is another stage's document.
func notOurs(path string, err error) error {
	if stage := StageOf(path); stage != "" {
		return fmt.Errorf("%s: got a file that %s wrote: %w", path, stage, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// StageOf is the stage that wrote the JSON document at path, "" when unknown.
func StageOf(path string) string {
	var head result.Header
	data, err := files.Read(path, maxInput, false)
	if err != nil || json.Unmarshal(data, &head) != nil {
		return ""
	}
	stage, _, _ := strings.Cut(head.Command, " ")
	return stage
}

// ReadInput reads a file and says what it is, by base name. special lets it be a
// pipe or a device.
func ReadInput(path string, special bool) ([]byte, result.Input, error) {
	data, err := files.Read(path, maxInput, special)
	if err != nil {
		return nil, result.Input{}, err
	}
	return data, InputOf(filepath.Base(path), data), nil
}

// InputOf describes a file by name, size and hash.
func InputOf(name string, data []byte) result.Input {
	sum := sha256.Sum256(data)
	return result.Input{Name: name, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}

// ReadExtract reads extract.json of an output folder and compares the tables with
// it. warn, unless nil, hears of tables that another program wrote anew.
func ReadExtract(dir string, warn func([]trace.Finding)) (*result.Extract, error) {
	ext := &result.Extract{}
	if err := ReadDocument(filepath.Join(dir, ExtractFile), ext); err != nil {
		hint := fmt.Sprintf("blis-train extract RUNDIR -o %s", dir)
		if runs, _ := extract.Discover([]string{dir}, nil, nil); len(runs) > 0 {
			hint = fmt.Sprintf("%s holds recordings: blis-train extract %s -o OUT", dir, dir)
		}
		return nil, trace.Hinted(err, hint)
	}
	warnings, err := extract.CheckTables(dir, ext)
	if warn != nil && len(warnings) > 0 {
		warn(warnings)
	}
	return ext, err
}
