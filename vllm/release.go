package vllm

import (
	_ "embed"
	"strconv"
	"strings"
)

var Always = [2]int{} // an open end

func Before(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }

// Release is the engine's vLLM release, major and minor; ok is false when the
// version does not say.
func (e *Engine) Release() (v [2]int, ok bool) { return ParseVersion(e.VLLMVersion) }

// ParseVersion reads "0.15.1 (fork)" or "v0.11.0rc1" as a minor release; ok is
// false when there is no such number, and for "0.1.dev12345+g0123abc", the name
// of a build from a checkout without tags.
func ParseVersion(text string) (v [2]int, ok bool) {
	text = strings.TrimPrefix(strings.TrimSpace(text), "v")
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 2 {
		return v, false
	}
	for i := range v {
		digits := parts[i]
		for j, r := range digits {
			if r < '0' || r > '9' {
				digits = digits[:j]
				break
			}
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	isCheckout := v == [2]int{0, 1} && len(parts) > 2 && strings.HasPrefix(parts[2], "dev")
	return v, !isCheckout
}

// IsSince reports whether the stated release is v or later; one that cannot be read is the newest.
func (e *Engine) IsSince(v [2]int) bool {
	at, known := e.Release()
	return !known || !Before(at, v)
}
