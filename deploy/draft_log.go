package deploy

// This file reads the settings that vLLM logs when it starts.

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// FromLog returns the settings that vLLM logs at start: the non-default arguments, the engine's
// configuration, the lines of scheduler and KV cache. The log may be compressed. Other lines are
// skipped, only the first 1 MiB of a line is read, and memory does not grow with the log. Code:
// bad_command_line for a log without any such line.
func FromLog(r io.Reader, file string) (*Draft, error) {
	d := NewDraft()
	found := false
	if err := eachLogLine(r, file, func(line string) { found = d.readLogLine(line) || found }); err != nil {
		return nil, err
	}
	if !found {
		return nil, &trace.SyntaxError{File: file, Code: vllm.BadCommandLine,
			Msg: "got no configuration line, want the log of a vLLM start (non-default args, Initializing a V1 LLM engine)"}
	}
	d.settleLines()
	return d, nil
}

// Lengths of lines in bytes: a shorter one states no setting, and of a longer one only the beginning is
// matched.
const (
	shortestLogLine = len("# GPU blocks: 1")
	longestLogLine  = 1 << 20
)

// eachLogLine calls do with every line of at least shortestLogLine bytes, cut to longestLogLine.
func eachLogLine(r io.Reader, file string, do func(line string)) error {
	plain, err := files.Unpack(r, file)
	if err != nil {
		return err
	}
	lines := bufio.NewReaderSize(plain, longestLogLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) >= shortestLogLine {
			do(string(line))
		}
		for err == bufio.ErrBufferFull {
			_, err = lines.ReadSlice('\n')
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
	}
}

// logPatterns are the lines of a log that state a setting, each with the function that stores it. m are the text of
// the match and its groups, as FindStringSubmatch returns them. A line counts for the first pattern that it matches.
// Every match contains the mark, in upper or lower case. Most lines contain no mark, and searching for it is much cheaper
// than the expression.
var logPatterns = []struct {
	mark  string // in lower case
	re    *regexp.Regexp
	store func(d *Draft, m []string)
}{
	{"api server version ", regexp.MustCompile(`vLLM API server version (\S+)`), func(d *Draft, m []string) { d.Set("vllm.version", strings.TrimPrefix(m[1], "v")) }},
	{"llm engine (", regexp.MustCompile(`Initializing an? (?:V\d )?LLM engine \(v?([^)]+)\) with config: (.*)`), func(d *Draft, m []string) {
		d.Set("vllm.version", m[1])
		d.readEngineConfig(m[2])
		d.isCPU = strings.Contains(m[2], "device_config=cpu")
	}},
	{"non-default args: ", regexp.MustCompile(`non-default args: (\{.*\})`), func(d *Draft, m []string) { d.readArgs(m[1]) }},
	{"using max model len ", regexp.MustCompile(`Using max model len (\d+)`), func(d *Draft, m []string) { d.setInt("vllm.max_model_len", m[1]) }},
	{"chunked prefill is enabled with ", regexp.MustCompile(`Chunked prefill is enabled with max_num_batched_tokens=(\d+)`), func(d *Draft, m []string) {
		d.Set("vllm.enable_chunked_prefill", true)
		d.setInt("vllm.max_num_batched_tokens", m[1])
	}},
	{"asynchronous scheduling is ", regexp.MustCompile(`Asynchronous scheduling is (enabled|disabled)`), func(d *Draft, m []string) { d.Set("vllm.async_scheduling", m[1] == "enabled") }},
	{"scheduling", regexp.MustCompile(`(?i)async scheduling .*disabled|disabling asynchronous scheduling`), func(d *Draft, _ []string) {
		d.Set("vllm.async_scheduling", false) // the only line about it since 0.28
	}}, {"kv cache size: ", regexp.MustCompile(`KV cache size: ([\d,]+) tokens`), func(d *Draft, m []string) {
		d.kvTokens, _ = strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64)
		d.kvTokens = min(d.kvTokens, vllm.MaxTokens)
	}},
	{"block size to ", regexp.MustCompile(`(?:kv cache|attention) block size to (\d+)`), func(d *Draft, m []string) { d.setInt("vllm.block_size", m[1]) }},
	{"num_gpu_blocks is: ", regexp.MustCompile(`num_gpu_blocks is: (\d+)`), func(d *Draft, m []string) { d.setBlocks(m[1]) }},
	{"device_name=", regexp.MustCompile(`device_name=([\w-]+?)(?:,|\.json)`), func(d *Draft, m []string) { d.setDevice(strings.ReplaceAll(m[1], "_", " ")) }},
	{"gpu 0: ", regexp.MustCompile(`GPU 0: ((?:NVIDIA|AMD) [\w .-]+?)(?: \(|,|\s*$)`), func(d *Draft, m []string) { d.setDevice(m[1]) }},
	{" blocks: ", regexp.MustCompile(`# (?:GPU|CUDA|cuda) blocks: (\d+)`), func(d *Draft, m []string) { d.setBlocks(m[1]) }},
	{"num_gpu_blocks_override=", regexp.MustCompile(`Overriding num_gpu_blocks=\d+ with num_gpu_blocks_override=(\d+)`), func(d *Draft, m []string) { d.setBlocks(m[1]) }},
}

// readLogLine stores the setting that a line states; it returns false for other lines.
func (d *Draft) readLogLine(line string) bool {
	lower := strings.ToLower(line)
	for _, p := range logPatterns {
		if !strings.Contains(lower, p.mark) {
			continue
		}
		if m := p.re.FindStringSubmatch(line); m != nil {
			p.store(d, m)
			return true
		}
	}
	return false
}

// setInt stores an integer at a path, if the text is one.
func (d *Draft) setInt(path, text string) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		d.Set(path, n)
	}
}

// setBlocks stores the number of GPU blocks that vLLM prints, which includes the null block.
func (d *Draft) setBlocks(text string) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 1 {
		d.SetNoted("vllm.kv_blocks_total_gpu", n-1, fmt.Sprintf("num_gpu_blocks %d less the null block", n))
	}
}

// setDevice stores the device that a log names, if there is a datasheet for it.
func (d *Draft) setDevice(name string) {
	if sheet, ok := Datasheet(strings.TrimSpace(name)); ok {
		d.SetNoted("hardware.name", sheet.Name, "the log names "+strings.TrimSpace(name))
		return
	}
	d.addFinding(trace.Findingf(unknownHardware, "the log names the device %s, which has no built-in datasheet; give hardware.TFlopsPeak and "+
		"BwPeakTBs", strings.TrimSpace(name)))
}

// engineField matches "key=value" in the engine's configuration line.
var engineField = regexp.MustCompile(`(\w+)=('[^']*'|[^,\s(]+)`)

// readEngineConfig reads the engine's configuration line, "key=value, key=value, ...". Keys of nested
// objects match too; of the keys that are read here they only have `model`, in the configuration of a
// drafter, which comes after the engine's own.
func (d *Draft) readEngineConfig(text string) {
	id := ""
	for _, field := range engineField.FindAllStringSubmatch(text, -1) {
		if field[1] == "model" && id == "" {
			id = strings.Trim(field[2], "'")
		}
		path, ok := runKeys().ofLog[field[1]]
		d.isUnquantized = d.isUnquantized || field[1] == "quantization" && field[2] == "None"
		if !ok || field[2] == "None" {
			continue
		}
		value := strings.Trim(field[2], "'")
		if field[1] == "max_seq_len" {
			d.longest, _ = vllm.ParseInt(value)
		}
		// Earlier lines have priority, except for the dtype: among the arguments it may be auto.
		if d.Get(path) != nil && path != "model.dtype" {
			continue
		}
		switch field[1] {
		case "dtype":
			d.Set(path, strings.TrimPrefix(value, "torch."))
		case "served_model_name", "kv_cache_dtype", "quantization", "speculative_config":
			d.Set(path, value)
		default:
			d.Set(path, vllm.FlagValue(field[1], cmp.Or(pythonWords[value], value)))
		}
	}
	if d.Get("model.id") == nil && id != "" {
		d.Set("model.id", id)
	}
}

// pythonWords maps Python's booleans to YAML's.
var pythonWords = map[string]string{"True": "true", "False": "false"}

// readArgs reads the non-default arguments, which vLLM prints as a Python dict on one line.
func (d *Draft) readArgs(text string) {
	values, ok := vllm.ParsePython(text)
	dict, isDict := values.(map[string]any)
	if !ok || !isDict {
		d.addFinding(trace.Findingf(UnknownFlag, "the log's non-default args are not a Python mapping: the settings in them are missing here"))
		return
	}
	d.hasArgs = true
	for _, key := range slices.Sorted(maps.Keys(dict)) {
		v := dict[key]
		if v == nil || key == "model_tag" {
			continue
		}
		if !knownFlag(key, "") {
			d.unknownFlag(key, key, "")
			continue
		}
		if key == "model" && d.Get("model.id") != nil {
			continue
		}
		if !vllm.IsSecret(key) {
			d.Set(pathOfFlag(key), v)
		}
		d.noteOffloading(key, v)
	}
	if names, ok := dict["served_model_name"].([]any); ok && len(names) > 0 {
		d.Set("model.id", names[0])
	}
}

// settleLines decides between lines that state one setting differently, and adds what the CPU back end
// always does.
func (d *Draft) settleLines() {
	if id, ok := d.Get("model.id").(string); ok {
		d.Set("model.id", strings.TrimSuffix(id, "/"))
	}
	// A drafter logs a "Using max model len" line too, before or after that of the model.
	if d.longest > 0 {
		d.Set("vllm.max_model_len", d.longest)
	}
	if d.isCPU {
		if d.Get("vllm.async_scheduling") == nil {
			d.SetNoted("vllm.async_scheduling", false, "vLLM's CPU back end never schedules asynchronously")
		}
		if d.Get("vllm.block_size") == nil {
			d.SetNoted("vllm.block_size", int64(vllm.CPUBlockSize), "vLLM's default on a CPU")
		}
	}
}
