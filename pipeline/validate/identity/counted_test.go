package identity

import (
	"testing"

	"github.com/blis-train/blis-train/result"
)

// TestServerCountReadings: shares of prompts and outputs that requests have of the server's 10,000 and 5,000 tokens, of which a
// tenth may have come from the cache.
func TestServerCountReadings(t *testing.T) {
	for _, c := range []struct {
		name            string
		of              string
		prompts, output float64
		tokens          wanted // reading of server_tokens
		effect          string
		requests        wanted // of server_requests
	}{
		{"all", result.CountSpans, 1, 1, wanted{30, 0, 0, false, ""}, "", wanted{30, 0, 0, false, ""}},
		{"4 % fewer", result.CountSpans, 0.96, 0.96, wanted{30, 0, 0, false, ""}, "", wanted{30, 0, 0, false, ""}},
		{"30 % fewer requests", result.CountSpans, 0.7, 0.75, wanted{30, 0, 0, false, ""}, "",
			wanted{30, 9, 0.3, true, "the spans have 7000 and 3750 in the same time: about 30 % of the load was not recorded"}},
		{"10 % fewer prompts", result.CountSpans, 0.9, 1, wanted{30, 0, 0, false, ""}, "", wanted{30, 3, 0.1, true, ""}},
		{"half of the prompts", result.CountSpans, 0.5, 1, wanted{30, 30, 2, true, "the spans have 5000 prompt tokens in 30 lines of the log in which the server counted 10000"},
			"", wanted{30, 0, 0, false, ""}},
		{"of clients", result.CountClients, 0.5, 1, wanted{30, 30, 2, true, "the clients have 5000 prompt tokens"}, result.IdentityNamed, wanted{30, 0, 0, false, ""}},
		{"half of the outputs", result.CountClients, 1, 0.5, wanted{30, 30, 2, true, "the clients have 2500 output tokens"}, "", wanted{30, 0, 0, false, ""}},
		{"1.3 times the outputs", result.CountSpans, 1, 1.3, wanted{30, 30, 1.3, true, "which is 1.3 times as many"}, "", wanted{30, 0, 0, false, ""}},
		{"prompts that were cached", result.CountSpans, 1.16, 1, wanted{30, 0, 0, false, ""}, "", wanted{30, 0, 0, false, ""}},
		{"more than that", result.CountSpans, 1.2, 1, wanted{30, 30, 1.2, true, ""}, "", wanted{30, 0, 0, false, ""}},
	} {
		f := emptyFacts()
		side := func(server, share float64) result.TokensBeside {
			return result.TokensBeside{Server: server, Least: share * server, Most: share * server}
		}
		f.Counted = []result.ServerCount{{Of: c.of, Lines: 30, Prompts: side(10_000, c.prompts), Outputs: side(5000, c.output), HitFrac: 0.1}}
		tokens := serverTokens(f)
		c.tokens.compare(t, c.name, tokens)
		if tokens.effect != c.effect {
			t.Errorf("%s: got effect %q, want %q", c.name, tokens.effect, c.effect)
		}
		c.requests.compare(t, c.name, serverRequests(f))
	}
	f := emptyFacts()
	f.Counted = []result.ServerCount{{Lines: 30, Prompts: result.TokensBeside{Server: 999}, Outputs: result.TokensBeside{Server: 5000}}}
	wanted{text: noCounts}.compare(t, "few tokens", serverTokens(f))
	wanted{text: noCounts}.compare(t, "few tokens", serverRequests(f))
}
