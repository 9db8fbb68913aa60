package extract

// This file puts the files of a rotated set, and the segments of a forward-pass trace, into the order in
// which they were written.

import (
	"bufio"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// Patterns of the names of rotated files (spec#wire-rotation). OpenTelemetry collectors write
// traces-2022-09-14T05-02-14.173.json, newer ones with "-size" or another reason after the time.
// logrotate writes traces.json.2.gz, in which a higher number is older, or traces.json-20260920.
var (
	rotated     = regexp.MustCompile(`^(.*)-(\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}\.\d{3})(?:-[a-z]+)?(\.[^/]*)$`)
	rotatedNum  = regexp.MustCompile(`^(.*\.(?:jsonl?|pb|log|txt|out))\.(\d{1,6})((?:\.(?:gz|zst))?)$`)
	rotatedDate = regexp.MustCompile(`^(.*\.(?:jsonl?|pb|log|txt|out))-(\d{8}(?:-?\d{1,10})?)((?:\.(?:gz|zst))?)$`)
	packedName  = regexp.MustCompile(`\.(?:gz|zst)$`)
)

// rotation returns the rotated set to which a file belongs, and a key by which the files of the set
// sort in time. The file that is still being written sorts last.
func rotation(name string) (set, order string) {
	if m := rotated.FindStringSubmatch(name); m != nil {
		return packedName.ReplaceAllString(m[1]+m[3], ""), m[2]
	}
	if m := rotatedDate.FindStringSubmatch(name); m != nil {
		return m[1], m[2]
	}
	if m := rotatedNum.FindStringSubmatch(name); m != nil {
		n, _ := strconv.Atoi(m[2])
		return m[1], fmt.Sprintf("%07d", 9_999_999-n) // a higher number is older, so it sorts first
	}
	return packedName.ReplaceAllString(name, ""), "live" // after all digits
}

// inReadingOrder returns files sorted by set, and within a set by time. It sets Joins of each file
// whose last line may continue in the next.
func inReadingOrder(in []source.Input) []source.Input {
	type key struct{ set, order string }
	keys := map[string]key{} // by file name
	for _, f := range in {
		set, order := rotation(f.Name)
		keys[f.Name] = key{set, order}
	}
	stat.SortStable(in, func(a, b source.Input) int {
		ka, kb := keys[a.Name], keys[b.Name]
		return cmp.Or(cmp.Compare(ka.set, kb.set), cmp.Compare(ka.order, kb.order))
	})
	for i := range in {
		in[i].Joins = i+1 < len(in) && keys[in[i].Name].set == keys[in[i+1].Name].set
	}
	return in
}

// segment matches the files into which Dynamo's --fpm-trace divides a forward-pass trace (spec#wire-fpm):
// <prefix>.<producer>.<n>.jsonl.gz, where n counts from file to file.
var segment = regexp.MustCompile(`^(.*)\.(\d{1,12})\.jsonl(?:\.gz|\.zst)?$`)

// inSegmentOrder returns the files of forward-pass traces sorted by producer, and of each producer by segment
// number. Joins is false for all of them, unlike in inReadingOrder, because no record continues in the next
// segment.
func inSegmentOrder(in []source.Input) []source.Input {
	key := func(f *source.Input) string {
		m := segment.FindStringSubmatch(f.Name)
		if m == nil { // one file that is not divided
			return f.Name + "\x00"
		}
		return m[1] + "\x00" + strings.Repeat("0", 12-len(m[2])) + m[2] // as text sorts, so numbers do
	}
	stat.SortStable(in, func(a, b source.Input) int { return strings.Compare(key(&a), key(&b)) })
	for i := range in {
		in[i].Joins = false
	}
	return in
}

// yearNs is the year of stamps that name none, which is a leap year, in ns; halfYearNs is half of it.
const (
	yearNs     = 366 * 24 * int64(3600e9)
	halfYearNs = yearNs / 2
)

// inOrderOfPasses returns logs sorted by the stamp of the first pass in each: the parts of a log, and those of an engine
// that was started again, may have names in another order (server-10.log comes before server-9.log), and passes that
// come late count as repeated. Files of a rotated set stay together, and logs without a pass in their place. The order is
// kept where passes have no stamp, or stamps of two clocks.
func inOrderOfPasses(in []source.Input) []source.Input {
	var sets []logSet
	for i := 0; i < len(in); {
		n := 1
		for i+n < len(in) && in[i+n-1].Joins {
			n++
		}
		sets = append(sets, logSet{files: in[i : i+n]})
		i += n
	}
	if len(sets) < 2 {
		return in
	}
	var places []int // of the sets with passes
	var sorted []logSet
	for i := range sets {
		hasPass, hasStamp := sets[i].findFirstPass()
		if !hasPass {
			continue
		}
		if !hasStamp || len(sorted) > 0 && sets[i].isWall != sorted[0].isWall {
			return in
		}
		places = append(places, i)
		sorted = append(sorted, sets[i])
	}
	if len(sorted) == 0 {
		return in
	}
	byStamp := func(a, b logSet) int { return cmp.Compare(a.firstNs, b.firstNs) }
	latest := slices.MaxFunc(sorted, byStamp)
	for i := range sorted {
		if !latest.isWall && latest.firstNs-sorted[i].firstNs > halfYearNs { // stamps of no year: January after December
			sorted[i].firstNs += yearNs
		}
	}
	stat.SortStable(sorted, byStamp)
	for i, place := range places {
		sets[place] = sorted[i]
	}
	var out []source.Input
	for i := range sets {
		out = append(out, sets[i].files...)
	}
	return out
}

// logSet is a log, or a rotated set of one.
type logSet struct {
	files   []source.Input
	firstNs int64 // stamp of its first pass, see [enginelog.StampOfPass]
	isWall  bool
}

// findFirstPass sets the stamp of the first pass in the set, searched for in the first logBytes of each file. A pipe
// cannot be read twice: it counts as a pass without a stamp.
func (s *logSet) findFirstPass() (hasPass, hasStamp bool) {
	for i := range s.files {
		in := &s.files[i]
		if in.Path == "-" || isPipe(in.Path) {
			return true, false
		}
		src, _ := source.Open(in, nil, peekLimits)
		if src == nil {
			continue
		}
		line := firstPass(src.R)
		if line != nil {
			s.firstNs, s.isWall, hasStamp = enginelog.StampOfPass(line)
		}
		src.Close()
		if line != nil {
			return true, hasStamp
		}
	}
	return false, false
}

// firstPass returns the first line with a pass in the next logBytes; nil if there is none.
func firstPass(r *bufio.Reader) []byte {
	for read := 0; read < logBytes; {
		line, err := r.ReadSlice('\n')
		if enginelog.HasPass(line) {
			return line
		}
		if err != nil && err != bufio.ErrBufferFull { // a longer line is searched in pieces
			return nil
		}
		read += len(line)
	}
	return nil
}
