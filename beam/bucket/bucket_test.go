package bucket_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/blis-train/blis-train/beam/bucket"
	"github.com/blis-train/blis-train/beam/bucket/buckettest"
)

// TestRangesReadNoMoreThanAsked: both clients list, read a range in the middle and at the end,
// say how long the object is, and have no more sent than was asked for.
func TestRangesReadNoMoreThanAsked(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789"), 1<<18)
	fake := buckettest.Serve(t, map[string][]byte{"runs/a/traces.jsonl": text, "runs/b": nil, "other": nil})
	for _, scheme := range []string{"gs://", "s3://"} {
		s, err := bucket.StoreOf(t.Context(), scheme+"data")
		if err != nil {
			t.Fatal(err)
		}
		list, err := s.List(t.Context(), "data", "runs/")
		if err != nil || len(list) != 2 || list[0] != (bucket.Object{URL: scheme + "data/runs/a/traces.jsonl", Bytes: int64(len(text))}) {
			t.Fatalf("%s: got %v, %v", scheme, list, err)
		}
		for _, at := range [][2]int64{{0, 1}, {1_000_003, 70_000}, {int64(len(text)) - 5, 5}} {
			before := fake.Sent.Load()
			r, size, err := s.Open(t.Context(), "data", "runs/a/traces.jsonl", at[0], at[1])
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			r.Close()
			if err != nil || size != int64(len(text)) || !bytes.Equal(got, text[at[0]:at[0]+at[1]]) {
				t.Errorf("%s %v: got %d bytes of %d, %v", scheme, at, len(got), size, err)
			}
			if sent := fake.Sent.Load() - before; sent != at[1] {
				t.Errorf("%s %v: %d bytes were sent", scheme, at, sent)
			}
		}
		if _, _, err := s.Open(t.Context(), "data", "none", 0, 1); err == nil {
			t.Errorf("%s: an object that is not there was opened", scheme)
		}
	}
}
