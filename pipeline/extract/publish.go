package extract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
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
	doc.Removed = tidied.removed
	doc.Left = tidied.left
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
	p := &Planned{ID: d.ID, Folder: d.Folder, Deployment: deploymentHash(d.Deployment)}
	err := d.Bad
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

// manifestName is the file of a run's folder that says which files of it were
// written by this program. Nothing else is ever removed or replaced there.
const manifestName = ".manifest.json"

// manifest lists files of one run folder. While a folder is being replaced it
// lists the old and the new ones.
type manifest struct {
	Files []result.Input `json:"files"`
}

// readManifest reads the manifest of a run folder; without a readable one
// nothing in the folder is ours.
func readManifest(dir string) manifest {
	var m manifest
	b, err := files.ReadAll(filepath.Join(dir, manifestName))
	if err == nil && json.Unmarshal(b, &m) != nil {
		return manifest{}
	}
	return m
}

func (m *manifest) write(dir string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return files.Write(filepath.Join(dir, manifestName), append(b, '\n'))
}

// names reports whether the manifest has a file of the name, whatever is in it.
func (m *manifest) names(name string) bool {
	return slices.ContainsFunc(m.Files, func(f result.Input) bool { return f.Name == name })
}

// wrote reports whether the file is one that was written as it stands.
func (m *manifest) wrote(dir, name string) bool {
	return slices.ContainsFunc(m.Files, func(f result.Input) bool { return f.Name == name && sameFile(filepath.Join(dir, name), f) })
}

// sameFile reports whether a regular file has the size and hash.
func sameFile(path string, want result.Input) bool {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() != want.Bytes {
		return false
	}
	in, err := inputOf(path, want.Name)
	return err == nil && in == want
}

// tableFiles lists the tables of a folder by name, with their hashes.
func tableFiles(dir string) ([]result.Input, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := []result.Input{}
	for _, e := range entries {
		if !table.IsFile(e.Name()) {
			continue
		}
		in, err := inputOf(filepath.Join(dir, e.Name()), e.Name())
		if err != nil {
			return nil, err
		}
		out = append(out, in)
	}
	return out, nil
}

// folderOf reports whether a folder of that name is there; a link or a file in
// its place is an error, because what is behind it is not ours.
func folderOf(dir string) (there bool, err error) {
	st, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case st.Mode()&fs.ModeSymlink != 0:
		return false, trace.Errorf(CodeNotOurs, "%s: got a symbolic link, want a folder: links are not followed", dir).
			WithHint("choose another output folder")
	case !st.IsDir():
		return false, trace.Errorf(CodeNotOurs, "%s: got a file, want a folder", dir).WithHint("choose another output folder")
	}
	return true, nil
}

// publish gives the finished tables of a run their final names. A new folder
// appears whole. In an old one the manifest is widened first, so that whatever
// stands there after a crash is known to be ours.
func publish(from, to string, tables []result.Input, force bool) error {
	fresh := manifest{Files: tables}
	there, err := folderOf(to)
	if err != nil {
		return err
	}
	if !there {
		if err := fresh.write(from); err != nil {
			return err
		}
		return os.Rename(from, to)
	}
	old := readManifest(to)
	for _, f := range tables {
		if _, err := os.Lstat(filepath.Join(to, f.Name)); err == nil && !old.names(f.Name) && !force {
			return trace.Errorf(CodeNotOurs, "%s: this file was not written here by this program", filepath.Join(to, f.Name)).
				WithHint("choose another output folder, or replace it with --force")
		}
	}
	both := manifest{Files: slices.Concat(old.Files, tables)}
	if err := both.write(to); err != nil {
		return err
	}
	for _, f := range tables {
		if err := os.Rename(filepath.Join(from, f.Name), filepath.Join(to, f.Name)); err != nil {
			return err
		}
	}
	for _, f := range old.Files {
		if !fresh.names(f.Name) && both.wrote(to, f.Name) {
			if err := os.Remove(filepath.Join(to, f.Name)); err != nil {
				return err
			}
		}
	}
	return fresh.write(to)
}

// tidying is what became of files that are not part of a call.
type tidying struct{ removed, left []string }

// removeRuns removes the tables of runs that are not part of this call: those
// files that stand as this program wrote them, and then empty folders.
func removeRuns(out string, keep func(id string) bool) (t tidying, err error) {
	entries, err := os.ReadDir(filepath.Join(out, tablesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	for _, e := range entries {
		id, isRun := strings.CutPrefix(e.Name(), runPrefix)
		switch {
		case isRun && keep(id):
			t.foreign(filepath.Join(out, tablesDir, e.Name()), readManifest(filepath.Join(out, tablesDir, e.Name())))
		case isRun && e.IsDir():
			if err := t.run(filepath.Join(out, tablesDir, e.Name())); err != nil {
				return t, err
			}
		case e.Name() != manifestName:
			t.left = append(t.left, filepath.Join(out, tablesDir, e.Name()))
		}
	}
	return t, nil
}

const runPrefix = "run="

// foreign notes the files of a folder that the manifest does not name.
func (t *tidying) foreign(dir string, m manifest) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.left = append(t.left, dir)
		return
	}
	for _, e := range entries {
		if e.Name() != manifestName && !m.names(e.Name()) {
			t.left = append(t.left, filepath.Join(dir, e.Name()))
		}
	}
}

// run removes what is ours in the folder of one run.
func (t *tidying) run(dir string) error {
	m := readManifest(dir)
	var changed manifest
	removed := 0
	for _, f := range m.Files {
		path := filepath.Join(dir, f.Name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !m.wrote(dir, f.Name) {
			changed.Files = append(changed.Files, f)
			t.left = append(t.left, path)
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		removed++
	}
	t.foreign(dir, m)
	if removed > 0 {
		t.removed = append(t.removed, fmt.Sprintf("%s (%d tables of an earlier call)", dir, removed))
	}
	if len(changed.Files) > 0 {
		return changed.write(dir)
	}
	if len(m.Files) > 0 {
		os.Remove(filepath.Join(dir, manifestName))
	}
	os.Remove(dir) // an empty one; with other people's files it stays
	return nil
}

// CheckTables compares the tables of an output folder with its extract.json.
// Missing tables, tables of another run, other numbers of rows and tables that
// extract.json does not know are errors; a table that another program wrote
// anew is a warning, and its values are used. Codes: table_missing,
// table_foreign, table_rows, table_rewritten.
func CheckTables(out string, doc *result.Extract) ([]trace.Finding, error) {
	owner := map[string]string{} // hash of a table -> the table it was written as
	for i := range doc.Runs {
		for _, f := range doc.Runs[i].TableFiles {
			owner[f.SHA256] = filepath.Join(runPrefix+doc.Runs[i].ID, f.Name)
		}
	}
	var warnings []trace.Finding
	if len(doc.LeftOut) > 0 {
		warnings = append(warnings, trace.Findingf(codeNoInput, "%d runs gave nothing and are left out: %s", len(doc.LeftOut),
			strings.Join(doc.LeftOut, ", ")))
	}
	for i := range doc.Runs {
		for _, t := range table.Tables {
			w, err := checkTable(out, &doc.Runs[i], t.Name, owner)
			if err != nil {
				return nil, err
			}
			warnings = append(warnings, w...)
		}
	}
	return warnings, nil
}

// checkTable compares one table of a run: the file that will be read.
func checkTable(out string, run *result.ExtractRun, name string, owner map[string]string) ([]trace.Finding, error) {
	dir := table.RunDir(out, run.ID)
	want := run.Tables[name]
	file := ""
	for _, format := range []table.Format{table.Parquet, table.Arrow} {
		if at := filepath.Join(dir, name+"."+string(format)); file == "" && exists(at) {
			file = at
		}
	}
	hint := fmt.Sprintf("blis-train extract RUNDIR -o %s --force", out)
	switch {
	case file == "" && want == 0:
		return nil, nil
	case file == "":
		return nil, trace.Errorf(table.CodeDamaged, "%s: missing, %s counts %d rows in it",
			filepath.Join(dir, name+"."+string(table.Parquet)), documentName, want).WithHint(hint)
	case want == 0:
		return nil, trace.Errorf(table.CodeDamaged, "%s: %s knows no such table of run %s", file, documentName,
			run.ID).WithHint("remove the file, or " + hint)
	}
	in, err := inputOf(file, filepath.Base(file))
	if err != nil || slices.Contains(run.TableFiles, in) {
		return nil, err
	}
	if was := owner[in.SHA256]; was != "" {
		return nil, trace.Errorf(table.CodeDamaged, "%s: this is %s", file, was).WithHint(hint)
	}
	n, err := table.CountRows(file, name)
	if err != nil {
		return nil, err
	}
	if n != want {
		return nil, trace.Errorf(table.CodeDamaged, "%s: got %d rows, %s counts %d", file, n, documentName, want).WithHint(hint)
	}
	return []trace.Finding{trace.Findingf(table.CodeDamaged, "%s is not the file that extract wrote; its values are used as they stand",
		path.Join(tablesDir, runPrefix+run.ID, in.Name))}, nil
}

const cacheName = ".extract-cache.json"

// cache remembers what was extracted from which bytes, so that unchanged
// inputs are not parsed again.
type cache struct {
	Key      string        `json:"key"` // program and options that change tables or extract.json
	Rejected *result.Input `json:"rejected,omitempty"`
	Runs     []Entry       `json:"runs"`
}

// Entry is what extracting one run folder gave.
type Entry struct {
	ID         string              `json:"id"`
	Folder     string              `json:"folder"`
	Deployment string              `json:"deployment"` // hash of the deployment as loaded: --set, hardware.json and all
	Stamps     []fileStamp         `json:"stamps"`     // nil where they are too young to tell
	Digest     string              `json:"digest"`     // over the names and hashes of all inputs
	Bytes      int64               `json:"bytes"`
	Lines      int64               `json:"lines"`
	Results    []result.ExtractRun `json:"results"`
}

func newCache(o *Options) *cache {
	return &cache{Key: fmt.Sprintf("%s/%s/%s/%s/%v/%d/%d/%v", table.SchemaVersion, o.ToolVersion, program(),
		o.Format, o.SplitEngines, o.MaxLine, o.MaxExpansion, o.Batches != nil)}
}

// program tells builds of this program apart: another one reads everything again.
func program() string {
	name, err := os.Executable()
	if err != nil {
		return "unknown"
	}
	st, err := os.Stat(name)
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%d-%d", st.Size(), st.ModTime().UnixNano())
}

// loadCache reads the cache of an output folder; nil without one.
func loadCache(out string) *cache {
	b, err := files.ReadAll(filepath.Join(out, cacheName))
	if err != nil {
		return nil
	}
	var c cache
	sum, text, _ := bytes.Cut(b, []byte("\n"))
	if string(sum) != sumOf(text) || json.Unmarshal(text, &c) != nil { // what somebody changed is not believed
		return nil
	}
	return &c
}

// lookup returns the entry of an unchanged run: same deployment, and the same
// names, sizes and times of its inputs or, where a time moved, the same hashes;
// and its tables are those that were written.
func (c *cache) lookup(run *RunDir, o *Options) *Entry {
	if c == nil || o.Force || o.WhyRejected || c.Key != newCache(o).Key {
		return nil
	}
	for i := range c.Runs {
		e := &c.Runs[i]
		if e.ID != run.ID || e.Folder != run.Folder {
			continue
		}
		set, err := run.open()
		if err != nil || e.Deployment != deploymentHash(run.Deployment) || !e.intact(o) {
			return nil
		}
		stamps := set.stamps()
		if e.Stamps == nil || !slices.Equal(stamps, e.Stamps) {
			if set.hash() != nil || set.digest() != e.Digest {
				return nil
			}
			e.Stamps = oldEnough(stamps)
		}
		return e
	}
	return nil
}

// deploymentHash is a hash of everything that was said of the deployment.
func deploymentHash(d *deploy.Deployment) string {
	b, err := json.Marshal(d)
	if err != nil {
		return "" // no entry has it
	}
	return sumOf(b)
}

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// intact reports whether the tables of the entry stand as they were written.
func (e *Entry) intact(o *Options) bool {
	for _, r := range e.Results {
		dir := table.RunDir(o.Out, r.ID)
		changed := func(f result.Input) bool { return !sameFile(filepath.Join(dir, f.Name), f) }
		if len(readManifest(dir).Files) > len(r.TableFiles) || slices.ContainsFunc(r.TableFiles, changed) { // a call ended while it wrote
			return false
		}
	}
	return e.Deployment != "" && len(e.Results) > 0
}
