package deploy

// This file reads the settings of a server from the command that started it.

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// FromCommandLine returns the settings in the command that started a server: `vllm serve MODEL
// --flag ...`, `python -m vllm.entrypoints.openai.api_server ...`, `python -m dynamo.vllm ...`, in
// a wrapper such as bash -c '...', or a container command (`docker run vllm/vllm-openai:TAG MODEL --flag ...`), whose
// image tag has the version. It also reads OTEL_SPAN_EVENT_COUNT_LIMIT=N. Secrets (--api-key, --hf-token) are omitted, and so are
// flags that the version does not have, with a finding ([Draft.Findings]). read reads the file that
// --config names; nil: that file is not read. Code: bad_command_line.
func FromCommandLine(line string, read func(name string) ([]byte, error)) (*Draft, error) {
	d := NewDraft()
	if err := d.readServeArgs(line, func([]string) {}); err != nil {
		return nil, err
	}
	version, _ := d.Get("vllm.version").(string)
	if err := d.readConfigFile(version, read); err != nil {
		return d, err
	}
	if d.refused != nil {
		return nil, d.refused
	}
	return d, nil
}

// readServeArgs reads the arguments of the server in a command line, and calls each with the words of one flag and its value,
// or of the model.
func (d *Draft) readServeArgs(line string, each func(words []string)) error {
	words, err := vllm.ShellWords(line)
	if err != nil {
		return err
	}
	args, err := d.findServeArgs(words)
	if err != nil {
		return err
	}
	// The server's arguments end where the shell begins another command.
	for i, w := range args {
		last, endsHere := strings.CutSuffix(w, ";")
		if !endsHere && !shellOperator.MatchString(w) {
			continue
		}
		args = args[:i]
		if endsHere && last != "" {
			args = append(args, last)
		}
		break
	}
	version, _ := d.Get("vllm.version").(string)
	for len(args) > 0 {
		rest, err := d.readFlag(args, version)
		if err != nil {
			return err
		}
		each(args[:len(args)-len(rest)])
		args = rest
	}
	return nil
}

// FlagsOf returns the words of the flags of vllm serve in a command line that can be read, quoted for a shell, but not
// the program, the model and the flags that are named as run.yaml spells them.
func FlagsOf(line string, without ...string) (out []string) {
	NewDraft().readServeArgs(line, func(words []string) {
		flag, _, _ := strings.Cut(words[0], "=")
		if !strings.HasPrefix(flag, "-") || slices.Contains(without, vllm.FlagName(flag)) {
			return
		}
		for _, w := range words {
			out = append(out, files.Word(w))
		}
	})
	return out
}

// readConfigFile adds the settings of the file that --config names, a mapping of flags without dashes.
// The command line has priority, as in vLLM.
func (d *Draft) readConfigFile(version string, read func(name string) ([]byte, error)) error {
	name, _ := d.Get("vllm.config").(string)
	if name == "" || read == nil {
		return nil
	}
	delete(d.values, "vllm.config")
	text, err := read(name)
	if err != nil {
		d.addFinding(trace.Findingf(UnknownFlag, "--config %s: %v; what it states is missing here", name, err))
		return nil
	}
	node, err := files.ParseYAML(text, name)
	if err != nil {
		return err
	}
	var values map[string]any
	if node != nil {
		if err := node.Decode(&values); err != nil {
			return &trace.SyntaxError{File: name, Code: vllm.BadCommandLine, Msg: "want a mapping of flags: " + err.Error()}
		}
	}
	file := NewDraft()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		name := vllm.FlagName("--" + key)
		switch v := values[key].(type) {
		case int:
			values[key] = int64(v)
		case string:
			values[key] = vllm.FlagValue(name, v)
		}
		switch {
		case name == "model_tag":
			file.Set("model.id", values[key])
		case !knownFlag(name, version):
			d.unknownFlag(key, name, version)
			d.unknown = append(d.unknown, name)
		default:
			file.storeFlag(name, values[key])
		}
	}
	if d.refused == nil {
		d.refused = file.refused
	}
	d.Merge(file)
	return nil
}

// shellOperator matches the word that ends the arguments: a pipe, a redirection, the next command.
var shellOperator = regexp.MustCompile(`^(\|\|?|&&?|;|&>.*|\d*[<>].*)$`)

// imageTag matches the image of a vLLM container, with the version of its tag.
var imageTag = regexp.MustCompile(`^(?:[\w.-]+:\d+/)?[\w./-]*vllm` +
	`(?:[\w./-]*:v?(\d+\.\d+[\w.]*)(?:-(?:x86_64|aarch64|cu\d+))*|-openai(?::[\w.-]+)?)(?:@sha256:\w+)?$`)

// serverImage matches vLLM's own image, of which the first argument may be the model.
var serverImage = regexp.MustCompile(`(?:^|/)vllm-openai(?:[:@]|$)`)

// findServeArgs returns the arguments of the server itself. It stores the version of an image tag and the
// settings of environment variables that come before them.
func (d *Draft) findServeArgs(words []string) ([]string, error) {
	var ofImage []string // what follows the image of a container
	isImage := false
	for i, w := range words {
		if limit, ok := strings.CutPrefix(w, "OTEL_SPAN_EVENT_COUNT_LIMIT="); ok {
			if n, isInt := vllm.ParseInt(limit); isInt {
				d.Set("tracing.otel_span_event_count_limit", n)
			}
		}
		if name, _, ok := strings.Cut(w, "="); ok && strings.HasPrefix(name, "LMCACHE_") {
			d.addFinding(trace.Findingf(UnknownFlag, "%s: settings of LMCache's environment are missing here; state them in kv_connector_extra_config, "+
				"as lmcache.chunk_size", name))
		}
		isName := i > 0 && (words[i-1] == "--name" || words[i-1] == "--hostname") // the container's
		if m := imageTag.FindStringSubmatch(w); m != nil && !isName {
			isImage = true
			if m[1] != "" {
				d.Set("vllm.version", m[1])
			}
			next := ""
			if i+1 < len(words) {
				next = words[i+1]
			}
			switch {
			case strings.HasPrefix(next, "--"):
				return words[i+1:], nil
			case strings.HasPrefix(next, "-"), serverImage.MatchString(w) && next != "" && !shellOperator.MatchString(next):
				ofImage = words[i+1:] // unless they are of another program, as in bash -c 'vllm serve ...'
			}
		}
		switch {
		case w == "serve" && i > 0 && (path.Base(words[i-1]) == "vllm" || words[i-1] == "vllm.entrypoints.cli.main" || isImage):
			return words[i+1:], nil
		case w == "dynamo.vllm":
			d.isOthers = true
			return words[i+1:], nil
		case w == "vllm.entrypoints.openai.api_server", path.Base(w) == "api_server.py":
			return words[i+1:], nil
		case strings.ContainsAny(w, " \t\n") && strings.Contains(w, "vllm"): // a whole command in one word, as for bash -c and ssh
			if inner, err := vllm.ShellWords(w); err == nil {
				if args, err := d.findServeArgs(inner); err == nil {
					return args, nil
				}
			}
		}
	}
	if ofImage != nil {
		return ofImage, nil
	}
	return nil, trace.Errorf(vllm.BadCommandLine, "command line: got %q, want one that runs `vllm serve`", strings.Join(words, " ")).
		WithHint("blis-train init --from-cmdline 'vllm serve MODEL --max-num-seqs 256 ...'")
}

// readFlag reads the first of the arguments, a flag with its value or the model, and returns the others.
func (d *Draft) readFlag(args []string, version string) ([]string, error) {
	word, rest := args[0], args[1:]
	// A word that is no flag is the model.
	if !strings.HasPrefix(word, "-") {
		if d.Get("model.id") != nil {
			return nil, trace.Errorf(vllm.BadCommandLine, "command line: got %q, want a flag", word)
		}
		d.Set("model.id", word)
		return rest, nil
	}
	if level := optimizationLevel.FindStringSubmatch(word); level != nil {
		word = "--optimization-level=" + level[1]
	}
	name, value, hasValue := strings.Cut(word, "=")
	name, inner, _ := strings.Cut(name, ".") // --compilation-config.mode
	key := vllm.FlagName(name)
	if key == "optimization_level" && !knownFlag(key, version) { // in earlier releases -O3 set the other flag
		key = "compilation_config"
	}
	// --no-X switches X off, unless a flag of that name exists.
	negated := false
	if positive, ok := strings.CutPrefix(key, "no_"); ok && !knownFlag(key, version) {
		key = positive
		negated = true
	}
	if !knownFlag(key, version) {
		d.unknownFlag(name, key, version)
		d.unknown = append(d.unknown, key)
		if !hasValue && len(rest) > 0 && !vllm.LooksLikeFlag(rest[0]) && (d.Get("model.id") != nil || len(rest) > 1) {
			rest = rest[1:] // probably the value of the unknown flag
		}
		return rest, nil
	}
	// The value may be the next word, and of a list the words up to the next flag.
	if !hasValue && !negated && len(rest) > 0 && !vllm.IsSwitch(key) && !vllm.LooksLikeFlag(rest[0]) {
		value = rest[0]
		hasValue = true
		rest = rest[1:]
		for len(rest) > 0 && vllm.IsList(key) && !vllm.LooksLikeFlag(rest[0]) {
			value, rest = value+" "+rest[0], rest[1:]
		}
	}
	if _, isInt := vllm.ParseInt(value); takesInteger(key) && !isInt {
		return nil, trace.Errorf(vllm.BadCommandLine, "command line: %s: got %q, want a whole number", name, value).
			WithHint("give the number that the server runs with, or leave the flag out")
	}
	if inner != "" {
		d.storeInnerFlag(key, strings.Split(inner, "."), vllm.FlagValue(key, value))
		return rest, nil
	}
	var v any = !negated
	if hasValue {
		v = vllm.FlagValue(key, value)
	}
	d.storeFlag(key, v)
	return rest, nil
}

// ServePath returns the path in run.yaml of a flag of `vllm serve`, given without dashes; "" for an
// unknown flag.
func ServePath(flag string) string {
	key := vllm.FlagName("--" + flag)
	if !knownFlag(key, "") {
		return ""
	}
	return pathOfFlag(key)
}

// RefusedFlag returns an error for the first flag of a command line that `vllm serve` of the version does not
// have, with which it does not start; nil where the flags of the version are not known.
func (d *Draft) RefusedFlag(version string) error {
	v, ok := vllm.ParseRelease(version)
	if !ok || vllm.NewestFlags().Before(v) || d.isOthers {
		return nil
	}
	flags := slices.Concat(serveFlags(version), slices.Sorted(maps.Keys(runKeys().ofFlag)))
	for _, key := range slices.Concat(d.unknown, d.otherFlags(vllmKeys())) {
		if knownFlag(key, version) {
			continue
		}
		// argparse takes the beginning of a flag for the flag.
		if slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, key) }) {
			continue
		}
		hint := "correct or remove it, or name another --vllm-version"
		if word := d.nearestFlag(key, version); word != "" {
			hint = "did you mean --" + word + "?"
		}
		return trace.Errorf(vllm.BadCommandLine, "command line: --%s: no flag of `vllm serve` %s, which does not start with it",
			strings.ReplaceAll(key, "_", "-"), version).WithHint(hint)
	}
	return nil
}

// nearestFlag returns the flag of the version with the most similar name, with dashes; "" if none is similar.
func (d *Draft) nearestFlag(key, version string) string {
	word := files.Nearest(key, slices.Concat(serveFlags(version), slices.Sorted(maps.Keys(runKeys().ofFlag))))
	return strings.ReplaceAll(word, "_", "-")
}

// optimizationLevel matches -O3, the one flag whose value follows without a space.
var optimizationLevel = regexp.MustCompile(`^-O(\d)$`)

// unknownFlag adds a finding for a flag that is omitted. shown is the flag as it was written.
func (d *Draft) unknownFlag(shown, key, version string) {
	what := "`vllm serve`"
	if v, ok := vllm.ParseRelease(version); ok {
		what += " " + v.String()
	}
	near := ""
	if word := d.nearestFlag(key, version); word != "" {
		near = " (did you mean --" + word + "?)"
	}
	d.addFinding(trace.Findingf(UnknownFlag, "%s is no flag of %s that this version knows%s; it is left out", shown, what, near))
}

// storeInnerFlag stores one value of a flag that is a mapping: --speculative-config.method.
func (d *Draft) storeInnerFlag(key string, path []string, value any) {
	target := "vllm." + key
	top, ok := d.Get(target).(map[string]any)
	if !ok {
		top = map[string]any{}
		d.Set(target, top)
	}
	at := top
	for _, name := range path[:len(path)-1] {
		next, ok := at[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[name] = next
		}
		at = next
	}
	at[path[len(path)-1]] = value
	d.checkFlag(key, top)
	d.noteOffloading(key, top)
}

// knownFlag reports whether run.yaml has a key for a flag, or `vllm serve` of the version has the
// flag.
func knownFlag(key, version string) bool {
	_, own := runKeys().ofFlag[key]
	return own || isServeFlag(key, version)
}

// storeFlag keeps the value of a flag where run.yaml has it; secrets are dropped.
func (d *Draft) storeFlag(key string, v any) {
	if vllm.IsSecret(key) {
		return
	}
	d.checkFlag(key, v)
	target := pathOfFlag(key)
	if n, ok := v.(int64); key == "max_model_len" && (!ok || n < 1) {
		d.SetNoted(target, nil, fmt.Sprintf("%v: the longest that fits; give max_seq_len as the server printed it at start", v))
		return
	}
	d.Set(target, v)
	d.noteOffloading(key, v)
}

// checkFlag keeps the first value with which vLLM does not start, and reports keys of an object that are unknown.
func (d *Draft) checkFlag(key string, v any) {
	flag := "--" + strings.ReplaceAll(key, "_", "-")
	if why := vllm.RefusedValue(key, v); why != "" && d.refused == nil {
		refused := trace.Errorf(vllm.BadCommandLine, "command line: %s: %s", flag, why)
		if text, ok := v.(string); ok && strings.HasPrefix(text, "{") { // the shell, or we, took its double quotes away
			refused = refused.WithHint("put single quotes around the JSON")
		}
		d.refused = refused
	}
	if unknown := vllm.UnknownMembers(key, v); len(unknown) > 0 {
		d.addFinding(trace.Findingf(UnknownFlag, "%s: %s: got no key that this version knows, and vLLM refuses one that its own release lacks",
			flag, strings.Join(unknown, ", ")))
	}
}

// noteOffloading records the CPU tier of KV blocks that a connector flag turns on.
func (d *Draft) noteOffloading(key string, v any) {
	switch key {
	case "kv_offloading_size":
		d.SetNoted("vllm.cpu_offloading", true, "from --kv-offloading-size; give kv_blocks_total_cpu")
	case "kv_transfer_config":
		config, _ := v.(map[string]any)
		if name, _ := config["kv_connector"].(string); !slices.Contains(vllm.TierConnectors, name) {
			return
		}
		d.SetNoted("vllm.cpu_offloading", true, "from --kv-transfer-config")
		extra, _ := config["kv_connector_extra_config"].(map[string]any)
		switch blocks := extra["num_cpu_blocks"].(type) {
		case float64:
			d.Set("vllm.kv_blocks_total_cpu", trace.Int(blocks))
		case int64:
			d.Set("vllm.kv_blocks_total_cpu", blocks)
		}
	}
}

// isServeFlag reports whether `vllm serve` of the version has the flag and run.yaml stores it
// without a field of its own.
func isServeFlag(key, version string) bool { return !hasField(key) && vllm.IsFlag(key, version) }

// serveFlags returns the flags of the version that run.yaml stores without a field of their own,
// sorted.
func serveFlags(version string) []string {
	return slices.DeleteFunc(vllm.Flags(version), hasField)
}
