package extract

// This file finds the recordings of a run folder that run.yaml does not name, by their content.

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// addFound adds recordings in the run folder that run.yaml does not name: dumps of spans, KV events, server
// logs, forward-pass traces and results of clients, recognised by their content. If run.yaml names files
// of a kind, or one has the usual name, only these are read. Any other file whose name is that of a
// recording is listed as unread.
func (d *RunDir) addFound(s *inputSet) error {
	named := d.Deployment.Files.Iterations // logs and forward-pass traces that run.yaml names
	in, err := d.inputs("iterations", named)
	if err != nil {
		return err
	}
	for i := range in {
		k, _ := contentOf(&in[i])
		if k != kindPasses {
			k = kindLog // run.yaml decides, even if no iteration is found in its beginning
		}
		s.addInput(k, in[i])
		d.compareWithLog(s, k, &in[i])
	}
	// Dumps were named on the command line: only these are read.
	if d.Files != nil {
		s.sortTraces()
		return nil
	}
	namesClients := len(d.Deployment.Files.ClientRequests) > 0
	rest, err := d.unnamed(s)
	if err != nil {
		return err
	}
	kinds := make([]foundKind, len(rest))
	for i := range rest {
		kinds[i].kind, kinds[i].why = contentOf(&rest[i])
	}
	d.addSpansAndEvents(s, rest, kinds)
	var silent []source.Input // logs without iterations, if steps are recorded elsewhere (traces, named logs)
	for i := range rest {
		k, why := kinds[i].kind, kinds[i].why
		if kinds[i].isRead {
			continue
		}
		d.compareWithLog(s, k, &rest[i])
		name := path.Base(rest[i].Name)
		if k == kindCompanion { // not a recording, and nothing to report
			continue
		}
		isOtherThanNamed := k == kindClient && namesClients || (k == kindLog || k == kindPasses) && len(named) > 0
		// Files that describe a recording (machine.json, args.json) may have the extension of one. Not
		// reading them loses nothing, unless they are so damaged that they may be a recording.
		looksRecorded := recordingName.MatchString(name) &&
			(k == kindBroken || k == kindEmpty || !describes.MatchString(name))
		switch {
		case isOtherThanNamed:
			why := "run.yaml names recordings of its kind, and not this one"
			s.unread = append(s.unread, unread{Input: rest[i], why: why})
		case k == kindSilent && len(s.traces)+len(named) > 0 || k == kindCounting && len(named) > 0:
			silent = append(silent, rest[i])
		case s.addInput(k, rest[i]): // it is of a kind that is read, and added
		case looksRecorded, k == kindSpans, k == kindKVEvents:
			s.unread = append(s.unread, unread{Input: rest[i], why: why, lost: k == kindBroken})
		}
	}
	if err := d.addBelow(s, len(named) > 0, namesClients); err != nil {
		return err
	}
	// If clients measured this server, a log without iterations is read as well, and reported as a file
	// without records: with them the run would show more.
	if len(s.clients) > 0 {
		s.logs = append(s.logs, silent...)
	}
	s.logs = inOrderOfPasses(inReadingOrder(s.logs))
	s.passes = inSegmentOrder(s.passes)
	s.clients = inReadingOrder(s.clients)
	return nil
}

// foundKind is what contentOf found out about a file of the run folder.
type foundKind struct {
	kind   kind
	why    string // it is not read
	isRead bool   // it was added to the inputs
}

// addSpansAndEvents adds the dumps of spans and the KV events among rest, files of the run folder of these kinds, where
// run.yaml states none and no file has the usual name. Files of one rotated set are read together: all but the first may
// begin within a line.
func (d *RunDir) addSpansAndEvents(s *inputSet, rest []source.Input, kinds []foundKind) {
	ofKind := func(wanted kind) (in []source.Input) {
		sets := map[string]bool{}
		for i := range rest {
			if kinds[i].kind == wanted {
				set, _ := rotation(rest[i].Name)
				sets[set] = true
			}
		}
		for i := range rest {
			set, _ := rotation(rest[i].Name)
			isRest := kinds[i].kind == kindOther || kinds[i].kind == kindBroken || kinds[i].kind == kindEmpty
			if kinds[i].kind == wanted || isRest && sets[set] {
				kinds[i].isRead = true
				in = append(in, rest[i])
			}
		}
		return inReadingOrder(in)
	}
	if len(s.traces) == 0 && !d.Deployment.Files.StatesTraces {
		s.traces = ofKind(kindSpans)
	}
	if len(s.kv) == 0 && !d.Deployment.Files.StatesKVEvents {
		s.kv = ofKind(kindKVEvents)
	}
}

// mostBelow is the number of files below a run folder that are looked at.
const mostBelow = 4096

// addBelow adds recordings in the folders below the run folder, into which some clients write their results. They
// count only where the run folder itself has no recording of their kind and run.yaml names none
// (namesLogs, namesClients).
func (d *RunDir) addBelow(s *inputSet, namesLogs, namesClients bool) error {
	isWanted := map[kind]bool{
		kindClient:  len(s.clients) == 0 && !namesClients,
		kindLog:     len(s.logs)+len(s.passes)+len(s.traces) == 0 && !namesLogs,
		kindMetrics: len(s.metrics) == 0,
	}
	isWanted[kindPasses] = isWanted[kindLog]
	isWanted[kindSilent] = isWanted[kindLog]
	isWanted[kindCounting] = isWanted[kindLog]
	if !isWanted[kindClient] && !isWanted[kindLog] { // metrics alone do not justify the search
		return nil
	}
	below, notSearched, err := d.filesOfFolders()
	if err != nil {
		return err
	}
	if notSearched != "" {
		s.below = append(s.below, trace.Findingf(codeNotSearched, "more than %d files are in folders below the run folder: %s and "+
			"those after it are not read, whatever they have; name the files in run.yaml", mostBelow, notSearched))
	}
	folders := map[string]bool{}
	for i := range below {
		k, why := contentOf(&below[i])
		switch {
		case isWanted[k]:
			d.compareWithLog(s, k, &below[i])
			s.addInput(k, below[i])
			folders[path.Dir(below[i].Name)] = true
		case k == kindBroken && recordingName.MatchString(path.Base(below[i].Name)):
			s.unread = append(s.unread, unread{Input: below[i], why: why, lost: true})
		}
	}
	if len(folders) > 0 {
		s.below = append(s.below, trace.Findingf(codeFoundBelow, "recordings are read from %s, because the run folder has none of their "+
			"kind: remove those of other runs, or name the files in run.yaml", strings.Join(slices.Sorted(maps.Keys(folders)), ", ")))
	}
	return nil
}

// spansBelow returns the dumps of spans in the folders below the run folder. They are not read unless run.yaml names them:
// they may be those of another server, or of a simulation.
func (d *RunDir) spansBelow() (out []unread) {
	if d.Files != nil {
		return nil
	}
	below, _, err := d.filesOfFolders()
	if err != nil {
		return nil
	}
	for i := range below {
		if k, _ := contentOf(&below[i]); k == kindSpans {
			out = append(out, unread{Input: below[i], why: namedAlone})
		}
	}
	return out
}

// filesOfFolders returns the files in the folders below the run folder that may be recordings, at most mostBelow, and the
// name of the next one if there are more. Hidden folders, other run folders and output folders are left out.
func (d *RunDir) filesOfFolders() (out []source.Input, next string, err error) {
	used := map[string]bool{}
	for _, p := range d.Deployment.Read {
		used[filepath.Clean(p)] = true
	}
	for _, p := range d.Deployment.Files.KVEvents {
		used[filepath.Join(d.Dir, filepath.FromSlash(p))] = true
	}
	err = filepath.WalkDir(d.Dir, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && p != d.Dir:
			if strings.HasPrefix(e.Name(), ".") || exists(filepath.Join(p, deploy.RunFile)) || exists(filepath.Join(p, folder.ExtractFile)) {
				return fs.SkipDir
			}
		case e.IsDir(): // the run folder itself
		case filepath.Dir(p) == d.Dir: // addFound looks at the files directly in it
		case used[p] || skipped.MatchString(e.Name()) || isPipe(p):
		case len(out) == mostBelow:
			next = d.relative(p)
			return fs.SkipAll
		default:
			out = append(out, source.Input{Path: p, Name: d.relative(p)})
		}
		return nil
	})
	return out, next, err
}

// compareWithLog compares run.yaml with the engine arguments that vLLM logs at its start, and adds
// each difference to s.contradicted. k is the kind of the file; other kinds than logs are ignored.
func (d *RunDir) compareWithLog(s *inputSet, k kind, in *source.Input) {
	if k != kindLog && k != kindSilent && k != kindCounting {
		return
	}
	src, _ := source.Open(in, nil, peekLimits)
	if src == nil {
		return
	}
	defer src.Close()
	// The log may begin after the start, so that no argument is found. Then there is nothing to compare.
	if draft, err := deploy.FromLog(io.LimitReader(src.R, startBytes), in.Name); err == nil {
		for _, unlike := range draft.Against(d.Deployment) {
			s.contradicted = append(s.contradicted, trace.Findingf(source.CodeRunContradicted,
				"%s: %s", in.Name, unlike.Sentence).About(unlike.Setting))
		}
	}
}

// sortTraces moves files that were given as dumps on the command line, but are something else, to
// their kind.
func (s *inputSet) sortTraces() {
	given := s.traces
	s.traces = nil
	for i := range given {
		k := kindOther
		if given[i].Path != "-" && !isPipe(given[i].Path) {
			k, _ = contentOf(&given[i])
		}
		if !s.addInput(k, given[i]) {
			s.traces = append(s.traces, given[i])
		}
	}
	s.passes = inSegmentOrder(s.passes)
}

// addInput adds a file to those of its kind. It reports false for a kind that is not read.
func (s *inputSet) addInput(k kind, in source.Input) bool {
	switch k {
	case kindLog, kindSilent, kindCounting:
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

// skipped matches names of files that no recording has: hidden ones, inputs of the deployment,
// tokenizers, documents, tables and scripts.
var skipped = regexp.MustCompile(`^(\.|run\.yaml$|config\.json$|hardware\.json$|tokenizer|README|` +
	`.*\.(md|parquet|arrow|safetensors|png|html|py|sh)$)`)

// recordingName matches names of recordings, rotated and compressed ones included. describes matches
// names of JSON documents about a recording or a model, which recordingName matches too.
var (
	recordingName = regexp.MustCompile(`(?i)\.(jsonl?|ndjson|csv|log|prom|pb)([.-][0-9T:-]+)?(\.gz|\.zst)*$`)
	describes     = regexp.MustCompile(`(?i)^(readme|notes?|about|machine|host|system|hardware|environment|env|versions?|params|args|` +
		`settings|meta(data)?|license|vocab|special_tokens_map|added_tokens|chat_template|.*config|.*\.index)\b.*\.json`)
)

// unnamed returns the files of the run folder that are not an input of s.
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
