package trace

import "testing"

func TestKnowsCached(t *testing.T) {
	counter := Some(CachedCounter)
	for _, c := range []struct {
		name              string
		tokens            Opt[int64]
		source            Opt[string]
		least, most, want int64 // want: 1 if known
	}{
		{"nothing", Opt[int64]{}, Opt[string]{}, 0, 0, 0},
		{"the server's usage", Some[int64](900), Some(CachedUsage), 0, 1000, 1},
		{"a counter of one request", Some[int64](900), counter, 900, 900, 1},
		{"a share of a counter, at the limit", Some[int64](50), counter, 0, 1000, 1},
		{"a share of a counter, above the limit", Some[int64](51), counter, 0, 1000, 0},
	} {
		r := ObservedRequest{PromptTokens: Some[int64](1000), CachedTokens: c.tokens, CachedSource: c.source,
			CachedMin: Some(c.least), CachedMax: Some(c.most)}
		if got := r.KnowsCached(); got != (c.want == 1) {
			t.Errorf("%s: got %t", c.name, got)
		}
	}
}

func TestSharesNothing(t *testing.T) {
	for _, c := range []struct {
		tokens Opt[int64]
		group  Opt[string]
		want   bool
	}{
		{Some[int64](0), Opt[string]{}, true},
		{Some[int64](1), Opt[string]{}, false},
		{Some[int64](0), Some("g"), false},
		{Opt[int64]{}, Opt[string]{}, false},
	} {
		r := ObservedRequest{PrefixTokens: c.tokens, PrefixGroup: c.group}
		if got := r.SharesNothing(); got != c.want {
			t.Errorf("%v in group %v: got %t", c.tokens, c.group, got)
		}
	}
}

func TestUncounted(t *testing.T) {
	for _, c := range []struct {
		n       Opt[int64]
		success Opt[bool]
		want    bool
	}{
		{Opt[int64]{}, Opt[bool]{}, false},
		{Some[int64](1), Some(true), false},
		{Some[int64](2), Some(true), true},
		{Some[int64](1), Some(false), true},
	} {
		r := ObservedRequest{N: c.n, Success: c.success}
		if got := r.Uncounted(); got != c.want {
			t.Errorf("n %v, success %v: got %t", c.n, c.success, got)
		}
	}
}

// TestQueuedAt: a request waited 2 ms, its first token took 3 ms and the others 5 ms.
func TestQueuedAt(t *testing.T) {
	full := ObservedRequest{QueueUs: Some(2000.0), ServerTTFTUs: Some(3000.0), ServerGenUs: Some(5000.0),
		FirstChunkNs: Some[int64](50_000_000), LastChunkNs: Some[int64](56_000_000)}
	for _, c := range []struct {
		name string
		edit func(r *ObservedRequest)
		want int64 // 0: unknown
	}{
		{"from the first chunk", func(*ObservedRequest) {}, 45_000_000},
		{"from the last chunk", func(r *ObservedRequest) { r.FirstChunkNs = Opt[int64]{} }, 46_000_000},
		{"without the time of the other tokens", func(r *ObservedRequest) { r.FirstChunkNs, r.ServerGenUs = Opt[int64]{}, Opt[float64]{} }, 0},
		{"without the queueing delay", func(r *ObservedRequest) { r.QueueUs = Opt[float64]{} }, 0},
		{"without the time of the first token", func(r *ObservedRequest) { r.ServerTTFTUs = Opt[float64]{} }, 0},
	} {
		r := full
		c.edit(&r)
		got, ok := r.QueuedAtNs()
		if got != c.want || ok != (c.want != 0) {
			t.Errorf("%s: got %d, %t, want %d", c.name, got, ok, c.want)
		}
	}
}

func TestSentNs(t *testing.T) {
	r := ObservedRequest{}
	if got := r.SentNs(); got != 0 {
		t.Errorf("nothing known: got %d, want 0", got)
	}
	r.SendWallNs = Some[int64](3)
	if got := r.SentNs(); got != 3 {
		t.Errorf("wall clock: got %d, want 3", got)
	}
	r.ArrivalNs = Some[int64](2)
	if got := r.SentNs(); got != 2 {
		t.Errorf("planned: got %d, want 2", got)
	}
	r.SendNs = Some[int64](1)
	if got := r.SentNs(); got != 1 {
		t.Errorf("sent: got %d, want 1", got)
	}
}
