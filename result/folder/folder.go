// Package folder is the output folder of the stages: the names in it, who may write
// to it, and how its documents and other inputs are read and written.
package folder

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Names of an output folder. Anything else in one is foreign.
const (
	ExtractFile      = "extract.json"
	FitFile          = "fit.json"
	ValidationFile   = "validation.json"
	CoefficientsFile = "coefficients.yaml"
	BLISFile         = "blis.yaml" // the same in BLIS's terms, with what its export writes beside it
	ReportFile       = "report.html"
	InspectFile      = "inspect.json"
	SimulationFile   = "simulation.json"
	QueueFile        = "queue.json"
	QueuePage        = "queue.html"
	PredictorFile    = "predictor.json"
	PredictorRows    = "predictor_rows.json"
	ScoresFile       = "predictor_scores.json"
	PredictorPage    = "predictor.html"
	ExperimentFile   = "experiment.json"
	OptimiseFile     = "optimise.json"
	OptimiseLog      = "optimise.jsonl"
	ExperimentLog    = "experiment.runs" // of an experiment that goes on
	TasksDir         = ".tasks"          // of runs that older versions did not end
)

var ownNames = map[string]bool{
	"tables": true, ExtractFile: true, FitFile: true, ValidationFile: true, CoefficientsFile: true, ReportFile: true, InspectFile: true,
	SimulationFile: true, "requests.parquet": true, "decisions.parquet": true, "blis_results.json": true, "rows.parquet": true, "rows": true,
	"rejected.jsonl": true, ".extract-cache.json": true, TasksDir: true, "figures": true, QueueFile: true, QueuePage: true,
	"windows.parquet": true, PredictorFile: true, PredictorRows: true, ScoresFile: true, PredictorPage: true, ExperimentFile: true,
	OptimiseFile: true, OptimiseLog: true, ExperimentLog: true, BLISFile: true, BLISFile + ".hardware.json": true,
	BLISFile + ".provenance.json": true,
}

// ownFolders are those of ownNames that are folders; the others are files.
var ownFolders = []string{"tables", "rows", "figures", TasksDir}

// Claim makes the output folder, or refuses one that holds files which are not
// ours unless force is set, or a link, a pipe or a device where a file of ours should
// be. What a killed call left half-written goes. Until release is called another
// process is refused the folder; release takes away what Claim made and nobody wrote to.
func Claim(dir string, force bool) (release func(), err error) {
	made := missing(dir)
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
	if err := errors.Join(checkOwn(dir), tidy(dir)); err != nil {
		lock.Close()
		return nil, err
	}
	return func() {
		for _, d := range made {
			if os.Remove(d) != nil { // it holds files
				break
			}
		}
		lock.Close()
	}, nil
}

// checkOwn refuses what stands under our names and is none of our files.
func checkOwn(dir string) error {
	for _, name := range slices.Sorted(maps.Keys(ownNames)) {
		path := filepath.Join(dir, name)
		check := files.CheckTree
		if !slices.Contains(ownFolders, name) {
			check = func(path string) error { return files.CheckOutput(path, false) }
		}
		if err := check(path); err != nil {
			return err
		}
	}
	return nil
}

// half is the name of a file that was being written: files.Begin's, or a table's.
var half = regexp.MustCompile(`^(?:(.+)\.tmp[0-9a-f]{8}|\.([a-z_]+)-[0-9]+\.tmp)$`)

// tidy removes the half-written files of calls that were killed: of the documents, of the
// tables beside them, and of the tables of runs.
func tidy(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		at, relErr := filepath.Rel(dir, path)
		depth := strings.Count(at, string(filepath.Separator))
		m := half.FindStringSubmatch(d.Name())
		switch {
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case d.IsDir() && at != "." && (at != "tables" && depth == 0 || depth > 1):
			return fs.SkipDir
		case m == nil || !d.Type().IsRegular() || depth == 0 && !ownNames[m[1]] && !ownNames[m[2]+".parquet"]:
			return nil
		}
		return os.Remove(path)
	})
}

// missing are the folder and its parents that are not there, the innermost first.
func missing(dir string) (all []string) {
	for dir = filepath.Clean(dir); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		all = append(all, dir)
	}
	return all
}

func prepareOut(dir string, force bool) error {
	if dir == "" {
		return option.Misusef("missing -o OUT")
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(dir, 0o777)
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return option.Misusef("%s: got a file, want an output folder", dir)
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

// ReadDocument reads a document of package result. warn, unless nil, hears when its
// values are not those it was written with; they are used all the same.
func ReadDocument(path string, doc any, warn func([]trace.Finding)) error {
	text, err := files.Read(path, files.MaxInput, false)
	if err != nil {
		return err
	}
	return ParseDocument(path, text, doc, warn)
}

// ParseDocument is ReadDocument of the text of the file.
func ParseDocument(path string, text []byte, doc any, warn func([]trace.Finding)) error {
	if err := result.Read(text, doc); err != nil {
		return inJSON(path, text, err)
	}
	if warn != nil && !result.Intact(text) {
		warn([]trace.Finding{trace.Findingf(coeff.DocumentChanged, "%s was changed after it was written; its values are used as they stand",
			filepath.Base(path))})
	}
	return nil
}

// NotOurs is err, or says which stage wrote the file when it is another stage's document.
func NotOurs(path string, err error) error {
	if stage := StageOf(path); stage != "" {
		return trace.Hinted(fmt.Errorf("%s: got a file that %s wrote: %w", path, stage, err),
			cmp.Or(trace.HintOf(err), "the command's --help says which document it reads"))
	}
	return fmt.Errorf("%s: %w", path, err)
}

// inJSON is err with its place, where it is one of JSON's syntax.
func inJSON(path string, text []byte, err error) error {
	at, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return NotOurs(path, err)
	}
	line, col := trace.Position(text, at.Offset)
	out := &trace.SyntaxError{File: path, Line: line, Col: col, Code: codeBadDocument, Msg: at.Error()}
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		out.Msg = "got text that is no JSON object, want a document such as fit.json"
		out.Hint = "name the document itself: fit.json lies in the output folder of fit and run"
	}
	return out
}

// StageOf is the stage that wrote the JSON document at path, "" when unknown.
func StageOf(path string) string {
	var head result.Header
	data, err := files.Read(path, files.MaxInput, false)
	if err != nil || json.Unmarshal(data, &head) != nil {
		return ""
	}
	stage, _, _ := strings.Cut(head.Command, " ")
	return stage
}

// ReadInput reads a file and says what it is, by base name. special lets it be a
// pipe or a device.
func ReadInput(path string, special bool) ([]byte, result.Input, error) {
	data, err := files.Read(path, files.MaxInput, special)
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
// it. warn, unless nil, hears of a changed document and of tables that another
// program wrote anew.
func ReadExtract(dir string, warn func([]trace.Finding)) (*result.Extract, error) {
	ext := &result.Extract{}
	if err := ReadDocument(filepath.Join(dir, ExtractFile), ext, warn); err != nil {
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

// SetBytes is the file a set is saved as.
func SetBytes(set *coeff.Set) ([]byte, error) {
	var b bytes.Buffer
	err := set.Save(&b)
	return b.Bytes(), err
}

// LoadCoefficients reads a coefficient file. special lets it be a pipe or a device.
func LoadCoefficients(path string, special bool) (*coeff.Set, result.Input, error) {
	data, in, err := ReadInput(path, special)
	if err != nil {
		return nil, in, err
	}
	set, err := coeff.Load(bytes.NewReader(data), path, features.CheckSet)
	if err != nil && StageOf(path) == "fit" {
		err = trace.Hinted(fmt.Errorf("%s: got a file that fit wrote, want a coefficient file", path),
			"blis-train export "+path+" -o "+CoefficientsFile)
	}
	return set, in, err
}

// ToolVersion is written into every document; a release build may set it with
// -ldflags -X.
var ToolVersion = "0.1.0"

// Header starts a document, with the pipeline.yaml that set options.
func Header(command string, config *result.Config) result.Header {
	h := result.NewHeader(ToolVersion, command)
	h.Config = config
	return h
}

// LibraryWord is what stands for the embedded library where a file could.
const LibraryWord = "library"

// CoefficientsFor reads a coefficient file, or the library's for the deployment when
// path is the word or empty; the sentence then says which, and how far it can be trusted.
func CoefficientsFor(path string, d *deploy.Deployment, special bool) (set *coeff.Set, in result.Input, sentence string, err error) {
	if path != "" && path != LibraryWord {
		set, in, err = LoadCoefficients(path, special)
		return set, in, "", err
	}
	set, err = fit.LibraryFor(d)
	if err != nil {
		return nil, in, "", err
	}
	text, err := SetBytes(set)
	return set, InputOf(LibraryWord, text), fmt.Sprintf("coefficients: library %s; %s", set.Library.Version, set.Library.Judged), err
}

// codeBadDocument is a document that is no JSON.
const codeBadDocument trace.Code = "bad_document"
