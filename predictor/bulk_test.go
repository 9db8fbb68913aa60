package predictor

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// Batches survive our own reader without loss, every entry passes the field
// table, and the table is the struct.
func TestBulkRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	rows := make([]Row, 2500)
	for i := range rows {
		rows[i] = Row{DecisionNs: rng.Int64N(1 << 60), KVCachePercentage: rng.Float64() * 1.01, InputTokenLength: rng.Int64N(5000),
			NumRequestWaiting: rng.Int64N(20), RunningInflight: rng.Int64N(50), PrefillTokensInFlight: rng.Int64N(9000),
			PrefixCacheScore: rng.Float64(), TTFTMs: 1000 * rng.Float64(), TPOTMs: trace.Opt[float64]{V: rng.Float64() * 50, OK: i%3 > 0}}
	}
	var all []entry
	for _, tpot := range []bool{false, true} {
		all = append(all, Sample(rows, tpot, 1)...)
	}
	var b bytes.Buffer
	if err := writeBulk(&b, all); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != (len(all)+batchEntries-1)/batchEntries {
		t.Errorf("got %d batches for %d entries", n, len(all))
	}
	again, err := readBulk(&b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(all, again) {
		t.Error("the entries changed in a round trip")
	}
	var names []string
	for _, f := range fields() {
		names = append(names, f.Name)
	}
	e := reflect.TypeFor[entry]()
	for i := range e.NumField() {
		if got := e.Field(i).Tag.Get("json"); got != names[i] {
			t.Errorf("field %d: the struct has %s, the table %s", i, got, names[i])
		}
	}
	if len(names) != e.NumField() || len(names) != 14 {
		t.Errorf("got %d fields in the table and %d in the struct, want 14", len(names), e.NumField())
	}
}

func TestReadBulkRefuses(t *testing.T) {
	good := `"kv_cache_percentage":0.5,"input_token_length":1,"num_request_waiting":0,"num_request_running":0,"actual_ttft_ms":1,"actual_tpot_ms":0,"num_tokens_generated":0,"prefix_cache_score":0`
	for want, text := range map[string]string{
		"kv_cache_percentage: got 1.5":           strings.Replace(good, "0.5", "1.5", 1),
		"input_token_length: got 1.5":            strings.Replace(good, `"input_token_length":1`, `"input_token_length":1.5`, 1),
		"actual_ttft_ms: got x":                  strings.Replace(good, `"actual_ttft_ms":1`, `"actual_ttft_ms":"x"`, 1),
		"prefix_cache_score: missing":            strings.Replace(good, `,"prefix_cache_score":0`, "", 1),
		"got 1 fields that are not in the table": good + `,"surprise":1`,
		"timestamp: got \"yesterday\"":           good + `,"timestamp":"yesterday"`,
		"num_request_waiting: got -1":            strings.Replace(good, `"num_request_waiting":0`, `"num_request_waiting":-1`, 1),
		"pod_type: got 3":                        good + `,"pod_type":3`,
	} {
		_, err := readBulk(strings.NewReader(fmt.Sprintf("\n{\"entries\":[{%s}]}", text)))
		if err == nil || !strings.Contains(err.Error(), "line 2: entry 0: "+want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := readBulk(strings.NewReader(`{}`)); err == nil {
		t.Error("no entries: got no error")
	}
}
