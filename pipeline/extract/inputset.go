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
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// inputSet is the files of one run folder.
type inputSet struct {
	config, traces, kv, clients, logs, passes []source.Input  // logs and passes: the two forms of iterations
	metrics                                   []source.Input  // answers of /metrics
	unread                                    []unread        // files with the name of a recording that nothing reads
	contradicted                              []trace.Finding // what logs say of the engine that run.yaml says otherwise
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
		out = append(out, stat.Map(k.list, func(f source.Input) result.ExtractFile {
			return result.ExtractFile{Kind: k.kind, Input: result.Input{Name: f.Name, Bytes: f.Size, SHA256: f.Sum}}
		})...)
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
				return e.Place == f.Name || strings.HasPrefix(e.Place, f.Name+":")
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
	return append(warnings, s.notRead()...), nil
}

// mostNamed is how many files one warning names.
const mostNamed = 8

// notRead names the files that nothing reads, those with one reason in one warning.
func (s *inputSet) notRead() (warnings []trace.Finding) {
	names := map[string][]string{}
	var reasons []string
	for _, f := range s.unread {
		if names[f.why] == nil {
			reasons = append(reasons, f.why)
		}
		names[f.why] = append(names[f.why], f.Name)
	}
	for _, why := range reasons {
		list, more := names[why], ""
		if n := len(list); n > mostNamed {
			list = list[:mostNamed]
			more = fmt.Sprintf(" and %d more", n-mostNamed)
		}
		warnings = append(warnings, trace.Findingf(codeNoInput, "%s%s: not read; %s", strings.Join(list, ", "), more, why))
	}
	return warnings
}

// digest is one hash over names and hashes.
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

// stamps are the names, sizes and times of the files; standard input has none,
// so that it is always read.
func (s *inputSet) stamps() []fileStamp {
	var out []fileStamp
	add := func(f *source.Input) {
		st, err := os.Stat(f.Path)
		if err != nil {
			out = append(out, fileStamp{Name: f.Name, Bytes: -1, ModTime: -1})
			return
		}
		out = append(out, fileStamp{f.Name, st.Size(), st.ModTime().UnixNano(), changeTime(st)})
	}
	for _, k := range s.kinds() {
		for i := range k.list {
			add(&k.list[i])
		}
	}
	for i := range s.unread {
		add(&s.unread[i].Input)
	}
	return out
}

// bytes is the size of all files as they stand.
func (s *inputSet) bytes() int64 {
	return stat.Sum(s.sizes(), func(f Sized) int64 { return max(0, f.Bytes) })
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

// unread is a file of the run folder that nothing reads, and why.
type unread struct {
	source.Input
	why  string
	lost bool // a recording stood there: it counts as a record that cannot be read
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
