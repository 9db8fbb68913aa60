package forms

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// guideLLM reads a GuideLLM result file: one document, requests below
// benchmarks[].requests.{successful,errored,incomplete}. It streams: one request
// at a time is in memory, and nothing of what is not read.
func (c *Reader) guideLLM(src *source.Source) error {
	c.Acc.Lines++
	w := walker{json.NewDecoder(&tally{src.R, &c.Acc.Bytes})}
	return w.object(func(key string) error {
		if key != "benchmarks" {
			return w.skip()
		}
		return w.array(func() error { return c.benchmark(src, w) })
	})
}

// outcomes are what became of requests, in the order they are kept.
var outcomes = []string{"successful", "errored", "incomplete"}

func (c *Reader) benchmark(src *source.Source, w walker) error {
	var config struct {
		Strategy struct {
			Type string `json:"type_"`
		} `json:"strategy"`
	}
	found := make([][]trace.ObservedRequest, len(outcomes))
	err := w.object(func(key string) error {
		switch key {
		case "config":
			return w.dec.Decode(&config)
		case "requests":
			return w.object(func(outcome string) error {
				at := slices.Index(outcomes, outcome)
				if at < 0 {
					return w.skip()
				}
				return w.array(func() error {
					var g guideRequest
					if err := w.decode(&g); err != nil {
						return err
					}
					if at == 0 && !g.Start.OK {
						c.bad(src, 1, 1, fmt.Errorf("request %s: got no request_start_time", g.RequestID))
						return nil
					}
					found[at] = append(found[at], g.row(outcome))
					return nil
				})
			})
		}
		return w.skip()
	})
	for _, list := range found {
		for _, r := range list {
			if config.Strategy.Type != "" {
				r.Phase = trace.Some(config.Strategy.Type)
			}
			c.row(src, r)
		}
	}
	return err
}

// walker walks a JSON document.
type walker struct{ dec *json.Decoder }

// decode reads a value in which no key stands twice.
func (w walker) decode(v any) error {
	var text json.RawMessage
	if err := w.dec.Decode(&text); err != nil {
		return err
	}
	return trace.UnmarshalJSON(text, v)
}

// enter takes the delimiter that opens a value; false for null.
func (w walker) enter(open json.Delim) (bool, error) {
	t, err := w.dec.Token()
	switch {
	case err != nil:
		return false, err
	case t == nil:
		return false, nil
	case t != open:
		return false, fmt.Errorf("got %.40v, want %s", t, open)
	}
	return true, nil
}

// object calls use for each key, whose value use reads.
func (w walker) object(use func(key string) error) error {
	in, err := w.enter('{')
	seen := map[string]bool{}
	for err == nil && in && w.dec.More() {
		var key json.Token
		if key, err = w.dec.Token(); err != nil {
			break
		}
		if k := key.(string); seen[k] {
			err = fmt.Errorf("got the key %.40q twice in one object", k)
		} else {
			seen[k] = true
			err = use(k)
		}
	}
	return w.leave(in, err)
}

// array calls use for each element, which use reads.
func (w walker) array(use func() error) error {
	in, err := w.enter('[')
	for err == nil && in && w.dec.More() {
		err = use()
	}
	return w.leave(in, err)
}

// leave takes the closing delimiter.
func (w walker) leave(in bool, err error) error {
	if err == nil && in {
		_, err = w.dec.Token()
	}
	return err
}

// skip reads over a value, whatever it is.
func (w walker) skip() error {
	for depth := 0; ; {
		t, err := w.dec.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}
