package extract

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// This file lists the input files of one run folder, and describes them by hashes and by stamps so that
// a later call can find out whether they changed.

// inputSet is the files of one run folder, by kind.
type inputSet struct {
	config       []source.Input  // run.yaml and the files that it names
	traces       []source.Input  // dumps of spans
	kv           []source.Input  // KV events
	clients      []source.Input  // results of load clients and benchmarks
	logs         []source.Input  // server logs with iterations
	passes       []source.Input  // forward-pass traces, which have iterations too
	metrics      []source.Input  // answers of /metrics
	unread       []unread        // files with the name of a recording that are not read
	below        []trace.Finding // of recordings in folders below
	contradicted []trace.Finding // where the start of a log contradicts run.yaml
}

// findInputs returns the files of a run. It hashes those of the configuration; the others are
// hashed when they are read.
func (d *RunDir) findInputs() (*inputSet, error) {
	s := &inputSet{}
	var err error
	if s.traces, err = d.traces(); err != nil {
		return nil, err
	}
	if s.kv, err = d.inputs("kv_events", d.Deployment.Files.KVEvents); err != nil {
		return nil, err
	}
	if s.clients, err = d.inputs("client_requests", d.Deployment.Files.ClientRequests); err != nil {
		return nil, err
	}
	if err = d.addFound(s); err != nil {
		return nil, err
	}
	for _, p := range d.Deployment.Read {
		in := source.Input{Path: p, Name: d.relative(p)}
		if err := hashFile(&in); err != nil {
			return nil, err
		}
		s.config = append(s.config, in)
	}
	return s, nil
}

// hashFile sets size and sum by reading the file, which cannot be a pipe.
func hashFile(in *source.Input) (err error) {
	in.Size, in.Sum, err = files.Hash(in.Path)
	return err
}

// inputOf returns a file with its size and hash.
func inputOf(path, name string) (in result.Input, err error) {
	in.Name = name
	in.Bytes, in.SHA256, err = files.Hash(path)
	return in, err
}

// inputKind is the files of one kind, with the name of the kind in documents.
type inputKind struct {
	name string
	list []source.Input
}

// kinds returns the lists of all files that are read, the configuration first. The order is fixed,
// because digest and stamps depend on it.
func (s *inputSet) kinds() []inputKind {
	return []inputKind{
		{"configuration", s.config},
		{kindTraces, s.traces},
		{kindKV, s.kv},
		{"client_requests", s.clients},
		{"iterations", s.logs},
		{"passes", s.passes},
		{"metrics", s.metrics},
	}
}

// files returns descriptions of all files that were read.
func (s *inputSet) files() []result.ExtractFile {
	out := []result.ExtractFile{}
	for _, k := range s.kinds() {
		for _, f := range k.list {
			in := result.Input{Name: f.Name, Bytes: f.Size, SHA256: f.Sum}
			out = append(out, result.ExtractFile{Kind: k.name, Input: in})
		}
	}
	return out
}

// hashFiles reads every file and sets its size and sum.
func (s *inputSet) hashFiles() error {
	for _, k := range s.kinds() {
		for i := range k.list {
			if err := hashFile(&k.list[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkGave looks for inputs in which no record was found. It returns an error if that is true of
// all files of one entry of run.yaml, and a warning otherwise.
func (s *inputSet) checkGave(examples []result.Example) (warnings []trace.Finding, err error) {
	for _, k := range s.kinds()[1:] { // without the configuration
		gave := map[string]int64{} // records by the entry of run.yaml that named their file
		for _, f := range k.list {
			gave[f.Asked] += f.Gave
		}
		for _, f := range k.list {
			if f.Gave > 0 {
				continue
			}
			why := "" // the first record of this file that was dropped
			for _, e := range examples {
				if e.Place == f.Name || strings.HasPrefix(e.Place, f.Name+":") {
					why = "; " + e.Place + ": " + e.What
					break
				}
			}
			if f.Asked != "" && gave[f.Asked] == 0 {
				return nil, trace.Errorf(codeNoInput, "%s (%s): got no record of %s%s", f.Name, f.Asked, k.name, why).
					WithHint("correct the name, or leave it out of `files` in run.yaml")
			}
			warnings = append(warnings, trace.Findingf(codeNoInput, "%s: got no record of %s%s", f.Name, k.name, why))
		}
	}
	return append(warnings, s.unreadWarnings()...), nil
}

// mostNamed is the number of files that one warning names.
const mostNamed = 8

// unreadWarnings returns warnings about the files that are not read, one for each reason.
func (s *inputSet) unreadWarnings() (warnings []trace.Finding) {
	names := map[string][]string{}
	var reasons []string
	for _, f := range s.unread {
		if names[f.why] == nil {
			reasons = append(reasons, f.why)
		}
		names[f.why] = append(names[f.why], f.Name)
	}
	for _, why := range reasons {
		list := names[why]
		more := ""
		if n := len(list); n > mostNamed {
			list = list[:mostNamed]
			more = fmt.Sprintf(" and %d more", n-mostNamed)
		}
		warnings = append(warnings,
			trace.Findingf(codeNoInput, "%s%s: not read; %s", strings.Join(list, ", "), more, why))
	}
	return warnings
}

// digest returns one hash over the names and hashes of all files.
func (s *inputSet) digest() string {
	h := sha256.New()
	for _, f := range s.files() {
		fmt.Fprintf(h, "%s %s %s\n", f.Kind, f.Name, f.SHA256)
	}
	for _, f := range s.unread {
		fmt.Fprintf(h, "unread %s %s\n", f.Name, f.why)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// canBeReadAgain reports whether all inputs are files: what standard input or a pipe has cannot be compared with what an
// earlier call read.
func (s *inputSet) canBeReadAgain() bool {
	for _, k := range s.kinds() {
		if slices.ContainsFunc(k.list, func(f source.Input) bool { return f.Path == "-" || isPipe(f.Path) }) {
			return false
		}
	}
	return true
}

// stamps returns the names, sizes and times of the files; standard input has none.
func (s *inputSet) stamps() []fileStamp {
	var out []fileStamp
	for _, k := range s.kinds() {
		for i := range k.list {
			out = append(out, stampOf(&k.list[i]))
		}
	}
	for i := range s.unread {
		out = append(out, stampOf(&s.unread[i].Input))
	}
	return out
}

// stampOf returns the size and the times of a file.
func stampOf(f *source.Input) fileStamp {
	st, err := os.Stat(f.Path)
	if err != nil {
		return fileStamp{Name: f.Name, Bytes: -1, ModTime: -1}
	}
	return fileStamp{f.Name, st.Size(), st.ModTime().UnixNano(), changeTime(st)}
}

// bytes returns the current size of all files.
func (s *inputSet) bytes() int64 {
	n := int64(0)
	for _, f := range s.sizes() {
		n += max(0, f.Bytes)
	}
	return n
}

// fileStamp is the size and the times of a file. A file whose stamp is equal later is assumed to be
// unchanged.
type fileStamp struct {
	Name       string `json:"name"`
	Bytes      int64  `json:"bytes"`
	ModTime    int64  `json:"mod_time_ns"`
	ChangeTime int64  `json:"change_time_ns"` // of the inode, which programs cannot set; 0 if unknown
}

// changeTime returns the time of the last change of a file's inode, Unix ns; 0 where the operating
// system has none. The types of Sys differ between systems in the name of the field, so reflection
// spares a file for each.
func changeTime(st fs.FileInfo) int64 {
	v := reflect.Indirect(reflect.ValueOf(st.Sys()))
	if v.Kind() != reflect.Struct {
		return 0
	}
	for _, name := range []string{"Ctim", "Ctimespec"} { // Linux, BSD
		if t := v.FieldByName(name); t.IsValid() {
			return t.FieldByName("Sec").Int()*1e9 + t.FieldByName("Nsec").Int()
		}
	}
	return 0
}

// clockStep is the resolution of the coarsest clock of a file system. A file that is changed twice
// within it may keep its stamp.
const clockStep = 2 * time.Second

// oldEnough returns the stamps, or nil if a file was changed so recently that another change might
// leave its stamp as it is.
func oldEnough(stamps []fileStamp) []fileStamp {
	limit := time.Now().Add(-clockStep).UnixNano()
	for _, s := range stamps {
		if s.ModTime > limit || s.ChangeTime > limit {
			return nil
		}
	}
	return stamps
}

// unread is a file of the run folder that is not read.
type unread struct {
	source.Input
	why  string
	lost bool // it was a recording and is broken, so it counts as one unreadable record
}

// sizes returns the inputs with their sizes.
func (s *inputSet) sizes() []Sized {
	stamps := s.stamps()
	var out []Sized
	for _, k := range s.kinds() {
		for _, f := range k.list {
			out = append(out, Sized{k.name, f.Name, stamps[len(out)].Bytes})
		}
	}
	return out
}
