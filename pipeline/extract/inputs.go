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

// inputSet is the files of one run folder.
type inputSet struct {
	config, traces, kv, clients, logs, passes []source.Input // logs and passes: the two forms of iterations
	metrics                                   []source.Input // answers of /metrics
	unread                                    []source.Input // files of clients beside those that run.yaml names
}

// open resolves the file names of a run.
func (d *RunDir) open() (*inputSet, error) {
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
	if err = d.found(s); err != nil {
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

// hashFile fills size and sum by reading the file; a pipe is none.
func hashFile(in *source.Input) (err error) {
	in.Size, in.Sum, err = files.Hash(in.Path)
	return err
}

// inputOf is a file as documents name it.
func inputOf(path, name string) (in result.Input, err error) {
	in.Name = name
	in.Bytes, in.SHA256, err = files.Hash(path)
	return in, err
}

// kinds lists the files with what they are, in a fixed order.
func (s *inputSet) kinds() []struct {
	kind string
	list []source.Input
} {
	return []struct {
		kind string
		list []source.Input
	}{{"configuration", s.config}, {kindTraces, s.traces}, {kindKV, s.kv}, {"client_requests", s.clients},
		{"iterations", s.logs}, {"passes", s.passes}, {"metrics", s.metrics}}
}

func (s *inputSet) files() []result.ExtractFile {
	out := []result.ExtractFile{}
	for _, k := range s.kinds() {
		for _, f := range k.list {
			out = append(out, result.ExtractFile{Kind: k.kind, Input: result.Input{Name: f.Name, Bytes: f.Size, SHA256: f.Sum}})
		}
	}
	return out
}

// hash reads every file to fill its sum.
func (s *inputSet) hash() error {
	for _, k := range s.kinds() {
		for i := range k.list {
			if err := hashFile(&k.list[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// empty finds the inputs that gave no record. One that was named is an error
// when none of its files gave any; else each of them is a warning.
func (s *inputSet) empty(examples []result.Example) (warnings []trace.Finding, err error) {
	for _, k := range s.kinds()[1:] {
		gave := map[string]int64{}
		for _, f := range k.list {
			gave[f.Asked] += f.Gave
		}
		for _, f := range k.list {
			why := ""
			if i := slices.IndexFunc(examples, func(e result.Example) bool {
				return e.Place == f.Name ||
					strings.HasPrefix(e.Place, f.Name+":")
			}); i >= 0 {
				why = "; " + examples[i].Place + ": " + examples[i].What
			}
			switch {
			case f.Gave > 0:
			case f.Asked != "" && gave[f.Asked] == 0:
				return nil, trace.Errorf(codeNoInput, "%s (%s) gives nothing: no record of %s in it%s", f.Name, f.Asked, k.kind, why).
					WithHint("correct the name, or leave it out of `files` in run.yaml")
			default:
				warnings = append(warnings, trace.Findingf(codeNoInput, "%s gives nothing: no record of %s in it%s", f.Name, k.kind, why))
			}
		}
	}
	for _, f := range s.unread {
		warnings = append(warnings, trace.Findingf(codeNoInput, "%s is not read beside the client_requests of the run: name both in run.yaml",
			f.Name))
	}
	return warnings, nil
}

// digest is one hash over names and hashes.
func (s *inputSet) digest() string {
	h := sha256.New()
	for _, f := range s.files() {
		fmt.Fprintf(h, "%s %s %s\n", f.Kind, f.Name, f.SHA256)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// stamps are the names, sizes and times of the files; standard input has none,
// so that it is always read.
func (s *inputSet) stamps() []fileStamp {
	var out []fileStamp
	for _, k := range s.kinds() {
		for _, f := range k.list {
			st, err := os.Stat(f.Path)
			if err != nil {
				out = append(out, fileStamp{Name: f.Name, Bytes: -1, ModTime: -1})
				continue
			}
			out = append(out, fileStamp{f.Name, st.Size(), st.ModTime().UnixNano(), changeTime(st)})
		}
	}
	return out
}

// bytes is the size of all files as they stand.
func (s *inputSet) bytes() int64 {
	n := int64(0)
	for _, f := range s.stamps() {
		n += max(0, f.Bytes)
	}
	return n
}

// fileStamp is what a file looked like.
type fileStamp struct {
	Name       string `json:"name"`
	Bytes      int64  `json:"bytes"`
	ModTime    int64  `json:"mod_time_ns"`
	ChangeTime int64  `json:"change_time_ns"` // of its inode, which no program can set; 0 where there is none
}

// changeTime is the time of the last change of a file's inode.
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

// young is how coarse the clock of a file system may be: a file changed again
// within it may keep its stamp.
const young = 2 * time.Second

// oldEnough gives the stamps, or nil when one is too young to tell later changes.
func oldEnough(stamps []fileStamp) []fileStamp {
	limit := time.Now().Add(-young).UnixNano()
	for _, s := range stamps {
		if s.ModTime > limit || s.ChangeTime > limit {
			return nil
		}
	}
	return stamps
}
