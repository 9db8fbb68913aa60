package autoscale

// This file turns the files of benchmark sweeps into a server with one window for each benchmark.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// serverOfSweep returns one server from the benchmarks of sweeps over lengths and loads.
func serverOfSweep(id string, points []clients.Level, o *Options) *Server {
	s := &Server{
		ID:          id,
		Source:      fromSweep,
		Model:       o.Sweep.Model,
		Accelerator: o.Sweep.Accelerator,
		AccCount:    o.Sweep.AccCount,
		Limits: Limits{
			MaxBatch:         o.Sweep.MaxBatch,
			Queue:            o.waiting(o.Sweep.MaxBatch),
			MaxBatchedTokens: o.Sweep.MaxBatchedTokens,
		},
		Account: queueAccount{Read: len(points), Dropped: map[string]int{}},
	}
	taken := map[string]int{} // windows so far of each sweep
	for _, p := range byRate(points) {
		switch w, ok := s.windowOf(&p, o); {
		case p.Closed():
			s.Account.Dropped[string(closedLoop)]++
		case o.Sweep.Loads > 0 && taken[p.Sweep] == o.Sweep.Loads:
			s.Account.Dropped[string(beyondLoads)]++
		case !ok:
			s.Account.Dropped[string(noLatency)]++
		default:
			taken[p.Sweep]++
			s.Windows = append(s.Windows, w)
		}
	}
	s.Account.Kept = len(s.Windows)
	return s
}

// byRate returns the benchmarks sorted by their rate within each sweep; sweeps keep their order.
func byRate(points []clients.Level) []clients.Level {
	order := map[string]int{}
	points = slices.Clone(points)
	for i := range points {
		points[i].RateRPS = cmp.Or(points[i].RateRPS, points[i].OfferedRPS)
		if _, seen := order[points[i].Sweep]; !seen {
			order[points[i].Sweep] = len(order)
		}
	}
	stat.SortStable(points, func(a, b clients.Level) int {
		return cmp.Or(cmp.Compare(order[a.Sweep], order[b.Sweep]), cmp.Compare(a.RateRPS, b.RateRPS))
	})
	return points
}

// windowOf returns a benchmark as a window; false if it has no TTFT.
func (s *Server) windowOf(p *clients.Level, o *Options) (window, bool) {
	cv2 := func(mean, sd float64) float64 {
		if !(mean > 0 && sd > 0) { // the report has no standard deviations
			return 0
		}
		return sd * sd / (mean * mean)
	}
	w := window{
		Name:     p.Sweep,
		Phase:    p.Strategy,
		Requests: p.Requests,
		Arrivals: p.Requests,
		RateRPS:  p.RateRPS,
		Limits:   s.Limits,
		Shape: shape{
			Prompt:    p.PromptTokens,
			Output:    p.OutputTokens,
			PromptCV2: cv2(p.PromptTokens, p.PromptSD),
			OutputCV2: cv2(p.OutputTokens, p.OutputSD),
		},
		TTFTMs: p.TTFTMedianMs,
		ITLMs:  p.ITLMs,
	}
	if o.Sweep.Mean {
		w.TTFTMs = p.TTFTMeanMs
	}
	return w, w.TTFTMs > 0
}

// SweepServer returns one server from benchmark files, and the files as inputs. A folder means
// the JSON, CSV and .prom files in it, and AIPerf's server_metrics_export.jsonl. It sets o.Sweep.Mean if means are compared.
func SweepServer(paths []string, read func(path string) ([]byte, result.Input, error), o *Options) (*Server,
	[]result.Input, error) {
	names, err := sweepFiles(paths)
	if err != nil {
		return nil, nil, err
	}
	var points []clients.Level
	var inputs []result.Input
	var findings []trace.Finding
	account := queueAccount{Dropped: map[string]int{}}
	var snapshots []*enginelog.Snapshot
	var scrapes [][2]*enginelog.Snapshot // of AIPerf, before and after each benchmark
	content := map[string]string{}       // file by the SHA-256 of its content
	seen := map[clients.Level]string{}   // file of every level, by what was measured
	var tables []sweepTable
	take := func(f *clients.LevelFile, file string) {
		tables = append(tables, sweepTable{file, f})
		again := map[string]int{} // levels of the file that an earlier one has, by the name of that one
		for _, level := range f.Levels {
			measured := level.Measured()
			if earlier, ok := seen[measured]; ok && earlier != file {
				again[earlier]++
				continue
			}
			seen[measured] = file
			points = append(points, level)
		}
		for _, earlier := range slices.Sorted(maps.Keys(again)) {
			account.Dropped[string(source.CodeDuplicate)] += again[earlier]
			findings = append(findings, trace.Findingf(source.CodeDuplicate, "%s: %d of its benchmarks are those of %s, and count once",
				file, again[earlier], earlier))
		}
		findings = append(findings, f.Findings...)
		account.Read += f.Read
		for code, n := range f.Dropped {
			account.Dropped[string(code)] += n
		}
	}
	// Snapshots of metrics pages come in pairs, before and after a benchmark; other files have levels
	// of their own.
	for _, name := range names {
		data, in, err := read(name)
		if err != nil {
			return nil, nil, err
		}
		if earlier, ok := content[in.SHA256]; ok && in.SHA256 != "" {
			account.Read++
			account.Dropped[string(source.CodeDuplicate)]++
			findings = append(findings, trace.Findingf(source.CodeDuplicate, "%s: its content is that of %s, and counts once", in.Name, earlier))
			continue
		}
		content[in.SHA256] = in.Name
		if enginelog.IsMetrics(data) {
			s, err := enginelog.ReadSnapshot(data, in.Name, writtenNs(name))
			if err != nil {
				return nil, nil, err
			}
			inputs = append(inputs, in)
			snapshots = append(snapshots, s)
			continue
		}
		if enginelog.IsScrapes(data) {
			pairs, err := enginelog.ReadScrapes(data, in.Name)
			if err != nil {
				return nil, nil, err
			}
			inputs = append(inputs, in)
			scrapes = append(scrapes, pairs...)
			continue
		}
		f, err := clients.ReadLevels(bytes.NewReader(data), in.Name) // the document must not know the folder
		if err != nil {
			if at := (*trace.SyntaxError)(nil); errors.As(err, &at) {
				at.File = name
			}
			return nil, nil, err
		}
		inputs = append(inputs, in)
		take(f, in.Name)
	}
	if len(snapshots)+len(scrapes) > 0 {
		take(clients.LevelsBetween(snapshots), "answers of /metrics")
		take(clients.LevelsOfScrapes(scrapes), "scrapes of AIPerf")
		o.Sweep.Mean = true // the mean is exact; of the median only the histogram's bucket is known
	}
	// The model predicts mean TTFTs, so means are compared if every row of a table has one.
	withoutMean := func(p clients.Level) bool { return !(p.Line > 0 && p.TTFTMeanMs > 0) }
	if !o.Sweep.Median && len(points) > 0 && !slices.ContainsFunc(points, withoutMean) {
		o.Sweep.Mean = true
	}
	s := serverOfSweep(cmp.Or(o.Sweep.Model, "sweep"), points, o)
	s.Findings = append(s.Findings, findings...)
	for _, t := range tables {
		s.Findings = append(s.Findings, t.withoutStatistic(o.Sweep.Mean)...)
	}
	s.Account.Read = account.Read
	for code, n := range account.Dropped {
		s.Account.Dropped[code] += n
	}
	return s, inputs, nil
}

// sweepTable is what was read of one file.
type sweepTable struct {
	name string
	read *clients.LevelFile
}

// withoutStatistic returns a finding if no benchmark of the file has the statistic of TTFT that is fitted.
func (t *sweepTable) withoutStatistic(isMean bool) []trace.Finding {
	want, other := "median", "mean"
	if isMean {
		want, other = other, want
	}
	hasOther := false
	for _, l := range t.read.Levels {
		wanted, instead := l.TTFTMedianMs, l.TTFTMeanMs
		if isMean {
			wanted, instead = instead, wanted
		}
		if wanted > 0 {
			return nil
		}
		hasOther = hasOther || instead > 0
	}
	if len(t.read.Levels) == 0 {
		return nil
	}
	what := want + " TTFT"
	if column := t.read.WithoutColumn; column != "" {
		what = fmt.Sprintf("column %q, the %s TTFT", column, want)
	}
	advice := ""
	if hasOther {
		advice = fmt.Sprintf("; --ttft %s takes the %s, which it has", other, other)
	}
	return []trace.Finding{trace.Findingf(noLatency, "%s: got no %s, want it in its %d benchmarks%s", t.name, what,
		len(t.read.Levels), advice)}
}

// writtenNs returns when a file was written, ns; 0 if unknown. It may be the time of a saved answer of
// /metrics that states none; clients.LevelsBetween decides.
func writtenNs(name string) int64 {
	st, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return st.ModTime().UnixNano()
}

// isModelFile reports whether a file of a folder describes the model or the hardware, so that it is no benchmark.
func isModelFile(name string) bool {
	return strings.HasSuffix(name, "config.json") || name == "hardware.json" || strings.HasPrefix(name, "tokenizer")
}

// sweepFiles returns the files of the arguments, with folders replaced by their sorted files.
func sweepFiles(paths []string) ([]string, error) {
	var names []string
	for _, p := range paths {
		if st, err := os.Stat(p); err != nil || !st.IsDir() {
			names = append(names, p)
			continue
		}
		for _, pattern := range []string{"*.json", "*.csv", "*.prom", "*server_metrics*.jsonl"} {
			found, err := filepath.Glob(filepath.Join(p, pattern))
			if err != nil {
				return nil, err
			}
			for _, name := range found {
				if !isModelFile(filepath.Base(name)) {
					names = append(names, name)
				}
			}
		}
	}
	if len(names) == 0 {
		return nil, trace.Errorf(source.CodeUnknownFile,
			"%s: got neither extract.json nor benchmark files, want one of them", paths[0]).
			WithHint("blis-train extract RUNDIR -o OUT makes an extracted folder")
	}
	return names, nil
}
