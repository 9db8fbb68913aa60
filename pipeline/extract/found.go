package extract

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

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
		isClient := k == kindClient
		name := path.Base(rest[i].Name)
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
			s.contradicted = append(s.contradicted, trace.Findingf(source.CodeRunContradicted, "%s: %s", in.Name, unlike))
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
