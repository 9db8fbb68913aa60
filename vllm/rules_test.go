package vllm

import (
	"reflect"
	"strings"
	"testing"
)

// Each field of Rules has one row of the table, and no row names a release that ends before it begins.
func TestEveryRuleHasARow(t *testing.T) {
	var r Rules
	rowOf := map[any]string{}
	for i := range rules {
		row := &rules[i]
		field := row.value(&r)
		if other, twice := rowOf[field]; twice {
			t.Errorf("%s and %s set the same field", other, row.name)
		}
		rowOf[field] = row.name
		if row.until != (Release{}) && !row.since.Before(row.until) {
			t.Errorf("%s: got until %s, want a release after %s", row.name, row.until, row.since)
		}
	}
	if fields := reflect.TypeFor[Rules]().NumField(); len(rowOf) != fields {
		t.Errorf("got rows for %d fields, want %d", len(rowOf), fields)
	}
}

// rulesByRelease are the rules with the first release that has them and, behind a dash, the first that has them no more, as read in
// the schedulers of these releases.
const rulesByRelease = `
full_prompt_admission 0.19
watermark 0.24
unhashed_blocks_first 0.24
threshold_not_alone 0.31
threshold_adaptive 0.31
max_num_active_seqs 0.31
max_num_queued_reqs 0.29
max_num_queued_tokens 0.29
prefill_schedule_interval 0.33
resume_after_drain 0.27
preempt_by_position 0.28
self_preempted_goes_on 0.33
skipped_first 0.19-0.31
holders_first 0.31
empty_batches_queue 0.23
model_runner_v2 0.23
async_with_pp 0.19
draft_slots_reserved 0.19-0.28
draft_slots_per_request 0.28
no_drafts_after_chunks 0.19
first_lookahead 0.23
drafts_by_batch_size 0.24
decode_padding 0.25
decode_padding_alone 0.30
eagle_block_drop_off 0.30
lookahead_hashes 0.33
ready_tokens_cached 0.33
loads_reserve 0.23
loads_no_lookahead 0.25
loads_reserve_drafts 0.31
leaving_is_work 0.22
aborted_loads_stay 0.19
dp_prefill_schedule_interval 0.24
dp_sync_interval 0.31
dp_sync_first 0.31
balancer_rotates 0.26
balancer_in_flight 0.28
offload_frees_at_once 0.22
offload_in_order 0.23
offload_by_key 0.20
offload_known_tokens 0.18
offload_keeps_offered 0.18
offload_by_use 0.24
offload_at_finish 0.26
offload_forgets 0.26-0.27
offload_marks_drafts 0.30
offload_counts_offers 0.29
offload_committed 0.30
offload_by_request 0.31
offload_sync_loads 0.33
deferred_frees 0.24
victims_in_flight_stay 0.30
`

// TestReleasesOfRules compares the releases of every rule with those of rulesByRelease.
func TestReleasesOfRules(t *testing.T) {
	want := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(rulesByRelease)) {
		name, releases, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[name] = releases
	}
	for i := range rules {
		got := rules[i].since.String()
		if rules[i].until != (Release{}) {
			got += "-" + rules[i].until.String()
		}
		if got != want[rules[i].name] {
			t.Errorf("%s: got %s, want %s", rules[i].name, got, want[rules[i].name])
		}
	}
	if len(want) != len(rules) {
		t.Errorf("got %d rules, want %d", len(rules), len(want))
	}
}

func TestParseRelease(t *testing.T) {
	for version, want := range map[string]string{"0.15.1 (fork)": "0.15", "v0.11.0rc1": "0.11", "0.16rc1": "0.16", "1.2": "1.2", "0.1": "0.1"} {
		if r, ok := ParseRelease(version); !ok || r.String() != want {
			t.Errorf("%s: got %s, %t, want %s", version, r, ok, want)
		}
	}
	for _, version := range []string{"", "main", "0", "0.x", "0.1.dev12345+g0123abc"} {
		if r, ok := ParseRelease(version); ok {
			t.Errorf("%q: got %s, want no release", version, r)
		}
	}
}
