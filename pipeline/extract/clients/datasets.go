package clients

import (
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// This file reads what a client's file states of the prompts that it sent: whether they share tokens
// (spec#shared-prompts). Random prompts share nothing but a prefix that the client was told to put
// before each.

// dataset describes the prompts of a benchmark. The zero value: nothing is known of what they share.
type dataset struct {
	isStated bool  // what the prompts share is known
	prefix   int64 // number of first tokens that all prompts share; 0: nothing is shared
	perLoad  bool  // each load has a prefix of its own
}

// sharedPrefix is the name of the group of prompts that begin with the one prefix of their data set.
const sharedPrefix = "data set"

// applyTo sets on each request what is known of its prompt.
func (d dataset) applyTo(requests []trace.ObservedRequest) {
	if !d.isStated {
		return
	}
	for i := range requests {
		r := &requests[i]
		r.PrefixTokens = trace.Some(d.prefix)
		if d.prefix > 0 {
			group := sharedPrefix
			if d.perLoad {
				group += " of " + r.Phase.V
			}
			r.PrefixGroup = trace.Some(group)
		}
	}
}

// benchKeys are the keys of a result of `vllm bench serve` or SGLang's bench_serving that state its
// data set. SGLang writes dataset_name; vLLM writes none of them by itself, but those of --metadata
// KEY=VALUE.
var benchKeys = []string{"dataset_name", "random_prefix_len", "sonnet_prefix_len", "prefix_repetition_prefix_len",
	"prefix_repetition_num_prefixes", "seed"}

// Lengths that vllm bench serve uses if they are not given (vllm/benchmarks/datasets.py).
const (
	sonnetPrefixLen     = 200
	repetitionPrefixLen = 256
	repetitionPrefixes  = 10
)

// leastOfPrefix is how many prompts of one prefix there must be for the first of them, which finds
// nothing cached, not to matter: with 20, its share is 5 %.
const leastOfPrefix = 20

// benchDataset returns the data set of a benchmark with n prompts, by the keys of benchKeys. Only of drawn
// prompts is it known what they share; those of a real data set (dataset_name: sharegpt) may share anything.
func benchDataset(doc map[string]any, n int) dataset {
	length := func(key string, unset int64) int64 { // unset is the tool's value where the key is absent
		v, isNumber, _ := asNumber(doc[key])
		if !isNumber {
			return unset
		}
		return max(0, trace.Int(v))
	}
	name, _ := doc["dataset_name"].(string)
	switch name {
	case "random", "random-ids":
		return dataset{isStated: true, prefix: length("random_prefix_len", 0)}
	case "sonnet":
		return dataset{isStated: true, prefix: length("sonnet_prefix_len", sonnetPrefixLen)}
	case "prefix_repetition":
		// Several prefixes count as one that all prompts share, if nearly every prompt finds its own cached.
		prefixes := length("prefix_repetition_num_prefixes", repetitionPrefixes)
		if prefixes*leastOfPrefix <= int64(n) {
			return dataset{isStated: true, prefix: length("prefix_repetition_prefix_len", repetitionPrefixLen)}
		}
	}
	return dataset{}
}

// guideDataset returns the data set of a GuideLLM report by its arguments, or by those of one of its
// benchmarks: synthetic prompts share nothing without a prefix. The data's configuration is under a
// key named data at any depth: an object, or a string that guideConfig reads.
func guideDataset(args any) dataset {
	var found []any
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				if key == "data" {
					found = append(found, value)
				} else {
					walk(value)
				}
			}
		case []any:
			for _, value := range v {
				walk(value)
			}
		}
	}
	walk(args)
	d := dataset{}
	for _, value := range found {
		list, isList := value.([]any)
		if !isList {
			list = []any{value}
		}
		if len(list) == 0 {
			continue // the data of another place of the report
		}
		for _, config := range list {
			// Data that are not synthetic, or two kinds of data, leave unknown what prompts share.
			one := guideSynthetic(config)
			if !one.isStated || d.isStated && d != one {
				return dataset{}
			}
			d = one
		}
	}
	return d
}

// guideSynthetic returns the data set of one configuration of GuideLLM, if its prompts are synthetic and
// share one prefix or none. Several prefixes (a list of prefix_buckets, a prefix_count) are not stated,
// because the file does not have which prompt got which.
func guideSynthetic(config any) dataset {
	if text, isText := config.(string); isText {
		config = guideConfig(text)
	}
	if list, isList := config.([]any); isList && len(list) == 1 {
		config = list[0]
	}
	values, _ := config.(map[string]any)
	number := func(key string) int64 {
		v, _, _ := asNumber(values[key])
		return trace.Int(v)
	}
	isSynthetic := number("prompt_tokens") > 0
	isTurns := number("turns") > 1 // later ones contain the earlier ones
	if !isSynthetic || isTurns {
		return dataset{}
	}
	if buckets := values["prefix_buckets"]; buckets != nil {
		list, _ := buckets.([]any)
		if len(list) != 1 {
			return dataset{}
		}
		values, _ = list[0].(map[string]any)
	}
	if number("prefix_count") > 1 {
		return dataset{}
	}
	// Every benchmark of a report draws its prompts anew, the prefix too (guidellm/data/deserializers/synthetic.py).
	return dataset{isStated: true, prefix: max(0, number("prefix_tokens")), perLoad: true}
}

// ProfileFile is the name under which GuideLLM's scenarios are kept beside recordings.
const ProfileFile = "profile.yaml"

// ProfilePrefix returns the number of first tokens that all prompts of a GuideLLM scenario share;
// unknown if the text is none, or if its data are not synthetic.
func ProfilePrefix(text []byte) trace.Opt[int64] {
	root, err := files.ParseYAML(text, ProfileFile)
	if err != nil || root == nil {
		return trace.Opt[int64]{}
	}
	values, _ := textsOf(root).(map[string]any)
	d := guideDataset(map[string]any{"data": values["data"]})
	return trace.Opt[int64]{V: d.prefix, OK: d.isStated}
}

// guideConfig returns the configuration in a string: an object in JSON, or as Python prints one, which
// is read as a mapping of YAML; or else KEY=VALUE pairs.
func guideConfig(text string) any {
	if root, err := files.ParseYAML([]byte(text), ""); err == nil && root != nil && root.Kind != yaml.ScalarNode {
		return textsOf(root)
	}
	values := map[string]any{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		values[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return values
}

// textsOf returns a YAML node as maps, lists and texts, and what Python or JSON calls none as nil.
func textsOf(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		values := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			values[n.Content[i].Value] = textsOf(n.Content[i+1])
		}
		return values
	case yaml.SequenceNode:
		var list []any
		for _, item := range n.Content {
			list = append(list, textsOf(item))
		}
		return list
	case yaml.ScalarNode:
		if n.Value == "None" || n.Tag == "!!null" {
			return nil
		}
		return n.Value
	}
	return nil // an alias: no client writes one
}

// aiperfDataset returns the data set of AIPerf's summary, which repeats its configuration:
// synthetic prompts share nothing without a pool of prefixes or a system prompt, in single turns.
// Prompts of files, of several prefixes, or with texts of earlier turns may share anything.
func aiperfDataset(doc map[string]any) dataset {
	input, _ := valueAt(doc, "input_config.input").(map[string]any)
	if input == nil {
		return dataset{}
	}
	for _, key := range []string{"file", "public_dataset", "custom_dataset_type"} {
		if input[key] != nil {
			return dataset{}
		}
	}
	isSynthetic := numberAt(input, "prompt.input_tokens.mean") > 0
	if !isSynthetic || numberAt(input, "conversation.turn.mean") > 1 {
		return dataset{}
	}
	for _, path := range []string{"prompt.prefix_prompt.prefix_reuse_rate", "prompt.prefix_prompt.user_context_prompt_length"} {
		if numberAt(input, path) > 0 {
			return dataset{}
		}
	}
	pool := numberAt(input, "prompt.prefix_prompt.pool_size")
	length := trace.Int(numberAt(input, "prompt.prefix_prompt.length"))
	system := trace.Int(numberAt(input, "prompt.prefix_prompt.shared_system_prompt_length"))
	switch {
	case pool > 1 && length > 0:
		return dataset{}
	case pool > 0:
		return dataset{isStated: true, prefix: max(0, length, system)}
	}
	return dataset{isStated: true, prefix: max(0, system)}
}

// optNumberAt returns the first number at the paths; unlike numberAt it distinguishes 0 from absent.
func optNumberAt(doc any, paths string) trace.Opt[float64] {
	for path := range strings.SplitSeq(paths, ";") {
		if path == "" {
			continue
		}
		if n, isNumber, _ := asNumber(valueAt(doc, path)); isNumber {
			return trace.Some(n)
		}
	}
	return trace.Opt[float64]{}
}
