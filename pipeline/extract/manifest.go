package extract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

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
	dir, want := table.RunDir(out, run.ID), run.Tables[name]
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
