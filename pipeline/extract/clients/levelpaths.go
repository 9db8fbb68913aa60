package clients

// This file finds the figures of a load level in a parsed summary by paths of keys, so that a form of
// summary is a table of paths.

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// levelPaths are the places of a Level's values in one form of summary. A place is a path of keys joined
// by points, or several separated by semicolons, of which the first with a number other than 0 is used. It
// is empty if the form does not have the value.
type levelPaths struct {
	strategy, requests, rate, concurrency string // name of the load; completed requests, requests/s, mean in flight
	prompt, promptSD, output, outputSD    string // tokens of a request: mean and standard deviation
	ttft, ttftMedian, itl, e2e            string // means but for the median
	clients, offered                      string // clients of a closed loop; requests/s that were asked for
	cached, cachedTotal                   string // cached prompt tokens: mean of a request; sum over the requests

	timeMs float64 // unit of TTFT and ITL in ms; 0 for 1
	e2eMs  float64 // unit of E2E in ms; 0 for 1
}

// level returns the load level in a document of the file name. Values that the document lacks are 0.
func (p *levelPaths) level(doc any, name string) Level {
	number := func(path string) float64 { return numberAt(doc, path) }
	count := func(path string) int { return int(trace.Int(number(path))) }
	timeMs := cmp.Or(p.timeMs, 1)
	e2eMs := cmp.Or(p.e2eMs, 1)
	l := Level{
		Sweep:        name,
		Requests:     count(p.requests),
		Clients:      count(p.clients),
		OfferedRPS:   number(p.offered),
		RateRPS:      number(p.rate),
		Concurrency:  number(p.concurrency),
		PromptTokens: number(p.prompt),
		PromptSD:     number(p.promptSD),
		OutputTokens: number(p.output),
		OutputSD:     number(p.outputSD),
		TTFTMeanMs:   timeMs * number(p.ttft),
		TTFTMedianMs: timeMs * number(p.ttftMedian),
		ITLMs:        timeMs * number(p.itl),
		E2EMs:        e2eMs * number(p.e2e),
	}
	l.CachedTokens = optNumberAt(doc, p.cached)
	if total := optNumberAt(doc, p.cachedTotal); total.OK && !l.CachedTokens.OK && l.Requests > 0 {
		l.CachedTokens = trace.Some(total.V / float64(l.Requests))
	}
	l.Strategy, _ = valueAt(doc, p.strategy).(string)
	return l
}

// missing returns the name of a column without which no row of a flat table is of use, in quotes; "" if all are there.
// Of the mean and the median TTFT one is enough.
func (p *levelPaths) missing(header []string) string {
	for _, column := range []string{p.prompt, p.output, p.itl} {
		if !slices.Contains(header, column) {
			return strconv.Quote(column)
		}
	}
	if !slices.Contains(header, p.ttft) && !slices.Contains(header, p.ttftMedian) {
		return strconv.Quote(p.ttft) + " or " + strconv.Quote(p.ttftMedian)
	}
	return ""
}

// infinite returns the name and the text of a needed value of a flat row that is infinite; "" if there is none. vLLM, and
// nobody else, writes inf for requests that are all sent at once.
func (p *levelPaths) infinite(row map[string]any) (what, text string) {
	for _, x := range []struct{ what, column string }{
		{"request rate", p.rate}, {"prompt tokens", p.prompt}, {"output tokens", p.output}, {"mean TTFT", p.ttft},
		{"median TTFT", p.ttftMedian}, {"ITL", p.itl},
	} {
		text, _ := row[x.column].(string)
		if n, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil && math.IsInf(n, 0) {
			return x.what, strings.TrimSpace(text)
		}
	}
	return "", ""
}

// valueAt returns the value at a path of keys joined by points; nil if there is none. A key may contain
// points itself. An element of a list is the one whose "name" is the key.
func valueAt(v any, path string) any {
	if path == "" {
		return v
	}
	key, rest, _ := strings.Cut(path, ".")
	switch v := v.(type) {
	case map[string]any:
		if whole, ok := v[path]; ok {
			return whole
		}
		return valueAt(v[key], rest)
	case []any:
		for _, element := range v {
			if valueAt(element, "name") == key {
				return valueAt(element, rest)
			}
		}
	}
	return nil
}

// numberAt returns the first number other than 0 at the paths, given as a number or as text. Without
// one it is 0 where the values are absent, and NaN where one is something else than a number.
func numberAt(doc any, paths string) float64 {
	none := 0.0
	for path := range strings.SplitSeq(paths, ";") {
		if path == "" {
			continue
		}
		n, isNumber, isOther := asNumber(valueAt(doc, path))
		if isNumber && n != 0 {
			return n
		}
		if isOther {
			none = math.NaN()
		}
	}
	return none
}

// emptyNumbers are the texts that tools write where they have no number.
var emptyNumbers = []string{"", "-", "None", "null", "N/A"}

// asNumber returns a number, or the number in a text. isOther is true for a value that is neither a
// number nor empty.
func asNumber(v any) (n float64, isNumber, isOther bool) {
	switch v := v.(type) {
	case float64:
		return v, true, false
	case string:
		text := strings.TrimSpace(v)
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) || strings.ContainsAny(text, "_xX") {
			return 0, false, !slices.Contains(emptyNumbers, text)
		}
		// vLLM writes the request rate of all at once as "inf".
		return n, !math.IsInf(n, 0), false
	case map[string]any:
		return 0, false, true
	}
	return 0, false, false
}
