package predictor

// This file has the command-line flags of rows.

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
)

// Flags returns the options of rows as flags; predictor_rows.json records all of them.
func (o *Options) Flags() []cli.Flag {
	return []cli.Flag{
		option.RecordedUnless(TargetToken, &cli.StringFlag{Name: "target", Destination: &o.Target, Value: o.Target,
			Usage: "`LATENCY` that is predicted: token (TTFT and TPOT) or e2e (the whole answer, for servers " +
				"that do not stream)"}),
		option.Recorded(&cli.StringFlag{Name: "features", Destination: &o.Features, Value: o.Features,
			Usage: "columns of the models, `SET`: llmd (those of llm-d) or full (also what only traces have)"}),
		option.Recorded(&cli.StringFlag{Name: "state", Destination: &o.State, Value: o.State,
			Usage: "`SOURCE` of the numbers of waiting and running requests: auto, step or journey"}),
		option.Recorded(&cli.Int64Flag{Name: "staleness-us", Destination: &o.StalenessUs, Value: o.StalenessUs,
			Usage: "age of the server's state that the router sees at the decision, `US`"}),
		option.Recorded(&cli.StringFlag{Name: "prefix-score", Destination: &o.PrefixScore, Value: o.PrefixScore,
			Usage: "prefix cache `SCORE`: index (known at the decision) or actual (measured afterwards)"}),
		option.Recorded(&cli.GenericFlag{Name: "shared-prefix-tokens", Value: &sharesValue{&o.Shared},
			Usage: "length of the prompt prefix that all requests share, where the recording does not contain it, " +
				"`[RUNGLOB=]TOKENS` (repeatable)"}),
		option.Recorded(&cli.BoolFlag{Name: "keep-saturated", Destination: &o.KeepSaturated, Value: o.KeepSaturated,
			Usage: "keep requests that arrived while the server was saturated"}),
	}
}

// sharesValue is the value of --shared-prefix-tokens. It keeps each as RUNGLOB=TOKENS, with "*" for
// a number without a run.
type sharesValue struct{ shares *[]string }

// String returns "": the flag has no default.
func (v *sharesValue) String() string { return "" }

// Set adds the shares in a text, separated by commas.
func (v *sharesValue) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		runs, tokens, err := parseShare(strings.TrimSpace(part))
		if err != nil {
			return errors.New("want TOKENS or RUNGLOB=TOKENS with tokens >= 0")
		}
		*v.shares = append(*v.shares, fmt.Sprintf("%s=%d", runs, tokens))
	}
	return nil
}

// Values returns the shares as the documents record them.
func (v *sharesValue) Values() []string { return *v.shares }
