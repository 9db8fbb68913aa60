package extract

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Names in the output folder.
const (
	tablesDir    = "tables"
	rejectedName = "rejected.jsonl"
	documentName = "extract.json"
	stagePrefix  = ".stage-blis-train-"
)

// halfWritten matches what files.Write leaves of our documents when it is killed.
var halfWritten = regexp.MustCompile(`^(\.extract-cache\.json|\.manifest\.json|(extract|fit|validation|inspect|simulation)\.json|` +
	`rejected\.jsonl|coefficients\.yaml|report\.html)\.tmp[0-9a-f]{8}$`)

// cleanStages removes what an interrupted call left behind.
func cleanStages(out string) error {
	tables := filepath.Join(out, tablesDir)
	if there, err := folderOf(tables); err != nil || !there {
		return errors.Join(err, cleanHalves(out))
	}
	entries, err := os.ReadDir(tables)
	if err != nil {
		return err
	}
	err = cleanHalves(out)
	for _, e := range entries {
		switch {
		case !e.IsDir():
		case strings.HasPrefix(e.Name(), stagePrefix):
			err = errors.Join(err, os.RemoveAll(filepath.Join(tables, e.Name())))
		case strings.HasPrefix(e.Name(), runPrefix):
			err = errors.Join(err, cleanHalves(filepath.Join(tables, e.Name())))
		}
	}
	return err
}

// cleanHalves removes half-written documents of a folder.
func cleanHalves(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Type().IsRegular() && halfWritten.MatchString(e.Name()) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// invalidate takes extract.json away before tables change, so that no later
// stage reads it beside tables it does not describe.
func invalidate(out string) error {
	err := os.Remove(filepath.Join(out, documentName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Adopt gives the tables of the entry, which stand in another output folder, their names in
// o.Out as well: links to the same files, or copies where there are no links.
func (e *Entry) Adopt(from string, o Options) error {
	for i := range e.Results {
		if err := adopt(from, &e.Results[i], &o); err != nil {
			return err
		}
	}
	return nil
}

func adopt(from string, r *result.ExtractRun, o *Options) error {
	stage := filepath.Join(o.Out, tablesDir, stagePrefix+r.ID)
	if err := os.MkdirAll(stage, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	for _, f := range r.TableFiles {
		if err := linkOrCopy(filepath.Join(table.RunDir(from, r.ID), f.Name), filepath.Join(stage, f.Name)); err != nil {
			return err
		}
	}
	return publish(stage, table.RunDir(o.Out, r.ID), r.TableFiles, o.Force)
}

func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := files.Open(from, false)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := files.Begin(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Abort()
		return err
	}
	return out.Commit()
}

// finish removes the tables of runs that are not part of this call, then writes
// the cache, rejected.jsonl and, last, extract.json.
func finish(out string, doc *result.Extract, fresh, old *cache, rejects *rejects) error {
	tidied, err := removeRuns(out, func(id string) bool { return doc.Run(id) != nil })
	if err != nil {
		return err
	}
	if fresh.Rejected, err = rejects.sum(); err != nil {
		return err
	}
	cached, err := json.Marshal(fresh)
	if err != nil {
		return err
	}
	text, err := result.Marshal(doc)
	if err != nil {
		return err
	}
	if path := filepath.Join(out, rejectedName); rejects == nil && old != nil && old.Rejected != nil && sameFile(path, *old.Rejected) {
		if err := os.Remove(path); err != nil {
			return err
		}
		tidied.removed = append(tidied.removed, path+" (of an earlier call)")
	}
	if err := files.Write(filepath.Join(out, cacheName), append([]byte(sumOf(cached)+"\n"), cached...)); err != nil {
		return err
	}
	if err := rejects.close(); err != nil {
		return err
	}
	if err := files.Write(filepath.Join(out, documentName), text); err != nil {
		return err
	}
	doc.Removed, doc.Left = tidied.removed, tidied.left
	return nil
}

// rejects writes rejected.jsonl; a nil one does nothing.
type rejects struct {
	file *files.Pending
	enc  *json.Encoder
}

func openRejects(o *Options) (*rejects, error) {
	if !o.WhyRejected {
		return nil, nil
	}
	if err := os.MkdirAll(o.Out, 0o777); err != nil {
		return nil, err
	}
	f, err := files.Begin(filepath.Join(o.Out, rejectedName))
	if err != nil {
		return nil, err
	}
	return &rejects{file: f, enc: json.NewEncoder(f)}, nil
}

// sum is what the file holds before it has its name.
func (r *rejects) sum() (*result.Input, error) {
	if r == nil {
		return nil, nil
	}
	in, err := inputOf(r.file.Name(), rejectedName)
	return &in, err
}

func (r *rejects) close() error {
	if r == nil {
		return nil
	}
	return r.file.Commit()
}

func (r *rejects) abort() {
	if r != nil {
		r.file.Abort()
	}
}

// Planned is a run folder as a plan keeps it: where it is and what it holds.
type Planned struct {
	ID         string   `json:"id"`
	Dir        string   `json:"dir"` // absolute
	Folder     string   `json:"folder"`
	Files      []string `json:"files,omitempty"` // explicit dumps, absolute
	Deployment string   `json:"deployment"`      // SHA-256 of all that is said of it
	Inputs     []Sized  `json:"inputs"`
	Pieces     []Piece  `json:"pieces,omitempty"` // of inputs that are read in parts
}

// Sized is an input of a run folder before anything of it is read.
type Sized struct {
	Kind  string `json:"kind"` // as in extract.json
	Name  string `json:"name"` // relative, as in extract.json
	Bytes int64  `json:"bytes"`
}

// Bytes is the size of all inputs.
func (p *Planned) Bytes() int64 {
	return stat.Sum(p.Inputs, func(in Sized) int64 { return in.Bytes })
}

// Plan is the run folder as a plan keeps it, with inputs of more than every bytes cut where
// they can be; 0 cuts none. Standard input cannot be read again and is refused.
func (d *RunDir) Plan(every int64) (*Planned, error) {
	p, err := &Planned{ID: d.ID, Folder: d.Folder, Deployment: deploymentHash(d.Deployment)}, d.Bad
	if err != nil {
		return nil, err
	}
	if p.Dir, err = filepath.Abs(d.Dir); err != nil {
		return nil, err
	}
	for _, f := range d.Files {
		if f == "-" {
			return nil, trace.Errorf(CodeNoRuns, "run %s: got standard input, want files: several processes read them", d.ID)
		}
		if f, err = filepath.Abs(f); err != nil {
			return nil, err
		}
		p.Files = append(p.Files, f)
	}
	set, err := d.open()
	if err != nil {
		return nil, err
	}
	p.Inputs = set.sizes()
	p.Pieces, err = set.cut(every)
	return p, err
}

// sizes lists the inputs with their sizes.
func (s *inputSet) sizes() []Sized {
	stamps := s.stamps()
	var out []Sized
	for _, k := range s.kinds() {
		for _, f := range k.list {
			out = append(out, Sized{k.kind, f.Name, stamps[len(out)].Bytes})
		}
	}
	return out
}

// planAgain is the hint when inputs changed.
const planAgain = "plan again into another folder"

// Open finds the run folder of a plan again; set is what overrides its run.yaml. That it
// is not what was planned is an error.
func (p *Planned) Open(set []string) (*RunDir, error) {
	dep, err := deploy.LoadRun(p.Dir, set...)
	if err != nil {
		return nil, err
	}
	d := &RunDir{ID: p.ID, Dir: p.Dir, Folder: p.Folder, Files: p.Files, Deployment: dep}
	opened, err := d.open()
	if err != nil {
		return nil, err
	}
	sizes := opened.sizes()
	if deploymentHash(dep) != p.Deployment {
		return nil, trace.Errorf(codeInputsChanged, "run %s: run.yaml or what it names is not what was planned (%s)", p.ID,
			p.Dir).WithHint(planAgain)
	}
	for i, s := range sizes {
		if i >= len(p.Inputs) || s != p.Inputs[i] {
			return nil, trace.Errorf(codeInputsChanged, "run %s: %s of %d bytes is not what was planned", p.ID, s.Name, s.Bytes).WithHint(planAgain)
		}
	}
	if len(sizes) < len(p.Inputs) {
		return nil, trace.Errorf(codeInputsChanged, "run %s: got %d inputs, want the %d that were planned", p.ID, len(sizes),
			len(p.Inputs)).WithHint(planAgain)
	}
	return d, nil
}

// Longest is the name and size of the largest input, or of its largest part, which one worker
// has to read.
func (p *Planned) Longest() Sized {
	list := slices.Clone(p.Inputs)
	for i := range list {
		longest := int64(0)
		for _, c := range p.Pieces {
			if c.Part != nil && c.Kind == list[i].Kind && c.Name == list[i].Name {
				longest = max(longest, c.Part.To-c.Part.From)
			}
		}
		if longest > 0 {
			list[i].Bytes = longest
		}
	}
	return slices.MaxFunc(list, func(a, b Sized) int { return int(min(max(a.Bytes-b.Bytes, -1), 1)) })
}
