package export

// This file reads and writes a ledger: one line for each fit, validation or run.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	gonum "gonum.org/v1/gonum/stat"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Entry is one line of a ledger: one fit, validate or run.
type Entry struct {
	SchemaVersion string         `json:"schema_version"`
	Time          string         `json:"time"` // RFC 3339, UTC
	Stage         string         `json:"stage"`
	ToolVersion   string         `json:"tool_version"`
	Command       string         `json:"command"` // stage and options, as in the documents
	Inputs        []result.Input `json:"inputs"`
	Artifact      *result.Input  `json:"artifact"` // coefficients.yaml, or validation.json of a validate
	Headline      headline       `json:"headline"`
}

// headline has the figures of which trends are drawn; null if a stage has no such figure.
type headline struct {
	BetaMAPE       *float64 `json:"beta_mape"` // hold-out
	BetaMAPEConst  *float64 `json:"beta_mape_const"`
	BetaSkill      *float64 `json:"beta_skill"`
	LocoMedian     *float64 `json:"loco_median"`
	LocoWorst      *float64 `json:"loco_worst"`
	OverheadInside *float64 `json:"overhead_inside"`
	KSTTFT         *float64 `json:"ks_ttft"` // worst of the gated replays
	KSITL          *float64 `json:"ks_itl"`
	KSE2E          *float64 `json:"ks_e2e"`
	Verdict        string   `json:"verdict"` // of the validation; empty without one
	Configs        int      `json:"configs"`
	Rows           int      `json:"rows"` // kept beta rows
}

// NewHeadline returns the headline errors of a fit and a validation; either may be nil.
func NewHeadline(fit *result.Fit, val *result.Validation) headline {
	var h headline
	if fit != nil {
		h.Configs = len(fit.Configs)
		h.Rows = fit.Beta.Rows.Kept
		h.LocoMedian = fit.Beta.LocoMedian
		h.LocoWorst = fit.Beta.LocoWorst
		if e := fit.Beta.Holdout; e != nil {
			h.BetaMAPE = e.MAPE
			h.BetaMAPEConst = e.MAPEConst
			h.BetaSkill = e.Skill
		}
		if m := fit.AlphaNamed("overhead"); m != nil && m.Interval != nil {
			h.OverheadInside = m.Interval.InsideShare
		}
	}
	if val != nil {
		h.Verdict = val.Verdict
		h.KSTTFT = worstGate(val, "ks_ttft")
		h.KSITL = worstGate(val, "ks_itl")
		h.KSE2E = worstGate(val, "ks_e2e")
	}
	return h
}

// worstGate returns the largest value among the gates with the name; nil if there is none.
func worstGate(val *result.Validation, name string) *float64 {
	var worst *float64
	for i := range val.Gates {
		g := &val.Gates[i]
		if g.Name == name && g.Value != nil && (worst == nil || *g.Value > *worst) {
			worst = g.Value
		}
	}
	return worst
}

// Append appends one entry to the ledger file, which it creates if necessary. It writes the line in
// one call, under an exclusive lock on a file opened for appending, so that two jobs may append at
// once. If a crash cut the last line short, it ends that line first, which remains visible as a bad
// line.
func Append(path string, e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	f, err := files.Append(path)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	err = appendLocked(f, append(line, '\n'))
	return errors.Join(err, f.Close())
}

// appendLocked writes the line under the lock.
func appendLocked(f *os.File, line []byte) error {
	unlock, err := lockFile(f)
	if err != nil {
		return fmt.Errorf("ledger %s: lock: %w", f.Name(), err)
	}
	defer unlock()
	torn, err := endsTorn(f)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if torn {
		line = append([]byte{'\n'}, line...)
	}
	if _, err := f.Write(line); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return f.Sync()
}

// endsTorn reports whether the file is not empty and its last byte is not a newline.
func endsTorn(f *os.File) (bool, error) {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return false, err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], st.Size()-1); err != nil {
		return false, err
	}
	return last[0] != '\n', nil
}

// Read returns the entries of a ledger in file order, and one error for each line that is no entry.
// name is the file's name for the errors.
func Read(r io.Reader, name string) ([]Entry, []error) {
	var entries []Entry
	var bad []error
	in := bufio.NewReaderSize(r, 1<<16)
	for n := int64(1); ; n++ {
		line, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var e Entry
			if jerr := result.Read(line, &e); jerr != nil {
				bad = append(bad,
					&trace.SyntaxError{File: name, Line: n, Code: BadLedger, Msg: "not a ledger entry: " + jerr.Error(),
						Hint: "a crashed job may have cut the line; the others are read"})
			} else {
				entries = append(entries, e)
			}
		}
		if err == io.EOF {
			return entries, bad
		}
		if err != nil {
			return entries, append(bad, fmt.Errorf("ledger %s: %w", name, err))
		}
	}
}

// Trend is one figure over the entries that have it.
type Trend struct {
	Figure string  `json:"figure"`
	N      int     `json:"n"`
	First  float64 `json:"first"`
	Last   float64 `json:"last"`
	Best   float64 `json:"best"`
	// Slope is the least-squares change per entry.
	Slope  float64   `json:"slope_per_entry"`
	Values []float64 `json:"-"` // oldest first
}

// figures are the headline figures of which trends are drawn. Lower is better unless higher is set.
var figures = []struct {
	name   string
	higher bool
	of     func(headline) *float64
}{
	{"beta_mape", false, func(h headline) *float64 { return h.BetaMAPE }},
	{"beta_skill", true, func(h headline) *float64 { return h.BetaSkill }},
	{"loco_median", false, func(h headline) *float64 { return h.LocoMedian }},
	{"overhead_inside", true, func(h headline) *float64 { return h.OverheadInside }},
	{"ks_ttft", false, func(h headline) *float64 { return h.KSTTFT }},
	{"ks_itl", false, func(h headline) *float64 { return h.KSITL }},
	{"ks_e2e", false, func(h headline) *float64 { return h.KSE2E }},
}

// Trends returns the trend of every headline figure that some entry has.
func Trends(entries []Entry) []Trend {
	out := []Trend{}
	for _, fig := range figures {
		var v []float64
		for _, e := range entries {
			if x := fig.of(e.Headline); x != nil {
				v = append(v, *x)
			}
		}
		if len(v) == 0 {
			continue
		}
		t := Trend{Figure: fig.name, N: len(v), First: v[0], Last: v[len(v)-1], Best: v[0], Slope: slope(v), Values: v}
		for _, x := range v {
			if fig.higher == (x > t.Best) && x != t.Best {
				t.Best = x
			}
		}
		out = append(out, t)
	}
	return out
}

// slope returns the least-squares slope of v over its index; 0 for one value.
func slope(v []float64) float64 {
	if len(v) < 2 {
		return 0
	}
	index := make([]float64, len(v))
	for i := range index {
		index[i] = float64(i)
	}
	_, perEntry := gonum.LinearRegression(index, v, nil, false)
	return perEntry
}
