package extract

import (
	"regexp"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// TestStrays: a stamp or a step id far from those around it costs its event, with the place,
// and no other; what is left gives the tables of a recording without it.
func TestStrays(t *testing.T) {
	at := func(key, form string) *regexp.Regexp {
		return regexp.MustCompile(`("` + key + `","value":\{"` + form + `":"?)[^"}]*`)
	}
	for _, c := range []struct {
		key, form, value, says string
		dropped                int64
	}{
		{"scheduler.step", "intValue", "1000000000000", "step: got 1000000000000, want", 1},
		{"scheduler.step", "intValue", "-1000000000000", "step: got -1e+12, want 0", 1},
		{"scheduler.step", "intValue", "9223372036854775807", "beyond 64 bits", 1},
		{"scheduler.step", "intValue", "500", "the recorded ones", 1},
		{"ts.monotonic_ns", "intValue", "4000000000000000000", "24 h around the run", 1},
		{"ts.monotonic_ns", "intValue", "9223372036854775807", "beyond 64 bits", 1},
		{"event.ts.monotonic", "doubleValue", "1e9", "24 h around the run", 1},
		{"event.ts.monotonic", "doubleValue", "1e300", "beyond 64 bits", 1},
		{"step.ts_end_ns", "intValue", "1", "step.ts_end_ns - step.ts_start_ns", 1},
		{"batch.scheduled_tokens", "intValue", "16777217", "want 0 to 16777216", 1},
		{"batch.prefill_tokens", "intValue", "4242", "want counts that agree", 1},
		{"batch.num_decode_reqs", "intValue", "77", "77", 1},
		{"decode.done_tokens", "intValue", "4242", "want at most decode.max_tokens", 1},
		{"event.type", "stringValue", "AN_OTHER", "event.type: got AN_OTHER, want ", 1},
	} {
		dump := with(func(line string) string {
			loc := at(c.key, c.form).FindStringSubmatchIndex(line)
			if loc == nil {
				return line
			}
			return line[:loc[3]] + c.value + line[loc[1]:]
		})
		if !strings.Contains(string(dump), c.value) {
			t.Fatalf("%s: not in this recording", c.key)
		}
		doc, runs, err := dumpRun(t, []string{writeDump(t, "traces", dump)}, nil)
		if err != nil {
			t.Errorf("%s = %s: %v", c.key, c.value, err)
			continue
		}
		r := doc.Runs[0].Records
		if !r.Balanced() || r.Dropped["bad_record"] != c.dropped {
			t.Errorf("%s = %s: read %d, kept %d, dropped %v", c.key, c.value, r.Read, r.Kept, r.Dropped)
			continue
		}
		if e := doc.Runs[0].Examples[0]; !strings.HasPrefix(e.Place, "traces:2") || !strings.Contains(e.What, c.says) {
			t.Errorf("%s = %s: got %q at %s, want %q", c.key, c.value, e.What, e.Place, c.says)
		}
		for _, q := range runs[0].Requests {
			if q.ScheduledStep.V > 20 || q.QueuedNs.V > 1e15 || q.ArrivedNs.V > 1e15 || q.DepartedNs.V > 1e15 {
				t.Errorf("%s = %s: got the request %+v", c.key, c.value, q)
			}
		}
	}
}

// TestStepsOfStrayEvents: an engine with the steps 100 to 200, from 10 to 20 ms. An event within them may be of the step before or
// behind; one that comes earlier or later, of one step more for each 0.1 ms; one without a stamp, of 4096 more.
func TestStepsOfStrayEvents(t *testing.T) {
	made := func(resource uint64, first, last int64) *engine {
		e := &engine{resource: resource, minNs: 10_000_000, maxNs: 20_000_000, tables: &stepTables{}}
		e.tables.out.steps.FirstID, e.tables.out.steps.LastID = trace.Some(first), trace.Some(last)
		return e
	}
	c := &collector{engines: []*engine{made(1, 100, 200), made(2, 5000, 6000)}, clocks: map[clockKey]*source.Stamps{}}
	for _, x := range []struct {
		resource uint64
		ns, step int64 // ns 0: no stamp
		want     string
	}{
		{1, 15_000_000, 99, ""}, {1, 15_000_000, 98, "step: got 98, want 99 to 201, the recorded ones"}, {1, 15_000_000, 201, ""}, {1, 15_000_000, 202, "step: got 202, want 99 to 201"},
		{1, 9_700_000, 96, ""}, {1, 9_700_000, 95, "step: got 95, want 96 to 201"}, {1, 9_700_000, 202, "step: got 202, want 96 to 201"},
		{1, 20_500_000, 206, ""}, {1, 20_500_000, 207, "step: got 207, want 99 to 206"},
		{1, 0, 4297, ""}, {1, 0, 4298, "step: got 4298, want -3997 to 4297"},
		{2, 15_000_000, 4999, ""}, {2, 15_000_000, 100, "step: got 100, want 4999 to 6001"},
		{3, 15_000_000, 100, ""}, {3, 15_000_000, 5000, ""}, {3, 15_000_000, 300, "step: got 300, want 4999 to 6001"}, // of an unknown process
	} {
		ev := &trace.JourneyEvent{Step: trace.Some(x.step)}
		if x.ns > 0 {
			ev.TsNs = trace.Some(x.ns)
		}
		if got := c.whyStray(ev, x.resource); !strings.HasPrefix(got, x.want) || (got == "") != (x.want == "") {
			t.Errorf("%+v: got %q", x, got)
		}
	}
	if got := c.whyStray(&trace.JourneyEvent{}, 1); got != "" {
		t.Errorf("no step: got %q", got)
	}
	if source.StrayNs != 86_400e9 {
		t.Errorf("got %g ns, want a day", float64(source.StrayNs))
	}
}
