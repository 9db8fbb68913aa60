package predict

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
)

// TestDrawnArrivals: 4,000 requests at 50 a second take 80 s within three standard errors, in an order of their own.
func TestDrawnArrivals(t *testing.T) {
	requests := make([]sim.Request, 4000)
	for i := range requests {
		requests[i].PromptTokens = int64(i)
	}
	drawArrivals(requests, 50, 3)
	inOrder := 0
	for i := range requests {
		if requests[i].PromptTokens == int64(i) {
			inOrder++
		}
		if i > 0 && requests[i].ArrivalUs < requests[i-1].ArrivalUs {
			t.Fatalf("request %d arrives before the one before", i)
		}
	}
	if lastS := float64(lastArrivalUs(requests)) / 1e6; math.Abs(lastS-80) > 3.8 || inOrder > 10 {
		t.Errorf("got the last arrival at %g s, %d requests in the order of the table", lastS, inOrder)
	}
}

// TestClientsStartEvenly: the clients of a loop over a workload start within the warm-up, here of 2 s.
func TestClientsStartEvenly(t *testing.T) {
	w, _, err := workload.Read([]byte("num_prefill_tokens,num_decode_tokens\n100,20\n200,10\n300,30\n"), "lengths.csv")
	if err != nil {
		t.Fatal(err)
	}
	l := Load{Clients: 4, Workload: w}
	s, err := l.Stretch(1, 10, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Requests) != 27 {
		t.Fatalf("got %d requests, want 10 and four for each client, in whole copies of the table", len(s.Requests))
	}
	for i := range 4 {
		if got, want := s.Requests[i].ArrivalUs, int64(500_000*i); got != want {
			t.Errorf("client %d: got %d us, want %d", i, got, want)
		}
	}
}
