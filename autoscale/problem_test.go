package autoscale

import (
	"fmt"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestPlacesOfProblems: a value that no problem can have is refused with file, line and column, and with what to write.
func TestPlacesOfProblems(t *testing.T) {
	q := example(corrected)                       // h100, of two devices a replica
	for text, want := range map[string][2]string{ // ^ is before the value at fault; error, hint
		"rate_rps: 3, ttft_ms: ^0":                                  {`server "a": ttft_ms: got 0, want more than 0`, "leave the key out for none"},
		"rate_rps: 3, itl_ms: ^0.0":                                 {`server "a": itl_ms: got 0, want more than 0`, "leave the key out for none"},
		"rate_rps: 3, prompt_tokens: ^0":                            {`server "a": prompt_tokens: got 0, want more than 0`, "leave the key out for none"},
		"tps: ^0":                                                   {`server "a": tps: got 0, want more than 0`, "leave the key out for none"},
		"rate_rps: 3, priority: ^0":                                 {`server "a": priority: got 0, want 1 to 1e+08`, "give a number from 1 to 1e+08, or leave the key out"},
		"rate_rps: 3, tps: ^3":                                      {`server "a": got tps 3 and rate_rps 3, want one of them`, "keep one of the two"},
		"rate_rps: 3, parameters: [h100, ^no]":                      {`server "a": parameters: got "no", want ids of queue.json for meta-llama/Llama-3.1-8B: h100`, "leave parameters out for every server of the model"},
		"rate_rps: 3, current: ^{replicas: 3}":                      {`server "a": current: got 3 replicas without an accelerator, want its name`, "current: {accelerator: NAME, replicas: N}"},
		"rate_rps: 3, current: {accelerator: H100, replicas: ^-1}":  {`server "a": current.replicas: got -1, want 0 to 1e+08`, "give a number from 0 to 1e+08, or leave the key out"},
		"rate_rps: 3, current: {accelerator: ^Z100, replicas: 1}":   {`server "a": current.accelerator: got "Z100", want 2xH100, H100-SXM-80GB or L4-24GB`, "name it as capacity and unit_cost do"},
		"rate_rps: 3, current: {accelerator: ^2xZ100, replicas: 1}": {`server "a": current.accelerator: got "2xZ100"`, "name it as capacity and unit_cost do"},
		"rate_rps: 3}, {name: ^a, model: meta-llama/Llama-3.1-8B":   {`server "a": want a name, each once`, "give every server a name of its own"},
		"rate_rps: 3}, {name: b, model: ^other":                     {`server "b": got model "other", want one of queue.json: meta-llama/Llama-3.1-8B`, "write the model as queue.json has it"},
	} {
		text = "policy: None\ncapacity: {H100: 8, L4: 8}\nunit_cost: {H100: 40, L4: 10}\nservers: [{name: a, model: meta-llama/Llama-3.1-8B, " + text + "}]\n"
		before, after, _ := strings.Cut(text, "^")
		text = before + after
		place := fmt.Sprintf("p.yaml:4:%d: ", len(before)-strings.LastIndex(before, "\n"))
		p, err := ReadProblem([]byte(text), "p.yaml")
		if err == nil {
			_, _, err = p.Demands(q)
		}
		if err == nil || !strings.HasPrefix(err.Error(), place+want[0]) || trace.HintOf(err) != want[1] || trace.CodeOf(err) != badModel {
			t.Errorf("%s: got %v, hint %q, want %s%s, hint %q", text, err, trace.HintOf(err), place, want[0], want[1])
		}
	}
	for text, want := range map[string][2]string{
		"policy: odd\nservers: [{name: a}]\n":                                                     {`p.yaml:1:9: saturation policy: got "odd", want None, `, "leave policy out for None"},
		"unit_cost: {L4: 1}\nservers: [{name: a, model: meta-llama/Llama-3.1-8B, rate_rps: 3}]\n": {`p.yaml:1:12: unit_cost: got none for "H100"`, "unit_cost: {H100: CENTS}"},
		"servers: [{name: a, model: meta-llama/Llama-3.1-8B, rate_rps: 3}]\n":                     {`p.yaml: unit_cost: got none for "H100"`, "unit_cost: {H100: CENTS}"},
	} {
		p, err := ReadProblem([]byte(text), "p.yaml")
		if err == nil {
			_, _, err = p.Demands(q)
		}
		if err == nil || !strings.HasPrefix(err.Error(), want[0]) || trace.HintOf(err) != want[1] {
			t.Errorf("%s: got %v, hint %q, want %s, hint %q", text, err, trace.HintOf(err), want[0], want[1])
		}
	}
}

// TestPresentReplicas: replicas that a server has now may be named as capacity and unit_cost name the device, or as the
// option is; staying there is no move. Replicas on a device that is no option have their cost too.
func TestPresentReplicas(t *testing.T) {
	for name, want := range map[string]Placement{
		"H100":                  {"2xH100", 3, 3 * 2 * 40},
		"NVIDIA H100 80GB HBM3": {"2xH100", 3, 3 * 2 * 40},
		"2xH100":                {"2xH100", 3, 3 * 2 * 40},
		"2xH100-SXM-80GB":       {"2xH100", 3, 3 * 2 * 40},
		"L4":                    {"L4", 3, 3 * 10},
		"4xL4":                  {"4xL4", 3, 3 * 4 * 10},
	} {
		text := "capacity: {H100: 8}\nunit_cost: {H100: 40, L4: 10}\nservers: [{name: a, model: meta-llama/Llama-3.1-8B, rate_rps: 3, min_replicas: 3, current: {accelerator: " +
			name + ", replicas: 3}}]\n"
		p, err := ReadProblem([]byte(text), "p.yaml")
		if err != nil {
			t.Fatal(err)
		}
		demands, _, err := p.Demands(example(corrected))
		if err != nil || demands[0].Current != want {
			t.Errorf("%s: got %+v, %v, want %+v", name, demands, err, want)
			continue
		}
		if got := demands[0].candidates()[0].value; (got == 0) != (want.Accelerator == "2xH100") {
			t.Errorf("%s: got a penalty of %g", name, got)
		}
	}
	// H100 does not say whether replicas of one or of two are meant, unless there are replicas of one.
	q := example(corrected)
	other := q.Servers[0]
	other.ID, other.AccCount = "four", 4
	q.Servers = append(q.Servers, other)
	p := &Problem{Fleet: Fleet{Capacity: map[string]int{deviceName("H100"): 8}}, UnitCost: map[string]float64{deviceName("H100"): 1}}
	s := problemServer{Demand: Demand{Name: "a", RateRPS: 1, Current: Placement{Accelerator: "H100", Replicas: 1}}, Model: other.Model}
	if _, _, err := p.demand(&s, q); err == nil || !strings.Contains(err.Error(), `got "H100", want 2xH100 or 4xH100`) {
		t.Errorf("got %v", err)
	}
	q.Servers[1].AccCount = 1
	if d, _, err := p.demand(&s, q); err != nil || d.Current.Accelerator != "H100" || d.Current.Cost != 1 {
		t.Errorf("got %+v, %v", d, err)
	}
}

// TestServersWithoutAnOption: a server that no capacity would serve is listed apart from those for which it is too small.
func TestServersWithoutAnOption(t *testing.T) {
	const text = "capacity: {H100: 1}\nunit_cost: {H100: 40}\nservers:\n  - {name: never, model: meta-llama/Llama-3.1-8B, rate_rps: 3, ttft_ms: 0.001}\n" +
		"  - {name: kept, model: meta-llama/Llama-3.1-8B, rate_rps: 3, keep: true, current: {accelerator: 1xH100, replicas: 1}}\n" +
		"  - {name: short, model: meta-llama/Llama-3.1-8B, rate_rps: 3}\n"
	p, err := ReadProblem([]byte(text), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	q := example(corrected)
	if err := AllocateQueues(q, p); err != nil {
		t.Fatal(err)
	}
	for _, plan := range []*QueuePlan{q.Plan, q.Optimum} {
		if got := strings.Join(plan.NoOption, " "); got != "never kept" || len(plan.Unserved) != 3 {
			t.Errorf("got %q of %q without an option, want never and kept", got, plan.Unserved)
		}
	}
	var said []string
	for _, f := range q.Warnings {
		said = append(said, string(f.Code)+" "+f.Message)
	}
	all := strings.Join(said, "\n")
	for _, want := range []string{"target_below_range never on 2xH100: target ttft: got 0.001 ms", "bad_queue_model kept: keep: its accelerator 1xH100 is none of its options"} {
		if !strings.Contains(all, want) {
			t.Errorf("got %s, want %s", all, want)
		}
	}
}
