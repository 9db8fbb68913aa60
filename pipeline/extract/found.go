package extract

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/forms"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// kind is what a file turned out to be by its content.
type kind uint8

const (
	kindOther   kind = iota
	kindLog          // lines of a vLLM log
	kindPasses       // dynamo.fpm.trace.v1
	kindClient       // the result of a load client
	kindSilent       // a vLLM log whose beginning holds no iteration
	kindMetrics      // an answer of /metrics
	kindBroken       // cut, or not to be unpacked
	kindEmpty
)

// unread is a file of the run folder that nothing reads, and why.
type unread struct {
	source.Input
	why  string
	lost bool // a recording stood there: it counts as a record that cannot be read
}

// found adds what run.yaml does not name: server logs, forward-pass traces and
// results of clients in the run folder, known by their content. Where run.yaml
// names files of a kind, those are the ones. Every other file with the name of a recording is
// said to be unread.
func (d *RunDir) found(s *inputSet) error {
	named := d.Deployment.Files.Iterations
	in, err := d.inputs("iterations", named)
	if err != nil {
		return err
	}
	for i := range in {
		k, _ := contentOf(&in[i])
		if k != kindPasses {
			k = kindLog
		}
		s.put(k, in[i])
		d.compare(s, k, &in[i])
	}
	if d.Files != nil {
		s.sortOut()
		return nil
	}
	clients := len(d.Deployment.Files.ClientRequests) == 0
	rest, err := d.unnamed(s)
	if err != nil {
		return err
	}
	var silent []source.Input
	for i := range rest {
		k, why := contentOf(&rest[i])
		isClient, name := k == kindClient, path.Base(rest[i].Name)
		d.compare(s, k, &rest[i])
		switch {
		case isClient && !clients || (k == kindLog || k == kindPasses) && len(named) > 0:
			s.unread = append(s.unread, unread{rest[i], "run.yaml names recordings of its kind, and not this one", false})
		case k == kindSilent && len(s.traces)+len(named) > 0: // its spans are read
			silent = append(silent, rest[i])
		case s.put(k, rest[i]):
		case recordingName.MatchString(name) && (k == kindBroken || k == kindEmpty || !describes.MatchString(name)):
			s.unread = append(s.unread, unread{rest[i], why, k == kindBroken})
		}
	}
	if len(s.clients) > 0 {
		s.logs = append(s.logs, silent...)
	}
	s.logs, s.passes, s.clients = inReadingOrder(s.logs), inSegments(s.passes), inReadingOrder(s.clients)
	return nil
}

// compare names what the start of a server's log says of the engine and run.yaml otherwise.
func (d *RunDir) compare(s *inputSet, k kind, in *source.Input) {
	if k != kindLog && k != kindSilent {
		return
	}
	src, _ := source.Open(in, nil, source.Limits{MaxLine: logBytes, MaxExpansion: 1 << 14})
	if src == nil {
		return
	}
	defer src.Close()
	if draft, err := deploy.FromLog(io.LimitReader(src.R, startBytes), in.Name); err == nil {
		for _, unlike := range draft.Against(d.Deployment) {
			s.contradicted = append(s.contradicted, trace.Findingf(forms.RunContradicted, "%s: %s", in.Name, unlike))
		}
	}
}

// sortOut puts files given as dumps that are something else where they belong.
func (s *inputSet) sortOut() {
	given := s.traces
	s.traces = nil
	for i := range given {
		k := kindOther
		if given[i].Path != "-" && !isPipe(given[i].Path) {
			k, _ = contentOf(&given[i])
		}
		if !s.put(k, given[i]) {
			s.traces = append(s.traces, given[i])
		}
	}
	s.passes = inSegments(s.passes)
}

// put takes a file for what it is; false for one of no use.
func (s *inputSet) put(k kind, in source.Input) bool {
	switch k {
	case kindLog, kindSilent:
		s.logs = append(s.logs, in)
	case kindPasses:
		s.passes = append(s.passes, in)
	case kindClient:
		s.clients = append(s.clients, in)
	case kindMetrics:
		s.metrics = append(s.metrics, in)
	default:
		return false
	}
	return true
}

func isPipe(path string) bool {
	st, err := os.Stat(path)
	return err != nil || !st.Mode().IsRegular()
}

// skipped are files of a run folder that are no recording, by name.
var skipped = regexp.MustCompile(`^(\.|run\.yaml$|config\.json$|hardware\.json$|tokenizer|README|` +
	`.*\.(md|parquet|arrow|safetensors|png|html|py|sh)$)`)

// recordingName matches what recordings are called, also rotated or packed; describes, documents
// about one that may lie beside it.
var (
	recordingName = regexp.MustCompile(`(?i)\.(jsonl?|ndjson|csv|log|prom|pb)([.-][0-9T:-]+)?(\.gz|\.zst)*$`)
	describes     = regexp.MustCompile(`(?i)^(readme|notes?|about|machine|host|system|hardware|environment|env|versions?|params|args|` +
		`settings|meta(data)?|license|vocab|special_tokens_map|added_tokens|chat_template|.*config|.*\.index)\b.*\.json`)
)

// unnamed lists the files of the run folder that are no input yet.
func (d *RunDir) unnamed(s *inputSet) ([]source.Input, error) {
	entries, err := os.ReadDir(d.Dir)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, k := range s.kinds() {
		for _, f := range k.list {
			used[filepath.Clean(f.Path)] = true
		}
	}
	for _, p := range d.Deployment.Read {
		used[filepath.Clean(p)] = true
	}
	var out []source.Input
	for _, e := range entries {
		path := filepath.Join(d.Dir, e.Name())
		if used[path] || skipped.MatchString(e.Name()) || isPipe(path) {
			continue
		}
		out = append(out, source.Input{Path: path, Name: d.relative(path)})
	}
	return out, nil
}

// How much of a file is looked at: documents say what they are at the start, a
// log may print much before its first iteration.
const (
	headBytes  = 1 << 15
	logBytes   = 8 << 20
	startBytes = 1 << 20 // an engine's start
)

// Words that tell forms apart.
var (
	vllmWords = [][]byte{[]byte("vLLM API server version"), []byte("non-default args"), []byte("(EngineCore"), []byte("(APIServer"),
		[]byte("(ApiServer_"), []byte(": Avg prompt throughput: ")}
)

// contentOf looks at the beginning of a file, and says why it is of no use. Whoever names one
// that cannot be read hears more when it is read.
func contentOf(in *source.Input) (kind, string) {
	src, err := source.Open(in, nil, source.Limits{MaxLine: logBytes, MaxExpansion: 1 << 14})
	if src == nil {
		return kindBroken, fmt.Sprint(err)
	}
	defer src.Close()
	if e := source.AsSyntax(err); err != nil && (e == nil || e.Code != source.CodeNotOTLP) {
		return kindBroken, fmt.Sprint(err)
	}
	head, err := src.R.Peek(headBytes)
	head = bytes.Clone(head) // the search for iterations reads on
	body := bytes.TrimLeft(head, " \t\r\n\ufeff\x00")
	switch {
	case len(body) == 0 && err != nil && err != io.EOF:
		return kindBroken, fmt.Sprint(err)
	case len(body) == 0 && len(head) < headBytes:
		return kindEmpty, "it is empty, want a recording"
	case bytes.IndexByte(head, 0) >= 0:
		return kindOther, "it is binary"
	case (body[0] == '{' || body[0] == '[') && forms.IsPasses(body):
		return kindPasses, ""
	case bytes.Contains(head, []byte(`"resourceSpans"`)):
		return kindOther, "its spans are read where `files.traces` of run.yaml names it"
	case forms.IsRead(body):
		return kindClient, ""
	case forms.IsMetrics(body):
		return kindMetrics, ""
	case hasIteration(src.R):
		return kindLog, ""
	case slices.ContainsFunc(vllmWords, func(w []byte) bool { return bytes.Contains(head, w) }):
		return kindSilent, ""
	}
	if err := forms.Refuse(in.Name, head); err != nil {
		return kindOther, strings.TrimPrefix(err.Msg, in.Name+": ") + ": " + err.Hint
	}
	if why := cutJSON(in); why != "" && (body[0] == '{' || body[0] == '[') {
		return kindBroken, why
	}
	return kindOther, "got " + forms.Keys(body) + ", want a form of docs/formats.md"
}

// cutJSON says where the JSON of a file ends within a value; "" for one that does not, as far
// as it is looked at.
func cutJSON(in *source.Input) string {
	src, err := source.Open(in, nil, source.Limits{MaxLine: logBytes, MaxExpansion: 1 << 14})
	if src == nil {
		return fmt.Sprint(err)
	}
	defer src.Close()
	part := &io.LimitedReader{R: src.R, N: logBytes}
	dec := json.NewDecoder(part)
	for {
		var value json.RawMessage
		switch err := dec.Decode(&value); {
		case err == io.ErrUnexpectedEOF && part.N > 0:
			return fmt.Sprintf("its JSON ends within a value that begins behind byte %d, want the whole of it", dec.InputOffset())
		case err != nil:
			return ""
		}
	}
}

// hasIteration reads on until an iteration comes.
func hasIteration(r *bufio.Reader) bool {
	for read := 0; read < logBytes; {
		line, err := r.ReadSlice('\n')
		if forms.HasIteration(line) {
			return true
		}
		if err != nil && err != bufio.ErrBufferFull {
			return false
		}
		read += len(line)
	}
	return false
}

// segment matches the parts of a forward-pass trace: <prefix>.<producer>.<n>.jsonl.gz.
var segment = regexp.MustCompile(`^(.*)\.(\d{1,12})\.jsonl(?:\.gz|\.zst)?$`)

// inSegments sorts the parts of each producer by number. A part ends with a
// whole record, or was cut.
func inSegments(in []source.Input) []source.Input {
	key := func(f *source.Input) (string, string) {
		if m := segment.FindStringSubmatch(f.Name); m != nil {
			return m[1], strings.Repeat("0", 12-len(m[2])) + m[2]
		}
		return f.Name, ""
	}
	slices.SortStableFunc(in, func(a, b source.Input) int {
		setA, atA := key(&a)
		setB, atB := key(&b)
		return strings.Compare(setA+"\x00"+atA, setB+"\x00"+atB)
	})
	for i := range in {
		in[i].Joins = false
	}
	return in
}

// refuseForeign refuses inputs that are exports of another tool.
func refuseForeign(in []source.Input) error {
	for i := range in {
		if in[i].Path == "-" || isPipe(in[i].Path) {
			continue
		}
		if err := forms.Refuse(in[i].Name, beginning(&in[i])); err != nil {
			return err
		}
	}
	return nil
}

// beginning is the beginning of a file, unpacked; nothing of one that cannot be read.
func beginning(in *source.Input) []byte {
	src, _ := source.Open(in, nil, source.Limits{MaxLine: logBytes, MaxExpansion: 1 << 14})
	if src == nil {
		return nil
	}
	defer src.Close()
	head, _ := src.R.Peek(headBytes)
	return bytes.Clone(head)
}
