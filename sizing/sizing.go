// Package sizing finds deployments for a target: how many GPUs of which kind, and how arranged, serve a load
// within limits on its latencies.
//
// A [Question] names a model, candidate GPUs, a load and targets (both of package
// library/predict). [Question.Answer] builds a server for
// each GPU, tensor-parallel size and expert parallelism (package library/predict times its steps from measured
// kernels), finds for each the fewest servers behind a router that meet the targets, and returns one [Row] a
// deployment, the smallest or cheapest first.
//
// Servers are not multiplied: two servers behind a router carry more than twice what one does, since a shared
// stream of arrivals is smoother. Behind a round-robin router servers are alike and independent, and one of them
// stands for all, with the arrivals that it sees; behind another router, in closed loops and with recorded
// arrivals all are simulated on one clock. Statistics are those of the steady state: a simulation has requests
// before and after the measured ones, for at least two answers under load.
//
// Every figure has two intervals. The one of sampling has the mean of a repetition of 24,000 requests with other
// seeds in 19 of 20 cases, but is at most 5 % wide for medians and 15 % for means and other percentiles: at the
// edge of saturation, where a repetition may lie anywhere, it is that of the mean over seeds alone. The other
// interval is the stated error of the prediction, from measured servers that were held out of its fit.
//
// Poisson arrivals and a closed loop at the same rate differ as queueing theory has it: a loop always has its
// number of requests in the system, arrivals have on average somewhat more, and answer slower by as much.
//
// Latencies are in ms, rates in requests per second.
package sizing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/trace"
)

// Question is a target and what may be deployed to meet it.
type Question struct {
	Server   predict.Question // model, arguments of vllm serve and settings; GPU and load are set for each candidate
	Hardware []string         // candidate GPUs
	TP       []int64          // candidate tensor-parallel sizes
	EP       []bool           // candidate values of --enable-expert-parallel; nil: of expert models both, else off
	// Speculative is a --speculative-config that every kind of server is tried with too; "": none.
	Speculative string
	Pools       bool // also servers for prefill apart from those for decode
	Load        predict.Load
	Targets     predict.Targets
	Routing     string             // one of cluster's routes
	Prices      map[string]float64 // USD per hour of a GPU, by the name in Hardware; nil: rows go by GPUs
	MostGPUs    int                // deployments of more are not looked for
	Seed        int64
	Workers     int
	Progress    trace.Progress // gets the number of candidates that are done; may be nil

	measured     int // requests of a replication
	replications int // at most
}

// Row is one deployment, or why there is none of its kind.
type Row struct {
	Hardware string `json:"hardware"`
	TP       int64  `json:"tensor_parallel_size"`
	EP       bool   `json:"enable_expert_parallel,omitempty"`
	DP       int64  `json:"data_parallel_size"`
	PP       int64  `json:"pipeline_parallel_size,omitempty"` // of --vllm; 0: one stage
	Drafts   bool   `json:"speculative_decoding,omitempty"`
	Pools    bool   `json:"prefill_apart_from_decode,omitempty"`
	Replicas int    `json:"replicas,omitempty"`
	Prefill  int    `json:"prefill_replicas,omitempty"` // of Replicas, where they are apart
	GPUs     int64  `json:"gpus,omitempty"`

	// Load of one replica, in requests per second or clients, and the highest that meets the targets.
	ReplicaLoad    float64 `json:"replica_load,omitempty"`
	HighestLoad    float64 `json:"replica_highest_load,omitempty"`
	HighestAtLeast bool    `json:"replica_highest_load_is_lower_bound,omitempty"` // the search ended before it
	Headroom       float64 `json:"headroom"`                                      // 1 - load / highest load

	Figures      []Figure       `json:"figures,omitempty"`
	Goodput      *predict.Value `json:"goodput,omitempty"`
	RequestsPerS *predict.Value `json:"requests_per_s,omitempty"` // of all replicas, over the served interval
	TokensPerS   *predict.Value `json:"output_tokens_per_s,omitempty"`
	InFlight     float64        `json:"mean_in_flight,omitempty"` // requests in the system
	Replications int            `json:"replications,omitempty"`
	Measured     int            `json:"measured_requests,omitempty"` // of all replications

	Met          string   `json:"met,omitempty"` // yes, estimate (within the stated error it may not be) or bound
	USDPerHour   *float64 `json:"usd_per_hour,omitempty"`
	USDPerMToken *float64 `json:"usd_per_million_output_tokens,omitempty"`
	Trust        string   `json:"trust,omitempty"`
	TrustSummary string   `json:"-"` // without what is said of single kernels
	Family       string   `json:"family,omitempty"`
	Serve        string   `json:"vllm_serve,omitempty"`  // the command line of one replica
	Bound        bool     `json:"upper_bound,omitempty"` // no kernel tables: the datasheet's roofline, which no server reaches
	Refused      string   `json:"refused,omitempty"`
	Hint         string   `json:"hint,omitempty"`

	price float64 // USD per hour; +Inf: its GPU has no price
}

// Values of Row.Met.
const (
	MetYes      = "yes"      // also at the upper end of the stated error
	MetEstimate = "estimate" // by the estimate alone
	MetBound    = "bound"    // by the roofline, which is no estimate
)

// Figure is one statistic of a latency with both intervals.
type Figure struct {
	Metric    string        `json:"metric"`
	Statistic string        `json:"statistic"`
	Ms        predict.Value `json:"ms"`
	ErrorLow  float64       `json:"stated_error_low_ms,omitempty"` // of an upper bound no error is stated
	ErrorHigh float64       `json:"stated_error_high_ms,omitempty"`
	LimitMs   float64       `json:"limit_ms,omitempty"` // of the target for it; 0: none
}

// Answer is every deployment that was looked at: those that meet the targets, smallest or cheapest first, then
// bounds, then those that do not, with the reason.
type Answer struct {
	Model   string          `json:"model"`
	Load    predict.Load    `json:"load"`
	Targets predict.Targets `json:"targets"`
	Routing string          `json:"router"`
	Version string          `json:"vllm_version"`
	Rows    []Row           `json:"deployments"`
	Notes   []trace.Finding `json:"warnings,omitempty"`
}

// Best returns the first row that meets the targets by an estimate; nil: none does.
func (a *Answer) Best() *Row {
	if len(a.Rows) > 0 && (a.Rows[0].Met == MetYes || a.Rows[0].Met == MetEstimate) {
		return &a.Rows[0]
	}
	return nil
}

// Answer returns the answer for every candidate. Errors: a cancelled context, and errors that all
// candidates have, such as an unknown model.
func (q *Question) Answer(ctx context.Context) (*Answer, error) {
	candidates, err := q.candidates()
	if err != nil {
		return nil, err
	}
	rows := make([]Row, len(candidates))
	notes := make([][]trace.Finding, len(candidates))
	failures := make([]error, len(candidates))
	err = par.Try(ctx, q.Workers, len(candidates), func(i int) error {
		c := &candidates[i]
		row, err := c.row(ctx)
		notes[i] = c.notes
		rows[i] = row
		if err != nil && ctx.Err() == nil {
			failures[i] = err
			rows[i].Refused = err.Error()
			rows[i].Hint = trace.HintOf(err)
			return nil
		}
		return err
	}, func(n int) {
		if q.Progress != nil {
			q.Progress("size", int64(n), int64(len(candidates)), "deployments")
		}
	})
	if err != nil {
		return nil, err
	}
	certain, err := q.certainRows(ctx, candidates, rows)
	if err != nil {
		return nil, err
	}
	rows = append(rows, certain...)
	a := &Answer{Load: q.Load, Targets: q.Targets, Routing: q.Routing}
	for i := range candidates {
		c := &candidates[i]
		if c.server == nil {
			continue
		}
		a.Model = c.server.Model
		a.Version = c.server.Version
		for _, n := range notes[i] {
			if !slices.Contains(a.Notes, n) {
				a.Notes = append(a.Notes, n)
			}
		}
	}
	if a.Model == "" { // no candidate could be built
		return nil, failures[0]
	}
	stat.SortStable(rows, func(a, b Row) int { return compareRows(&a, &b, q.Prices != nil) })
	a.Rows = rows
	return a, nil
}

// compareRows returns the order of two rows: those that meet the targets, then bounds, then those that do not;
// within each by price, if GPUs have prices, then by GPUs, and of equal ones the one with more headroom first.
func compareRows(a, b *Row, byPrice bool) int {
	rank := func(r *Row) int {
		switch {
		case r.Refused != "" || r.Met == "":
			return 2
		case r.Bound:
			return 1
		}
		return 0
	}
	order := cmp.Compare(rank(a), rank(b))
	if byPrice {
		order = cmp.Or(order, cmp.Compare(a.price, b.price))
	}
	validated := func(r *Row) int { // kinds of which no server was compared go last
		if r.Drafts || r.Pools {
			return 1
		}
		return 0
	}
	return cmp.Or(order, cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(validated(a), validated(b)), cmp.Compare(b.Headroom, a.Headroom))
}

// candidates returns the servers that may be deployed.
func (q *Question) candidates() ([]candidate, error) {
	var out []candidate
	isKnown := map[string]bool{}
	for _, hardware := range q.Hardware {
		for _, tp := range q.TP {
			for _, kind := range q.kinds() {
				ep := q.EP
				if ep == nil {
					ep = []bool{false, true}
				}
				for _, isEP := range ep {
					own := q.Server
					own.Hardware = hardware
					own.InputTokens = q.Load.InputTokens
					own.OutputTokens = q.Load.OutputTokens
					own.RateRPS = q.Load.RateRPS // servers were measured in closed loops: the trust differs
					own.Set = append(slices.Clone(q.Server.Set), fmt.Sprintf("tensor_parallel_size=%d", tp))
					own.Set = append(own.Set, kind.set...)
					if isEP || q.EP != nil { // false is a setting only where it was asked for
						own.Set = append(own.Set, fmt.Sprintf("vllm.enable_expert_parallel=%t", isEP))
					}
					d, _, err := own.Deployment()
					if err == nil {
						key := fmt.Sprint(d.Hardware.Name, tp, kind.set, d.Engine.ExpertParallel)
						if isKnown[key] {
							continue // two names of one GPU, or expert parallelism that --vllm states
						}
						isKnown[key] = true
					} // one that cannot be built becomes a row with the reason
					if isEP && q.EP == nil && (err != nil || !d.Model.IsMoE() || d.TP*d.DP == 1) {
						continue // expert parallelism is a choice of expert models on several GPUs
					}
					out = append(out, candidate{q: q, hardware: hardware, tp: tp, ep: isEP, kind: kind, asked: own})
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, trace.Errorf("", "no candidate: got no GPU or no tensor-parallel size")
	}
	return out, nil
}

// kind is a way to serve other than by plain servers.
type kind struct {
	isDrafting bool     // with speculative decoding
	isPools    bool     // prefill apart from decode
	set        []string // settings of run.yaml, KEY=VALUE
	flag       string   // the same for vllm serve
}

// nixl is the connector of servers that are apart (vllm/distributed/kv_transfer).
const nixl = `{"kv_connector":"NixlConnector","kv_role":"kv_both"}`

// kinds returns the ways to serve that the question asks for.
func (q *Question) kinds() []kind {
	out := []kind{{}}
	if q.Speculative != "" {
		out = append(out, kind{isDrafting: true, set: []string{"vllm.speculative_config=" + q.Speculative},
			flag: "--speculative-config '" + q.Speculative + "'"})
	}
	if q.Pools {
		out = append(out, kind{isPools: true, set: []string{"vllm.kv_transfer_config=" + nixl}, flag: "--kv-transfer-config '" + nixl + "'"})
	}
	return out
}

// serveLine returns the vllm serve command of one replica of the candidate.
func (c *candidate) serveLine() string {
	words := []string{"vllm serve", files.Word(c.server.Model), fmt.Sprintf("--tensor-parallel-size %d", c.tp)}
	if c.server.EP {
		words = append(words, "--enable-expert-parallel")
	}
	if c.server.DP > 1 {
		words = append(words, fmt.Sprintf("--data-parallel-size %d", c.server.DP))
	}
	if c.server.FittedLen > 0 {
		words = append(words, fmt.Sprintf("--max-model-len %d", c.server.FittedLen))
	}
	if c.kind.flag != "" {
		words = append(words, c.kind.flag)
	}
	stated := []string{"model", "tensor_parallel_size", "enable_expert_parallel", "data_parallel_size"}
	words = append(words, deploy.FlagsOf(c.q.Server.CommandLine(), stated...)...)
	return strings.Join(words, " ")
}

// DefaultQuestion returns a question with the default candidates and load.
func DefaultQuestion() Question {
	one := predict.DefaultQuestion() // of one server
	return Question{
		TP:           []int64{1, 2, 4, 8},
		Load:         predict.Load{InputTokens: one.InputTokens, OutputTokens: one.OutputTokens},
		Routing:      cluster.RouteRoundRobin,
		MostGPUs:     512,
		Seed:         1,
		measured:     measuredRequests,
		replications: mostReplications,
	}
}
